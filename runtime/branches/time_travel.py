"""What stood at one past turn: the context as each model call was shown it, cuts with the full output behind them,
the budget, and every authorization. Nothing is run: it is the fold of the record up to there.

The fold starts at the newest checkpoint before the turn that can be read, else at the beginning, and stops where the
turn ends. Events before a checkpoint are passed over unread, but for those that hold items of the context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from trajlake.schemas import blobs
from trajlake.schemas.envelope import Event
from trajlake.schemas.errors import SchemaError
from trajlake.schemas.events import ContextBuilt, Cut, ToolResult, ToolSettled
from trajlake.schemas.state import State
from trajlake.schemas.state.budget import Budget, BudgetFold

from ..agent.texts import result_text
from ..checkpoints.checkpoint import load
from ..replaying.lineage import ancestors, flat, place_of, shifts_of
from ..replaying.record import Record

HOLDERS: Final = frozenset({"MessageAdded", "ModelReplied", "ToolResult", "ToolSettled", "Compacted"})
"""Types whose events hold context items."""

NONE: Final = -(1 << 62)
"""Stands for an event that is not there; no event has this number."""


class ShownItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One context item as delivered. `cut`: the model was given `head` first and `tail` last characters of `total`;
    `full` is the whole output behind it (None where its bulk is not at hand; `missing` says so). In a branch, `up`
    tells whose event it is: 0 its own, 1 its parent's, 2 the one above."""

    sequence_number: int
    up: int = 0
    kind: str
    delivered: Any
    cut: Cut | None = None
    full: Any = None
    missing: str = ""


class ShownCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model call of the turn: its purpose, the items it was shown, and the hash of its context."""

    sequence_number: int
    purpose: str
    context_hash: str
    items: list[ShownItem]
    up: int = 0


class TurnView(msgspec.Struct, frozen=True, kw_only=True):
    """One turn, as it was. `budget` is left at its end, `authorizations` in their order."""

    trajectory_id: str
    turn: int
    calls: list[ShownCall]
    replies: list[Any]
    authorizations: list[Any]
    approvals: list[Any]
    inputs: list[Any]
    budget_left: dict[str, str]
    budget_limits: dict[str, str]
    vars: dict[str, Any]


def turn_view(record: Record, turn: int) -> TurnView | None:
    """Return one turn of a record, None if it was never reached. -1 is the prologue.

    A branch is shown with what it inherited. Raises `LineageBroken` where an ancestor of it is not here.
    """
    shifts = shifts_of(ancestors(record))
    start = None if shifts else nearest_checkpoint(record, turn)
    fold, here, reached = _Fold(record, shifts, start), [], False
    for number, events in flat(record).turns():
        if number > turn:
            break
        reached = reached or number == turn
        for event in events:
            shown = fold.apply(event)
            if number == turn:
                here.append(event)
                fold.calls += [shown] if shown is not None else []
    if not reached:
        return None
    if fold.mistaken:  # the checkpoint is of another history
        return turn_view(replace(record, outline=replace(record.outline, notable=())), turn)
    budget, calls, variables = fold.budget, fold.calls, fold.vars
    frozen = budget.frozen()
    return TurnView(
        trajectory_id=record.trajectory_id, turn=turn, calls=calls,
        replies=_bodies(record, here, shifts, "ModelReplied"),
        authorizations=_bodies(record, here, shifts, "Authorized"),
        approvals=_bodies(record, here, shifts, "ApprovalRequested", "ApprovalResolved"),
        inputs=_bodies(record, here, shifts, "InputRead"), budget_left=dict(frozen.left),
        budget_limits=dict(frozen.limits), vars=variables,
    )  # fmt: skip


def nearest_checkpoint(record: Record, turn: int) -> State | None:
    """The state of the newest checkpoint before a turn that can be read here; None where a roll-back lies behind it."""
    if record.outline.left.covered:
        return None
    blobs_of: Any = _RecordBlobs(record)
    for event in reversed(record.outline.of_type("CheckpointSaved")):
        if event.turn < turn:
            try:
                return load(blobs_of, record.tenant, event.body.root).state
            except Exception:  # noqa: BLE001, S112 - its bytes are not here, or damaged: an older one, or the beginning
                continue
    return None


class _RecordBlobs:
    def __init__(self, record: Record) -> None:
        self._record = record

    def get(self, tenant: str, sha256: str) -> bytes:
        del tenant
        return self._record.blob(sha256)


class _Fold:
    """Context items, budget and variables as the applied events have them, from a checkpoint's state on."""

    def __init__(self, record: Record, shifts: Sequence[int], start: State | None) -> None:
        self._record, self._shifts, self._start = record, shifts, start
        self.held: dict[int, Event] = {}
        self.built: list[int] = []
        self.budget = BudgetFold(Budget())
        self.vars: dict[str, Any] = {}
        self.calls: list[ShownCall] = []
        self.mistaken = False
        if start is not None:
            execution = start.execution
            self.budget = BudgetFold(execution.budget)
            self.vars = {name: _plain(record, one.value) for name, one in execution.vars.items()}
            latest = execution.context.latest
            if latest is not None:
                self.built = [_number(ref) for ref in execution.context.builds().items(latest.built)]
        self._behind = NONE if start is None else start.sequence_number
        self._items, self._newest = frozenset(self.built), max(self.built, default=-1)

    def apply(self, event: Event) -> ShownCall | None:
        """Take in one event; a `ContextBuilt` is shown."""
        number, record = event.sequence_number, self._record
        if number <= self._behind:
            if event.type in HOLDERS and (number in self._items or number > self._newest):
                self.held[number] = event
            if self._start is not None and number == self._behind:
                self.mistaken = event.hash.hex() != self._start.head_hash
            return None
        if number >= 0:  # limits and spend are not inherited
            self.budget.apply(event)
        if number in record.outline.left.given_up:
            return None
        if event.type in HOLDERS:
            self.held[number] = event
        elif event.type == "VarSet":
            self.vars.pop(event.body.name, None)
            if not event.body.deleted:
                self.vars[event.body.name] = _plain(record, event.body.value)
        elif event.type == "ContextBuilt":
            return self._context(event, event.body)
        return None

    def _context(self, event: Event, body: ContextBuilt) -> ShownCall:
        kept = self.built[: body.keep] if body.base is not None else []
        self.built = [*kept, *(_number(ref) for ref in body.append)]
        wanted = (*self.built, *_since(self.held, self.built))
        self.held = {ref: self.held[ref] for ref in wanted if ref in self.held}
        items = [_item(self._record, self.held[ref], self._shifts) for ref in self.built if ref in self.held]
        up, at = place_of(event.sequence_number, self._shifts)
        return ShownCall(sequence_number=at, up=up, purpose=body.purpose, context_hash=body.context_hash, items=items)


def text_of(view: TurnView, width: int = 0) -> str:
    """Return the turn for people. `width`: cut each item's text to so many characters (0: whole)."""
    lines = [f"{view.trajectory_id}, {'prologue' if view.turn < 0 else f'turn {view.turn}'}"]
    for call in view.calls:
        lines.append(f"context of model call {_name(call)} ({call.purpose}), hash {call.context_hash[:12]}:")
        for place, item in enumerate(call.items):
            lines += _item_lines(place, item, width)
    for body in view.authorizations:
        left = f", left {body['budget_left']}" if body.get("budget_left") else ""
        because = f": {body['reason']}" if body.get("reason") else ""
        lines.append(
            f"authorized {_number_of(body)} {body['action_id']} {body['tool']}: {body['decision']}{because}"
            f" (policy {body.get('policy_version') or 'none'}{left})"
        )
    for body in view.approvals:
        lines.append(f"approval {_number_of(body)} {body['action_id']}: {body.get('decision', 'asked')}")
    for body in view.inputs:
        lines.append(
            f"input {_number_of(body)} {body['kind']} {body.get('name', '')}: {_short(body.get('value'), 200)}"
        )
    if view.budget_limits:
        lines.append(f"budget left: {', '.join(f'{unit} {amount}' for unit, amount in view.budget_left.items())}")
    return "\n".join(lines)


def _item_lines(place: int, item: ShownItem, width: int) -> list[str]:
    lines = [f"  [{place}] {_name(item)} {item.kind}", *_indented(_words(item.delivered), width)]
    if item.cut is not None:
        gone = item.cut.total - item.cut.head - item.cut.tail
        lines.append(
            f"      cut: characters {item.cut.head} to {item.cut.total - item.cut.tail} of {item.cut.total} "
            f"({gone}) were not shown; the full output:"
        )
        if item.missing:
            lines.append(f"      ({item.missing})")
        else:
            lines += _indented(_marked(_words(item.full), item.cut), width)
    return lines


def _marked(full: str, cut: Cut) -> str:
    """The full output with the part that the model never saw between marks."""
    end = cut.total - cut.tail
    return f"{full[: cut.head]}⟦{full[cut.head : end]}⟧{full[end:]}"


def _indented(text: str, width: int) -> list[str]:
    text = text if not width or len(text) <= width else f"{text[:width]}…"
    return [f"      {line}" for line in text.splitlines()]


def _name(shown: ShownItem | ShownCall) -> str:
    return _number_of({"#": shown.sequence_number, "up": shown.up})


def _number_of(body: dict[str, Any]) -> str:
    """An event's number for people; an ancestor's as `^1:12`."""
    return f"^{body['up']}:{body['#']}" if body.get("up") else f"#{body['#']}"


def _item(record: Record, event: Event, shifts: Sequence[int]) -> ShownItem:
    body = event.body
    cut, full, missing = None, None, ""
    if isinstance(body, ToolResult | ToolSettled):
        whole = msgspec.structs.replace(body, output=_plain(record, body.output))
        delivered: Any = result_text(whole)
        cut = getattr(body, "cut", None)
        if cut is not None:
            full, missing = _whole(record, getattr(body, "full_output", None))
    elif event.type == "ModelReplied":
        delivered = _reply(record, body)
    else:
        delivered = _plain(record, body.wire if event.type == "MessageAdded" else body.summary or body.reply)
    kind = {"MessageAdded": f"message {getattr(body, 'role', '')}", "ModelReplied": "reply", "Compacted": "summary"}
    tool = f"result of {getattr(body, 'tool', '')} {getattr(body, 'action_id', '')}".replace("  ", " ")
    up, number = place_of(event.sequence_number, shifts)
    return ShownItem(
        sequence_number=number, up=up, kind=kind.get(event.type, tool), delivered=delivered, cut=cut, full=full,
        missing=missing,
    )  # fmt: skip


def _reply(record: Record, body: Any) -> Any:
    from ..agent.context import wire_of_reply

    try:
        return wire_of_reply(body, lambda tree: _plain(record, tree))
    except (LookupError, TypeError, ValueError, SchemaError):
        return _plain(record, body.raw)


def _whole(record: Record, tree: Any) -> tuple[Any, str]:
    try:
        return blobs.inline(tree, record.blob), ""
    except Exception as error:  # noqa: BLE001 - what is missing is shown, not raised
        return None, f"not at hand: {error}"


def _plain(record: Record, tree: Any) -> Any:
    found, missing = _whole(record, tree)
    return found if not missing else tree


def _words(value: Any) -> str:
    """The text a person reads of an item: a message's content, a text itself, else JSON."""
    if isinstance(value, dict) and isinstance(value.get("content"), str) and not value.get("tool_calls"):
        return str(value["content"])
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _short(value: Any, width: int) -> str:
    text = _words(value)
    return text if len(text) <= width else f"{text[:width]}…"


def _bodies(record: Record, events: list[Event], shifts: Sequence[int], *types: str) -> list[Any]:
    found = []
    for event in events:
        if event.type in types:
            up, number = place_of(event.sequence_number, shifts)
            place = {"#": number, "up": up} if up else {"#": number}
            found.append(place | _plain(record, msgspec.to_builtins(event.body)))
    return found


def _since(held: dict[int, Event], built: list[int]) -> list[int]:
    known = set(built)
    newest = max(known, default=NONE)
    return [ref for ref in held if ref > newest and ref not in known]


def _number(ref: Any) -> int:
    return ref if isinstance(ref, int) else NONE
