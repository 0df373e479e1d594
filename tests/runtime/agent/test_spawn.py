"""Children: beside each other, within what their parent has, stable across crashes, and reached by its cancellation."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from trajlake.runtime import BudgetExhausted, Misuse, replay
from trajlake.runtime.agent.spawn import Child, grants
from trajlake.runtime.models import scripted

from .conftest import Bench, Died

WORK = [("work", {"n": 1})]


def worker(journal: Any, done: list[str] | None = None) -> Any:
    """Register a tool that costs 1 usd, and return an agent that calls it as often as its task says, while it may."""

    def one(call: Any) -> dict[str, str]:
        return {"usd": "1"}

    one.maximum = {"usd": "1"}  # type: ignore[attr-defined]

    @journal.tool(effect="idempotent", cost=one)
    def work(n: int) -> int:
        if done is not None:
            done.append("work")
        return n

    def agent(t: Any) -> Any:
        kept = 0
        for turn in t.turns(max=20):
            if turn.number == t.task:
                t.finish(kept)
                break
            kept += turn.call("work", {"n": 1}).ok

    return agent


def test_children_run_beside_each_other_and_their_outcomes_come_in_order(bench: Bench) -> None:
    both = threading.Barrier(2, timeout=30)

    def child(t: Any) -> Any:
        both.wait()
        return t.task

    def agent(t: Any) -> None:
        for turn in t.turns():
            found = turn.spawn_all([(child, "a", 1), (child, "b", 2)])
            t.finish([one.result for one in found])

    journal = bench.fresh()
    assert journal.run(agent, "t", task=1).result == [1, 2]
    for cold in (False, True):
        report = replay(agent, bench.events(), journal=journal, cold=cold)
        assert report.same, report.text()


def test_children_share_what_is_left_and_what_they_leave_comes_back(bench: Bench) -> None:
    journal = bench.fresh()
    child = worker(journal)

    def agent(t: Any) -> None:
        for turn in t.turns():
            if turn.number == 0:
                first = turn.spawn_all([(child, "a", 2), (child, "b", 9), Child(child, "c", 9, {"budget": {"usd": 1}})])
                t.vars["first"] = [one.result for one in first]
                t.vars["left"] = t.budget.left
            else:
                last = turn.spawn(child, "d", task=9)
                t.finish([t.vars["first"], t.vars["left"], last.result, t.budget.left])

    # 9 usd: c asks for 1, a and b get 4 each; a uses 2 of them. d gets the 2 that are left.
    outcome = journal.run(agent, "t", task=1, budget={"usd": "9"})
    assert outcome.result == [[2, 4, 1], {"usd": "2"}, 2, {"usd": "0"}]
    assert [body.budget for body in bench.bodies("TaskStarted", "t/0.b")] == [{"usd": "4"}]
    assert replay(agent, bench.events(), journal=journal, cold=True).same


def test_shares_never_sum_to_more_than_is_left() -> None:
    assert grants({"usd": "1", "turns": "7"}, [{}, {}, {}]) == [{"usd": "0.333333", "turns": "2"}] * 3
    assert grants({"usd": "1"}, [{"usd": "0.25"}, {}]) == [{"usd": "0.25"}, {"usd": "0.75"}]
    assert grants({}, [{"usd": "3"}, {}]) == [{"usd": "3"}, {}], "what the parent does not limit"
    with pytest.raises(BudgetExhausted, match="usd"):
        grants({"usd": "1"}, [{"usd": "0.6"}, {"usd": "0.6"}])


def test_a_child_cannot_raise_what_its_parent_granted(bench: Bench) -> None:
    def child(t: Any) -> None:
        t.budget.revise({"usd": 1, "eur": 50})
        t.budget.revise({"usd": 100})

    def agent(t: Any) -> None:
        for turn in t.turns():
            turn.spawn(child, "a", task=1)

    with pytest.raises(Misuse, match="granted by the parent"):
        bench.fresh().run(agent, "t", task=1, budget={"usd": "2"})


def test_a_crash_between_children_keeps_ids_grants_and_what_was_spent(bench: Bench) -> None:
    dies = True
    done: list[str] = []

    def run() -> Any:
        journal = bench.fresh()
        child = worker(journal, done)

        def second(t: Any) -> Any:
            if dies:
                raise Died
            return child(t)

        def agent(t: Any) -> None:
            for turn in t.turns():
                found = turn.spawn_all([(child, "a", 9), (second, "b", 9)], limit=1)
                t.finish([[one.result for one in found], t.budget.left])

        return journal.run(agent, "t", task=1, budget={"usd": "5"})

    with pytest.raises(Died):
        run()
    dies = False
    # 2.5 each: two calls of 1 usd fit, and nothing is made a second time.
    assert run().result == [[2, 2], {"usd": "1"}]
    assert len(done) == 4
    assert [event.body.name for event in bench.events() if event.type == "InputRead"] == ["a", "b", "a", "a", "b", "b"]
    assert len(bench.bodies("TaskStarted", "t/0.b")) == 1


def test_a_parked_child_parks_its_parent_after_its_siblings_have_ended(bench: Bench) -> None:
    def run() -> Any:
        journal = bench.fresh()

        @journal.tool(approve=True)
        def ask(n: int) -> int:
            return n

        def asks(t: Any) -> None:
            for turn in t.turns():
                t.finish(turn.call("ask", {"n": 1}).output)

        def agent(t: Any) -> None:
            for turn in t.turns():
                t.finish([one.result for one in turn.spawn_all([(asks, "a", 1), (lambda t: "easy", "b", 2)])])

        return journal, journal.run(agent, "t", task=1)

    journal, outcome = run()
    assert [one.kind for one in outcome.waiting_for] == ["child"]
    assert [event.body.name for event in bench.events() if event.type == "InputRead"] == ["a", "b", "b", "b"]
    journal.approve("t/0.a", outcome.waiting_for[0].action_id, actor="ops")
    assert run()[1].result == [1, "easy"]


def test_cancelling_a_parent_stops_the_child_that_runs_and_everything_above_it(bench: Bench) -> None:
    journal = bench.fresh()

    @journal.tool(effect="read")
    def look() -> int:
        journal.cancel("t", "enough", actor="ops")
        return 1

    def leaf(t: Any) -> None:
        for turn in t.turns(max=50):
            turn.call("look")

    def middle(t: Any) -> None:
        for turn in t.turns():
            t.finish(turn.spawn(leaf, "leaf", task=1).status)

    def agent(t: Any) -> None:
        for turn in t.turns(max=9):
            turn.spawn(middle, "m", task=1)

    outcome = journal.run(agent, "t", task=1)
    assert (outcome.status, outcome.result) == ("cancelled", "enough")
    for name in ("t/0.m/0.leaf", "t/0.m", "t"):
        assert bench.bodies("TaskEnded", name)[0].status == "cancelled", name
    assert bench.types("t/0.m/0.leaf").count("ToolIntent") == 1


def test_cancelling_a_parent_reaches_a_child_that_waits_for_a_person(bench: Bench) -> None:
    journal = bench.fresh()

    @journal.tool(approve=True)
    def ask() -> int:
        return 1

    def child(t: Any) -> None:
        for turn in t.turns():
            turn.call("ask")

    def agent(t: Any) -> None:
        for turn in t.turns():
            turn.spawn(child, "a", task=1)

    assert journal.run(agent, "t", task=1).status == "parked"
    journal.cancel("t", "enough", actor="ops")
    assert journal.run(agent, "t").status == "cancelled"
    assert journal.run(child, "t/0.a").status == "cancelled", "it has mail, which any worker reads"
    assert bench.bodies("CancelRequested", "t/0.a")[0].because == "enough"


def test_asyncio_children_run_beside_each_other(bench: Bench) -> None:
    async def child(t: Any) -> Any:
        met.set() if t.task == 2 else await asyncio.wait_for(met.wait(), 30)
        return t.task

    async def agent(t: Any) -> None:
        async for turn in t.turns():
            alone = await turn.spawn(child, "c", task=2)
            found = await turn.spawn_all([(child, "a", 1), (child, "b", 2)])
            t.finish([one.result for one in (alone, *found)])

    met = asyncio.Event()
    journal = bench.fresh()
    assert asyncio.run(journal.arun(agent, "t", task=1, model=scripted([]))).result == [2, 1, 2]
    assert replay(agent, bench.events(), journal=journal, cold=True).same


@pytest.mark.parametrize("goes_on", ["at once", "in the next turn", "returns"])
def test_what_a_child_raises_cannot_be_caught_and_a_resume_goes_on_with_it(bench: Bench, goes_on: str) -> None:
    fails = True

    def child(t: Any) -> Any:
        if fails:
            raise RuntimeError("not yet")
        return t.task

    def agent(t: Any) -> Any:
        for turn in t.turns(max=3):
            try:
                found = turn.spawn(child, "a", task=1)
                return t.finish([found.result, t.budget.left])
            except RuntimeError:
                if goes_on == "at once":
                    t.context.user("it failed")
                if goes_on == "returns":
                    return "it failed"
        return None

    error, text = (RuntimeError, "not yet") if goes_on == "returns" else (Misuse, "only a resume may go on")
    with pytest.raises(error, match=text):
        bench.fresh().run(agent, "t", task=1, budget={"usd": "1"})
    assert bench.types()[-1] == "LeaseReleased"
    fails = False
    assert bench.fresh().run(agent, "t", task=1).result == [1, {"usd": "1"}]


@pytest.mark.parametrize("error", [RuntimeError, Died])
def test_after_a_child_raised_none_is_begun_and_those_that_run_are_recorded(
    bench: Bench, error: type[BaseException]
) -> None:
    both = threading.Barrier(2, timeout=30)
    raised = threading.Event()
    begun: list[str] = []

    def fails(t: Any) -> Any:
        both.wait()
        raised.set()
        raise error("not yet")

    def slow(t: Any) -> Any:
        both.wait()
        assert raised.wait(30)
        for turn in t.turns(max=3):
            turn.read("more", lambda: 1)
        return t.task

    def third(t: Any) -> None:
        begun.append("third")

    def agent(t: Any) -> None:
        for turn in t.turns():
            turn.spawn_all([(fails, "a", 1), (slow, "b", 2), (third, "c", 3)], limit=2)

    with pytest.raises(error):
        bench.fresh().run(agent, "t", task=1)
    assert not begun
    recorded = [(event.body.kind, event.body.name) for event in bench.events() if event.type == "InputRead"]
    assert recorded[3:] == [("spent", "b"), ("spawn", "b")]
