"""Records out of a root's segments, read by place; and the one function that opens whatever the caller names."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Final, cast

import msgspec

from trajlake.schemas.envelope import Event
from trajlake.schemas.history import canonical, incomplete
from trajlake.schemas.ids import trajectory_key

from ..agent.errors import Misuse
from ..env import Env
from ..root import Root
from ..wal.frame import TrajectoryInfo, decode_info, to_event
from ..wal.reader import SegmentFile, frame_in, list_segments, load_seal, read_segment
from .record import Looker, Record, Source, as_current

LAKE_HOOK: Final = "lake_records"
"""Entry point of group `trajlake.stores`: `open(lake, tenant) -> Source`. `runtime` may not import `pipelines`."""

HELD_MAX_BYTES: Final = 4 << 20
"""Payload bytes of one trajectory up to which its events are kept in memory; above, they are read again by place."""


@dataclass(frozen=True)
class Place:
    """Where the frames of one trajectory stand in one segment, by byte offset."""

    segment: SegmentFile
    info: TrajectoryInfo
    offsets: array[int]


class RootSource:
    """The trajectories of a root as its segments hold them when they are first asked for. Nothing is written."""

    def __init__(self, root: Root, tenant: str) -> None:
        self._root, self._tenant = root, tenant
        self._places: dict[bytes, list[Place]] | None = None

    def trajectory_ids(self) -> list[str]:
        found = {places[0].info for places in self._index().values()}
        return sorted(
            info.trajectory_id
            for info in {info.key: info for info in found}.values()
            if info.tenant == self._tenant and not info.trajectory_id.startswith("judge/")
        )

    def record(self, trajectory_id: str) -> Record | None:
        places = self._index().get(trajectory_key(self._tenant, trajectory_id))
        if not places:
            return None
        look = Looker()
        events: list[Event] = []
        held = 0
        for place in places:
            for event in _events(self._root.env, place):
                look.at(event)
                held += len(event.payload or b"")
                events.append(event)
                if held > HELD_MAX_BYTES:
                    return self._by_place(trajectory_id, places)
        history = canonical(events)
        found = [as_current(event) for event in history.events]
        outline = look.outline(found, conflicts=bool(history.conflicts), gap=incomplete(history))
        return Record(
            tenant=self._tenant, trajectory_id=trajectory_id, read=lambda: iter(found), blob=self.blob,
            outline=outline, find=self.record,
        )  # fmt: skip

    def _by_place(self, trajectory_id: str, places: list[Place]) -> Record:
        """A record too large to hold: what counts is found from envelopes alone, and read again by place."""
        env = self._root.env
        look = Looker()
        bare: list[Event] = []
        for whole in (False, True):  # what a roll-back gave up is told by payloads: they are kept, but only then
            bare.clear()
            for number, place in enumerate(places):
                for offset, event in zip(place.offsets, _events(env, place), strict=True):
                    look.at(event)
                    bare.append(_bare(event, number, offset, whole=whole))
            if all(event.type != "RolledBack" for event in look.notable.values()):
                break
        history = canonical(bare)
        outline = look.outline(history.events, conflicts=bool(history.conflicts), gap=incomplete(history))
        segments = array("H", [int(event.writer) for event in history.events])
        offsets = array("Q", [event.lsn for event in history.events])
        del bare, history

        def read() -> Iterator[Event]:
            return (as_current(event) for event in _read_places(env, places, segments, offsets))

        return Record(
            tenant=self._tenant, trajectory_id=trajectory_id, read=read, blob=self.blob, outline=outline,
            find=self.record,
        )  # fmt: skip

    def blob(self, sha256: str) -> bytes:
        """Return the bytes of a blob, verified. Raises `BlobMissing`."""
        return self._root.blobs.get(self._tenant, sha256)

    def _index(self) -> dict[bytes, list[Place]]:
        if self._places is None:
            self._places = {}
            env = self._root.env
            for writer in self._root.writers():
                segments = list_segments(env, self._root.writer_folder(writer))
                for number, segment in enumerate(segments):
                    stop = segments[number + 1].first_lsn if number + 1 < len(segments) else None
                    for place in _places_in(env, segment, stop):
                        self._places.setdefault(place.info.key, []).append(place)
        return self._places


_OPENINGS: Final = frozenset({"LeaseAcquired", "RolledBack"})
"""Types whose payload `canonical` and `roll_backs` look into."""


def _bare(event: Event, number: int, offset: int, *, whole: bool) -> Event:
    """Return the event without its payload (unless `whole`); `writer` and `lsn` say where it is read from again."""
    payload = event.payload if whole or event.type in _OPENINGS or event.payload is None else b"{}"
    return msgspec.structs.replace(event, payload=payload, salt=None, commitment=None, writer=str(number), lsn=offset)


def _places_in(env: Env, segment: SegmentFile, stop_lsn: int | None) -> Iterator[Place]:
    """The trajectories of a segment with their frames before `stop_lsn`, where the next segment takes over."""
    if segment.is_sealed:
        seal, _ = load_seal(env, segment)
        offsets: Sequence[int] = list(seal.offsets)
        ordinals: Sequence[int] = list(seal.ordinals)
        fd = env.open(segment.path)
        try:
            infos = [
                decode_info(frame_in(env, fd, segment, at)[1], seal.key(ordinal), segment.path)
                for ordinal, at in enumerate(seal.info_offsets)
            ]
        finally:
            env.close(fd)
    else:
        scan = read_segment(env, segment.path)
        offsets, ordinals, infos = scan.offsets, scan.ordinals, list(scan.infos.values())
    found: dict[int, array[int]] = {}
    count = len(offsets) if stop_lsn is None else min(len(offsets), stop_lsn - segment.first_lsn)
    for index in range(count):
        ordinal = ordinals[index]
        if ordinal not in found:
            found[ordinal] = array("Q")
        found[ordinal].append(offsets[index])
    for ordinal, places in found.items():
        yield Place(segment, infos[ordinal], places)


def _events(env: Env, place: Place) -> Iterator[Event]:
    fd = env.open(place.segment.path)
    try:
        for offset in place.offsets:
            header, payload = frame_in(env, fd, place.segment, offset)
            yield to_event(header, payload, place.info, place.segment.header.writer)
    finally:
        env.close(fd)


def _read_places(env: Env, places: list[Place], numbers: array[int], offsets: array[int]) -> Iterator[Event]:
    """Read events one by one; one file is open at a time."""
    fd, opened = -1, -1
    try:
        for number, offset in zip(numbers, offsets, strict=True):
            place = places[number]
            if number != opened:
                if fd >= 0:
                    env.close(fd)
                fd, opened = env.open(place.segment.path), number
            header, payload = frame_in(env, fd, place.segment, offset)
            yield to_event(header, payload, place.info, place.segment.header.writer)
    finally:
        if fd >= 0:
            env.close(fd)


def open_source(*, journal: str | os.PathLike[str] | None = None, lake: str | None = None, tenant: str) -> Source:
    """Return the source the caller names: a lake, else a root. Raises `RootError`, `Misuse`, or the lake's error."""
    if lake is None:
        assert journal is not None
        return RootSource(Root.open(journal, create=False), tenant)
    for point in entry_points(group="trajlake.stores"):
        if point.name == LAKE_HOOK:
            return cast(Source, point.load()(lake, tenant))
    raise Misuse(f"nothing installed can read a lake (entry point {LAKE_HOOK!r}); reinstall trajlake, or use --journal")
