"""Whatever is lost, rolled back or reordered, an intention keeps its key, and two deliberate equal calls get two.

A scripted agent runs over a log of real events that crashes drop at random places. A resumed run uses what the
log holds and proposes the rest again, at other sequence numbers than before.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from trajlake.schemas.chain import genesis, make_event
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import (
    Authorized,
    CheckpointSaved,
    LeaseAcquired,
    ModelReplied,
    Payload,
    ProposedCall,
    RolledBack,
    TaskStarted,
    ToolIntent,
)
from trajlake.schemas.history import covered, roll_backs
from trajlake.schemas.ids import action_id
from trajlake.schemas.keys import Proposal, arguments_hash, idempotency_key, occurrence

Intention = tuple[int, str, int]
"""(turn, who proposes it, index): what the script means by one call, whenever and wherever it comes to be."""


class Turn:
    """What the model proposes in a turn, what the harness calls after it, and whether all of it is local."""

    def __init__(self, source: random.Random) -> None:
        self.model = [source.choice("ab") for _ in range(source.randint(0, 3))]
        self.harness = [source.choice("ab") for _ in range(source.randint(0, 2))]
        self.local = source.random() < 0.5


class Agent:
    """Runs the script over `events`; `keys` remembers every key ever sent, also those a crash forgot."""

    def __init__(self, script: list[Turn], source: random.Random) -> None:
        self.script, self.source = script, source
        self.events: list[Event] = []
        self.keys: dict[Intention, set[str]] = {}
        self.token = 1
        self.add(TaskStarted(task="t"), -1)

    def add(self, payload: Payload, turn: int) -> int:
        number = len(self.events)
        prev = self.events[-1].hash if self.events else genesis("t", "r")
        self.events.append(
            make_event(
                payload, tenant="t", trajectory_id="r", sequence_number=number, fencing_token=self.token, turn=turn,
                recorded_at=0, salt=bytes(16), prev=prev,
            )
        )  # fmt: skip
        return number

    def run(self) -> None:
        """Go on from the log to the end of the script."""
        for number, turn in enumerate(self.script):
            if self.source.random() < 0.3 and not self.kept(number):
                self.add(CheckpointSaved(covers=len(self.events) - 1, state_hash="", root="", cause="interval"), number)
            for intention, proposed, letter in self.proposals_of(number, turn):
                self.dispatch(intention, proposed, letter, number)

    def proposals_of(self, number: int, turn: Turn) -> Iterator[tuple[Intention, str, str]]:
        replies = [event for event in self.kept(number) if event.type == "ModelReplied" and event.body.status == "kept"]
        if replies:
            at = replies[0].sequence_number
        else:
            if self.source.random() < 0.3:
                self.add(reply(turn.model, "rejected"), number)
            at = self.add(reply(turn.model, "kept"), number)
        parallel = [((number, "model", i), action_id(at, i), letter) for i, letter in enumerate(turn.model)]
        self.source.shuffle(parallel)
        yield from parallel
        made = [event for event in self.kept(number) if is_harness_call(event)]
        for index, letter in enumerate(turn.harness):
            if index < len(made):
                yield (number, "harness", index), made[index].body.action_id, letter
                continue
            own = action_id(len(self.events), 0)
            self.add(Authorized(action_id=own, tool=letter, decision="allow", arguments_hash=hashed(letter)), number)
            yield (number, "harness", index), own, letter

    def dispatch(self, intention: Intention, proposed: str, letter: str, turn: int) -> None:
        n = occurrence(proposals(self.events), proposed, letter, hashed(letter))
        key = idempotency_key("t", "r", letter, n, {"x": letter})
        self.keys.setdefault(intention, set()).add(key)
        self.add(
            ToolIntent(action_id=proposed, tool=letter, arguments_hash=hashed(letter), key=key, effect="external"), turn
        )

    def kept(self, turn: int) -> list[Event]:
        return [event for event in standing(self.events) if event.turn == turn]

    def crash(self) -> None:
        """Drop a suffix of the log; the next worker opens its own tenure, so every number behind it shifts."""
        del self.events[self.source.randint(1, len(self.events)) :]
        last = self.events[-1]
        self.token += 1
        self.add(
            LeaseAcquired(
                token=self.token, after_token=last.fencing_token, after_sequence=last.sequence_number,
                after_hash=last.hash.hex(),
            ),
            last.turn,
        )  # fmt: skip

    def roll_back(self) -> None:
        """Give up everything behind a checkpoint, if all turns since then are local."""
        saved = [e for e in standing(self.events) if e.type == "CheckpointSaved"]
        saved = [e for e in saved if all(self.script[later.turn].local for later in self.events[e.sequence_number :])]
        if saved:
            to = self.source.choice(saved)
            self.add(RolledBack(to=to.sequence_number, from_=len(self.events) - 1), to.turn)


def reply(letters: list[str], status: str) -> ModelReplied:
    calls = tuple(ProposedCall(tool=letter, arguments=letter) for letter in letters)
    return ModelReplied(status="kept" if status == "kept" else "rejected", calls=calls)


def hashed(letter: str) -> str:
    return arguments_hash({"x": letter})


def is_harness_call(event: Event) -> bool:
    return event.type == "Authorized" and event.body.action_id == action_id(event.sequence_number, 0)


def proposals(events: list[Event]) -> Iterator[Proposal]:
    for event in standing(events):
        if event.type == "ModelReplied" and event.body.status == "kept":
            for index, call in enumerate(event.body.calls):
                yield action_id(event.sequence_number, index), call.tool, hashed(call.tool)
        elif is_harness_call(event):
            yield event.body.action_id, event.body.tool, event.body.arguments_hash


def standing(events: list[Event]) -> list[Event]:
    """The events whose operations count. Not `given_up`: authority events still count when rolled back, but as
    the proposal of an operation they do not."""
    left = covered(events, roll_backs(events))
    numbers = {event.sequence_number for event in left}
    return [event for event in events if event.sequence_number not in numbers]


def check(seed: int) -> None:
    source = random.Random(seed)
    agent = Agent([Turn(source) for _ in range(source.randint(1, 5))], source)
    agent.run()
    for _ in range(source.randint(1, 4)):
        source.choice([agent.crash, agent.crash, agent.roll_back])()
        agent.run()
    several = {intention: keys for intention, keys in agent.keys.items() if len(keys) > 1}
    assert not several, f"seed {seed}: an intention was sent under several keys: {several}"
    sent = [key for keys in agent.keys.values() for key in keys]
    assert len(set(sent)) == len(sent), f"seed {seed}: two intentions were sent under one key"


def test_an_intention_keeps_its_key_over_crashes_roll_backs_and_reordering() -> None:
    for seed in range(150):
        check(seed)


@pytest.mark.long
def test_an_intention_keeps_its_key_over_many_more_histories() -> None:
    for seed in range(10_000, 14_000):
        check(seed)
