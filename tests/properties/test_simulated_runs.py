"""Random agents, crashed one to three times at every step, in a world that counts their effects.

After each run: every durable intent was executed once or settled, nothing was done without one, the variables and the
context are what the agent saw, the chain verifies, and a cold replay asks for the same.
"""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.simulated_agents import NAMES, Seen, SometimesNo, World, agent_for, answer, model_for, tools_for
from tests.support.simulated_host import Crash, Host, SimulatedCheckpoints, SimulatedLog, performer, ports_of
from trajlake.runtime.agent import driver_sync
from trajlake.runtime.agent.enter import Order
from trajlake.runtime.agent.life import Outcome
from trajlake.runtime.agent.session import Session, Setup
from trajlake.runtime.replaying.replay_run import replay
from trajlake.schemas.chain import verify
from trajlake.schemas.envelope import Event
from trajlake.schemas.history import canonical
from trajlake.schemas.state import fold, initial

ID = "sim"
LIVES_MAX = 60


class Run:
    """One simulated trajectory, through all its lives."""

    def __init__(self, agent_seed: int, luck_seed: int) -> None:
        self.agent_seed = agent_seed
        self.host = Host(luck_seed)
        self.world = World(random.Random(luck_seed + 1), self.host)
        self.seen = Seen()
        self.checkpoints = SimulatedCheckpoints()
        self.steps: list[int] = []

    def live(self, crash_at: int | None) -> Outcome | None:
        """One life: an outcome, or None if it crashed."""
        process = self.host.start(crash_at)
        log = SimulatedLog(self.host, process)
        tools = tools_for(self.world, process)
        self.ports = replace(ports_of(self.host, process, log), checkpoints=self.checkpoints)
        session = Session(self.ports, Setup(tools=tools, policy=SometimesNo()), "default", ID)
        model = model_for(self.agent_seed)
        order = Order(
            task={"text": "work"},
            model="sim",
            model_version="1",
            started=lambda: {"policy_version": SometimesNo.version},
        )
        self.seen.loose = {}
        try:
            outcome = driver_sync.run(
                session, order, agent_for(self.agent_seed, self.seen),
                lambda s, p: driver_sync.Trajectory(s, p, _no_spawn, model=model), performer(self.host, process),
            )  # fmt: skip
        except Crash:
            self.host.end(process, log.queued)
            return None
        finally:
            self.steps.append(process.step)
        assert not log.queued, "an outcome was returned before everything was durable"
        return outcome

    def to_the_end(self, crashes: list[int]) -> Outcome:
        """Live until the task is over: crash where `crashes` says, and have the person answer when it parks."""
        plan = list(crashes)
        for _ in range(LIVES_MAX):
            outcome = self.live(plan.pop(0) if plan else None)
            if outcome is None:
                continue
            if outcome.status != "parked":
                return outcome
            answer(self.host, self.world, outcome.waiting_for, ID)
            if len(plan) < len(crashes) and self.host.random.random() < 0.4:
                plan.insert(0, self.host.random.randint(1, 20))  # where the mail is read
        raise AssertionError(f"still not over after {LIVES_MAX} lives")

    def history(self) -> list[Event]:
        found, _ = self.host.find()
        history = canonical(found)
        assert not history.conflicts
        assert not history.held_back
        return history.events


def _no_spawn(*_: Any) -> Any:
    raise AssertionError("no children here")


def check(run: Run, outcome: Outcome) -> None:
    """Everything that must hold after a run."""
    events = run.history()
    assert outcome.status == "completed", outcome
    assert verify(events) == []
    assert events[-1].type == "LeaseReleased"
    check_effects(run, events)
    check_doubts_come_first(events)
    mailed = [mail.mail_id for event in events if (mail := getattr(event.body, "mail", None)) is not None]
    assert sorted(mailed) == sorted(run.host.posted), "each item becomes one event"
    state = fold(initial("default", ID), events)
    total = sum(run.seen.sums.values())
    assert outcome.result == {"sum": total}
    assert state.execution.vars["sum"].value == total
    check_context(events)
    journal: Any = SimpleNamespace(
        tools=tools_for(run.world, run.host.start(None)), policy=SometimesNo(), resolvers={},
        ports_for_reading=run.ports,
    )  # fmt: skip
    for cold in (False, True):
        report = replay(agent_for(run.agent_seed, Seen()), events, journal=journal, cold=cold)
        assert report.same, report


def check_effects(run: Run, events: list[Event]) -> None:
    """Each durable intent was executed once or settled; nothing happened without a durable intent."""
    intents = [event.body for event in events if event.type == "ToolIntent"]
    outcomes: dict[str, Any] = {}
    excused: dict[str, int] = {}
    for event in events:
        if event.type in ("ToolResult", "ToolSettled"):
            body = event.body
            outcomes[body.action_id] = body
            negative = getattr(body, "verdict", getattr(body, "status", "")) == "not_executed"
            excused[body.action_id] = excused.get(body.action_id, 0) + negative
    keys = {intent.key: intent for intent in intents}
    assert len({intent.key for intent in intents}) == len({intent.action_id for intent in intents})
    for intent in intents:
        assert intent.action_id in outcomes, f"{intent.action_id} ({intent.tool}) has no outcome"
    for key, count in run.world.executed.items():
        assert key in keys, "an effect has no durable intent"
        intent = keys[key]
        assert count == 1, f"{intent.tool} {intent.action_id} was executed {count} times"
        outcome = outcomes[intent.action_id]
        if intent.effect != "local":
            assert getattr(outcome, "verdict", getattr(outcome, "status", "")) not in ("not_executed", "refused")
    for key, sends in run.world.sends.items():
        intent = keys[key]
        if intent.effect in ("external", "local"):
            assert sends <= 1 + excused[intent.action_id], f"{intent.tool} {intent.action_id} was sent {sends} times"


def check_doubts_come_first(events: list[Event]) -> None:
    """No tenure dispatches anything new while an intent of an earlier one has no outcome."""
    unanswered: dict[str, int] = {}
    for event in events:
        body = event.body
        if event.type == "ToolIntent":
            if not body.settling:
                older = [action for action, token in unanswered.items() if token < event.fencing_token]
                assert not older, f"{body.action_id} is dispatched while {older} are in doubt"
            unanswered[body.action_id] = event.fencing_token
        elif event.type in ("ToolResult", "ToolSettled"):
            unanswered.pop(body.action_id, None)


def check_context(events: list[Event]) -> None:
    """The context of each call is what a plain reading of the log gives."""
    items: list[int] = []
    asides: set[int] = set()
    built: dict[int, list[int]] = {}
    for event in events:
        body = event.body
        if event.type == "MessageAdded":
            items.append(event.sequence_number)
        elif event.type == "ContextBuilt":
            base = built[body.base][: body.keep] if body.base is not None else []
            built[event.sequence_number] = [*base, *body.append]
            if body.purpose != "act":
                asides.add(event.sequence_number)
            assert [_place(events, ref) for ref in built[event.sequence_number]] == [
                _place(events, ref) for ref in items
            ]
        elif event.type == "ModelReplied" and body.status == "kept" and body.context not in asides:
            items.append(event.sequence_number)
        elif event.type in ("ToolResult", "ToolSettled"):
            _insert(events, items, event)
        elif event.type == "Compacted":
            items[body.keep :] = [body.reply]


def _insert(events: list[Event], items: list[int], event: Event) -> None:
    proposer, _, index = event.body.action_id.partition(".")
    if int(proposer) not in items or events[int(proposer)].type != "ModelReplied":
        return
    at = items.index(int(proposer)) + 1
    while at < len(items) and _action(events, items[at]).partition(".")[0] == proposer:
        other = int(_action(events, items[at]).partition(".")[2])
        if other == int(index):
            items[at] = event.sequence_number
            return
        if other > int(index):
            break
        at += 1
    items.insert(at, event.sequence_number)


def _action(events: list[Event], ref: int) -> str:
    return str(getattr(events[ref].body, "action_id", "")) if events[ref].type in ("ToolResult", "ToolSettled") else ""


def _place(events: list[Event], ref: int) -> int:
    return ref


def simulate(first_seed: int, runs: int) -> None:
    """Make `runs` runs: for agent after agent one without a crash, then one to three crashes at every step in turn."""
    done, agent_seed = 0, first_seed
    while done < runs:
        agent_seed += 1
        whole = Run(agent_seed, agent_seed)
        _attempt(whole, [])
        done += 1
        length = whole.steps[0]
        dice = random.Random(agent_seed)
        for step in range(1, length + 1):
            if done >= runs:
                return
            crashes = [step, *(dice.randint(1, length) for _ in range(dice.choice((0, 0, 1, 2))))]
            _attempt(Run(agent_seed, agent_seed * 1000 + step), crashes)
            done += 1


def _attempt(run: Run, crashes: list[int]) -> None:
    try:
        check(run, run.to_the_end(crashes))
    except BaseException as error:
        error.add_note(f"agent seed {run.agent_seed}, luck seed {run.host.seed}, crashes at {crashes}")
        raise


def test_a_thousand_crashed_runs_do_each_effect_once_and_replay_the_same() -> None:
    simulate(0, 1000)


def test_a_read_that_is_tried_again_lets_no_other_body_begin_before_its_intent() -> None:
    # The run that found it: reads begin before the batch's intents are durable, so one that ended shows nothing.
    _attempt(Run(10_041, 10_041_072), [72])


@pytest.mark.long
def test_twelve_thousand_crashed_runs_do_each_effect_once_and_replay_the_same() -> None:
    simulate(10_000, 12_000)


def test_the_agents_use_every_kind_of_tool() -> None:
    host = Host(0)
    assert set(tools_for(World(random.Random(0), host), host.start(None))) == set(NAMES)
