"""From a difference to its report: both sides as JSON values, what differs in them, its cause, its component."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trajlake.schemas import blobs
from trajlake.schemas.envelope import Event

from ..agent.arguments import arguments_of_text
from ..agent.errors import Diverged
from ..agent.table import operation_of
from .diff import Change, diff
from .report import Report

if TYPE_CHECKING:
    from .serve import ReplaySession

_CLOCK: Final = re.compile(
    r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?|\d\d:\d\d:\d\d|\b1[5-9]\d{8}(\d{3})?(\.\d+)?\b"
)
_ID: Final = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}|\b[0-9a-f]{16,64}\b")
_HEADS: Final = {
    "tools": "tool schema", "parameters": "parameters", "system": "system prompt", "template": "prompt template",
    "tokenizer": "tokenizer",
}  # fmt: skip
_INTENT: Final = {
    "GoalRevised": "goal", "PlanCommitted": "plan", "BudgetRevised": "budget", "ConstraintAccepted": "constraint",
    "ConstraintWithdrawn": "constraint", "AssumptionCommitted": "assumption", "AssumptionRetracted": "assumption",
    "ObligationOpened": "obligation", "ObligationDischarged": "obligation", "ObservationCached": "observation",
    "ObservationInvalidated": "observation",
}  # fmt: skip
_TELLING: Final = {
    "MessageAdded": "wire", "VarSet": "value", "Compacted": "summary", "GoalRevised": "goal", "PlanCommitted": "plan",
}  # fmt: skip
"""Type -> the field that is compared, where the rest says nothing to people."""


class Difference(Diverged):
    """A difference with the recorded event it is about, and what is known of its component."""

    def __init__(
        self, s: ReplaySession, event: Event | None, got: Any, cause: str, *, operation: str = "", component: str = "",
        expected: Any = msgspec.UNSET, changes: Sequence[Change] = (),
    ) -> None:  # fmt: skip
        self.event, self.component, self.changes = event, component, tuple(changes)
        if expected is msgspec.UNSET:
            expected = "nothing" if event is None else telling(s, event.body)
        super().__init__(s.turn, operation or name_of(event), expected, got, cause)


def name_of(event: Event | None) -> str:
    """Return an operation's name for people, from its first event."""
    if event is None:
        return "operation"
    name = operation_of(event)
    if name is not None:
        return f"{name[0]} {name[1]}".strip()
    body = event.body
    return f"call {body.tool} ({body.action_id})" if hasattr(body, "action_id") else event.type


def plain(s: ReplaySession, tree: Any) -> Any:
    """Return a recorded tree or struct as JSON values, its bulk put back where it is at hand."""
    try:
        built = msgspec.to_builtins(tree, enc_hook=repr)
        return blobs.inline(built, lambda sha256: s.ports.blobs.get(s.tenant, sha256))
    except Exception:  # noqa: BLE001 - a report shows what can be shown
        return repr(tree)


def telling(s: ReplaySession, body: Any) -> Any:
    """Return what a person compares of a payload."""
    field = _TELLING.get(type(body).__name__)
    tree = plain(s, body)
    if field is not None and isinstance(tree, dict) and tree.get(field) is not None:
        return tree[field]
    return tree


def report_of(s: ReplaySession, error: Diverged) -> Report:
    """Return the report of a difference."""
    event = error.event if isinstance(error, Difference) else _event_of(s, error)
    expected, got = error.recorded, error.now
    if isinstance(expected, msgspec.Struct):
        expected = telling(s, expected)
    if isinstance(got, msgspec.Struct):
        got = telling(s, got)
    if not isinstance(error, Difference) and error.operation.startswith("call ") and event is not None:
        expected = recorded_arguments(s, event)
    cause, skipped = error.cause, s.skipped
    if skipped is not None and cause == "changed":
        # An operation before this one was passed over: everything that differs behind it follows from that.
        event, cause = skipped, "missing"
        error = Difference(s, skipped, "not asked for", "missing")
        expected, got = error.recorded, error.now
    changes = error.changes if isinstance(error, Difference) and error.changes else ()
    if cause == "changed" and not changes:
        changes = diff(expected, got)
    if cause == "changed" and changes and all(change.kind == "reordered" for change in changes):
        cause = "reordered"
    component = (error.component if isinstance(error, Difference) else "") or component_of(error.operation)
    return Report(
        verdict="differs", turn=error.turn, operation=error.operation, expected=expected, got=got, cause=cause,
        component=_finer(component, changes), source="harness input", diff=changes,
        sequence_number=event.sequence_number if event is not None else None,
    )  # fmt: skip


def component_of(operation: str) -> str:
    """Return the component that an operation's name stands for."""
    kind, _, rest = operation.partition(" ")
    name = rest.partition("#")[0].strip()
    if kind == "message":
        return "system prompt" if name == "system" else f"message: {name}"
    if kind in _INTENT:
        return _INTENT[kind] + (f": {name}" if name else "")
    named = {"var": f"variable: {name}", "compact": "summary", "model": f"model call: {name}", "end": "end",
             "call": f"arguments: {name}", "read": f"recorded input: {name}", "tools": "tool calls"}  # fmt: skip
    return named.get(kind, "code")


def _finer(component: str, changes: Sequence[Change]) -> str:
    """Name what the changed values look like: a clock, a random id, a listing in another order."""
    look = look_of(changes)
    return f"{component} ({look})" if look else component


def look_of(changes: Sequence[Change]) -> str:
    """What all changed values look like: "order", "wall clock", "random id", or ""."""
    looks = {_look(change) for change in changes}
    return looks.pop() if len(looks) == 1 else ""


def _look(change: Change) -> str:
    if change.kind == "reordered":
        return "order"
    if change.kind != "changed":
        return ""
    if _is_clock(change.expected) and _is_clock(change.got):
        return "wall clock"
    before, after = str(change.expected), str(change.got)
    for pattern, name in ((_CLOCK, "wall clock"), (_ID, "random id")):
        if pattern.search(before) and pattern.search(after) and pattern.sub("", before) == pattern.sub("", after):
            return name
    return ""


def _is_clock(value: Any) -> bool:
    """Seconds, milliseconds or nanoseconds since 1970, between 2017 and 2033."""
    return isinstance(value, int | float) and any(1.48e9 < value / unit < 2e9 for unit in (1, 1e3, 1e6, 1e9))


def _event_of(s: ReplaySession, error: Diverged) -> Event | None:
    kind, _, rest = error.operation.partition(" ")
    name, _, nth = rest.rpartition("#")
    begun = s.table.begun(kind, name.strip())
    return begun[int(nth)] if nth.isdigit() and int(nth) < len(begun) else None


def recorded_arguments(s: ReplaySession, authorized: Event) -> Any:
    """Return the arguments of a recorded call: its intent's, or those of the reply that proposed it."""
    for event in s.table.events:
        body = event.body
        if event.type == "ToolIntent" and body.action_id == authorized.body.action_id:
            if body.arguments is not msgspec.UNSET:
                return plain(s, body.arguments)
            action = s.view.actions.by_id.get(body.action_id)
            if action is not None and action.proposal is not None and action.reply is not None:
                return arguments_of_text(s.text_of(action.proposal, action.reply))
    return {"arguments_hash": authorized.body.arguments_hash}


def context_difference(
    s: ReplaySession, operation: str, built: Event, head: Any, stored: Any, items: Sequence[Any]
) -> Difference:
    """Say what makes the context of a model call another one: an item, the order, the tools, the parameters."""
    recorded = s.view.context.refs_of(built.body)
    now = [item.ref for item in items]
    if recorded != now:
        return _items_difference(s, operation, built, recorded, now)
    for name, component in _HEADS.items():
        before, after = getattr(built.body.head, name), getattr(head, name)
        if before != after:
            expected = plain(s, (s.stored | built.body.stored).get(before))
            got = plain(s, stored.get(after))
            return Difference(
                s, built, got, "changed", operation=operation, component=component, expected=expected,
                changes=diff(_by_name(expected), _by_name(got)),
            )  # fmt: skip
    hashes = [item.hash for item in items]
    return Difference(s, built, hashes, "changed", operation=operation, component="wording of an item", expected="")


def _by_name(tree: Any) -> Any:
    """A list of tools as an object by name: then a changed one shows as itself."""
    if isinstance(tree, list) and all(isinstance(one, dict) and "name" in one for one in tree):
        return {one["name"]: one for one in tree}
    return tree


def _items_difference(
    s: ReplaySession, operation: str, built: Event, recorded: list[int], now: list[int]
) -> Difference:
    missing = [ref for ref in recorded if ref not in set(now)]
    extra = [ref for ref in now if ref not in set(recorded)]
    cause = "reordered" if not missing and not extra else "changed"
    if bool(missing) != bool(extra):
        cause = "missing" if missing else "extra"
    place = next((at for at, pair in enumerate(zip(recorded, now, strict=False)) if pair[0] != pair[1]), 0)
    expected = [_item(s, ref) for ref in (missing or recorded[place:])]
    got = [_item(s, ref) for ref in (extra or now[place:])]
    ref = next(iter(missing or extra or recorded[place:]), built.sequence_number)
    return Difference(
        s, built, got if cause != "missing" else "not in the context", cause, operation=operation,
        component=f"context item: {_kind_of_item(s, ref)}", expected=expected if cause != "extra" else "nothing",
    )  # fmt: skip


def _item(s: ReplaySession, ref: int) -> Any:
    try:
        return plain(s, s.view.context.by_ref(ref).wire)
    except KeyError:
        return telling(s, s.event_at(ref).body)


def _kind_of_item(s: ReplaySession, ref: int) -> str:
    event = s.event_at(ref)
    if event.type == "MessageAdded":
        return f"message: {event.body.role}"
    return {"ModelReplied": "reply", "Compacted": "summary"}.get(event.type, "tool result")
