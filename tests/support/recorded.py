"""Recorded trajectories of any length, made by the real core on a host in memory, and put into roots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support.simulated_host import Host, SimulatedLog, performer, ports_of
from trajlake.runtime.agent import driver_sync
from trajlake.runtime.agent.enter import Order
from trajlake.runtime.agent.session import Session, Setup
from trajlake.runtime.models import scripted
from trajlake.runtime.root import Root
from trajlake.runtime.tools import Tool, ToolOptions, make_tool
from trajlake.runtime.wal.frame import TrajectoryInfo
from trajlake.schemas.envelope import Event
from trajlake.schemas.history import canonical

Agent = Callable[[Any], Any]


def record_agent(
    agent: Agent, trajectory_id: str, *, tools: Mapping[str, Tool], model: Any, task: Any = "go", policy: Any = None,
    budget: Mapping[str, Any] | None = None, agent_name: str = "", **more: Any,
) -> list[Event]:  # fmt: skip
    """Run an agent to its end on a host in memory; return its canonical events."""
    host = Host(0)
    process = host.start(None)
    log = SimulatedLog(host, process)
    session = Session(ports_of(host, process, log), Setup(tools=tools, policy=policy), "default", trajectory_id)
    order = Order(
        task=task, model=getattr(model, "name", "m"), model_version="1", budget=budget or {}, agent=agent_name,
        started=lambda: {"policy_version": getattr(policy, "version", "")},
    )  # fmt: skip
    driver_sync.run(
        session, order, agent, lambda s, p: driver_sync.Trajectory(s, p, _no_spawn, model=model, **more),
        performer(host, process),
    )  # fmt: skip
    return canonical(host.find()[0]).events


def _no_spawn(*_: Any) -> Any:
    raise AssertionError("no children here")


def journal_of(tools: Mapping[str, Tool], policy: Any = None) -> Any:
    """What `replay` needs of a journal, without a root."""
    return SimpleNamespace(tools=tools, policy=policy, resolvers={}, ports_for_reading=None)


def look_tool() -> dict[str, Tool]:
    """One reading tool."""

    def look(n: int) -> str:
        return f"saw {n}"

    return {"look": make_tool(look, ToolOptions(effect="read"))}


def long_agent(turns: int, keep: int = 20) -> Agent:
    """An agent of `turns` turns, seven events each; its context is compacted so that it stays short."""

    def agent(t: Any) -> None:
        t.context.system("be brief")
        t.context.user(t.task)
        for turn in t.turns(max=turns + 1):
            reply = turn.model()
            turn.tools(reply.calls)
            t.vars["at"] = turn.number
            if len(t.context) > keep:
                turn.compact(keep=2, summary=f"up to turn {turn.number}")
            if turn.number == turns - 1:
                t.finish("done")

    return agent


def long_model(width: int = 0) -> Any:
    """A model that looks at one more number each time; `width` more characters of text in each reply."""

    def says(context: Any) -> Any:
        from trajlake.runtime.models import ScriptedReply

        return ScriptedReply(text="x" * width, calls=[("look", {"n": context.turn})])

    return scripted(says, name="long", version="1")


def put_into_root(path: Path, trajectories: Iterable[list[Event]], *, seal: bool = True) -> Root:
    """Write recorded trajectories into a root, through its real writer."""
    root = Root.open(path)
    writer = root.claim_writer()
    ticket = None
    for events in trajectories:
        first = events[0]
        info = TrajectoryInfo(
            tenant=first.tenant, trajectory_id=first.trajectory_id, model="scripted", model_version="1",
            started_on="2026-11-30",
        )  # fmt: skip
        for event in events:
            ticket = writer.append([event], info, lazy=True)
    if ticket is not None:
        ticket.wait()
    if seal:
        writer.close()
    return root
