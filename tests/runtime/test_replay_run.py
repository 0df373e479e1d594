"""Replay: the same harness asks for the same; planted differences are named with their turn and cause."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trajlake.runtime import Journal, Report, replay
from trajlake.runtime.models import scripted
from trajlake.runtime.root_log import RootLog
from trajlake.schemas.envelope import Event

MODEL = scripted([[("look", {"n": 1})], [("look", {"n": 2}), ("look", {"n": 3})], "done"])


class Plan:
    """What the agent under test does; a test changes one thing."""

    def __init__(self, **changes: Any) -> None:
        self.system, self.extra, self.word, self.skip, self.carry, self.end = "s", False, "w", False, False, "done"
        vars(self).update(changes)


def agent_of(plan: Plan) -> Callable[[Any], None]:
    def agent(t: Any) -> None:
        t.context.system(plan.system)
        t.context.user(t.task)
        total = 0
        for turn in t.turns(max=9):
            reply = turn.model()
            turn.listdir("/")
            results = turn.tools(reply.calls)
            total += len(results)
            t.vars["total"] = total if plan.carry else t.vars.get("total", 0) + len(results)
            if turn.number == 1:
                t.vars["word"] = plan.word
                if plan.extra:
                    turn.model(purpose="again")
                if not plan.skip:
                    turn.now()
            if not reply.calls:
                t.finish(plan.end)

    return agent


@pytest.fixture
def journal(tmp_path: Path) -> Any:
    with Journal.open(tmp_path / "root") as opened:
        register(opened)
        yield opened


def register(journal: Journal) -> None:
    @journal.tool(effect="read")
    def look(n: int) -> int:
        return n


def record(journal: Journal, plan: Plan | None = None) -> list[Event]:
    assert journal.run(agent_of(plan or Plan()), "t", task="go", model=MODEL).status == "completed"
    return list(RootLog(journal.root).read("default", "t", None).events)


def both(journal: Journal, plan: Plan, events: list[Event]) -> Report:
    """Replay warm and cold; they must agree. Return the warm report."""
    warm, cold = (replay(agent_of(plan), events, journal=journal, cold=cold) for cold in (False, True))
    assert (warm.verdict, warm.turn, warm.cause) == (cold.verdict, cold.turn, cold.cause)
    return warm


def test_an_unchanged_harness_is_the_same_warm_and_cold(journal: Journal) -> None:
    assert both(journal, Plan(), record(journal)).same


@pytest.mark.parametrize(
    ("change", "turn", "cause"),
    [
        ({"word": "x"}, 1, "changed"),
        ({"extra": True}, 1, "extra"),
        ({"skip": True}, 1, "missing"),
        ({"system": "other"}, -1, "changed"),
        ({"end": "else"}, 2, "changed"),
    ],
)
def test_a_planted_difference_is_found_at_its_turn_with_its_cause(
    journal: Journal, change: dict[str, Any], turn: int, cause: str
) -> None:
    report = both(journal, Plan(**change), record(journal))
    assert (report.verdict, report.turn, report.cause) == ("differs", turn, cause), report


def test_a_carried_local_is_found_by_a_cold_replay_only(journal: Journal) -> None:
    events = record(journal, Plan(carry=True))
    agent = agent_of(Plan(carry=True))
    assert replay(agent, events, journal=journal).same
    report = replay(agent, events, journal=journal, cold=True)
    assert (report.verdict, report.turn, report.operation) == ("differs", 1, "var total #0")


def test_a_changed_tool_schema_differs(journal: Journal, tmp_path: Path) -> None:
    events = record(journal)
    with Journal.open(tmp_path / "other") as other:

        @other.tool(effect="read")
        def look(n: int, deep: bool = False) -> int:
            return n

        report = replay(agent_of(Plan()), events, journal=other)
    assert (report.verdict, report.turn, report.cause) == ("differs", 0, "changed")


def test_a_replay_runs_no_tool_and_needs_no_writable_root(journal: Journal, tmp_path: Path) -> None:
    events = record(journal)
    with Journal.open(tmp_path / "quiet") as quiet:

        @quiet.tool(effect="read")
        def look(n: int) -> int:
            raise AssertionError("a replay ran a tool")

        assert replay(agent_of(Plan()), events, journal=quiet).same
        assert not (tmp_path / "quiet" / "writers").exists()


def test_an_open_record_replays_as_far_as_it_goes(journal: Journal) -> None:
    events = [event for event in record(journal) if event.turn < 2]
    assert both(journal, Plan(), events).same
    cut = [event for event in events if event.sequence_number < events[-1].sequence_number - 2]
    assert both(journal, Plan(), cut).same


def test_a_harness_that_ends_earlier_or_raises_differs(journal: Journal) -> None:
    events = record(journal)

    def early(t: Any) -> None:
        t.context.system("s")
        t.context.user(t.task)

    assert replay(early, events, journal=journal).cause == "missing"

    def raises(t: Any) -> None:
        raise KeyError("no")

    assert replay(raises, events, journal=journal).cause == "raised"


def test_what_cannot_be_replayed_is_refused_by_name(journal: Journal) -> None:
    events = record(journal)
    import msgspec

    newer = [*events[:-1], msgspec.structs.replace(events[-1], schema_version=99)]
    report = replay(agent_of(Plan()), newer, journal=journal)
    assert report.verdict == "refused"
    assert "schema version 99" in report.cause
    erased = [*events[:-1], msgspec.structs.replace(events[-1], payload=None, salt=None)]
    assert "erased" in replay(agent_of(Plan()), erased, journal=journal).cause
    assert replay(agent_of(Plan()), [], journal=journal).cause == "no events"
