"""Mail at operation boundaries: each item becomes its event once, and is deleted only when that is safe."""

from __future__ import annotations

from functools import partial
from typing import Literal

from trajlake.schemas.context import item_hash
from trajlake.schemas.events import (
    ApprovalResolved,
    CancelRequested,
    LateResult,
    MessageAdded,
    Payload,
    ToolResult,
    ToolSettled,
)

from ..generations import may_delete_mail
from ..mail import MailItem
from .actions import Action
from .errors import Cancelled
from .requests import Block, Steps
from .session import Session
from .texts import DELIVERED_VERSION, delivered


def boundary(s: Session, operation: str) -> Steps:
    """Where an operation that runs begins: everything recorded is served, then the mail is read.

    Raises `Cancelled` when somebody asked to stop.
    """
    s.go_live(operation)
    yield from drain(s)
    if s.cancelled():
        raise s.unwind(Cancelled(f"trajectory {s.trajectory_id!r}: cancelled"))


def drain(s: Session, *, steer: bool = False) -> Steps:
    """Turn waiting items into events, make them durable, check the lease, then delete the items. Returns how many.

    A steer stays where it is unless `steer`: it is read only where a turn begins.
    """
    items: list[MailItem] = yield Block(lambda: s.ports.mail.waiting(s.tenant, s.trajectory_id))
    taken = [item for item in items if steer or item.kind != "steer"]
    if not taken:
        return 0
    for item in taken:
        if item.id not in s.mail_seen:
            payload = event_of(s, item)
            s.mail_seen.add(item.id)
            if payload is not None:
                yield from s.record(payload)
    yield from s.checked_barrier()
    assert may_delete_mail(event_durable=True, replica_acknowledged=None, lease_checked_after=True)
    for item in taken:
        yield Block(partial(s.ports.mail.delete, item))
    return len(taken)


def event_of(s: Session, item: MailItem) -> Payload | None:
    """Return the event that an item becomes, or None: it answers nothing, and is dropped."""
    body = item.body
    if s.has_ended() and item.kind not in ("settle", "result"):
        return None
    if item.kind == "cancel":
        return CancelRequested(because=str(body.get("because", "")), mail=item.stamp)
    if item.kind == "steer":
        wire = body.get("wire") or {"role": "user", "content": body.get("text", "")}
        return MessageAdded(
            role=str(wire.get("role", "user")), wire=wire, item_hash=item_hash(wire), origin="steer", mail=item.stamp
        )
    if item.kind == "approval":
        return _approval(s, item)
    action = _action_named(s, item.subject)
    if action is None:
        return LateResult(action_id=item.subject or "0.0", decision="refused", reason="unknown action", mail=item.stamp)
    return _settlement(s, item, action) if item.kind == "settle" else _result(s, item, action)


def _approval(s: Session, item: MailItem) -> Payload | None:
    actions = s.view.actions
    action = actions.by_id.get(actions.approvals.get(item.subject, item.subject))
    approval = action.approval if action is not None else None
    named = item.body.get("arguments_hash") or (approval.arguments_hash if approval is not None else "")
    if approval is None or approval.decision or named != approval.arguments_hash:
        return None
    return ApprovalResolved(
        approval_id=approval.approval_id,
        action_id=approval.action_id,
        decision="granted" if item.body.get("decision") == "granted" else "denied",
        approver=item.actor,
        approver_known_by=item.actor_known_by,
        arguments_hash=approval.arguments_hash,
        because=str(item.body.get("because", "")),
        mail=item.stamp,
    )


def _settlement(s: Session, item: MailItem, action: Action) -> Payload:
    body = item.body
    if action.phase != "open":
        return LateResult(
            action_id=action.action_id,
            decision="refused",
            reason=f"already {action.outcome or 'unsent'}",
            mail=item.stamp,
        )
    verdict: Literal["executed", "not_executed"] = "executed" if body.get("verdict") == "executed" else "not_executed"
    has_output = "output" in body
    because = str(body.get("because", ""))
    return ToolSettled(
        action_id=action.action_id,
        how="person",
        verdict=verdict,
        attempt=action.attempt,
        output=body.get("output"),
        has_output=has_output,
        delivered="" if has_output else delivered(verdict, because or None),
        delivered_version=DELIVERED_VERSION,
        because=because,
        mail=item.stamp,
    )


def _result(s: Session, item: MailItem, action: Action) -> Payload:
    body = item.body
    if s.has_ended() or s.cancelled():
        return LateResult(
            action_id=action.action_id, decision="refused", output=body.get("output"), reason="the task is over",
            mail=item.stamp,
        )  # fmt: skip
    if action.phase != "open":
        return LateResult(
            action_id=action.action_id, decision="refused", output=body.get("output"),
            reason=f"already {action.outcome or 'unsent'}", mail=item.stamp,
        )  # fmt: skip
    status: Literal["ok", "error"] = "error" if body.get("status") == "error" else "ok"
    return ToolResult(
        action_id=action.action_id, status=status, attempt=action.attempt, tool=action.tool,
        output=body.get("output"), error=body.get("error"), mail=item.stamp,
    )  # fmt: skip


def _action_named(s: Session, subject: str) -> Action | None:
    """The action of this id, else the one open action with this provider's id."""
    found = s.view.actions.by_id.get(subject)
    if found is not None or not subject:
        return found
    named = [
        action
        for action in s.view.actions.by_id.values()
        if action.proposal is not None and action.proposal.provider_id == subject and action.phase == "open"
    ]
    return named[0] if len(named) == 1 else None
