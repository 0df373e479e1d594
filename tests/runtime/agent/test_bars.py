"""Bars of the durable agent: a long trajectory resumes fast, and parked ones hold nothing."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from trajlake.runtime.models import scripted
from trajlake.runtime.root_log import RootLog

from .conftest import Bench, Died


def reading_s(bench: Bench) -> float:
    """Processor seconds of reading the trajectory's bytes once."""
    log = RootLog(bench.fresh().root)
    begun = time.process_time()
    log.read("default", "t", None)
    return time.process_time() - begun


def resumed_in_s(bench: Bench, turns: int) -> tuple[float, int]:
    """Processor seconds from `run` to the first operation that is not recorded, and the events of the trajectory."""
    lives: list[int] = []
    entered: list[float] = []

    def agent(t: Any) -> None:
        lives.append(1)
        t.context.system("be brief")
        for turn in t.turns(max=turns + 2):
            if turn.number == turns:
                if len(lives) == 1:
                    raise Died
                entered.append(time.process_time())
                t.finish("done")
                continue
            turn.tools(turn.model().calls)
            t.vars["n"] = turn.number

    def opened() -> Any:
        journal = bench.fresh()

        @journal.tool(effect="read")
        def look(i: int) -> str:
            return f"result {i}"

        return journal

    model = scripted(lambda context: [("look", {"i": context.turn})])
    with pytest.raises(Died):
        opened().run(agent, "t", task=1, model=model)
    journal = opened()
    begun = time.process_time()
    assert journal.run(agent, "t", model=model).result == "done"
    return entered[0] - begun, len(bench.events())


def test_two_thousand_events_resume_in_a_fifth_of_a_second_of_work(bench: Bench) -> None:
    seconds, events = resumed_in_s(bench, 340)
    assert events > 2000
    assert seconds < 0.2 * 3 + reading_s(bench), "three times the share of the bar: this runs beside other tests"


@pytest.mark.long
def test_the_bar_ten_thousand_events_resume_under_a_second_and_the_reading(bench: Bench) -> None:
    seconds, events = resumed_in_s(bench, 1670)
    assert events > 10_000
    assert seconds < 1 + reading_s(bench)


def park(bench: Bench, count: int) -> None:
    journal = bench.fresh()

    @journal.tool(approve=True)
    def fire() -> None:
        raise AssertionError("nobody said so")

    def agent(t: Any) -> None:
        for turn in t.turns():
            turn.call("fire")

    journal.run(agent, "first", task=1)
    before = threading.active_count()
    for number in range(count):
        assert journal.run(agent, f"t{number}", task=1).status == "parked"
    assert threading.active_count() <= before
    assert all(record.holder is None for record in journal.ports.leases.records())


def test_parked_trajectories_hold_no_worker_and_no_thread(bench: Bench) -> None:
    park(bench, 30)


@pytest.mark.long
def test_the_bar_a_thousand_parked_trajectories_hold_no_worker_and_no_thread(bench: Bench) -> None:
    park(bench, 1000)
