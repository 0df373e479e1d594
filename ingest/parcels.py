"""Events as columns, for a pipe: what a bulk import's helper hands to the process that writes the files.

Plain lists and bytes, so that neither side needs an engine to make one, and pickling costs a copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trajlake.runtime.frame import TrajectoryInfo
from trajlake.schemas.envelope import Event


class Place(NamedTuple):
    """What is said once of each trajectory. `started_on` is YYYY-MM-DD."""

    tenant: str
    trajectory_id: str
    started_on: str
    model: str
    model_version: str


Head = tuple[int, str, int, int, int, int]
"""One event's sequence number, type, schema version, token, turn, and time in µs."""


class Parcel:
    """Whole trajectories, each with all its events in order. `owners` gives each event's place in `places`;
    `salts`, `commitments` and `hashes` are joined digests."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.places: list[Place] = []
        self.owners: list[int] = []
        self.heads: list[Head] = []
        self.payloads: list[bytes] = []
        self.salts = bytearray()
        self.commitments = bytearray()
        self.hashes = bytearray()

    def add(self, events: Sequence[Event], infos: Mapping[str, TrajectoryInfo]) -> None:
        """Take the events of one source; `infos` names each of its trajectories."""
        ordinals: dict[str, int] = {}
        for name, info in infos.items():
            ordinals[name] = len(self.places)
            self.places.append(Place(info.tenant, name, info.started_on, info.model, info.model_version))
        for event in events:
            payload, salt, bound = event.payload, event.salt, event.commitment
            assert payload is not None and salt is not None and bound is not None  # noqa: PT018 - as made just now
            self.owners.append(ordinals[event.trajectory_id])
            self.heads.append(
                (event.sequence_number, event.type, event.schema_version, event.fencing_token, event.turn,
                 event.recorded_at)
            )  # fmt: skip
            self.payloads.append(payload)
            self.size_bytes += len(payload)
            self.salts += salt
            self.commitments += bound
            self.hashes += event.hash

    def merge(self, other: Parcel) -> None:
        """Take everything another parcel holds."""
        first = len(self.places)
        self.places += other.places
        self.owners += [owner + first for owner in other.owners] if first else other.owners
        self.heads += other.heads
        self.payloads += other.payloads
        self.size_bytes += other.size_bytes
        self.salts += other.salts
        self.commitments += other.commitments
        self.hashes += other.hashes
