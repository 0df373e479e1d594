"""Cursors: how far a lake holds each writer's lsns without a gap, and which segments a run may count on.

Pure. Reducers and launcher call `advance` on the same reports and so agree on what is admitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from trajlake.pipelines.compaction.run_plan import SegmentReport
from trajlake.pipelines.lakehouse.landing import DeclaredLost, LandedSegment, Waiting
from trajlake.pipelines.lakehouse.snapshot import Cursor, LostRange


class Advance(NamedTuple):
    """`admitted`: names of segments whose rows count in this run. `cursors`: where it ends, for every writer."""

    cursors: dict[str, Cursor]
    admitted: frozenset[str]
    waiting: list[Waiting]
    corrupt: list[Waiting]


def advance(
    cursors: Mapping[str, Cursor],
    reports: Iterable[SegmentReport],
    declared: Sequence[DeclaredLost] = (),
    unsettled: Iterable[str] = (),
) -> Advance:
    """Return where the cursors stand after a run that read these segments.

    Tails are admitted where they could be read, and move nothing. A corrupt segment closes its range as lost and the
    rest goes on; one that waits (a missing blob, a newer format) stops its writer there. `unsettled` segments are read,
    but the cursor stays before them. Good bytes for a range that was lost are admitted and end the loss.
    """
    moved = dict(cursors)
    admitted: set[str] = set()
    waiting: list[Waiting] = []
    corrupt: list[Waiting] = []
    held = frozenset(unsettled)
    by_writer: dict[str, list[SegmentReport | DeclaredLost]] = {}
    for report in reports:
        if report.segment.parts:
            if report.status == "ok":
                admitted.add(report.segment.name)
            else:
                refused = corrupt if report.status == "corrupt" else waiting
                refused.append(Waiting(report.segment.name, report.why))
            continue
        by_writer.setdefault(report.segment.writer, []).append(report)
    for lost in declared:
        by_writer.setdefault(lost.writer, []).append(lost)
    for writer, ranges in sorted(by_writer.items()):
        base = cursors.get(writer, Cursor())
        new = [r for r in ranges if _range(r)[1] >= base.next]
        again = [r for r in ranges if _range(r)[1] < base.next and isinstance(r, SegmentReport)]
        next_lsn, found, lost_now = _along(base.next, new, held, admitted, waiting)
        found += [_range(r) for r in again if isinstance(r, SegmentReport) and r.status == "ok"]
        admitted.update(r.segment.name for r in again if isinstance(r, SegmentReport) and r.status == "ok")
        corrupt += [
            Waiting(r.segment.name, r.why) for r in ranges if isinstance(r, SegmentReport) and r.status == "corrupt"
        ]
        lost_ranges = [piece for lost in (*base.lost, *lost_now) for piece in _without(lost, found)]
        moved[writer] = Cursor(next=next_lsn, lost=tuple(_distinct(lost_ranges)))
    return Advance(moved, frozenset(admitted), waiting, corrupt)


def _along(
    begin: int,
    ranges: Sequence[SegmentReport | DeclaredLost],
    held: frozenset[str],
    admitted: set[str],
    waiting: list[Waiting],
) -> tuple[int, list[tuple[int, int]], list[LostRange]]:
    """Walk one writer's ranges; return the next lsn, the ranges read well, and the ranges lost."""
    next_lsn, stopped = begin, ""
    frozen = False
    found: list[tuple[int, int]] = []
    lost: list[LostRange] = []
    for item in sorted(ranges, key=_range):
        first, last = _range(item)
        if isinstance(item, DeclaredLost):
            if not stopped and not frozen and first <= next_lsn:
                lost.append(LostRange(first=max(first, begin), last=last, reason=f"declared lost: {item.because}"))
                next_lsn = max(next_lsn, last + 1)
            continue
        name = item.segment.name
        if stopped:
            waiting.append(Waiting(name, f"behind {stopped}"))
        elif item.status == "ok":
            admitted.add(name)
            found.append((first, last))
            frozen = frozen or name in held
            if frozen:
                waiting.append(Waiting(name, "holds, or stands behind, trajectories that are not settled yet"))
            else:
                next_lsn = max(next_lsn, last + 1)
        elif item.status == "corrupt":
            if not frozen:
                lost.append(LostRange(first=max(first, begin), last=last, reason=item.why, segment=name))
                next_lsn = max(next_lsn, last + 1)
        else:
            stopped = name
            waiting.append(Waiting(name, item.why))
    return next_lsn, found, lost


def _range(item: SegmentReport | DeclaredLost) -> tuple[int, int]:
    where: LandedSegment | DeclaredLost = item.segment if isinstance(item, SegmentReport) else item
    return where.first, where.last


def _without(lost: LostRange, found: Iterable[tuple[int, int]]) -> list[LostRange]:
    """Return what of a lost range is not covered by ranges that were read well."""
    pieces = [(lost.first, lost.last)]
    for first, last in found:
        pieces = [
            piece
            for begin, end in pieces
            for piece in ((begin, min(end, first - 1)), (max(begin, last + 1), end))
            if piece[0] <= piece[1]
        ]
    return [
        LostRange(first=begin, last=end, reason=lost.reason, segment=lost.segment) for begin, end in sorted(set(pieces))
    ]


def _distinct(ranges: Iterable[LostRange]) -> list[LostRange]:
    return sorted(set(ranges), key=lambda lost: (lost.first, lost.last, lost.reason))
