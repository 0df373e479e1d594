"""A view that begins at a checkpoint: earlier events are not folded again, and hardly any of them is decoded.

A checkpoint holds the state where its turn began, and the list of context items in force there, each by event and hash.
From these, and the few events they name (items in force, calls that are not settled), the view is what folding every
event would make it. Where that cannot be shown, there is none, and everything is folded: after a roll-back, in a
branch, for a checkpoint without the list, and where an item no longer gives the hash it was saved with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trajlake.schemas.context import item_hash
from trajlake.schemas.errors import SchemaError
from trajlake.schemas.events import Compacted, ConstraintAccepted, MessageAdded, ModelReplied
from trajlake.schemas.state.budget import BudgetFold
from trajlake.schemas.values import from_tree, plain_text, to_tree

from ..checkpoints.checkpoint import ItemRow
from ..wal.journal_errors import JournalError
from .actions import Action, Actions, order_of
from .context import Item, result_wire, wire_of_reply
from .decide import Approval

if TYPE_CHECKING:
    from trajlake.schemas.state import State
    from trajlake.schemas.state.records import Action as Kept

    from .session import Session
    from .view import View


def view_from(s: Session, before_turn: int | None = None) -> View | None:
    """Return a view as of the checkpoint's start of a turn, or None where every event must be folded.

    `before_turn`: only events of earlier turns may be in it.
    """
    loaded = s.base
    if loaded is None or loaded.items is None or s.left.covered:
        return None
    state = loaded.turn_start
    execution = state.execution
    if execution.branched is not None or execution.started is None:
        return None
    if before_turn is not None and execution.turn >= before_turn:
        return None
    view = s.new_view()
    try:
        items = [view.context.made(row[0], _maker(s, row)) for row in loaded.items]
        if any(item.hash != row[1] for item, row in zip(items, loaded.items, strict=True)):
            return None
        _start_actions(s, view.actions, state)
    except (LookupError, ValueError, TypeError, SchemaError, JournalError):
        return None
    latest = execution.context.latest
    built = None
    if latest is not None and isinstance(latest.built, int):
        built = latest.built, [ref for ref in execution.context.builds().items(latest.built) if isinstance(ref, int)]
    view.context.start(items, built)
    _start_rest(view, state)
    return view


def _start_rest(view: View, state: State) -> None:
    intent, execution = state.intent, state.execution
    view.budget = BudgetFold(execution.budget)
    view.vars = {name: var.value for name, var in execution.vars.items()}
    view.constraints = {
        one.constraint_id: ConstraintAccepted(
            constraint_id=one.constraint_id, text=one.text, source=one.source, predicate=one.predicate
        )
        for one in intent.constraints.values()
        if one.withdrawn is None
    }
    goal, plan = intent.goal, intent.plan
    view.goal_seq = goal.at if goal is not None and isinstance(goal.at, int) and goal.at > 0 else None
    view.plan_seq = plan.at if plan is not None and isinstance(plan.at, int) else None
    view.system_no = execution.system_no
    for one in execution.context.by_purpose.values():
        view.stored.update(digest for digest in (one.head.tools, one.head.parameters) if digest)
    view.applied = state.sequence_number


def _maker(s: Session, row: ItemRow) -> Callable[[], Item]:
    """How the item of an event is made: as the fold makes it when it meets that event."""
    ref, _, action_id = row

    def make() -> Item:
        body = s.event_at(ref).body
        if isinstance(body, MessageAdded):
            return Item(ref, body.item_hash, from_tree(s.inline(body.wire)))
        if isinstance(body, ModelReplied):
            return Item(ref, body.item_hash, wire_of_reply(body, s.inline))
        if isinstance(body, Compacted):
            wire = {"role": "user", "content": plain_text(str(from_tree(s.inline(body.summary))))}
            return Item(ref, item_hash(wire), wire)
        reply, _, index = action_id.partition(".")
        asked = s.event_at(int(reply)).body
        wire = result_wire(body, asked.calls[int(index)], s.inline, wire_format=asked.format)
        return Item(ref, item_hash(to_tree(wire)), wire, action_id)

    return make


class Unread(dict[str, Action]):
    """Actions by id; what only an event holds of one (proposal, intent) is read when the action is asked for."""

    def __init__(self, fill: Callable[[Action], None]) -> None:
        super().__init__()
        self.waiting: set[str] = set()
        self._fill = fill

    def __getitem__(self, action_id: str) -> Action:
        action = super().__getitem__(action_id)
        if action_id in self.waiting:
            self.waiting.discard(action_id)
            self._fill(action)
        return action

    def get(self, action_id: str, default: Any = None) -> Any:
        try:
            return self[action_id]
        except KeyError:
            return default


def _start_actions(s: Session, actions: Actions, state: State) -> None:
    kept = state.execution.actions
    by_id = Unread(lambda action: _fill(s, action))
    places: dict[tuple[str, str], list[tuple[int, int, int]]] = defaultdict(list)
    for one in kept.values():
        action = _action(one)
        by_id[one.action_id] = action
        by_id.waiting.add(one.action_id)
        if not action.outcome:
            _ = by_id[one.action_id]
        if not action.hash and action.reply is not None and one.authorized is None:
            filled = by_id[one.action_id]
            assert filled.proposal is not None
            action.hash = s.hash_of_proposal(action.tool, filled.proposal, action.reply)
        if action.hash:
            places[action.step, action.hash].append(order_of(one.action_id))
    for orders in places.values():
        orders.sort()
    for approval in state.execution.approvals.values():
        actions.approvals[approval.approval_id] = approval.action_id
        answer = s.event_at(_seq(approval.resolved)).body if approval.resolved is not None else None
        dict.__getitem__(by_id, approval.action_id).approval = Approval(
            approval.approval_id, approval.action_id, approval.arguments_hash, _seq(approval.requested),
            decision=approval.decision or "", expires_at=approval.expires_at,
            posted_at=answer.mail.posted_at if answer is not None and answer.mail is not None else None,
            used=approval.used is not None, because=answer.because if answer is not None else "",
        )  # fmt: skip
    sent = sorted((one for one in kept.values() if one.key), key=lambda one: _seq(one.first_intent))
    for one in sent:
        actions.key_owner.setdefault(one.key, one.action_id)
    actions.start(by_id, places)


def _action(one: Kept) -> Action:
    """An action as far as the state has it. Raises LookupError where the state cannot tell."""
    outcome, seq = one.status, one.outcome
    if one.late is not None or one.outcome_kind == "late" or one.inherited:
        raise LookupError(one.action_id)
    if one.outcome_kind == "settled" and outcome == "ok":
        outcome = "executed"
    return Action(
        one.action_id, one.tool, reply=_seq(one.proposed) if one.by == "model" else None, step=one.step,
        hash=one.arguments_hash, decision=one.decision or "",
        authorized_seq=-1 if one.authorized is None else _seq(one.authorized),
        intent_seq=-1 if one.intent is None else _seq(one.intent),
        intent_token=0 if one.intent is None else one.intent_token, first_key=one.key,
        outcome=outcome, outcome_seq=-1 if seq is None else _seq(seq),
    )  # fmt: skip


def _fill(s: Session, action: Action) -> None:
    if action.reply is not None:
        reply = s.event_at(action.reply).body
        action.proposal = reply.calls[int(action.action_id.rpartition(".")[2])]
        action.format = reply.format
    if action.intent_seq >= 0:
        action.intent = s.event_at(action.intent_seq).body


def _seq(ref: Any) -> int:
    if not isinstance(ref, int):
        raise LookupError(str(ref))
    return ref
