"""A trajectory's events as the turns of a conversation, which every conversational target is written from.

Messages, replies with their calls, and results, in the order of the events, blobs put back, tags of the value
codec undone. What is no turn is counted by `Losses`, so that a target can say what it leaves out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from trajlake.schemas.blobs import inline
from trajlake.schemas.envelope import Event
from trajlake.schemas.errors import SchemaError
from trajlake.schemas.events import (
    ApprovalRequested,
    ApprovalResolved,
    Compacted,
    ContextBuilt,
    MessageAdded,
    ModelReplied,
    SourceKept,
    TaskEnded,
    TaskStarted,
    ToolResult,
    ToolSettled,
    Usage,
)
from trajlake.schemas.history import given_up
from trajlake.schemas.values import from_tree

from ..formats.chat_shapes import Said, said_all, said_of

Blob = Callable[[str], bytes]
UNSAID: Final = frozenset(
    {"LeaseAcquired", "LeaseReleased", "CheckpointSaved", "ContextBuilt", "TaskStarted", "TaskEnded", "ToolIntent"}
)
"""Events whose absence from a conversation loses nothing that a reader of one looks for."""


class Losses:
    """What a target cannot hold of what it was given: what -> how often."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def add(self, what: str, count: int = 1) -> None:
        """Count something that is left out or changed."""
        if count:
            self.counts[what] = self.counts.get(what, 0) + count


class Message(msgspec.Struct, kw_only=True):
    """A message that is no reply. `said` is its neutral form, None where its shape is not known."""

    event: int
    at: int
    role: str
    wire: Any
    text: Any
    copied: bool
    place: str
    said: Said | None = None


class Answer(msgspec.Struct, kw_only=True):
    """What came back for one call."""

    event: int
    at: int
    action_id: str
    call_id: str
    tool: str
    output: Any
    status: str
    wire: Any = None
    error: Any = None
    duration_ms: float | None = None
    place: str = ""


class Asked(msgspec.Struct, kw_only=True):
    """One call of a reply. `arguments` is the text the model emitted."""

    action_id: str
    call_id: str
    tool: str
    arguments: str | None
    answer: Answer | None = None


class Reply(msgspec.Struct, kw_only=True):
    """One attempt of a model call."""

    event: int
    at: int
    raw: str
    format: str
    text: Any
    thought: str
    calls: list[Asked]
    wire: Any
    status: str
    purpose: str
    usage: Usage | None
    model: str
    stop_reason: str | None
    response_id: str
    cost_usd: float | None
    duration_ms: float | None
    token_ids: Any
    logprobs: Any
    error: str
    place: str


class Summary(msgspec.Struct, kw_only=True):
    """A compaction: its summary (None if it is not told) took the place of what stood behind the first items."""

    event: int
    at: int
    text: Any
    trigger: str
    tokens_before: int | None
    tokens_after: int | None


Turn = Message | Reply | Answer | Summary


class Conversation:
    """The turns of one trajectory, and what stands around them."""

    def __init__(self, events: list[Event], blob: Blob) -> None:
        self._blob = blob
        left = given_up(events)
        self.given_up = len(left)
        self.events = [event for event in events if event.sequence_number not in left]
        self.tenant, self.trajectory_id = events[0].tenant, events[0].trajectory_id
        self.start: TaskStarted = TaskStarted() if events[0].payload is None else events[0].body
        self.end: TaskEnded | None = None
        self.tools: Any = None
        self.parameters: Any = None
        self.other: dict[str, int] = {}
        self.kept: list[SourceKept] = []
        self.erased = 0
        self._stored: dict[str, Any] = {}
        self._purposes: dict[int, str] = {}
        self._by_action: dict[str, Asked] = {}
        self.turns: list[Turn] = list(self._read())

    def value(self, tree: Any) -> Any:
        """Return a payload's value as the source had it."""
        if tree is None or isinstance(tree, str):
            return tree
        return from_tree(inline(tree, self._blob))

    def _read(self) -> Iterator[Turn]:
        for event in self.events:
            if event.payload is None:
                self.erased += 1
                continue
            body = event.body
            if isinstance(body, MessageAdded):
                yield self._message(event, body)
            elif isinstance(body, ModelReplied):
                yield self._reply(event, body)
            elif isinstance(body, (ToolResult, ToolSettled)):
                yield from self._answer(event, body)
            elif isinstance(body, Compacted):
                yield Summary(
                    event=event.sequence_number, at=event.recorded_at, text=self.value(body.summary),
                    trigger=body.trigger, tokens_before=body.tokens_before, tokens_after=body.tokens_after,
                )  # fmt: skip
            else:
                self._around(event, body)

    def _around(self, event: Event, body: Any) -> None:
        if isinstance(body, ContextBuilt):
            self._purposes[event.sequence_number] = body.purpose
            self._stored.update(body.stored)
            if body.head.tools in self._stored:
                self.tools = self.value(self._stored[body.head.tools])
            if body.head.parameters in self._stored:
                self.parameters = self.value(self._stored[body.head.parameters])
        elif isinstance(body, TaskEnded):
            self.end = body
        elif isinstance(body, SourceKept):
            self.kept.append(body)
        elif isinstance(body, (ApprovalRequested, ApprovalResolved)):
            self.other["approval"] = self.other.get("approval", 0) + isinstance(body, ApprovalResolved)
        elif event.type not in UNSAID:
            self.other[event.type] = self.other.get(event.type, 0) + 1

    def _message(self, event: Event, body: MessageAdded) -> Message:
        wire = self.value(body.wire)
        said = _said(wire)
        if said is not None:
            text = said.output if said.role == "tool" else said.text
        else:
            text = wire.get("content", wire.get("message")) if isinstance(wire, dict) else wire
        return Message(
            event=event.sequence_number, at=event.recorded_at, role=body.role, wire=wire, text=text,
            copied=body.origin == "copied", place=body.place, said=said,
        )  # fmt: skip

    def _reply(self, event: Event, body: ModelReplied) -> Reply:
        raw = self.value(body.raw)
        raw = raw if isinstance(raw, str) else ""
        wire = self.value(body.wire) if body.wire is not None else _at(raw, body.wire_pointer)
        said = _said(wire)
        calls = []
        for index, call in enumerate(body.calls):
            arguments = self.value(call.arguments) if call.arguments is not None else _at(raw, call.pointer or None)
            text = arguments if isinstance(arguments, str) or arguments is None else json.dumps(arguments)
            asked = Asked(
                action_id=f"{event.sequence_number}.{index}", call_id=call.provider_id, tool=call.tool, arguments=text
            )
            self._by_action[asked.action_id] = asked
            calls.append(asked)
        text = self.value(body.text) if body.text is not None else said.text if said else _plain_text(wire)
        return Reply(
            event=event.sequence_number, at=event.recorded_at, raw=raw, format=body.format, text=text,
            thought=said.thought if said else _thought(wire), calls=calls, wire=wire, status=body.status,
            purpose=self._purposes.get(body.context, "act") if isinstance(body.context, int) else "act",
            usage=body.usage, model=body.served_model or self.start.model, stop_reason=body.stop_reason,
            response_id=body.response_id, cost_usd=_number(body.cost.get("usd")), duration_ms=body.duration_ms,
            token_ids=self.value(body.token_ids), logprobs=self.value(body.logprobs), error=body.error,
            place=body.place,
        )  # fmt: skip

    def _answer(self, event: Event, body: ToolResult | ToolSettled) -> Iterator[Answer]:
        asked = self._by_action.get(body.action_id)
        if isinstance(body, ToolSettled):
            if body.verdict == "not_executed" and not body.delivered and not body.has_output:
                self.other["ToolSettled"] = self.other.get("ToolSettled", 0) + 1
                return
            output = body.delivered or self.value(body.output)
            status, wire, error, duration = "ok" if body.verdict == "executed" else "not_executed", None, None, None
        else:
            output, status, wire = self.value(body.output), body.status, self.value(body.wire)
            error, duration = self.value(body.error), body.duration_ms
        answer = Answer(
            event=event.sequence_number, at=event.recorded_at, action_id=body.action_id, output=output, status=status,
            call_id=asked.call_id if asked else "", tool=asked.tool if asked else "", wire=wire, error=error,
            duration_ms=duration, place=body.place,
        )  # fmt: skip
        if asked is not None:
            asked.answer = answer
        yield answer

    def count_losses(self, losses: Losses, *, keeps: frozenset[str] = frozenset()) -> None:
        """Count what no conversational target holds, apart from the kinds that this one `keeps`."""
        for name, count in self.other.items():
            if name not in keeps:
                losses.add(f"{name} events" if name[0].isupper() else name, count)
        if "SourceKept" not in keeps:
            losses.add("source records kept raw", len(self.kept))
        losses.add("events given up by a roll-back", self.given_up)
        losses.add("erased events", self.erased)


def as_text(value: Any) -> str:
    """Return a value as text that UTF-8 can hold: a string itself, else JSON; lone surrogates as escapes."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text if isinstance(value, str) else json.dumps(value, default=repr)
    return text


def arguments_object(text: str | None) -> dict[str, Any] | None:
    """Return arguments as an object; None where the text is none."""
    if text is None or not text.strip():
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _said(wire: Any) -> Said | None:
    """Return the neutral form of a wire message; several items of one reply are one."""
    raw = _raw(wire)
    if raw is None:
        return None
    try:
        if isinstance(wire, list):
            found = said_all([one for one in map(_raw, wire) if one is not None])
            return next((said for said in found if said.role == "assistant"), None)
        if isinstance(wire, dict) and isinstance(wire.get("output"), list) and "role" not in wire:
            return _said(wire["output"])
        found = said_of(raw) if isinstance(wire, dict) else []
    except SchemaError:
        return None
    return found[0] if len(found) == 1 else None


def _raw(value: Any) -> msgspec.Raw | None:
    try:
        return msgspec.Raw(json.dumps(value).encode())
    except (TypeError, ValueError, RecursionError):
        return None


def _at(raw: str, pointer: str | None) -> Any:
    """Return what a JSON pointer leads to in a text; None where it leads nowhere."""
    if pointer is None:
        return None
    try:
        value = json.loads(raw)
        for part in pointer.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            value = value[int(key)] if isinstance(value, list) else value[key]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None
    return value


def _plain_text(wire: Any) -> Any:
    if isinstance(wire, dict):
        return wire.get("message", wire.get("content"))
    return wire if isinstance(wire, str) else None


def _thought(wire: Any) -> str:
    told = wire.get("reasoning_content") if isinstance(wire, dict) else None
    return told if isinstance(told, str) else ""


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
