"""Where two trajectories part: the first turn whose action differs, the first whose context differs, and why.

Two recordings of one task (a re-run, a branch beside its parent) are compared turn by turn. The cause is looked for
at the earlier of the two turns: contexts can differ long before an action does. Each finding names one of four sources
and the component beneath it. Versions are compared before behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from trajlake.schemas.context import context_hash_of
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import ContextBuilt, ContextHead, MessageAdded, ModelReplied

from ..agent.arguments import text_of_call
from ..agent.context import wire_of_reply
from ..replaying.diff import Change, diff
from ..replaying.explain import look_of
from ..replaying.lineage import flat
from ..replaying.record import Record
from ..replaying.report import Source, around

HEADS = {"tools": "tool schema", "parameters": "sampling parameters", "system": "system prompt",
         "template": "prompt template", "tokenizer": "tokenizer"}  # fmt: skip


@dataclass(frozen=True)
class ItemSeen:
    """One context item: its hash, what kind of event holds it, and the event."""

    hash: str
    kind: str
    event: Event


@dataclass
class TurnSeen:
    """What one turn showed its model and what was chosen. `actions`: (tool, arguments) in order, or the text."""

    turn: int
    contexts: list[str] = field(default_factory=list)
    items: list[ItemSeen] = field(default_factory=list)
    head: ContextHead = field(default_factory=ContextHead)
    stored: dict[str, Any] = field(default_factory=dict)
    actions: list[Any] = field(default_factory=list)
    served: str = ""
    system_no: int = 0


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One place: its turn, both sides, the source and the component that explain it."""

    turn: int
    source: Source
    component: str
    a: Any = None
    b: Any = None
    a_sequence: int | None = None
    b_sequence: int | None = None
    diff: tuple[Change, ...] = ()


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """`action`: the first turn whose chosen action differs; `context`: the first whose context differs; None: never.

    `cause` is the earlier of the two. `notes` tell what the records do not show.
    """

    a: str
    b: str
    action: Finding | None
    context: Finding | None
    turns: int
    notes: tuple[str, ...] = ()

    @property
    def cause(self) -> Finding | None:
        found = [one for one in (self.context, self.action) if one is not None]
        return min(found, key=lambda one: one.turn, default=None)

    def text(self) -> str:
        """Return the comparison for people."""
        if self.cause is None:
            return f"{self.a} and {self.b}: the same contexts and actions in {self.turns} turns"
        lines = [f"{self.a} and {self.b}"]
        for name, found in (("first other context", self.context), ("first other action", self.action)):
            lines.append(f"  {name}: " + ("none" if found is None else f"turn {found.turn}"))
        cause = self.cause
        before, after = around(cause.a, cause.b)
        lines += [f"  source: {cause.source}", f"  component: {cause.component}", f"  a: {before}", f"  b: {after}"]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def diverge(a: Record, b: Record) -> Divergence:
    """Compare two records turn by turn, in one pass over each; a branch from its root on.

    Raises `LineageBroken` where an ancestor of a branch is not here.
    """
    action = context = None
    turns = 0
    empty = TurnSeen(-1)
    notes: set[str] = set()
    one, other = _turns(flat(a)), _turns(flat(b))
    while action is None or context is None:
        left, right = next(one, None), next(other, None)
        if left is None and right is None:
            break
        turns += 1
        if left is None or right is None:
            action = action or _one_ended(left or empty, right or empty, ended="a" if left is None else "b")
            break
        if not (left.contexts and right.contexts):
            notes.add("a turn without a recorded context cannot be compared by its context")
        if context is None and left.contexts[:1] != right.contexts[:1]:
            context = _context(left, right)
        if action is None and left.actions != right.actions:
            action = _action(left, right, context)
    return Divergence(
        a=a.trajectory_id, b=b.trajectory_id, action=action, context=context, turns=turns, notes=tuple(sorted(notes))
    )  # fmt: skip


def _turns(record: Record) -> Iterator[TurnSeen]:
    """What each turn showed, prologue left out."""
    kinds: dict[int, ItemSeen] = {}
    built: dict[int, list[int]] = {}
    stored: dict[str, Any] = {}
    for turn, events in record.turns():
        seen = TurnSeen(turn)
        for event in events:
            if event.sequence_number in record.outline.left.given_up:
                continue
            body = event.body
            if event.type in ("MessageAdded", "ModelReplied", "ToolResult", "ToolSettled", "Compacted"):
                kinds[event.sequence_number] = ItemSeen(_item_hash(record, body), event.type, event)
            if isinstance(body, ContextBuilt):
                base = built.get(_number(body.base), []) if body.base is not None else []
                refs = [*base[: body.keep], *map(_number, body.append)]
                built = {event.sequence_number: refs}
                stored |= body.stored
                if body.purpose == "act":
                    _saw_context(seen, body, [kinds[ref] for ref in refs if ref in kinds], stored)
            elif isinstance(body, ModelReplied) and body.status == "kept":
                seen.served, seen.system_no = body.served_model, body.system_no
                seen.actions += _chosen(record, body)
        if turn >= 0:
            yield seen


def _number(ref: Any) -> int:
    return ref if isinstance(ref, int) else -(1 << 62)


def _saw_context(seen: TurnSeen, body: ContextBuilt, items: list[ItemSeen], stored: dict[str, Any]) -> None:
    # The harness's own ids may be in no item: contexts of two recordings are equal where head and items are.
    seen.contexts.append(context_hash_of(body.head, [item.hash for item in items], body.retrieved))
    if len(seen.contexts) == 1:
        seen.items, seen.head, seen.stored = items, body.head, dict(stored)


def _item_hash(record: Record, body: Any) -> str:
    """What makes two items of two recordings the same: their words, not the ids that a provider gave its calls."""
    if isinstance(body, ModelReplied):
        wire = wire_of_reply(body, lambda tree: _inline(record, tree)) if body.status == "kept" else None
        return repr((wire.get("content") if isinstance(wire, dict) else wire, _chosen(record, body) if wire else []))
    if getattr(body, "item_hash", "") and not hasattr(body, "action_id"):
        return str(body.item_hash)
    from ..agent.texts import result_text

    kind = type(body).__name__
    if kind in ("ToolResult", "ToolSettled"):
        whole = msgspec.structs.replace(body, output=_inline(record, body.output))
        return f"text {result_text(whole)}"
    return f"{kind} {_inline(record, getattr(body, 'summary', None))}"


def _chosen(record: Record, body: ModelReplied) -> list[Any]:
    if not body.calls:
        wire = wire_of_reply(body, lambda tree: _inline(record, tree))
        return [wire.get("content") if isinstance(wire, dict) else wire]
    raw = lambda: _inline(record, body.raw)  # noqa: E731
    return [(call.tool, _arguments(_inline(record, call.arguments) or text_of_call(call, raw))) for call in body.calls]


def _arguments(text: Any) -> Any:
    try:
        return msgspec.json.decode(text) if isinstance(text, str) else text
    except msgspec.DecodeError:
        return text


def _inline(record: Record, tree: Any) -> Any:
    from trajlake.schemas.blobs import inline

    return inline(tree, record.blob)


def _one_ended(left: TurnSeen, right: TurnSeen, *, ended: str) -> Finding:
    turn = max(left.turn, right.turn)
    return Finding(
        turn=turn, source="harness input", component=f"end: {ended} has no turn {turn}", a=left.actions,
        b=right.actions,
    )  # fmt: skip


def _action(left: TurnSeen, right: TurnSeen, context: Finding | None) -> Finding:
    changes = diff(_plain(left.actions), _plain(right.actions))
    common: dict[str, Any] = {"turn": left.turn, "a": left.actions, "b": right.actions, "diff": changes}
    if context is not None:
        component = f"follows from turn {context.turn}: {context.component}"
        return Finding(source=context.source, component=component, **common)
    if (left.served, left.system_no) != (right.served, right.system_no):
        component = f"served model {left.served or 'unknown'} and {right.served or 'unknown'}"
        return Finding(source="model drift", component=component, **common)
    return Finding(source="model call", component="sampling: the same context, the same served version", **common)


def _plain(actions: list[Any]) -> Any:
    return msgspec.to_builtins(actions)


def _context(left: TurnSeen, right: TurnSeen) -> Finding:
    """Explain two contexts of one turn: the head, the order of the items, or the first item that differs."""
    for name, component in HEADS.items():
        before, after = getattr(left.head, name), getattr(right.head, name)
        if before != after:
            one, other = left.stored.get(before), right.stored.get(after)
            return Finding(
                turn=left.turn, source="harness input", component=component, a=one, b=other, diff=diff(one, other)
            )  # fmt: skip
    pairs = zip(left.items, right.items, strict=False)
    one_item, other_item = next(((a, b) for a, b in pairs if a.hash != b.hash), (None, None))
    if one_item is None or other_item is None:
        longer = (left.items if len(left.items) > len(right.items) else right.items)[-1]
        kind = longer.kind
        one_item = other_item = longer
    else:
        kind = one_item.kind if one_item.kind == other_item.kind else f"{one_item.kind} and {other_item.kind}"
    a, b = _shown(one_item.event), _shown(other_item.event)
    changes = diff(a, b)
    source, component = _source_of(kind, one_item.event, left, right)
    look = look_of(changes)
    return Finding(
        turn=left.turn, source=source, component=component + (f" ({look})" if look else ""), a=a, b=b, diff=changes,
        a_sequence=one_item.event.sequence_number, b_sequence=other_item.event.sequence_number,
    )  # fmt: skip


def _source_of(kind: str, event: Event, left: TurnSeen, right: TurnSeen) -> tuple[Source, str]:
    body = event.body
    if kind in ("ToolResult", "ToolSettled"):
        return "environment", f"result of tool {getattr(body, 'tool', '') or body.action_id}"
    if kind == "ModelReplied":
        drifted = (left.served, left.system_no) != (right.served, right.system_no)
        return ("model drift" if drifted else "model call"), "an earlier reply"
    if kind == "Compacted":
        return "harness input", "summary"
    if isinstance(body, MessageAdded):
        return "harness input", "system prompt" if body.role == "system" else f"message: {body.role}"
    return "harness input", f"items of the context: {kind}"


def _shown(event: Event) -> Any:
    body = event.body
    for name in ("wire", "output", "delivered", "summary", "raw"):
        value = getattr(body, name, None)
        if value is not None and value != "":
            return value
    return msgspec.to_builtins(body)
