"""One thing is changed in a harness: the replay stops at its turn and names cause and component."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace as with_changes
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.recorded import journal_of, long_agent, long_model, look_tool, record_agent
from tests.support.simulated_agents import Seen, SometimesNo, World, agent_for, model_for, tools_for
from tests.support.simulated_host import Host
from trajlake.runtime import Allow, Ask, Deny, Journal, Report, replay
from trajlake.runtime.models import scripted
from trajlake.runtime.replaying.diff import diff
from trajlake.runtime.tools import ToolOptions, make_tool
from trajlake.schemas.envelope import Event

MODEL = scripted(
    [
        [("look", {"n": 1})], [("look", {"n": "2"}), ("edit", {"path": "a"})], [("look", {"n": 3})], "summary",
        [("look", {"n": 4})], "done",
    ]
)  # fmt: skip
NAMES = ["a.txt", "b.txt", "c.txt"]


class Plan:
    """What the harness does. A test changes one thing."""

    def __init__(self, **changes: Any) -> None:
        self.system, self.names, self.clock = "be brief", NAMES, "2026-11-30T10:00:00"
        self.extra_model = self.skip_model = self.extra_message = self.swap = False
        self.summary, self.argument, self.carry, self.goal = "so far: nothing", 7, False, "ship"
        vars(self).update(changes)


def agent_of(plan: Plan) -> Callable[[Any], None]:
    def agent(t: Any) -> None:
        t.context.system(plan.system)
        t.context.user(t.task)
        carried = 0
        for turn in t.turns(max=9):
            if turn.number == 1:
                t.context.user("files: " + ", ".join(plan.names))
                t.goal.revise({"aim": plan.goal}, source="user")
            if turn.number == 2:
                t.vars["at"] = plan.clock
                if plan.extra_message:
                    t.context.user("one more thing")
            if turn.number == 3 and not plan.skip_model:
                turn.model(purpose="summary")
            reply = turn.model(tools=None)
            if plan.swap and turn.number == 2:
                t.vars["after"] = 1
                turn.call("look", {"n": plan.argument}, step="own")
            else:
                if turn.number == 2:
                    turn.call("look", {"n": plan.argument}, step="own")
                t.vars["after"] = 1
            turn.tools(reply.calls)
            if plan.extra_model and turn.number == 2:
                turn.model(purpose="check")
            if turn.number == 3:
                turn.compact(keep=2, summary=plan.summary)
            carried += 1  # noqa: SIM113 - the planted mistake
            t.vars["count"] = carried if plan.carry else t.vars.get("count", 0) + 1
            if not reply.calls:
                t.finish("done")

    return agent


def tools(**changes: Any) -> dict[str, Any]:
    def look(n: int) -> str:
        return f"saw {n}"

    def edit(path: str) -> str:
        return f"edited {path}"

    made = [
        make_tool(look, ToolOptions(effect="read")),
        make_tool(changes.get("edit", edit), ToolOptions(effect=changes.get("effect", "idempotent"))),
    ]
    return {tool.name: tool for tool in made}


class Limits:
    """A policy of two rules."""

    version = "1"

    def __init__(self, **changes: Any) -> None:
        self.edit, self.state_seen = changes.get("edit", Allow()), 0

    def __call__(self, call: Any, state: Any) -> Any:
        self.state_seen = max(self.state_seen, len(state.execution.actions))
        return self.edit if call.tool == "edit" else Allow()


@pytest.fixture(scope="module")
def recorded() -> list[Event]:
    return record_agent(
        agent_of(Plan()), "t", tools=tools(), model=MODEL, policy=Limits(), budget={"tool_calls": 50, "turns": 20}
    )  # fmt: skip


def both(events: list[Event], plan: Plan, **changes: Any) -> Report:
    """Replay warm and cold: they agree on turn, cause and component."""
    journal = journal_of(tools(**changes), changes.get("policy", Limits()))
    warm, cold = (replay(agent_of(plan), events, journal=journal, cold=cold) for cold in (False, True))
    assert (warm.verdict, warm.turn, warm.cause, warm.component) == (
        cold.verdict, cold.turn, cold.cause, cold.component,
    )  # fmt: skip
    assert warm.source in ("harness input", "")
    return warm


def test_an_unchanged_harness_is_the_same(recorded: list[Event]) -> None:
    report = both(recorded, Plan())
    assert report.same, report.text()
    assert report.events == len(recorded)


@pytest.mark.parametrize(
    ("change", "turn", "cause", "component"),
    [
        ({"argument": 8}, 2, "changed", "arguments: look"),
        ({"names": ["b.txt", "a.txt", "c.txt"]}, 1, "reordered", "message: user (order)"),
        ({"clock": "2026-11-30T10:00:07"}, 2, "changed", "variable: at (wall clock)"),
        ({"extra_model": True}, 2, "extra", "model call: check"),
        ({"skip_model": True}, 3, "missing", "model call: summary"),
        ({"summary": "so far: a lot"}, 3, "changed", "summary"),
        ({"system": "be long"}, -1, "changed", "system prompt"),
        ({"extra_message": True}, 2, "extra", "message: user"),
        ({"swap": True}, 2, "reordered", "arguments: look"),
        ({"goal": "stop"}, 1, "changed", "goal"),
    ],
)
def test_a_planted_difference_is_caught_at_its_turn_with_its_cause(
    recorded: list[Event], change: dict[str, Any], turn: int, cause: str, component: str
) -> None:
    report = both(recorded, Plan(**change))
    assert (report.verdict, report.turn, report.cause, report.component) == ("differs", turn, cause, component), (
        report.text()
    )
    assert report.source == "harness input"
    assert report.text().count("\n") >= 3
    msgspec.json.encode(report.as_json())


def test_both_sides_and_the_places_that_differ_are_told(recorded: list[Event]) -> None:
    report = both(recorded, Plan(argument=8))
    assert (report.expected, report.got) == ({"n": 7}, {"n": 8})
    assert [(change.path, change.kind) for change in report.diff] == [("/n", "changed")]
    event = next(event for event in recorded if event.sequence_number == report.sequence_number)
    assert (event.type, event.body.tool) == ("Authorized", "look")


def test_a_carried_local_is_found_cold_at_the_turn_after_it() -> None:
    events = record_agent(agent_of(Plan(carry=True)), "t", tools=tools(), model=MODEL)
    journal = journal_of(tools())
    assert replay(agent_of(Plan(carry=True)), events, journal=journal).same
    report = replay(agent_of(Plan(carry=True)), events, journal=journal, cold=True)
    assert (report.turn, report.cause, report.component) == (1, "changed", "variable: count")
    assert (report.expected, report.got) == (2, 1)


def test_a_changed_tool_schema_names_the_tool_and_the_place(recorded: list[Event]) -> None:
    def edit(path: str, force: bool = False) -> str:
        return path

    report = both(recorded, Plan(), edit=edit)
    assert (report.turn, report.cause, report.component) == (0, "changed", "tool schema")
    assert any(change.path.startswith("/edit/schema") for change in report.diff), report.diff


@pytest.mark.parametrize(
    ("answer", "decision"), [(Deny("not now"), "deny"), (Ask(), "ask")],
)  # fmt: skip
def test_a_policy_that_answers_otherwise_differs_at_its_call(recorded: list[Event], answer: Any, decision: str) -> None:
    report = both(recorded, Plan(), policy=Limits(edit=answer))
    assert (report.turn, report.cause, report.component) == (1, "changed", "policy")
    assert report.expected["decision"] == "allow"
    assert report.got["decision"] == decision


def test_the_policy_sees_the_state_as_it_was(recorded: list[Event]) -> None:
    policy = Limits()
    assert replay(agent_of(Plan()), recorded, journal=journal_of(tools(), policy)).same
    assert policy.state_seen == 5, "the actions proposed before the last call was decided"


def test_another_policy_version_with_the_same_answers_is_a_note(recorded: list[Event]) -> None:
    policy = Limits()
    policy.version = "2"
    report = replay(agent_of(Plan()), recorded, journal=journal_of(tools(), policy))
    assert report.same
    assert any("policy version" in note for note in report.notes)


def test_another_effect_class_differs_at_the_intent(recorded: list[Event]) -> None:
    report = both(recorded, Plan(), effect="external")
    assert (report.turn, report.component) == (1, "effect of tool edit")


def test_a_stricter_tool_signature_differs_where_it_refuses_what_it_took() -> None:
    def strict(n: int) -> str:
        return str(n)

    def loose(n: Any) -> str:
        return str(n)

    loose.__name__ = strict.__name__ = "look"
    model = scripted([[("look", {"n": 1})], [("look", {"n": "two"})], "done"])

    def agent(t: Any) -> None:
        t.context.user(t.task)
        for turn in t.turns(max=5):
            reply = turn.model(tools=[])
            turn.tools(reply.calls)
            if not reply.calls:
                t.finish()

    one = {"look": make_tool(loose, ToolOptions(effect="read"))}
    other = {"look": make_tool(strict, ToolOptions(effect="read"))}
    events = record_agent(agent, "t", tools=one, model=model)
    report = replay(agent, events, journal=journal_of(other))
    assert (report.turn, report.component, report.expected["decision"]) == (1, "arguments: look", "allow")
    assert "refused" in report.got["decision"]
    refused = record_agent(agent, "t", tools=other, model=model)
    assert replay(agent, refused, journal=journal_of(other)).same
    report = replay(agent, refused, journal=journal_of(one))
    assert (report.turn, report.got["refused"]) == (1, False)


def test_random_agents_replay_the_same_without_a_false_alarm() -> None:
    for seed in range(60):
        host = Host(seed)
        world = World(random.Random(seed), host)
        process = host.start(None)
        registered = tools_for(world, process)
        try:
            events = record_agent(
                agent_for(seed, Seen()), "sim", tools=registered, model=model_for(seed), task={"text": "work"},
                policy=SometimesNo(),
            )  # fmt: skip
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        for cold in (False, True):
            report = replay(agent_for(seed, Seen()), events, journal=journal_of(registered, SometimesNo()), cold=cold)
            assert report.same, f"seed {seed} cold {cold}\n{report.text()}"


def test_a_budget_that_ran_out_is_the_same_again() -> None:
    model = scripted([[("look", {"n": 1})], [("look", {"n": 2})], [("look", {"n": 3})], "done"])
    from trajlake.runtime import BudgetExhausted

    def agent(t: Any) -> None:
        t.context.user(t.task)
        for turn in t.turns(max=9):
            try:
                reply = turn.model()
            except BudgetExhausted:
                t.fail("no budget")
                continue
            turn.tools(reply.calls)

    events = record_agent(agent, "t", tools=tools(), model=model, budget={"model_calls": 2})
    for cold in (False, True):
        report = replay(agent, events, journal=journal_of(tools()), cold=cold)
        assert report.same, report.text()


def test_an_open_record_is_the_same_wherever_it_was_cut(recorded: list[Event]) -> None:
    for size in range(2, len(recorded), 3):
        report = replay(agent_of(Plan()), recorded[:size], journal=journal_of(tools(), Limits()))
        assert report.same, f"cut at {size}\n{report.text()}"


def test_a_listing_in_another_order_is_told_from_a_changed_one() -> None:
    assert [change.kind for change in diff({"x": [1, 2, 3]}, {"x": [3, 2, 1]})] == ["reordered"]
    assert [change.kind for change in diff({"x": [1, 2, 3]}, {"x": [1, 3]})] == ["missing"]
    assert [(c.kind, c.path) for c in diff([1, {"a": "b"}], [1, {"a": "c"}])] == [("changed", "/1/a")]
    assert [(c.kind, c.path) for c in diff({"a/b": 1}, {})] == [("missing", "/a~1b")]
    assert diff({"a": 1}, {"a": 1}) == ()


def test_the_clock_of_a_harness_is_a_difference_even_without_interception(tmp_path: Path) -> None:
    model = scripted([[("look", {"n": 1})], "done"])

    def agent(t: Any) -> None:
        for turn in t.turns(max=5):
            t.context.user(f"It is {datetime.now().isoformat()}")  # noqa: DTZ005 - what harnesses do
            reply = turn.model()
            turn.tools(reply.calls)
            if not reply.calls:
                t.finish()

    events = record_agent(agent, "t", tools=tools(), model=model)
    report = replay(agent, events, journal=journal_of(tools()))
    assert (report.turn, report.cause) == (0, "changed")
    assert report.component == "message: user (wall clock)"


def test_reports_survive_a_process_boundary(recorded: list[Event]) -> None:
    from trajlake.runtime.replaying.many import report_from

    report = both(recorded, Plan(argument=8))
    again = report_from(msgspec.json.decode(msgspec.json.encode(report.as_json())))
    assert again == with_changes(report, expected=again.expected, got=again.got, diff=again.diff)


def test_a_long_trajectory_replays_the_same() -> None:
    events = record_agent(long_agent(60), "long", tools=look_tool(), model=long_model())
    for cold in (False, True):
        assert replay(long_agent(60), events, journal=journal_of(look_tool()), cold=cold).same


def test_a_journal_is_enough_for_its_own_records(journal: Journal, record_run: Any) -> None:
    @journal.tool(effect="read")
    def look(n: int) -> str:
        return "x" * 50_000

    def agent(t: Any) -> None:
        t.context.user(t.task)
        for turn in t.turns(max=3):
            reply = turn.model()
            turn.tools(reply.calls)
            if not reply.calls:
                t.finish()

    events = record_run(agent, scripted([[("look", {"n": 1})], "done"]))
    assert replay(agent, events, journal=journal).same
