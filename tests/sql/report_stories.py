"""The lake of the reports' tests: six short trajectories whose every number is written here, so that sums are by hand.

Times are minutes from 2026-11-30 00:00 UTC. `alpha` and its sub-agent `gamma` complete, `beta` (a day later) fails,
`delta` (another tenant) is rolled back, resumed under a new system and still open, `epsilon` (a day later still) is an
import that breaks off, `judge` judges.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from tests.sql.audit_story import Story, blob, digest
from trajlake.schemas.events import (
    ApprovalRequested,
    ApprovalResolved,
    Authorized,
    CheckpointSaved,
    Compacted,
    DriftDetected,
    LeaseAcquired,
    LeaseReleased,
    MessageAdded,
    ModelReplied,
    ParentAction,
    ProposedCall,
    Resumed,
    RewardAssigned,
    RolledBack,
    TaskEnded,
    ToolIntent,
    ToolResult,
    ToolSettled,
    Usage,
)

DAY_MINUTES = 1440


def stories() -> list[Story]:
    return [alpha(), beta(), gamma(), delta(), epsilon(), judge()]


def reply(
    s: Story, *tools: str, tokens: tuple[int | None, int | None, int | None] = (None, None, None), **more: Any
) -> list[str]:
    """A context and a reply; `tokens` are (input, of it cached, output). Returns the ids of the proposed actions."""
    usage = Usage(input_total=tokens[0], cached_read=tokens[1], output=tokens[2])
    more.setdefault("served_model", s.model)
    built = more.pop("context", None) or s.context()
    number = s.add(
        ModelReplied(
            raw="{}", context=built, usage=usage,
            calls=tuple(ProposedCall(tool=tool, arguments="{}") for tool in tools), **more,
        )
    )  # fmt: skip
    return [f"{number}.{index}" for index in range(len(tools))]


def act(s: Story, action: str, tool: str, arguments: str, *, effect: str = "read", tries: int = 1, **more: Any) -> None:
    """An authorized action with its intents and, where `status` is told, its result."""
    s.add(Authorized(action_id=action, tool=tool, decision="allow", arguments_hash=digest(arguments)))
    for attempt in range(1, tries + 1):
        s.add(
            ToolIntent(
                action_id=action, tool=tool, arguments_hash=digest(arguments), key=digest(action), effect=effect,  # type: ignore[arg-type]
                attempt=attempt, system_no=more.get("system_no", 0),
            )
        )  # fmt: skip
    more.pop("system_no", None)
    if "status" in more:
        s.add(ToolResult(action_id=action, **more))


def checkpoint(s: Story, cause: str, **more: Any) -> int:
    fields = {"covers": s.next - 1, "state_hash": digest("s"), "root": digest("r"), "cause": cause, **more}
    return s.add(CheckpointSaved(**fields))  # type: ignore[arg-type]


def said(s: Story) -> None:
    s.show(s.add(MessageAdded(role="user", wire={"role": "user", "content": "go"}, item_hash=digest("go"))))


def alpha() -> Story:
    s = Story("alpha", agent="a:main", model="m1", at=0)
    said(s)
    one, two = reply(
        s, "read", "read", tokens=(1000, 200, 50), duration_ms=2000.0, cost={"usd": "0.01"}, stop_reason="tool_use"
    )
    act(s, one, "read", "a", status="ok", output="x" * 98, duration_ms=100.0)
    act(s, two, "read", "b", status="error", output="y" * 8, duration_ms=300.0)
    s.turn = 1
    (pay,) = reply(s, "pay", tokens=(2000, 1000, 70), duration_ms=3000.0, cost={"usd": "0.02"}, stop_reason="tool_use")
    asked = ApprovalRequested(approval_id="p1", action_id=pay, tool="pay", arguments_hash=digest("c"))
    s.add(asked, at=10)
    s.add(ApprovalResolved(approval_id="p1", action_id=pay, decision="granted", approver="u-boss"), at=20)
    act(s, pay, "pay", "c", effect="external", status="ok", output="ok", duration_ms=1000.0)
    s.turn = 2
    built = s.context()
    reply(s, context=built, status="error", served_model="", error="no answer")
    reply(s, context=built, status="rejected", attempt=2, tokens=(2500, None, 30))
    reply(
        s, context=built, attempt=3, tokens=(2600, 2000, 60), duration_ms=1000.0, cost={"usd": "0.03"},
        stop_reason="end_turn",
    )  # fmt: skip
    checkpoint(s, "end", pause_ms=40.0, bytes_written=4000)
    s.add(TaskEnded(status="completed"), at=30)
    return s


def beta() -> Story:
    s = Story("beta", agent="a:main", model="m2", at=DAY_MINUTES)
    s.started_on = dt.date(2026, 12, 1)
    said(s)
    (first,) = reply(s, "read", tokens=(500, None, 20), stop_reason="length")
    act(s, first, "read", "b", tries=2, status="ok", output="z" * 998, duration_ms=600.0)
    s.turn = 1
    (again,) = reply(s, "read", tokens=(900, None, 40), stop_reason="tool_use")
    cut = {"head": 500, "tail": 500, "total": 5000}
    act(s, again, "read", "b", status="ok", output="z" * 1998, full_output=blob("o1"), cut=cut, duration_ms=200.0)
    s.turn = 2
    s.add(Compacted(trigger="auto", tokens_before=900, tokens_after=300, summary="short"))
    pay, lost = reply(s, "pay", "pay", tokens=(350, None, 10), stop_reason="tool_use")
    act(s, pay, "pay", "d", effect="external")
    s.add(ToolSettled(action_id=pay, how="person", verdict="executed", because="seen in the ledger"))
    act(s, lost, "pay", "e", effect="external")
    s.add(
        ApprovalRequested(approval_id="p2", action_id=lost, tool="pay", arguments_hash=digest("e")), at=DAY_MINUTES + 1
    )
    s.add(ApprovalResolved(approval_id="p2", action_id=lost, decision="denied", approver="u-boss"), at=DAY_MINUTES + 2)
    s.add(TaskEnded(status="failed", reason="gave up"), at=DAY_MINUTES + 10)
    return s


def gamma() -> Story:
    parent = ParentAction(tenant="acme", trajectory_id="alpha", action_id="3.0")
    s = Story("gamma", agent="a:sub", model="m1", at=1, parent=parent)
    said(s)
    reply(s, tokens=(100, 0, 10), duration_ms=500.0, cost={"usd": "0.001"}, stop_reason="end_turn")
    s.add(TaskEnded(status="completed"), at=5)
    return s


def delta() -> Story:
    s = Story("delta", tenant="other", agent="a:main", model="m1", at=0)
    said(s)
    reply(s, tokens=(100, None, 10), stop_reason="end_turn")
    saved = checkpoint(s, "interval", pause_ms=10.0, bytes_written=1000)
    reply(s, tokens=(150, None, 15), stop_reason="end_turn")
    last = s.next - 1
    s.stray(
        MessageAdded(role="user", wire={"role": "user", "content": "late"}, item_hash=digest("late")),
        token=1,
        after=last,
    )
    s.token = 2
    s.add(LeaseAcquired(token=2, after_token=1, after_sequence=last, after_hash=s.events[last].hash.hex()), at=60)
    s.add(Resumed(last_sequence=last))
    s.add(RolledBack(to=saved, from_=last, because="try again"))
    s.turn = 1
    s.add(DriftDetected(what="model", component="model", old="m1", new="m3", choice="switch", system_no=1))
    (read,) = reply(s, "read", tokens=(200, None, 40), system_no=1, served_model="m3", stop_reason="tool_use")
    act(s, read, "read", "f", status="error", output="no", duration_ms=400.0, system_no=1)
    s.add(ApprovalRequested(approval_id="p9", action_id=read, tool="pay", arguments_hash=digest("f")), at=61)
    return s


def epsilon() -> Story:
    s = Story("epsilon", origin="imported", model="m1", at=2 * DAY_MINUTES)
    s.started_on = dt.date(2026, 12, 2)
    reply(s, "read", tokens=(100, None, 80))
    s.add(TaskEnded(status="interrupted"), at=2 * DAY_MINUTES + 3)
    return s


def judge() -> Story:
    s = Story("judge", origin="judgement", model="verifier", at=100)
    for name, value in (("alpha", "0"), ("alpha", "1"), ("gamma", "0.5"), ("beta", "-1")):
        s.add(
            RewardAssigned(tenant="acme", trajectory_id=name, verifier="v", verifier_version="1", value=value),
            at=s.at + 1,
        )
    s.add(LeaseReleased(token=1))
    return s
