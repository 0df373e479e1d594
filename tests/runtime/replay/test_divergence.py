"""Two recordings of one task: where they part, which of four sources it was, and the component beneath it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.recorded import record_agent
from trajlake.runtime.branches.divergence import diverge
from trajlake.runtime.models import ScriptedReply, scripted
from trajlake.runtime.replaying.record import record_of
from trajlake.runtime.tools import ToolOptions, make_tool


def run(name: str, **changes: Any) -> Any:
    """Record one run of the same task; a change plants one difference."""

    def look(n: int) -> str:
        return "new data" if changes.get("environment") == n else f"saw {n}"

    def says(context: Any) -> ScriptedReply:
        turn = context.turn
        if turn == 6:
            return ScriptedReply(text="done")
        n = 40 if changes.get("sampling") == turn else turn
        return ScriptedReply(calls=[("look", {"n": n})])

    tools = {"look": make_tool(look, ToolOptions(effect="read"))}
    if changes.get("schema"):

        def look_closer(n: int, deep: bool = False) -> str:
            return f"saw {n}"

        tools = {"look": make_tool(look_closer, ToolOptions(effect="read", name="look"))}

    def agent(t: Any) -> None:
        t.context.system(changes.get("system", "be brief"))
        t.context.user(t.task)
        for turn in t.turns(max=9):
            if turn.number == 2:
                t.context.user(changes.get("listing", "files: a, b, c"))
                t.context.user(f"It is {changes.get('clock', '2026-11-30T10:00:00')}")
            reply = turn.model()
            turn.tools(reply.calls)
            if not reply.calls:
                t.finish(reply.text)

    model = scripted(says, name=changes.get("served", "m"), version="1")
    return record_of(record_agent(agent, name, tools=tools, model=model))


def test_equal_runs_do_not_part() -> None:
    answer = diverge(run("a"), run("b"))
    assert answer.cause is None
    assert answer.turns == 7
    assert "the same contexts and actions" in answer.text()


@pytest.mark.parametrize(
    ("changes", "context", "action", "source", "component"),
    [
        ({"sampling": 3}, 4, 3, "model call", "sampling"),
        ({"sampling": 3, "served": "m2"}, 4, 3, "model drift", "served model m and m2"),
        ({"environment": 3}, 4, None, "environment", "result of tool look"),
        ({"system": "be long"}, 0, None, "harness input", "system prompt"),
        ({"listing": "files: c, b, a"}, 2, None, "harness input", "message: user (order)"),
        ({"clock": "2026-11-30T11:30:00"}, 2, None, "harness input", "message: user (wall clock)"),
        ({"schema": True}, 0, None, "harness input", "tool schema"),
    ],
)
def test_each_source_is_named_at_the_earlier_turn(
    changes: dict[str, Any], context: int | None, action: int | None, source: str, component: str
) -> None:
    answer = diverge(run("a"), run("b", **changes))
    assert (answer.context and answer.context.turn, answer.action and answer.action.turn) == (context, action)
    cause = answer.cause
    assert cause is not None
    assert cause.source == source, answer.text()
    assert cause.component.startswith(component), answer.text()
    assert cause.source in answer.text()


def test_an_action_that_follows_from_an_earlier_context_says_so() -> None:
    def says(context: Any) -> ScriptedReply:
        if context.turn == 2:
            return ScriptedReply(text="done " + ("new" if "new" in str(context.items) else "old"))
        return ScriptedReply(calls=[("look", {"n": context.turn})])

    def recorded(name: str, answer: str) -> Any:
        def look(n: int) -> str:
            return answer if n == 0 else "same"

        def agent(t: Any) -> None:
            t.context.user(t.task)
            for turn in t.turns(max=5):
                reply = turn.model()
                turn.tools(reply.calls)
                if not reply.calls:
                    t.finish()

        return record_of(
            record_agent(agent, name, tools={"look": make_tool(look, ToolOptions(effect="read"))}, model=scripted(says))
        )

    answer = diverge(recorded("a", "old"), recorded("b", "new"))
    assert (answer.context.turn, answer.action.turn) == (1, 2)
    assert answer.cause is answer.context
    assert answer.action.component == "follows from turn 1: result of tool look"
    assert answer.action.source == "environment"


def test_one_that_ends_earlier_parts_where_the_other_goes_on() -> None:
    short = record_of([event for event in run("a").read() if event.turn < 3])
    answer = diverge(short, run("a"))
    assert answer.action is not None
    assert answer.action.turn == 3
    assert "a has no turn 3" in answer.action.component
