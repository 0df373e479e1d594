"""From a mail item to the one event it becomes. Pure: the worker and the model checker call the same function.

| kind | becomes | or is dropped (deleted without an event) |
|---|---|---|
| any | | its id is in the log already |
| approval | `ApprovalResolved` | no such question, answered, other action or arguments, expired when posted, ended |
| cancel | `CancelRequested` | asked before, ended |
| result | `ToolResult`; `LateResult(refused)` for an unknown, unsent, decided or ended one | its body is no result |
| settle | `ToolSettled(how=person)` | unknown, unsent or decided action |
| steer | `MessageAdded(origin=steer)` | ended, or its body is no message |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from trajlake.schemas.context import item_hash
from trajlake.schemas.errors import InvalidId, InvalidValue
from trajlake.schemas.events import (
    ApprovalResolved,
    CancelRequested,
    LateResult,
    MessageAdded,
    Payload,
    ToolResult,
    ToolSettled,
)
from trajlake.schemas.ids import parse_action_id
from trajlake.schemas.state import Action, Approval, State, stage
from trajlake.schemas.values import plain_text, tag_tree

from .mail import MailItem


class Drop(msgspec.Struct, frozen=True):
    """The item becomes no event; delete it by the same rule as the others. `reason` is one line for a log."""

    reason: str


def event_of(item: MailItem, state: State, *, approver_may_be_principal: bool = True) -> Payload | Drop:
    """Return the payload that `item` becomes after the events folded into `state`, or why it becomes none.

    The caller (the lease holder) fills in what only it knows: a result's context item and hash, the delivered text of
    a settlement, blobs for bulk. A steer is asked about only where a turn begins. Never raises for a strange body.
    """
    if item.id in state.execution.mail:
        return Drop(f"mail {item.id} is in the log already")
    if (item.tenant, item.trajectory_id) != (state.tenant, state.trajectory_id):
        return Drop(f"mail {item.id} is for {item.trajectory_id!r}")
    try:
        if item.kind == "approval":
            return _approval(item, state, approver_may_be_principal)
        return _BY_KIND[item.kind](item, state)
    except InvalidValue as error:
        return Drop(f"mail {item.id} cannot be recorded: {error}")


def _approval(item: MailItem, state: State, approver_may_be_principal: bool) -> Payload | Drop:
    decision, hash_given = item.body.get("decision"), item.body.get("arguments_hash")
    asked = _question(item.subject, state)
    if state.execution.ended is not None:
        return Drop("an approval for a trajectory that has ended")
    if decision not in ("granted", "denied"):
        return Drop("an approval without a decision granted or denied")
    if asked is None:
        return Drop(f"an approval of {item.subject!r}, which nobody asked for")
    if asked.resolved is not None:
        return Drop(f"approval {asked.approval_id} was answered before")
    if hash_given not in (None, "", asked.arguments_hash):
        return Drop(f"approval {asked.approval_id} is about other arguments")
    if item.body.get("action_id") not in (None, "", asked.action_id):
        return Drop(f"approval {asked.approval_id} is about another action")
    if asked.expires_at is not None and item.posted_at > asked.expires_at:
        return Drop(f"approval {asked.approval_id} had expired when it was answered")
    principal = state.execution.started.principal if state.execution.started else None
    if decision == "granted" and not approver_may_be_principal and item.actor in (principal, asked.requester):
        return Drop(f"approval {asked.approval_id} by the principal: somebody else must grant it")
    return ApprovalResolved(
        approval_id=asked.approval_id,
        action_id=asked.action_id,
        decision=decision,
        approver=plain_text(item.actor),
        approver_known_by=plain_text(item.actor_known_by),
        arguments_hash=asked.arguments_hash,
        because=_text(item, "because"),
        mail=item.stamp,
    )


def _question(subject: str, state: State) -> Approval | None:
    """The question named by its id, or by its action's id if exactly one question about that action is open."""
    approvals = state.execution.approvals
    if subject in approvals:
        return approvals[subject]
    about = [one for one in approvals.values() if one.action_id == subject]
    still_open = [one for one in about if one.resolved is None]
    if len(still_open) == 1:
        return still_open[0]
    return about[-1] if about and not still_open else None


def _cancel(item: MailItem, state: State) -> Payload | Drop:
    if state.execution.ended is not None:
        return Drop("a cancellation of a trajectory that has ended")
    if state.execution.cancelled is not None:
        return Drop("a cancellation of a trajectory that was asked to stop before")
    return CancelRequested(because=_text(item, "because"), mail=item.stamp)


def _result(item: MailItem, state: State) -> Payload | Drop:
    status = item.body.get("status", "ok")
    if status not in ("ok", "error") or (status == "error" and "error" not in item.body):
        return Drop("a result without a status ok, or error with its text")
    action, reason = _awaited(item.subject, state)
    if reason:
        return LateResult(
            action_id=action.action_id if action else _valid_action_id(item.subject),
            decision="refused",
            provider_id=action.provider_id if action else plain_text(item.subject[:200]),
            output=_tree(item, "output") if "output" in item.body else _tree(item, "error"),
            reason=reason,
            mail=item.stamp,
        )
    assert action is not None
    return ToolResult(
        action_id=action.action_id,
        status=status,
        attempt=action.attempt,
        tool=action.tool,
        provider_id=action.provider_id,
        output=_tree(item, "output"),
        error=_tree(item, "error"),
        mail=item.stamp,
    )


def _awaited(subject: str, state: State) -> tuple[Action | None, str]:
    """The action a result is for, and why it is refused ("" if it is not)."""
    actions = state.execution.actions
    action = actions.get(subject)
    if action is None:
        # Providers' ids repeat inside a trajectory: only one action still without an outcome can be meant.
        named = [one for one in actions.values() if subject and one.provider_id == subject and not one.inherited]
        still_open = [one for one in named if one.intent is not None and one.outcome is None]
        if len(still_open) > 1:
            return None, "several open actions carry this provider's id: name the action"
        action = still_open[0] if still_open else (named[-1] if named else None)
    if action is None:
        return None, "unknown action"
    if action.inherited:
        return action, "an ancestor's action"
    if state.execution.ended is not None:
        return action, f"the trajectory has ended ({state.execution.ended.status})"
    if action.intent is None:
        return action, "nothing was sent for this action"
    return action, "" if action.outcome is None else "the action was decided before"


def _settle(item: MailItem, state: State) -> Payload | Drop:
    verdict = item.body.get("verdict")
    action = state.execution.actions.get(item.subject)
    if verdict not in ("executed", "not_executed"):
        return Drop("a settlement without a verdict executed or not_executed")
    if verdict == "not_executed" and "output" in item.body:
        return Drop("a settlement that says not executed and yet gives an output")
    if action is None or action.inherited:
        return Drop(f"a settlement of {item.subject!r}, which is no action of this trajectory")
    if action.outcome is not None:
        return Drop(f"action {action.action_id} was decided before")
    # Without an intent only a loss that was accepted leaves anything to decide; the stage table knows.
    if action.intent is None and stage(action, state, item.posted_at, None) != "in_doubt":
        return Drop(f"nothing was sent for action {action.action_id}")
    return ToolSettled(
        action_id=action.action_id,
        how="person",
        verdict=verdict,
        attempt=max(action.attempt, 1),
        evidence=_tree(item, "evidence"),
        output=_tree(item, "output"),
        has_output="output" in item.body,
        because=_text(item, "because"),
        mail=item.stamp,
    )


def _steer(item: MailItem, state: State) -> Payload | Drop:
    wire, text = _tree(item, "wire"), _tree(item, "text")
    if wire is None and text:
        wire = {"role": "user", "content": text}
    if state.execution.ended is not None:
        return Drop("a message to a trajectory that has ended")
    if not isinstance(wire, dict) or not isinstance(wire.get("role"), str):
        return Drop("a message without a text, or a wire form with a role")
    return MessageAdded(role=wire["role"], wire=wire, item_hash=item_hash(wire), origin="steer", mail=item.stamp)


_BY_KIND: Final[dict[str, Callable[[MailItem, State], Payload | Drop]]] = {
    "cancel": _cancel,
    "result": _result,
    "settle": _settle,
    "steer": _steer,
}


def _valid_action_id(subject: str) -> str:
    try:
        parse_action_id(subject)
    except InvalidId:
        return ""
    return subject


def _text(item: MailItem, name: str) -> str:
    value = item.body.get(name)
    return plain_text(value) if isinstance(value, str) else ""


def _tree(item: MailItem, name: str) -> Any:
    """A value of the body, safe to stand in an event whoever posted it."""
    return tag_tree(item.body.get(name))
