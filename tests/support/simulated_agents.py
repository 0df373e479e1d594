"""Random agents for simulated runs, the outside world that counts what they do, and the person who answers.

An agent is a pure function of its seed and of what its turns answer. The world knows every effect by its key.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from trajlake.runtime.mailbox.mail import MailItem
from trajlake.runtime.models import ScriptedReply, scripted
from trajlake.runtime.models.protocol import Context
from trajlake.runtime.tools import (
    NOT_EXECUTED,
    UNKNOWN,
    Allow,
    Ask,
    Call,
    Deny,
    Executed,
    NotExecuted,
    Retry,
    Tool,
    ToolError,
    ToolOptions,
    make_tool,
)

from .simulated_host import Host, Process

BOUND_US = 65_000_000
"""How long a request may be under way: timeout_s + settle_after_s of the tools that can be slow."""


@dataclass
class World:
    """What really happened: executions by key, sends by key. It outlives every process."""

    random: random.Random
    host: Host
    executed: Counter[str] = field(default_factory=Counter)
    outputs: dict[str, Any] = field(default_factory=dict)
    sends: Counter[str] = field(default_factory=Counter)
    under_way: list[tuple[int, str, Any]] = field(default_factory=list)

    def settle_down(self) -> None:
        """Requests that were under way arrive, once their time has come."""
        now_us = self.host.clock_us
        for arrives_us, key, what in [one for one in self.under_way if one[0] <= now_us]:
            self.under_way.remove((arrives_us, key, what))
            self._execute(key, what)

    def _execute(self, key: str, what: Any) -> None:
        self.executed[key] += 1
        self.outputs[key] = {"did": what, "serial": self.random.randint(0, 10**6)}

    def act(self, call: Call, process: Process, *, honours_key: bool, slow: bool = False) -> Any:
        """Do the effect, with a moment to die before it and after it; sometimes fail in one of the known ways."""
        self.sends[call.key] += 1
        process.tick()
        luck = self.random.random()
        if luck < 0.08:
            raise NotExecuted("the service was not reached")
        if slow and luck > 0.9:
            self.under_way.append(
                (self.host.clock_us + self.random.randint(0, BOUND_US), call.key, call.arguments["what"])
            )
            process.tick()
            raise TimeoutError("no answer yet")
        if not (honours_key and self.executed[call.key]):
            self._execute(call.key, call.arguments["what"])
        process.tick()
        if luck < 0.14:
            raise TimeoutError("no answer")
        if luck < 0.18:
            raise ToolError("ran and failed")
        return self.outputs[call.key]


def tools_for(world: World, process: Process) -> dict[str, Tool]:
    """Return one tool of each kind, for one process."""

    def look(what: int) -> dict[str, Any]:
        process.tick()
        if world.random.random() < 0.1:
            raise OSError("flaky")
        return {"saw": what, "at": world.random.randint(0, 10**6)}

    def edit(what: int, *, call: Call) -> Any:
        return world.act(call, process, honours_key=False)

    def put(what: int, *, call: Call) -> Any:
        return world.act(call, process, honours_key=True)

    def pay(what: int, *, call: Call) -> Any:
        return world.act(call, process, honours_key=False, slow=True)

    def probe(call: Call) -> Any:
        process.tick()
        world.settle_down()
        if world.random.random() < 0.2:
            return UNKNOWN
        if world.executed[call.key]:
            return Executed(world.outputs[call.key], evidence={"key": call.key})
        return NOT_EXECUTED

    def wire(what: int, *, call: Call) -> Any:
        return world.act(call, process, honours_key=False, slow=True)

    def ship(what: int, *, call: Call) -> Any:
        return world.act(call, process, honours_key=False)

    made = [
        make_tool(look, ToolOptions(effect="read", retry=Retry(1))),
        make_tool(edit, ToolOptions(effect="local")),
        make_tool(put, ToolOptions(effect="idempotent", retry=Retry(1))),
        make_tool(pay, ToolOptions(effect="external", probe=probe, settle_after_s=5, retry=Retry(2))),
        make_tool(wire, ToolOptions()),
        make_tool(ship, ToolOptions(approve=True)),
    ]
    return {tool.name: tool for tool in made}


_ALLOW = Allow()
NAMES = ("look", "edit", "put", "pay", "wire", "ship")


class SometimesNo:
    """A policy: pure, so the same call gets the same answer in every life."""

    version = "sim/1"

    def __call__(self, call: Call, state: Any) -> Any:
        what = call.arguments["what"]
        if call.tool == "wire" and what == 3:
            return Deny("not three")
        return Ask(expires_s=3600) if call.tool == "pay" and what == 2 else _ALLOW


def model_for(seed: int) -> Any:
    """Return a model whose reply depends on the seed and the number of replies in its context only."""

    def says(context: Context) -> ScriptedReply:
        replies = sum(item.get("role") == "assistant" for item in context.items)
        dice = random.Random(f"{seed}/{replies}/{context.purpose}")
        if context.purpose != "act":
            return ScriptedReply(text=f"summary {replies}")
        calls: list[tuple[str, Any]] = []
        for _ in range(dice.choice((0, 1, 1, 2, 3))):
            luck = dice.random()
            if luck < 0.05:
                calls.append((dice.choice(NAMES), "{not json"))
            elif luck < 0.08:
                calls.append(("no_such_tool", {"what": 1}))
            else:
                calls.append((dice.choice(NAMES), {"what": dice.randint(1, 3)}))
        return ScriptedReply(text=f"reply {replies}", calls=calls)

    return scripted(says, name="sim", version="1")


@dataclass
class Seen:
    """What the agent was shown, by (turn, operation): `fixed` once something durable was shown after it."""

    fixed: dict[tuple[int, int], Any] = field(default_factory=dict)
    loose: dict[tuple[int, int], Any] = field(default_factory=dict)
    sums: dict[int, int] = field(default_factory=dict)

    def note(self, turn: int, operation: int, value: Any, *, durable: bool) -> None:
        """Take down what an operation answered; it must be what it answered before, if that was durable."""
        place = turn, operation
        if place in self.fixed:
            assert self.fixed[place] == value, (
                f"turn {turn} operation {operation}: {self.fixed[place]!r} became {value!r}"
            )
        self.loose[place] = value
        if durable:
            self.fixed.update(self.loose)
            self.loose = {}


def agent_for(seed: int, seen: Seen) -> Callable[[Any], Any]:
    """Return a random agent. It carries nothing from turn to turn but `t.vars`."""
    turns = random.Random(f"{seed}/turns").randint(1, 4)

    def agent(t: Any) -> Any:
        t.context.system("be brief")
        t.context.user(t.task["text"])
        for turn in t.turns(max=turns + 1):
            _turn(t, turn, seed, seen)
            if turn.number == turns - 1:
                return t.finish({"sum": t.vars.get("sum", 0)})
        return None

    return agent


def _turn(t: Any, turn: Any, seed: int, seen: Seen) -> None:
    dice = random.Random(f"{seed}/turn/{turn.number}")
    number, total = 0, 0

    def note(value: Any, *, durable: bool = False) -> None:
        nonlocal number
        seen.note(turn.number, number, value, durable=durable)
        number += 1

    if dice.random() < 0.4:
        note(str(turn.now()))
    if dice.random() < 0.3:
        note((turn.uuid(), turn.random(), turn.listdir("work")))
    if dice.random() < 0.3:
        t.context.user(f"note {turn.number}")
    _intent(t, turn.number, dice)
    reply = turn.model()
    note(reply.text, durable=True)
    if dice.random() < 0.5:
        results = turn.tools(reply.calls, limit=dice.randint(1, 3))
    else:
        results = [turn.tool(call) for call in reply.calls]
    note([(one.status, one.output, one.text) for one in results])
    total += sum(
        one.output["serial"] for one in results if one.ok and isinstance(one.output, dict) and "serial" in one.output
    )
    if dice.random() < 0.4:
        done = turn.call(
            dice.choice(("look", "put", "wire")), {"what": dice.randint(1, 2)}, step=dice.choice(("", "own"))
        )
        note((done.status, done.output))
    if dice.random() < 0.3:
        note(turn.read("tag", random.random))
    t.vars["sum"] = t.vars.get("sum", 0) + total
    t.vars[f"turn{turn.number}"] = [turn.number, reply.text]
    seen.sums[turn.number] = total
    if dice.random() < 0.25:
        summary = turn.model(purpose="summary")
        note(summary.text, durable=True)
        turn.compact(keep=2, summary=summary)


def _intent(t: Any, number: int, dice: random.Random) -> None:
    luck = dice.random()
    if luck < 0.15:
        t.goal.revise({"aim": number}, source="user")
    elif luck < 0.3:
        t.constraints.accept(f"c{number}", "never edit three", tool="edit", arguments={"what": "3"})
    elif luck < 0.4:
        t.plan.commit(["a", number])
    elif luck < 0.5:
        t.obligations.open(f"o{number}", "tell them")
        t.observations.cache(f"w{number}", {"n": number}, half_life_s=60)


def answer(host: Host, world: World, waits: Any, trajectory_id: str) -> None:
    """The person: answers every question truthfully, one item each, once nothing is under way any more."""
    host.clock_us += BOUND_US
    world.settle_down()
    for waiting in waits:
        if waiting.kind == "approval":
            body: dict[str, Any] = {"decision": host.random.choice(("granted", "granted", "denied"))}
            kind, subject = "approval", waiting.approval_id
        else:
            key = waiting.key
            body = {"verdict": "executed" if world.executed[key] else "not_executed", "because": "asked the service"}
            if world.executed[key] and host.random.random() < 0.5:
                body["output"] = world.outputs[key]
            kind, subject = "settle", waiting.action_id
        item: Any = MailItem(
            id=host.random.randbytes(8).hex(), tenant="default", trajectory_id=trajectory_id, kind=kind,  # type: ignore[arg-type]
            subject=subject, body=body, actor="anna", posted_at=host.clock_us,
        )  # fmt: skip
        host.mail.append(item)
        host.posted.append(item.id)
