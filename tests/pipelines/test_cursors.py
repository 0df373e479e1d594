"""Cursors move along gapless lsns of whole segments, and remember what they passed without its bytes."""

from __future__ import annotations

import random

from trajlake.pipelines.compaction.cursors import advance
from trajlake.pipelines.compaction.run_plan import SegmentReport
from trajlake.pipelines.lakehouse.landing import DeclaredLost, LandedSegment, take
from trajlake.pipelines.lakehouse.snapshot import Cursor, LostRange

W = "a" * 32


def segment(first: int, last: int) -> LandedSegment:
    return LandedSegment(f"writers/{W}/{first:020d}-{last:020d}.seg", W, first, last, 1)


def report(first: int, last: int, status: str = "ok") -> SegmentReport:
    return SegmentReport(segment=segment(first, last), status=status, why=status)


def test_the_cursor_is_the_end_of_the_gapless_run() -> None:
    taking = take([segment(0, 4), segment(5, 9), segment(12, 20)], {})
    assert [s.first for s in taking.chains[W]] == [0, 5]
    assert len(taking.waiting) == 1
    assert advance({}, [report(0, 4), report(5, 9)]).cursors == {W: Cursor(next=10)}


def test_overlapping_copies_of_recovery_move_it_once() -> None:
    taking = take([segment(0, 9), segment(6, 14), segment(6, 7)], {W: Cursor(next=3)})
    assert [(s.first, s.last) for s in taking.chains[W]] == [(0, 9), (6, 7), (6, 14)]
    assert advance({W: Cursor(next=3)}, [report(0, 9), report(6, 14), report(6, 7)]).cursors[W].next == 15


def test_a_missing_blob_stops_its_writer_there_and_no_other() -> None:
    moved = advance({}, [report(0, 4), report(5, 9, "missing_blobs"), report(10, 12)])
    assert moved.cursors[W].next == 5
    assert moved.admitted == {segment(0, 4).name}
    assert [name for name, _ in moved.waiting] == [segment(5, 9).name, segment(10, 12).name]


def test_a_corrupt_segment_is_passed_and_only_what_no_other_copy_covers_is_lost() -> None:
    moved = advance({}, [report(0, 9, "corrupt"), report(5, 14)])
    assert moved.cursors[W].next == 15
    assert [(lost.first, lost.last) for lost in moved.cursors[W].lost] == [(0, 4)]


def test_good_bytes_for_a_lost_range_end_the_loss_and_the_rest_of_it_stays() -> None:
    before = {W: Cursor(next=20, lost=(LostRange(first=3, last=9, reason="corrupt"),))}
    assert [s.first for s in take([segment(3, 6), segment(12, 14)], before).again] == [3]
    moved = advance(before, [report(3, 6)])
    assert moved.admitted == {segment(3, 6).name}
    assert [(lost.first, lost.last) for lost in moved.cursors[W].lost] == [(7, 9)]
    assert advance(before, [report(3, 6, "corrupt")]).cursors == before


def test_declared_losses_close_gaps_in_order() -> None:
    declared = [DeclaredLost(W, 5, 9, "disk"), DeclaredLost(W, 40, 50, "behind a gap")]
    taking = take([segment(0, 4), segment(10, 12)], {}, (), declared)
    assert [s.first for s in taking.chains[W]] == [0, 10]
    moved = advance({}, [report(0, 4), report(10, 12)], declared)
    assert moved.cursors[W].next == 13
    assert [lost.reason for lost in moved.cursors[W].lost] == ["declared lost: disk"]


def test_unsettled_segments_are_admitted_but_stop_the_cursor() -> None:
    moved = advance({}, [report(0, 4), report(5, 9), report(10, 12)], (), [segment(5, 9).name])
    assert moved.cursors[W].next == 5
    assert len(moved.admitted) == 3


def test_any_order_of_landing_ends_at_the_same_cursor() -> None:
    for seed in range(50):
        rng = random.Random(seed)
        bounds = sorted(rng.sample(range(1, 60), 6))
        whole = [segment(a, b - 1) for a, b in zip([0, *bounds], [*bounds, 60], strict=True)]
        landed: list[LandedSegment] = []
        cursors: dict[str, Cursor] = {}
        order = list(whole)
        rng.shuffle(order)
        for one in order:
            landed.append(one)
            taking = take(sorted(landed, key=lambda s: s.first), cursors)
            cursors = advance(cursors, [report(s.first, s.last) for s in taking.segments]).cursors
        assert cursors == {W: Cursor(next=60)}, seed
