"""Fold of model, authority, action and state events: one function each, of the builder and the event."""

from __future__ import annotations

import msgspec

from ..envelope import Event
from .builder import Builder
from .records import Action, Approval, Authority, Checkpoint, Switch, Var


def model_replied(builder: Builder, event: Event) -> None:
    body = event.body
    if body.status != "kept":
        return
    builder.reply = event.sequence_number
    for index, call in enumerate(body.calls):
        action_id = f"{event.sequence_number}.{index}"
        builder.actions[action_id] = Action(
            action_id=action_id,
            tool=call.tool,
            step=call.tool,
            proposed=event.sequence_number,
            turn=event.turn,
            by="model",
            provider_id=call.provider_id,
        )


def context_built(builder: Builder, event: Event) -> None:
    body = event.body
    builder.context.add(event.sequence_number, body)


def compacted(builder: Builder, event: Event) -> None:
    builder.compacted = event.sequence_number


def var_set(builder: Builder, event: Event) -> None:
    body = event.body
    if body.deleted:
        builder.vars.remove(body.name)
    else:
        builder.vars[body.name] = Var(at=event.sequence_number, value=body.value)


def authority_acquired(builder: Builder, event: Event) -> None:
    body = event.body
    builder.authorities[body.authority_id] = Authority(
        authority_id=body.authority_id,
        acquired=event.sequence_number,
        principal=body.principal,
        scope=body.scope,
        bound_to=body.bound_to,
        expires_at=body.expires_at,
        amount=body.amount,
    )


def authority_ended(builder: Builder, event: Event) -> None:
    body = event.body
    authority = builder.authorities.get(body.authority_id)
    if authority is not None:
        builder.authorities[body.authority_id] = msgspec.structs.replace(authority, ended=event.sequence_number)


def _action(builder: Builder, event: Event) -> Action | None:
    """The action an event is about. An unknown one begins here (a call the harness makes, a record of an
    importer), unless the event was left behind by a roll-back: then its action was given up.
    """
    body = event.body
    action = builder.actions.get(body.action_id)
    if action is not None or builder.counted:
        return action
    tool = getattr(body, "tool", "")
    action = Action(
        action_id=body.action_id,
        tool=tool,
        step=tool,
        proposed=event.sequence_number,
        turn=event.turn,
        by="harness",
        provider_id=getattr(body, "provider_id", ""),
    )
    builder.actions[body.action_id] = action
    return action


def authorized(builder: Builder, event: Event) -> None:
    body = event.body
    action = _action(builder, event)
    if action is not None:
        builder.actions[body.action_id] = msgspec.structs.replace(
            action,
            authorized=event.sequence_number,
            decision=body.decision,
            arguments_hash=body.arguments_hash,
            step=body.step or action.step,
            approval=body.approval,
        )


def approval_requested(builder: Builder, event: Event) -> None:
    body = event.body
    _action(builder, event)
    builder.approvals[body.approval_id] = Approval(
        approval_id=body.approval_id,
        action_id=body.action_id,
        tool=body.tool,
        arguments_hash=body.arguments_hash,
        requested=event.sequence_number,
        requester=body.requester,
        question=body.question,
        expires_at=body.expires_at,
        single_use=body.single_use,
        repeats=body.repeats,
    )


def approval_resolved(builder: Builder, event: Event) -> None:
    """The first answer stands; one to a question never asked changes nothing."""
    body = event.body
    approval = builder.approvals.get(body.approval_id)
    if approval is None or approval.resolved is not None:
        return
    builder.approvals[body.approval_id] = msgspec.structs.replace(
        approval,
        resolved=event.sequence_number,
        decision=body.decision,
        approver=body.approver,
        approver_known_by=body.approver_known_by or (body.mail.actor_known_by if body.mail else ""),
        resolved_hash=body.arguments_hash,
        posted_at=body.mail.posted_at if body.mail else event.recorded_at,
    )


def spend_approval(builder: Builder, event: Event) -> None:
    """An approval is used once its intent is durable, and stays used if a roll-back gives the intent up."""
    body = event.body
    approval = builder.approvals.get(body.approval) if body.approval else None
    if approval is not None and approval.used is None:
        builder.approvals[body.approval] = msgspec.structs.replace(approval, used=event.sequence_number)


def tool_intent(builder: Builder, event: Event) -> None:
    body = event.body
    action = _action(builder, event)
    spend_approval(builder, event)
    if action is None:
        return
    at = event.sequence_number
    builder.actions[body.action_id] = msgspec.structs.replace(
        action,
        tool=body.tool,
        step=body.step or action.step,
        provider_id=body.provider_id or action.provider_id,
        arguments_hash=body.arguments_hash,
        intent=at,
        first_intent=at if action.first_intent is None else action.first_intent,
        intent_token=event.fencing_token,
        intent_at=event.recorded_at,
        attempt=body.attempt,
        settling=body.settling,
        tool_version=body.tool_version,
        key=body.key,
        effect=body.effect,
        timeout_s=body.timeout_s,
        settle_after_s=body.settle_after_s,
        deadline_at=body.deadline_at,
        asynchronous=body.asynchronous,
        approval=body.approval or action.approval,
        outcome=None,
        outcome_kind=None,
        status="",
        how="",
        replays=None,
        item_hash="",
    )


def tool_result(builder: Builder, event: Event) -> None:
    body = event.body
    if body.workspace is not None and not builder.counted:
        # A roll-back brought the files back to what they were before this result.
        builder.workspace = body.workspace
    action = _action(builder, event)
    if action is None:
        return
    if action.outcome is not None:
        builder.actions[body.action_id] = msgspec.structs.replace(action, late=event.sequence_number)
        return
    builder.actions[body.action_id] = msgspec.structs.replace(
        action,
        outcome=event.sequence_number,
        outcome_kind="result",
        status=body.status,
        replays=body.replays,
        item_hash=body.item_hash,
    )


def tool_settled(builder: Builder, event: Event) -> None:
    body = event.body
    action = _action(builder, event)
    if action is None or action.outcome is not None:
        return
    builder.actions[body.action_id] = msgspec.structs.replace(
        action,
        outcome=event.sequence_number,
        outcome_kind="settled",
        status="ok" if body.verdict == "executed" else "not_executed",
        how=body.how,
        item_hash=body.item_hash,
    )


def late_result(builder: Builder, event: Event) -> None:
    """Settles an action that nothing had decided (an ended trajectory's job); else it is noted as late.

    A late result of an action the log does not know is refused mail: it opens no action.
    """
    body = event.body
    action = builder.actions.get(body.action_id)
    if action is None:
        return
    if action.intent is None or action.outcome is not None:
        builder.actions[body.action_id] = msgspec.structs.replace(action, late=event.sequence_number)
        return
    builder.actions[body.action_id] = msgspec.structs.replace(
        action, outcome=event.sequence_number, outcome_kind="late", status="ok"
    )


def checkpoint_saved(builder: Builder, event: Event) -> None:
    body = event.body
    builder.checkpoint = Checkpoint(
        at=event.sequence_number, covers=body.covers, root=body.root, workspace_snapshot=body.workspace_snapshot
    )
    if body.workspace_snapshot is not None:
        builder.workspace = body.workspace_snapshot


def drift_detected(builder: Builder, event: Event) -> None:
    body = event.body
    if body.choice != "switch":
        return
    builder.system_no = body.system_no or builder.system_no + 1
    builder.switches = (
        *builder.switches,
        Switch(at=event.sequence_number, what=body.what, system_no=builder.system_no, component=body.component),
    )
