"""Items become events: numbers, salts and chain, all derived from the source, so that importing again adds nothing.

One `Numbering` serves one file. It knows what the root already holds of each trajectory (`Held`) and gives back
only what is new: where the root's events are a prefix of the file's, the tail; where the file holds less, nothing;
where they differ, a `Conflict` is noted and nothing of that trajectory is given any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from trajlake.schemas.blobs import Blob, offload_payload
from trajlake.schemas.chain import genesis, import_salt, make_event
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import Payload, TaskStarted, encode_payload
from trajlake.schemas.limits import INLINE_MAX

from .formats.contract import Item

LATE_FIELDS: Final = {"model": "unknown", "model_version": "", "task": None}
"""What event 0 may lack when it was imported before the source's first reply: it is not a difference."""


class Held(NamedTuple):
    """What a root holds of one trajectory under one mapping version: the hash of each event, and event 0 itself."""

    hashes: list[bytes]
    start: Event | None


class Numbered(msgspec.Struct, frozen=True, gc=False):
    """One new event and the blobs it names, to be stored before it."""

    event: Event
    blobs: list[Blob]


class _Track:
    __slots__ = ("conflict", "held", "known", "prev", "salt_args", "sequence")

    def __init__(self, prev: bytes, held: Held, salt_args: tuple[str, str, str]) -> None:
        self.prev = prev
        self.held = held
        self.sequence = 0
        self.known = 0
        self.salt_args = salt_args
        self.conflict = False


class Numbering:
    """Numbers the items of one file. `held(trajectory_id)` tells what the root has already."""

    def __init__(self, tenant: str, mapping_version: int, held: Callable[[str], Held]) -> None:
        self.tenant = tenant
        self.mapping_version = mapping_version
        self.conflicts: dict[str, str] = {}
        self.undated = 0
        """Number of trajectories whose source tells no time."""
        self._held = held
        self._tracks: dict[str, _Track] = {}

    def number(self, items: Iterable[Item]) -> Iterator[Numbered]:
        """Yield the events that the root lacks, in order. Raises `InvalidValue` for one that no frame can hold."""
        for item in items:
            made = self._one(item)
            if made is not None:
                yield made

    @property
    def added(self) -> int:
        """Number of events that were new."""
        return sum(track.sequence - track.known for track in self._tracks.values())

    @property
    def known(self) -> int:
        """Number of events that the root had already."""
        return sum(track.known for track in self._tracks.values())

    def trajectories(self) -> dict[str, int]:
        """Return how many events of each trajectory the source holds, new or not, in the order they came."""
        return {name: track.sequence for name, track in self._tracks.items()}

    def _one(self, item: Item) -> Numbered | None:
        track = self._tracks.get(item.trajectory_id)
        if track is None:
            track = self._tracks[item.trajectory_id] = self._open(item)
        if track.conflict:
            return None
        payload, blobs, encoded = _offloaded(item.payload)
        event = self._event(track, payload, encoded, item)
        number = track.sequence
        if number < len(track.held.hashes):
            known = track.held.hashes[number]
            if known != event.hash and not (number == 0 and _grew(track.held.start, payload)):
                track.conflict = True
                place = getattr(item.payload, "place", "")
                self.conflicts[item.trajectory_id] = (
                    f"{place or 'start'}: event {number} ({event.type}) differs from what the root holds; "
                    "the source was changed, not grown"
                )
                return None
            track.known += 1
            track.prev = known
            track.sequence += 1
            return None
        track.prev = event.hash
        track.sequence += 1
        return Numbered(event, blobs)

    def _event(self, track: _Track, payload: Payload, encoded: bytes | None, item: Item) -> Event:
        return make_event(
            payload,
            tenant=self.tenant,
            trajectory_id=item.trajectory_id,
            sequence_number=track.sequence,
            fencing_token=self.mapping_version,
            turn=item.turn,
            recorded_at=item.recorded_at,
            salt=import_salt(*track.salt_args, track.sequence),
            prev=track.prev,
            encoded=encoded,
        )

    def _open(self, item: Item) -> _Track:
        start = item.payload
        if not isinstance(start, TaskStarted) or start.source is None:
            raise ValueError(f"importer bug: {item.trajectory_id} does not begin with an imported TaskStarted")
        self.undated += item.recorded_at <= 0
        source = start.source
        return _Track(
            genesis(self.tenant, item.trajectory_id),
            self._held(item.trajectory_id),
            (source.format, source.session, source.first_record_hash),
        )


def _offloaded(payload: Payload) -> tuple[Payload, list[Blob], bytes | None]:
    """Return the payload as its frame takes it, its blobs, and its text where it was needed to tell."""
    try:
        text = encode_payload(payload)
    except UnicodeEncodeError:
        return *offload_payload(payload), None
    # Most payloads are small as a whole, so no value in them can be too large.
    if len(text) * 6 <= INLINE_MAX:
        return payload, [], text
    left, blobs = offload_payload(payload)
    return left, blobs, text if left is payload else None


def _grew(held: Event | None, payload: Payload) -> bool:
    """Return whether the root's event 0 is this one, as it stood before model and task were known."""
    if held is None or held.payload is None or not isinstance(payload, TaskStarted):
        return False
    body = held.body
    if not isinstance(body, TaskStarted) or body.model != "unknown":
        return False
    plain = msgspec.structs.replace(payload, **LATE_FIELDS, sampling=None)
    return bool(plain == msgspec.structs.replace(body, **LATE_FIELDS, sampling=None))
