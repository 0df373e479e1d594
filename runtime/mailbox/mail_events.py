"""From a mail item to the one event it becomes. Pure: worker, verbs and model checker call the same function.

| kind | becomes | or is dropped (deleted without an event) |
|---|---|---|
| any | | its id is in the log already, or its body cannot be recorded |
| approval | `ApprovalResolved` | no such question, answered, other action or arguments, expired when posted, ended |
| cancel | `CancelRequested` | asked before, ended |
| result | `ToolResult`; `LateResult(refused)` if unknown, unsent, decided, cancelled, ended | its body is no result |
| settle | `ToolSettled(how=person)`; `LateResult(refused)` if unknown, unsent, decided | its body is no verdict |
| steer | `MessageAdded(origin=steer)` | ended, or its body is no message |
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
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
from trajlake.schemas.state import Action, State, stage
from trajlake.schemas.values import plain_text, tag_tree

from .mail import MailItem


class Drop(msgspec.Struct, frozen=True):
    """The item becomes no event; delete it by the same rule as the others. `reason` is one line for a log."""

    reason: str


class KnownAction(msgspec.Struct, frozen=True, kw_only=True):
    """An action as mail meets it. `sent`: it has an intent, or may have had (an accepted loss). `decided`: settled."""

    action_id: str
    tool: str
    provider_id: str = ""
    attempt: int = 1
    sent: bool = False
    decided: bool = False
    inherited: bool = False


class KnownQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """An approval that was asked for."""

    approval_id: str
    action_id: str
    arguments_hash: str
    expires_at: int | None = None
    requester: str | None = None
    answered: bool = False


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What is recorded so far, as far as it decides about mail. Questions in the order they were asked."""

    tenant: str
    trajectory_id: str
    mail: Container[str]
    actions: Mapping[str, KnownAction]
    questions: Mapping[str, KnownQuestion]
    principal: str | None = None
    ended: str = ""
    cancelled: bool = False


def known_of(state: State) -> Known:
    """Return what a state says."""
    execution = state.execution
    return Known(
        tenant=state.tenant,
        trajectory_id=state.trajectory_id,
        mail=execution.mail,
        actions={action.action_id: _known_action(action, state) for action in execution.actions.values()},
        questions={
            one.approval_id: KnownQuestion(
                approval_id=one.approval_id,
                action_id=one.action_id,
                arguments_hash=one.arguments_hash,
                expires_at=one.expires_at,
                requester=one.requester,
                answered=one.resolved is not None,
            )
            for one in execution.approvals.values()
        },
        principal=execution.started.principal if execution.started else None,
        ended=execution.ended.status if execution.ended else "",
        cancelled=execution.cancelled is not None,
    )


def _known_action(action: Action, state: State) -> KnownAction:
    # Without an intent only a loss that was accepted leaves anything to decide; the stage table knows.
    sent = action.intent is not None or (action.outcome is None and stage(action, state, 0, None) == "in_doubt")
    return KnownAction(
        action_id=action.action_id,
        tool=action.tool,
        provider_id=action.provider_id,
        attempt=max(action.attempt, 1),
        sent=sent,
        decided=action.outcome is not None,
        inherited=action.inherited,
    )


def event_of(item: MailItem, known: State | Known, *, approver_may_be_principal: bool = True) -> Payload | Drop:
    """Return the payload that `item` becomes after what is `known`, or why it becomes none.

    The caller (the lease holder) fills in what only it knows: a result's context item and hash, the delivered text of
    a settlement, blobs for bulk. A steer is asked about only where a turn begins. Never raises for a strange body.
    """
    facts = known_of(known) if isinstance(known, State) else known
    if item.id in facts.mail:
        return Drop(f"mail {item.id} is in the log already")
    if (item.tenant, item.trajectory_id) != (facts.tenant, facts.trajectory_id):
        return Drop(f"mail {item.id} is for {item.trajectory_id!r}")
    try:
        if item.kind == "approval":
            return _approval(item, facts, approver_may_be_principal)
        return _BY_KIND[item.kind](item, facts)
    except InvalidValue as error:
        return Drop(f"mail {item.id} cannot be recorded: {error}")


def _approval(item: MailItem, known: Known, approver_may_be_principal: bool) -> Payload | Drop:
    decision, hash_given = item.body.get("decision"), item.body.get("arguments_hash")
    asked = _question(item.subject, known)
    if known.ended:
        return Drop("an approval for a trajectory that has ended")
    if decision not in ("granted", "denied"):
        return Drop("an approval without a decision granted or denied")
    if asked is None:
        return Drop(f"an approval of {item.subject!r}, which nobody asked for")
    if asked.answered:
        return Drop(f"approval {asked.approval_id} was answered before")
    if hash_given not in (None, "", asked.arguments_hash):
        return Drop(f"approval {asked.approval_id} is about other arguments")
    if item.body.get("action_id") not in (None, "", asked.action_id):
        return Drop(f"approval {asked.approval_id} is about another action")
    if asked.expires_at is not None and item.posted_at > asked.expires_at:
        return Drop(f"approval {asked.approval_id} had expired when it was answered")
    if decision == "granted" and not approver_may_be_principal and item.actor in (known.principal, asked.requester):
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


def _question(subject: str, known: Known) -> KnownQuestion | None:
    """The question named by its id, or by its action's id if exactly one question about that action is open."""
    if subject in known.questions:
        return known.questions[subject]
    about = [one for one in known.questions.values() if one.action_id == subject]
    still_open = [one for one in about if not one.answered]
    if len(still_open) == 1:
        return still_open[0]
    return about[-1] if about and not still_open else None


def _cancel(item: MailItem, known: Known) -> Payload | Drop:
    if known.ended:
        return Drop("a cancellation of a trajectory that has ended")
    if known.cancelled:
        return Drop("a cancellation of a trajectory that was asked to stop before")
    return CancelRequested(because=_text(item, "because"), mail=item.stamp)


def _result(item: MailItem, known: Known) -> Payload | Drop:
    status = item.body.get("status", "ok")
    if status not in ("ok", "error") or (status == "error" and "error" not in item.body):
        return Drop("a result without a status ok, or error with its text")
    action, reason = _named(item.subject, known)
    if action is not None and not reason and (known.ended or known.cancelled):
        reason = f"the trajectory has ended ({known.ended})" if known.ended else "the trajectory was cancelled"
    reason = reason or _undecidable(action)
    if reason or action is None:
        return _refused(item, action, reason)
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


def _settle(item: MailItem, known: Known) -> Payload | Drop:
    verdict = item.body.get("verdict")
    if verdict not in ("executed", "not_executed"):
        return Drop("a settlement without a verdict executed or not_executed")
    if verdict == "not_executed" and "output" in item.body:
        return Drop("a settlement that says not executed and yet gives an output")
    action = known.actions.get(item.subject)
    reason = "unknown action" if action is None else _undecidable(action)
    if reason or action is None:
        return _refused(item, action, f"settlement {verdict}: {reason}")
    return ToolSettled(
        action_id=action.action_id,
        how="person",
        verdict=verdict,
        attempt=action.attempt,
        evidence=_tree(item, "evidence"),
        output=_tree(item, "output"),
        has_output="output" in item.body,
        because=_text(item, "because"),
        mail=item.stamp,
    )


def _named(subject: str, known: Known) -> tuple[KnownAction | None, str]:
    """The action that a result is for, and why there is none."""
    action = known.actions.get(subject)
    if action is None and subject:
        # Providers' ids repeat inside a trajectory: only one action still without an outcome can be meant.
        named = [one for one in known.actions.values() if one.provider_id == subject and not one.inherited]
        still_open = [one for one in named if one.sent and not one.decided]
        if len(still_open) > 1:
            return None, "several open actions carry this provider's id: name the action"
        action = still_open[0] if still_open else (named[-1] if named else None)
    return action, "" if action is not None else "unknown action"


def _undecidable(action: KnownAction | None) -> str:
    if action is None:
        return "unknown action"
    if action.inherited:
        return "an ancestor's action"
    if not action.sent:
        return "nothing was sent for this action"
    return "the action was decided before" if action.decided else ""


def _refused(item: MailItem, action: KnownAction | None, reason: str) -> LateResult:
    """Kept for auditors, and the settlement of an action that was open; never given to a model."""
    return LateResult(
        action_id=action.action_id if action else _valid_action_id(item.subject),
        decision="refused",
        provider_id=action.provider_id if action else plain_text(item.subject[:200]),
        output=_tree(item, "output") if "output" in item.body else _tree(item, "error"),
        reason=plain_text(reason),
        mail=item.stamp,
    )


def _steer(item: MailItem, known: Known) -> Payload | Drop:
    wire, text = _tree(item, "wire"), _tree(item, "text")
    if wire is None and text:
        wire = {"role": "user", "content": text}
    if known.ended:
        return Drop("a message to a trajectory that has ended")
    if not isinstance(wire, dict) or not isinstance(wire.get("role"), str):
        return Drop("a message without a text, or a wire form with a role")
    return MessageAdded(
        role=plain_text(wire["role"]), wire=wire, item_hash=item_hash(wire), origin="steer", mail=item.stamp
    )


_BY_KIND: Final[dict[str, Callable[[MailItem, Known], Payload | Drop]]] = {
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
