"""The commit protocol and everything that deletes, explored state by state; each rule taken out is found.

The models ask the product's own decisions (`trajlake.pipelines.lakehouse.protocol`). A mutation replaces one
decision, or one order of steps, and must break a promise or leave launchers stuck: else the rule proves nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.model import lake_commit, lake_ledgers, lake_pins
from tests.model.search import Found, search
from trajlake.pipelines.compaction.cursors import advance
from trajlake.pipelines.compaction.run_plan import SegmentReport
from trajlake.pipelines.lakehouse import protocol
from trajlake.pipelines.lakehouse.landing import LandedSegment, take

Bounds = lake_commit.Bounds


def commit(bounds: Bounds, limit: int = 1_000_000, **changes: Any) -> Found:
    model = lake_commit.CommitModel(bounds, lake_commit.Rules(**changes))
    begun = time.monotonic()
    found = search(lake_commit.first(bounds), model.steps, model.broken, model.done, limit)
    print(bounds, changes.keys(), found, f"{time.monotonic() - begun:.1f} s")
    return found


def ledgers(case: lake_ledgers.Case, limit: int = 1_000_000, **changes: Any) -> Found:
    model = lake_ledgers.LedgerModel(case, lake_ledgers.Rules(**changes))
    found = search(lake_ledgers.first(case), model.steps, model.broken, limit=limit)
    print(case, changes.keys(), found)
    return found


def pins(**changes: Any) -> Found:
    model = lake_pins.PinModel(lake_pins.Rules(**changes))
    return search(lake_pins.FIRST, model.steps, model.broken)


def check_holds(found: Found) -> None:
    assert (found.broken, found.stuck, found.whole) == (None, 0, True), found.path


SMALL = [
    Bounds("CMC", tries=1, crashes=1),
    Bounds("CC", tries=1, crashes=1, vacuums=1),
    Bounds("MC", tries=1, crashes=1, vacuums=1, pins=1),
]
LONG = [
    Bounds("CMC", tries=1, crashes=2),
    Bounds("MC", tries=2, crashes=2, vacuums=1, pins=1),
    Bounds("CC", tries=2, crashes=2, segments=3),
]


@pytest.mark.parametrize("bounds", SMALL)
def test_the_protocol_holds_in_every_order_of_steps_and_crashes(bounds: Bounds) -> None:
    check_holds(commit(bounds))


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("bounds", LONG)
def test_the_protocol_holds_with_more_launchers_tries_and_crashes(bounds: Bounds) -> None:
    check_holds(commit(bounds))


@pytest.mark.soak
def test_the_protocol_holds_with_three_launchers_two_tries_and_three_crashes() -> None:
    for bounds in (Bounds("CMC", tries=2, crashes=2), Bounds("CMC", tries=1, crashes=2, vacuums=1, pins=1)):
        found = commit(bounds, limit=3_000_000)
        assert (found.broken, found.stuck) == (None, 0), found.path


def always(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def without(function: Callable[..., bool], **fixed: Any) -> Callable[..., bool]:
    """Return a decision that is blind to some of what it is told."""
    return lambda *args, **named: function(*args, **{**named, **fixed})


class Everything:
    def __contains__(self, _: object) -> bool:
        return True


COMMIT_MUTATIONS: dict[str, tuple[Bounds, dict[str, Any]]] = {
    "skips only a table at that very run": (
        Bounds("MCC", tries=1, crashes=1), {"must_follow": lambda table, run: table != run},
    ),
    "checks and commits a table on two handles": (Bounds("CC", crashes=1), {"tables_on_one_handle": False}),
    "commits events on a fresh handle": (Bounds("CC"), {"events_on_one_handle": False}),
    "puts the run file after events": (Bounds("CC", crashes=1), {"run_file_first": False}),
    "takes an error for a loss, and deletes": (
        Bounds("CC"), {"has_won": always(False), "loser_deletes": True},
    ),
    "takes any winner for itself": (Bounds("CC"), {"has_won": always(True)}),
    "builds on a head that is ahead": (
        Bounds("CC", crashes=1), {"is_half_done": always(False), "may_build_on": always(True)},
    ),
    "never finishes a run of another": (Bounds("CC", crashes=1), {"is_half_done": always(False)}),
    "vacuum does not wait until a run is decided": (
        Bounds("CC", vacuums=1), {"may_remove": without(protocol.may_remove, snapshots=Everything())},
    ),
    "vacuum looks at the newest names only by age": (
        Bounds("MC", vacuums=1), {"may_remove": without(protocol.may_remove, is_named=False)},
    ),
    "vacuum does not look at pins": (
        Bounds("MC", vacuums=1, pins=1), {"may_remove": without(protocol.may_remove, is_pinned=False)},
    ),
    "vacuum lists pins before it expires snapshots": (Bounds("MC", vacuums=1, pins=1), {"pins_listed_last": False}),
    "a pin counts without looking again": (Bounds("MC", vacuums=1, pins=1), {"pin_counts": always(True)}),
}  # fmt: skip


@pytest.mark.parametrize("name", COMMIT_MUTATIONS)
def test_a_commit_rule_taken_out_is_found(name: str) -> None:
    bounds, changes = COMMIT_MUTATIONS[name]
    found = commit(bounds, **changes)
    assert found.broken or found.stuck, f"{found.states} states and no harm"


CASES = [
    lake_ledgers.Case(hold=False, retention=False),
    lake_ledgers.Case(hold=True, retention=False, relands=0),
    lake_ledgers.Case(hold=True, retention=True, relands=0, tries=1),
]


@pytest.mark.parametrize("case", CASES)
def test_erasure_holds_and_retention_keep_their_promises_in_every_order(case: lake_ledgers.Case) -> None:
    check_holds(ledgers(case))


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", [
    lake_ledgers.Case(hold=True, retention=True, relands=1, tries=1),
    lake_ledgers.Case(hold=True, retention=False, relands=1, tries=2),
])  # fmt: skip
def test_erasure_holds_and_retention_keep_their_promises_with_copies(case: lake_ledgers.Case) -> None:
    check_holds(ledgers(case))


@pytest.mark.soak
def test_erasure_holds_and_retention_keep_their_promises_with_copies_and_more_tries() -> None:
    found = ledgers(lake_ledgers.Case(hold=True, retention=True, relands=1, tries=2), limit=3_000_000)
    assert found.broken is None, found.path


QUIET, HELD = CASES[0], lake_ledgers.Case(hold=True, retention=False, relands=0)
LEDGER_MUTATIONS: dict[str, tuple[lake_ledgers.Case, dict[str, Any]]] = {
    "a run reads the ledgers before its snapshot": (QUIET, {"snapshot_before_ledgers": False}),
    "a compaction decides no erasure": (QUIET, {"erasures_to_decide": always(range(0)), "empty_run_too": False}),
    "an erasure of nothing makes no run": (QUIET, {"empty_run_too": False}),
    "an erasure does not look at holds": (HELD, {"decide_erasure": always("applied")}),
    "a hold is confirmed without a run": (HELD, {"run_after_hold": False}),
    "a hold never looks back": (HELD, {"hold_status": always("confirm")}),
    "retention does not look at holds": (
        lake_ledgers.Case(hold=True, retention=True, relands=0), {"may_expire": always(True)},
    ),
    "complete before the writers are": (QUIET, {"is_complete": always(True)}),
    "the warm tier takes any insert": (QUIET, {"warm_reads_erased": False}),
}  # fmt: skip


@pytest.mark.parametrize("name", LEDGER_MUTATIONS)
def test_a_ledger_rule_taken_out_is_found(name: str) -> None:
    case, changes = LEDGER_MUTATIONS[name]
    assert ledgers(case, **changes).broken


def test_pins_erasure_and_vacuum_keep_their_promises_in_every_order() -> None:
    found = pins()
    check_holds(found)
    assert found.states > 300


@pytest.mark.parametrize("changes", [
    {"expire_before_pins": False},
    {"pin_counts": lambda *, is_expired, snapshot_epoch, ledger_epoch: ledger_epoch <= snapshot_epoch},
    {"pin_counts": always(True)},
    {"may_remove": without(protocol.may_remove, pending_runs=())},
    {"may_remove": without(protocol.may_remove, is_pinned=False)},
    {"may_remove": without(protocol.may_remove, is_named=False)},
], ids=["pins first", "no expiry check", "no check", "no pending run", "no pins", "no names"])  # fmt: skip
def test_a_pin_rule_taken_out_is_found(changes: dict[str, Any]) -> None:
    assert pins(**changes).broken


@dataclasses.dataclass(frozen=True)
class Segment:
    """A segment that lands: its range, and whether it is corrupt at first."""

    writer: str
    first: int
    last: int
    corrupt: bool = False


SEGMENTS = (
    Segment("a" * 32, 0, 3), Segment("a" * 32, 4, 5, corrupt=True), Segment("a" * 32, 6, 9),
    Segment("b" * 32, 0, 1), Segment("b" * 32, 2, 4),
)  # fmt: skip


def test_cursors_pass_no_lsn_in_any_order_of_landing() -> None:
    """Runs after every landing, in all 120 orders; at the end a good copy of the corrupt segment lands."""
    for order in itertools.permutations(SEGMENTS):
        landed: list[Segment] = []
        cursors: dict[str, Any] = {}
        taken: set[tuple[str, int]] = set()
        for segment in (*order, Segment("a" * 32, 4, 5)):
            landed = [one for one in landed if (one.writer, one.first) != (segment.writer, segment.first)] + [segment]
            cursors = run_over(landed, cursors, taken)
            for writer, cursor in cursors.items():
                lost = {lsn for gap in cursor.lost for lsn in range(gap.first, gap.last + 1)}
                missing = set(range(cursor.next)) - {lsn for w, lsn in taken if w == writer} - lost
                assert not missing, (order, writer, missing)
        assert {w: c.next for w, c in cursors.items()} == {"a" * 32: 10, "b" * 32: 5}
        assert not any(cursor.lost for cursor in cursors.values()), order
        assert len(taken) == 15


def run_over(landed: list[Segment], cursors: dict[str, Any], taken: set[tuple[str, int]]) -> dict[str, Any]:
    bad = {(one.writer, one.first): one.corrupt for one in landed}
    listed = [LandedSegment(f"writers/{s.writer}/{s.first:020d}-{s.last:020d}.seg", s.writer, s.first, s.last, 1)
              for s in sorted(landed, key=lambda s: (s.writer, s.first))]  # fmt: skip
    reports = [
        SegmentReport(segment=one, status="corrupt" if bad[one.writer, one.first] else "ok", why="damaged")
        for one in take(listed, cursors).segments
    ]
    moved = advance(cursors, reports)
    for report in reports:
        if report.segment.name in moved.admitted:
            taken |= {(report.segment.writer, lsn) for lsn in range(report.segment.first, report.segment.last + 1)}
    return moved.cursors
