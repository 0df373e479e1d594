"""Operations that end at once: messages, inputs, variables, intent state, budget.

Each is one event, served or recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trajlake.schemas import values
from trajlake.schemas.context import item_hash
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import Compacted, DriftDetected, InputRead, MessageAdded, Payload, VarSet, encode_payload

from .errors import Diverged, Misuse
from .requests import Steps
from .session import Session


def at_once(s: Session, kind: str, name: str, make: Callable[[], Payload], *, compare: bool = True) -> Event:
    """Serve one recorded event, or record one. `compare`: what the code gives now must be what it gave."""
    operation = f"{kind} {name}".strip()
    s.check_usable(operation)
    s.asked = make if compare else None
    nth, event = s.table.take(kind, name)
    if event is None:
        if s.turn < 0 <= s.open_turn:
            raise Diverged(s.turn, f"{operation} #{nth}", "nothing", "a new operation in the prologue", "extra")
        s.go_live(f"{operation} #{nth}")
        return s.record_at_once(make())
    if compare:
        payload, _ = s.offloaded(make())
        if encode_payload(payload) != event.payload:
            raise Diverged(s.turn, f"{operation} #{nth}", event.body, payload)
    s.serve([event])
    return event


def message(s: Session, role: str, wire: dict[str, Any]) -> None:
    """Add a message. In the prologue of a resumed trajectory a changed one is drift: the recorded one stands."""
    tree = values.to_tree(wire)
    payload = MessageAdded(role=role, wire=tree, item_hash=item_hash(tree))
    s.check_usable(f"message {role}")
    s.asked = lambda: payload
    nth, event = s.table.take("message", role)
    if event is None:
        if s.turn < 0 <= s.open_turn:
            s.drift(_message_drift(f"{role} #{nth}", None, payload), None, tree)
            return
        s.go_live(f"message {role} #{nth}")
        s.record_at_once(payload)
        return
    if event.body.item_hash != payload.item_hash:
        if s.turn >= 0:
            raise Diverged(s.turn, f"message {role} #{nth}", event.body.wire, tree)
        s.drift(_message_drift(f"{role} #{nth}", event.body.item_hash, payload), event, tree)
    s.serve([event])


def _message_drift(component: str, old: str | None, now: MessageAdded) -> DriftDetected:
    return DriftDetected(what="message", component=component, old=old, new=now.item_hash, choice="recorded")


def read_input(s: Session, kind: str, name: str, produce: Callable[[], Any]) -> Any:
    """Serve a recorded input, or read it now and record it. Raises `InvalidValue` for what cannot be recorded."""
    event = at_once(
        s, "read", f"{kind}:{name}" if name else kind,
        lambda: InputRead(kind=kind, name=name, value=values.to_tree(produce())), compare=False,
    )  # fmt: skip
    return s.value(event.body.value, f"recorded input {event.body.kind} {event.body.name}".rstrip())


def read_slowly(s: Session, name: str, produce: Callable[[], Any]) -> Steps:
    """`turn.read`: the same for a function that may wait."""
    if not name:
        raise Misuse("turn.read needs a name: it says which input of the turn this is")
    s.check_usable(f"read {name}")
    nth, event = s.table.take("read", f"read:{name}")
    if event is not None:
        s.serve([event])
        return s.value(event.body.value, f"recorded input {event.body.kind} {event.body.name}".rstrip())
    s.go_live(f"read {name} #{nth}")
    done = yield from s.run_body(produce)
    if done.error is not None:
        raise done.error
    event = yield from s.record(InputRead(kind="read", name=name, value=values.to_tree(done.value)))
    return s.value(event.body.value, f"recorded input {event.body.kind} {event.body.name}".rstrip())


def set_var(s: Session, name: str, value: Any, *, deleted: bool = False) -> None:
    """Set or delete a variable that outlives its turn."""
    if not isinstance(name, str) or not name:
        raise Misuse(f"t.vars: a name is a text of at least one character, not {name!r}")
    tree = None if deleted else values.to_tree(value)
    at_once(s, "var", name, lambda: VarSet(name=name, value=tree, deleted=deleted))


def compact(s: Session, keep: int, summary: Any, trigger: str) -> None:
    """Replace all but the first `keep` items by a summary: a reply of this turn, or a text."""
    if keep < 0 or (keep > len(s.view.context.items) and s.live):
        raise Misuse(f"turn.compact: keep {keep} of {len(s.view.context.items)} items")
    reply = getattr(summary, "sequence_number", None)
    tree = None if reply is not None else values.to_tree(str(summary))
    at_once(s, "compact", "", lambda: Compacted(reply=reply, summary=tree, keep=keep, trigger=trigger))
