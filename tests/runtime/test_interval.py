"""The formulas of `trajlake plan`: the document's worked figures, Daly's own predictions, no slip repeated."""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

from trajlake.runtime.checkpoints import interval
from trajlake.runtime.commands.plan import commits

PAUSE_S, MTBF_S, TURN_S = 0.5, 14_400.0, 12.0


def test_young_gives_the_documents_interval_and_its_overhead() -> None:
    assert interval.young_s(PAUSE_S, MTBF_S) == 120
    assert interval.whole_turns(120, TURN_S) == 10
    assert f"{interval.overhead(120, PAUSE_S, MTBF_S):.2%}" == "0.83%"
    assert f"{interval.overhead(TURN_S, PAUSE_S, MTBF_S):.1%}" == "4.2%"
    assert f"{interval.overhead(100 * TURN_S, PAUSE_S, MTBF_S):.1%}" == "4.2%"


def test_half_and_double_the_best_interval_cost_little_more() -> None:
    for seconds in (60, 240):
        assert f"{interval.overhead(seconds, PAUSE_S, MTBF_S):.2%}" == "1.04%"


@pytest.mark.parametrize(
    ("mtbf_min", "daly_min", "document_min"), [(1440, 117, 115.6), (360, 57, 56.1), (15, 9.1, 12.2)]
)
def test_dalys_formula_gives_his_own_predictions_and_the_documents_does_not(
    mtbf_min: float, daly_min: float, document_min: float
) -> None:
    found_min = interval.daly_s(5 * 60, mtbf_min * 60) / 60
    assert round(found_min, 1 if daly_min < 10 else 0) == daly_min
    assert round(interval.equation_6_s(5 * 60, mtbf_min * 60, 10 * 60) / 60, 1) == document_min


def test_at_the_documents_example_both_lie_so_close_that_the_error_is_hidden() -> None:
    assert round(interval.daly_s(PAUSE_S, MTBF_S), 2) == 119.67
    assert round(interval.equation_6_s(PAUSE_S, MTBF_S), 2) == 119.50


def test_a_pause_of_twice_the_time_between_failures_gives_that_time() -> None:
    assert interval.daly_s(20, 10) == 10
    assert interval.daly_s(19.999, 10) == pytest.approx(10 * 2 * (1 + 1 / 3 + 1 / 9) - 20, abs=0.01)


def test_a_crash_costs_half_an_interval_and_one_cold_prefill() -> None:
    best = interval.crash_price(10, TURN_S, 0.0172, 0.12)
    assert (best.turns, best.seconds, f"{best.redone_cost:.2f}") == (5, 60, "0.09")
    rare = interval.crash_price(100, TURN_S, 0.0172, 0.12)
    assert (rare.turns, rare.seconds, f"{rare.redone_cost:.2f}") == (50, 600, "0.86")
    assert best.prefill_cost == rare.prefill_cost == 0.12
    assert best.cost == pytest.approx(0.206)


def test_full_snapshots_write_631_mib_not_640_and_three_other_readings_differ() -> None:
    kib, mib = 1024, 2**20
    as_its_formula = interval.full_snapshots(100, 128 * kib)
    assert as_its_formula.written_bytes / mib == 631.25
    assert as_its_formula.factor == 50.5
    delta_per_turn = interval.full_snapshots(100, 5 * 128 * kib)
    assert round(delta_per_turn.written_bytes / mib) == 3156
    ends_at_128_kib = interval.full_snapshots(100, 128 * kib / 100)
    assert round(ends_at_128_kib.written_bytes / mib, 1) == 6.3


def test_a_caller_waits_the_whole_barrier_only_the_device_cost_is_shared() -> None:
    full = interval.group_commit(32_000, 0.8, 15, window_ms=2)
    assert full.batch_events == 64
    assert full.wait_ms == pytest.approx(16.8)
    assert full.device_ms == pytest.approx(15.8 / 64)
    printed_by_the_document = 2 / 2 + 15.8 / 64
    assert round(printed_by_the_document, 1) == 1.2
    assert full.wait_ms > 13 * printed_by_the_document


def test_a_lone_caller_waits_the_whole_window_and_without_one_only_its_barrier() -> None:
    assert interval.group_commit(1, 0.005, 0.085, window_ms=2).wait_ms == pytest.approx(2.09)
    assert interval.group_commit(1, 0.005, 0.085).wait_ms == pytest.approx(0.09, rel=0.01)


def test_the_window_is_never_cheaper_for_a_caller_than_no_window_on_a_fast_disk() -> None:
    for arrivals in (1.0, 100.0, 10_000.0):
        without, with_window = commits(arrivals, 0.005, 0.085, 2.0)
        assert with_window["caller_waits_ms"] > 1.0 > without["caller_waits_ms"]


def test_intervals_are_whole_turns_and_at_least_one() -> None:
    assert interval.turns_between(0.5, 14_400, 12) == 10
    assert interval.turns_between(0.001, 14_400, 600) == 1
    assert interval.whole_turns(120, 0) == 1
    with pytest.raises(ValueError, match="above 0"):
        interval.young_s(0, 1)


def test_plan_prints_the_documents_example(trajlake: Callable[..., CompletedProcess[str]]) -> None:
    done = trajlake("plan")
    assert done.returncode == 0, done.stderr
    wanted = "120.00 s, 119.67 s, every 10 turns, 0.83%, $0.09, $0.86, $0.12, 631.25 MiB, 50.5, 16.8"
    for text in wanted.split(", "):
        assert text in done.stdout, text
    assert "assumed, as nobody gave or measured them (the document's examples): --pause, --mtbf," in done.stdout
    own = json.loads(trajlake("plan", "--pause", "0.5", "--mtbf", "9000", "--json").stdout)["assumed"]
    assert own[:3] == ["restart", "turn", "turn-cost"]
    tree = json.loads(trajlake("plan", "--json").stdout)
    assert [row["turns"] for row in tree["curve"] if row["in_band"]] == [5, 10, 20]
    assert [row["lost_turns"] for row in tree["crash"]] == [5, 50]


def test_plan_refuses_what_cannot_be(trajlake: Callable[..., CompletedProcess[str]]) -> None:
    for wrong in (("--pause", "0"), ("--checkpoints", "0"), ("--mtbf", "-1"), ("nobody",)):
        done = trajlake("plan", *wrong)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
