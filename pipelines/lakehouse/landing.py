"""What has landed: sealed segments by writer and lsn, and which of them a run may take.

Layout (design/journal.md): `writers/<writer>/<first lsn>-<last lsn>.seg`, `blobs/<tenant>/<h2>/<sha256>`, `imports/…`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from trajlake.pipelines.lakehouse import object_places
from trajlake.pipelines.lakehouse.lake_errors import LakeMissing
from trajlake.pipelines.lakehouse.places import entries, is_remote, walk
from trajlake.pipelines.lakehouse.snapshot import Cursor, LostRange

_NAME: Final = re.compile(r"(\d{20})-(\d{20})\.seg")
TAILS: Final = "tails"
_WRITER: Final = re.compile(r"[0-9a-f]{32}")


class LandedSegment(NamedTuple):
    """A segment file in landing. `name` is its path below landing; lsns are those of the name, both included.

    With `parts` it stands for the tails of one writer: these objects are read, as rows that move no cursor.
    """

    name: str
    writer: str
    first: int
    last: int
    size: int
    parts: tuple[str, ...] = ()


class DeclaredLost(NamedTuple):
    """Lsns that a person gave up (`--declare-lost WRITER:FIRST-LAST --because TEXT`), both included."""

    writer: str
    first: int
    last: int
    because: str


class Waiting(NamedTuple):
    """A segment that a run leaves in landing, and why."""

    name: str
    why: str


class Taking(NamedTuple):
    """What a run reads. `chains`: per writer the segments from its cursor on, gapless, in order.

    `again`: segments whose range was passed as lost; good bytes in them are taken. `waiting`: behind a gap.
    `strangers`: files below `writers/` that are no segments.
    """

    chains: dict[str, list[LandedSegment]]
    again: list[LandedSegment]
    waiting: list[Waiting]
    strangers: list[str]

    @property
    def segments(self) -> list[LandedSegment]:
        return [segment for chain in self.chains.values() for segment in chain] + self.again


def list_segments(landing: str) -> tuple[list[LandedSegment], list[str]]:
    """Return the landed segments by (writer, first, last), and the names of files that are none.

    Raises `LakeMissing` where there is no such directory: an empty landing is one thing, a wrong path another.
    """
    segments: list[LandedSegment] = []
    strangers: list[str] = []
    for writer, name, size in _landed(landing):
        relative = f"writers/{writer}/{name}"
        match = _NAME.fullmatch(name)
        if match is None or _WRITER.fullmatch(writer) is None or int(match[2]) < int(match[1]):
            if not name.startswith(".") and not name.endswith(".tmp"):
                strangers.append(relative)
            continue
        if size is None:
            size = os.path.getsize(os.path.join(landing, relative))
        segments.append(LandedSegment(relative, writer, int(match[1]), int(match[2]), size))
    return sorted(segments, key=lambda s: (s.writer, s.first, s.last)), strangers


def _landed(landing: str) -> Iterator[tuple[str, str, int | None]]:
    """Yield (writer, name, size where the listing tells it) of everything below `writers/`."""
    if is_remote(landing):
        listed = [(*below.partition("/")[::2], size) for below, size in object_places.walk(f"{landing}/writers")]
        if not listed and next(object_places.walk(landing), None) is None:
            raise _no_landing(landing)
        yield from sorted(listed)
        return
    if not os.path.isdir(landing):
        raise _no_landing(landing)
    for writer in entries(os.path.join(landing, "writers")):
        for name in entries(os.path.join(landing, "writers", writer)):
            yield writer, name, None


def _no_landing(landing: str) -> LakeMissing:
    return LakeMissing(f"{landing}: no landing there; name another --landing, or ship a root to it first")


def take(
    segments: Sequence[LandedSegment],
    cursors: Mapping[str, Cursor],
    strangers: Sequence[str] = (),
    declared: Sequence[DeclaredLost] = (),
) -> Taking:
    """Return what a run that begins at `cursors` reads: gapless runs of lsns, lost ranges again, the rest waits.

    A range that is `declared` lost closes a gap as a segment would.
    """
    chains: dict[str, list[LandedSegment]] = {}
    again: list[LandedSegment] = []
    waiting: list[Waiting] = []
    reached = {writer: cursor.next for writer, cursor in cursors.items()}
    ranges: list[LandedSegment | DeclaredLost] = [*segments, *declared]
    for segment in sorted(ranges, key=lambda r: (r.writer, r.first, r.last)):
        cursor = cursors.get(segment.writer, Cursor())
        begin = reached.get(segment.writer, 0)
        if segment.first <= begin and segment.last >= cursor.next:
            reached[segment.writer] = max(begin, segment.last + 1)
        if isinstance(segment, DeclaredLost):
            continue
        if segment.last < cursor.next:
            if any(overlaps(segment, lost) for lost in cursor.lost):
                again.append(segment)
        elif segment.first > begin:
            why = f"lsn {begin} to {segment.first - 1} of the writer have not landed"
            waiting.append(Waiting(segment.name, why))
        else:
            chains.setdefault(segment.writer, []).append(segment)
    return Taking(chains, again, waiting, list(strangers))


def uncovered_tails(landing: str, taking: Taking, cursors: Mapping[str, Cursor]) -> list[LandedSegment]:
    """Return the tails (what `replicated` journals put between two segments) that no taken segment covers.

    One entry a writer, by writer: there may be many small objects, and only their rows count.
    """
    reached = {writer: cursor.next for writer, cursor in cursors.items()}
    for writer, chain in taking.chains.items():
        reached[writer] = max(reached.get(writer, 0), *(segment.last + 1 for segment in chain))
    found: dict[str, list[tuple[int, int, str]]] = {}
    for below in walk(os.path.join(landing, TAILS)):
        writer, _, name = below.partition("/")
        match = _NAME.fullmatch(name)
        if match is not None and _WRITER.fullmatch(writer) and int(match[2]) >= reached.get(writer, 0):
            found.setdefault(writer, []).append((int(match[1]), int(match[2]), f"{TAILS}/{below}"))
    return [_tails_of(writer, sorted(parts)) for writer, parts in sorted(found.items())]


def _tails_of(writer: str, parts: list[tuple[int, int, str]]) -> LandedSegment:
    first, last = parts[0][0], max(part[1] for part in parts)
    name = f"{TAILS}/{writer}/{first:020d}-{last:020d}"
    return LandedSegment(name, writer, first, last, 0, tuple(part[2] for part in parts))


def overlaps(segment: LandedSegment, lost: LostRange) -> bool:
    """Tell whether the segment holds lsns of a range that was passed as lost."""
    return segment.first <= lost.last and lost.first <= segment.last


def blob_path(landing: str, tenant: str, sha256: str) -> str:
    """Return where a blob lands."""
    return os.path.join(landing, "blobs", tenant, sha256[:2], sha256)
