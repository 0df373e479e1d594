"""The context: the list of items a model is shown, each by the event that holds it.

Source: design/events.md, *Context*.

A message is added where it stands; a kept reply of purpose `act` is added, then the results of its calls in call
order, whichever came first. A later result of the same action takes the earlier one's place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from trajlake.schemas.context import ITEMS_START, context_hash, extend_items_hash, item_hash
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import (
    Compacted,
    ContextBuilt,
    ContextHead,
    MessageAdded,
    ModelReplied,
    ProposedCall,
    ToolResult,
    ToolSettled,
)
from trajlake.schemas.values import from_tree, plain_text, to_tree

from .actions import Action
from .texts import failed, result_text

Inline = Callable[[Any], Any]
"""Puts the bulk of a tree back, from blobs."""


@dataclass(frozen=True, slots=True)
class Item:
    """One item: the event that holds it, its hash, its wire JSON, and the action whose result it is ("" for none)."""

    ref: int
    hash: str
    wire: Any
    action_id: str = ""


class ContextList:
    """The items now in force, as the applied events have them."""

    def __init__(self, inline: Inline, made: dict[int, Item] | None = None) -> None:
        self._made: dict[int, Item] = {} if made is None else made
        self.items: list[Item] = []
        self.built: tuple[int, list[int]] | None = None
        self.drifted: int | None = None
        self.drifted_at = ""
        self.replaced: dict[int, int] = {}
        self._matched = 0
        self._inline = inline
        self._purposes: dict[int, str] = {}
        self._asides: dict[int, Item] = {}
        self._refs: list[int] = []
        self._running: list[str] = []

    def apply(self, event: Event, action: Action | None) -> None:
        """Take in one event of `CONTEXT_TYPES`; `action` is the one it belongs to, already up to date."""
        _TAKE_IN[event.type](self, event.sequence_number, event.body, action)

    def start(self, items: list[Item], built: tuple[int, list[int]] | None) -> None:
        """Begin with these items in place of none; `built`: the last context built, and its items' events."""
        self.items, self.built, self._matched = items, built, len(items)
        self._refs = [item.ref for item in items]

    def _compare(self, seq: int, body: ContextBuilt) -> None:
        """Note the first context whose hash differs from the recorded one, and what may have made it differ."""
        if self.hash(body.head) == body.context_hash:
            self._matched = len(self.items)
        elif self.drifted is None:
            self.drifted = seq
            later = range(min(self._matched, len(self.items)), len(self.items))
            found = next((place for place in later if self.items[place].action_id), None)
            self.drifted_at = "head" if found is None else f"item {found}: result of {self.items[found].action_id}"

    def refs(self) -> tuple[int, ...]:
        """The events that hold the items, in order."""
        return tuple(self._refs)

    def inherit(self, item: Item) -> None:
        """Put an item of an ancestor at the end."""
        self._put(len(self.items), 0, item)

    def take_place(self, ref: int, by: int) -> None:
        """Move the last item, which event `by` holds, to the place of the one that `ref` holds."""
        assert self._refs[-1] == by
        new = self.items[-1]
        self._put(len(self.items) - 1, 1, new)
        del self.items[-1], self._refs[-1]
        self._put(self._refs.index(ref), 1, new)
        self.replaced[ref] = by

    def now_at(self, ref: int) -> int | None:
        """The event that holds the item which stands where the one of `ref` stood; None if it is not in force."""
        while ref in self.replaced:
            ref = self.replaced[ref]
        return ref if ref in self._refs else None

    def forget_asides(self) -> None:
        """Let go of what is not in force: only a `compact` of its own turn may name a reply beside the context."""
        self._asides.clear()
        for ref in self._made.keys() - set(self._refs):
            del self._made[ref]

    def hash(self, head: ContextHead) -> str:
        """Return the context hash of the items now in force behind `head`; only what is new is hashed."""
        running = self._running[-1] if self._running else ITEMS_START
        for item in self.items[len(self._running) :]:
            running = extend_items_hash(running, (item.hash,))
            self._running.append(running)
        return context_hash(head, running)

    def wires_of(self, body: ContextBuilt) -> list[Any]:
        """The items of the context just built, as the model is shown them."""
        refs = self.built[1] if self.built is not None else self.refs_of(body)
        known = {item.ref: item.wire for item in [*self._asides.values(), *self.items]}
        return [known[ref] for ref in refs]

    def by_ref(self, ref: int) -> Item:
        """Return the item that an event holds, in force or an aside; KeyError for none."""
        for item in reversed(self.items):
            if item.ref == ref:
                return item
        return self._asides[ref]

    def refs_of(self, body: ContextBuilt) -> list[int]:
        """The items of a context just built, each by the event that holds it."""
        kept = self.built[1][: body.keep] if body.base is not None and self.built is not None else []
        return kept + [_number(ref) for ref in body.append]

    def _put(self, at: int, replaces: int, item: Item) -> None:
        """Put an item in place of `replaces` others; what was hashed behind it is hashed again when it is asked for."""
        self.items[at : at + replaces] = [item]
        self._refs[at : at + replaces] = [item.ref]
        del self._running[at:]

    def _added(self, seq: int, body: MessageAdded, _: Action | None) -> None:
        make = lambda: Item(seq, body.item_hash, from_tree(self._inline(body.wire)))  # noqa: E731
        self._put(len(self.items), 0, self.made(seq, make))
        if isinstance(body.replaces, int):
            self.take_place(body.replaces, seq)

    def _built(self, seq: int, body: ContextBuilt, _: Action | None) -> None:
        self._purposes = {seq: body.purpose}
        self.built = seq, self.refs_of(body)
        if self.built[1] == self._refs:
            self._compare(seq, body)

    def _replied(self, seq: int, body: ModelReplied, _: Action | None) -> None:
        if body.status != "kept":
            return
        item = self.made(seq, lambda: Item(seq, body.item_hash, wire_of_reply(body, self._inline)))
        if self._purposes.get(_number(body.context), "act") == "act":
            self._put(len(self.items), 0, item)
        else:
            self._asides[seq] = item

    def _result(self, seq: int, body: ToolResult | ToolSettled, action: Action | None) -> None:
        if action is None or action.reply is None or action.proposal is None:
            return
        proposal, place = action.proposal, self._place_of(action)
        if place is None:
            return

        def make() -> Item:
            wire = result_wire(body, proposal, self._inline, wire_format=action.format)
            return Item(seq, item_hash(to_tree(wire)), wire, action.action_id)

        self._put(*place, self.made(seq, make))

    def made(self, seq: int, make: Callable[[], Item]) -> Item:
        """The item of an event: made once for all views of a session, since events never change."""
        found = self._made.get(seq)
        if found is None:
            found = self._made[seq] = make()
        return found

    def _place_of(self, action: Action) -> tuple[int, int] | None:
        """Where the result goes, and 1 if it takes an earlier one's place; None if its reply was compacted away."""
        own = _index(action.action_id)
        at = len(self.items)
        found: tuple[int, int] | None = None
        for position in range(len(self.items) - 1, -1, -1):
            item = self.items[position]
            if item.ref == action.reply:
                return found or (at, 0)
            if item.action_id == action.action_id:
                found = position, 1
            elif item.action_id.startswith(f"{action.reply}.") and _index(item.action_id) > own and position == at - 1:
                at = position
        return None

    def _compacted(self, seq: int, body: Compacted, _: Action | None) -> None:
        if body.reply is not None:
            summary = self.by_ref(_number(body.reply))
        else:
            wire = {"role": "user", "content": plain_text(str(from_tree(self._inline(body.summary))))}
            summary = Item(seq, item_hash(wire), wire)
        self._put(body.keep, len(self.items) - body.keep, summary)


_TAKE_IN: Final[Mapping[str, Callable[[ContextList, int, Any, Action | None], None]]] = {
    "MessageAdded": ContextList._added,
    "ContextBuilt": ContextList._built,
    "ModelReplied": ContextList._replied,
    "ToolResult": ContextList._result,
    "ToolSettled": ContextList._result,
    "Compacted": ContextList._compacted,
}
CONTEXT_TYPES: Final = frozenset(_TAKE_IN)
"""Types of events that may change the context."""


def wire_of_reply(body: ModelReplied, inline: Inline) -> Any:
    """Return the reply as a context item: stored beside `raw`, or read out of it at `wire_pointer`."""
    if body.wire is not None:
        return from_tree(inline(body.wire))
    return at_pointer(msgspec.json.decode(from_tree(inline(body.raw))), body.wire_pointer)


def result_wire(body: ToolResult | ToolSettled, call: ProposedCall, inline: Inline, *, wire_format: str) -> Any:
    """Return a settled call's result as a context item, in the shape of the reply that asked for it."""
    if isinstance(body, ToolResult) and body.wire is not None:
        return from_tree(inline(body.wire))
    from ..models.protocol import result_item  # with the models comes HTTP: not before one is used

    whole = msgspec.structs.replace(body, output=inline(body.output))
    return result_item(wire_format, call, result_text(whole), failed=failed(body))


def at_pointer(tree: Any, pointer: str) -> Any:
    """Return the value at an RFC 6901 pointer; KeyError or IndexError if there is none."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        tree = tree[int(key)] if isinstance(tree, list) else tree[key]
    return tree


def _index(action_id: str) -> int:
    return int(action_id.rpartition(".")[2])


def _number(ref: Any) -> int:
    return ref if isinstance(ref, int) else -1
