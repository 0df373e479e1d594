"""Events as columns, for a pipe: what a bulk import's helper hands to the process that writes the files.

Arrays and joined bytes, so that neither side needs an engine to make one, and pickling costs a copy.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from trajlake.runtime.wal.frame import TrajectoryInfo
from trajlake.schemas.envelope import Event


class Place(NamedTuple):
    """What is said once of each trajectory. `started_on` is YYYY-MM-DD."""

    tenant: str
    trajectory_id: str
    started_on: str
    model: str
    model_version: str


class Parcel:
    """Whole trajectories, each with all its events in order, one column for each thing that an event says.

    `owners` gives each event's place in `places`, `sizes` its payload's bytes in `payloads`; digests are joined too.
    """

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.owners = array("q")
        self.types: list[str] = []
        self.numbers = array("q")
        self.versions = array("q")
        self.tokens = array("q")
        self.turns = array("q")
        self.times = array("q")
        self.sizes = array("q")
        self.payloads = bytearray()
        self.salts = bytearray()
        self.commitments = bytearray()
        self.hashes = bytearray()

    def add(self, events: Sequence[Event], infos: Mapping[str, TrajectoryInfo]) -> None:
        """Take the events of one source; `infos` names each of its trajectories."""
        ordinals: dict[str, int] = {}
        for name, info in infos.items():
            ordinals[name] = len(self.places)
            self.places.append(Place(info.tenant, name, info.started_on, info.model, info.model_version))
        self.owners.extend([ordinals[event.trajectory_id] for event in events])
        self.types += [event.type for event in events]
        self.numbers.extend([event.sequence_number for event in events])
        self.versions.extend([event.schema_version for event in events])
        self.tokens.extend([event.fencing_token for event in events])
        self.turns.extend([event.turn for event in events])
        self.times.extend([event.recorded_at for event in events])
        # As made just now, so that none lacks its payload, its salt or its commitment.
        payloads = [event.payload or b"" for event in events]
        self.sizes.extend(map(len, payloads))
        self.payloads += b"".join(payloads)
        self.salts += b"".join([event.salt or b"" for event in events])
        self.commitments += b"".join([event.commitment or b"" for event in events])
        self.hashes += b"".join([event.hash for event in events])

    @classmethod
    def joined(cls, parcels: Sequence[Parcel]) -> Parcel:
        """Return one parcel of everything that several hold."""
        whole = cls()
        for parcel in parcels:
            first = len(whole.places)
            whole.owners.extend([owner + first for owner in parcel.owners])
            whole.places += parcel.places
            whole.types += parcel.types
            for name in _INTEGERS:
                getattr(whole, name).extend(getattr(parcel, name))
        for name in _BYTES:
            setattr(whole, name, bytearray().join([getattr(parcel, name) for parcel in parcels]))
        return whole


_INTEGERS: Final = ("numbers", "versions", "tokens", "turns", "times", "sizes")
_BYTES: Final = ("payloads", "salts", "commitments", "hashes")
