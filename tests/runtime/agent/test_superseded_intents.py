"""An intent of a superseded worker may have been sent: the successor settles it before it sends the same call."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.simulated_host import Crash, Host, Process, SimulatedLog, performer, ports_of
from trajlake.runtime.agent import driver_sync
from trajlake.runtime.agent.enter import Order
from trajlake.runtime.agent.outcome import Outcome
from trajlake.runtime.agent.session import Session, Setup
from trajlake.runtime.tools import Tool, ToolOptions, make_tool
from trajlake.schemas.history import canonical


def life(
    host: Host, process: Process, log: SimulatedLog, tools: dict[str, Tool], agent: Callable[[Any], Any]
) -> Outcome:
    session = Session(ports_of(host, process, log), Setup(tools=tools), "default", "t")
    return driver_sync.run(
        session, Order(task=1), agent, lambda s, p: driver_sync.Trajectory(s, p, lambda: None), performer(host, process)
    )


def test_a_call_that_a_paused_worker_may_have_sent_is_settled_not_sent_again() -> None:
    host = Host(1)
    host.random = random.Random(7)
    sent: list[str] = []
    pauses, stops = True, False

    def pay() -> str:
        sent.append("pay")
        if pauses:
            first.dead = True
            raise Crash  # the worker stands still inside its send, for longer than its lease
        return "paid"

    tools = {"pay": make_tool(pay, ToolOptions())}

    def agent(t: Any) -> None:
        for turn in t.turns():
            turn.now()
            if stops:
                raise ZeroDivisionError
            t.finish(turn.call("pay").output)

    first = host.start(None)
    log = SimulatedLog(host, first)
    with pytest.raises(Crash):
        life(host, first, log, tools, agent)
    late = [event for event in host.durable if event.type in ("Authorized", "ToolIntent")]
    host.durable = [event for event in host.durable if event not in late]
    # The successor enters before the paused worker's last events are seen ...
    stops = True
    second = host.start(None)
    with pytest.raises(ZeroDivisionError):
        life(host, second, SimulatedLog(host, second), tools, agent)
    assert sent == ["pay"]
    # ... and they are on disk when the third one does.
    host.durable += late
    pauses = stops = False
    third = host.start(None)
    outcome = life(host, third, SimulatedLog(host, third), tools, agent)
    superseded = canonical(host.durable).superseded
    assert "ToolIntent" in {event.type for event in superseded}
    assert outcome.status == "parked"
    assert outcome.waiting_for[0].kind == "doubt"
    assert sent == ["pay"], "the successor sent nothing"
