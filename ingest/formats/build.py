"""Builds the events of one imported trajectory: numbers, turns, context, pairing. Importers feed it facts in order.

Turns: a reply opens the next turn, from 0, so that a trajectory has as many turns as replies. Messages belong to
the turn they end (before the first reply the prologue, -1), results to the turn of their reply.

Pairing: a result goes to the oldest open call with its provider id (ids repeat in real files);
without an id, to the oldest open call without one. Calls that nothing answers simply stay open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

from trajlake.schemas.canonical_json import exact_canonical, parse_arguments
from trajlake.schemas.context import ITEMS_START, context_hash_under, extend_items_hash, head_hash, item_hash
from trajlake.schemas.errors import InvalidValue, SchemaError
from trajlake.schemas.events import (
    ApprovalRequested,
    ApprovalResolved,
    Authorized,
    Compacted,
    ContextBuilt,
    ContextHead,
    ImportSource,
    MessageAdded,
    ModelReplied,
    ParentAction,
    Payload,
    ProposedCall,
    SourceKept,
    TaskEnded,
    TaskStarted,
    ToolResult,
    Usage,
)
from trajlake.schemas.events.action import Cut, ResultStatus
from trajlake.schemas.events.life import EndStatus
from trajlake.schemas.events.model import MessageOrigin, ReplyStatus
from trajlake.schemas.ids import action_id
from trajlake.schemas.keys import arguments_hash
from trajlake.schemas.limits import INLINE_MAX
from trajlake.schemas.values import to_tree

from .contract import Item, Loss
from .facts import Wire, first_record_hash, label, record_tree, session_id, time_us, wire_item

TASK_CHARS_MAX: Final = 2_000
"""Longest text of a task that event 0 repeats; the message itself is kept whole."""

__all__ = [
    "Call",
    "Proposed",
    "Trajectory",
    "first_record_hash",
    "label",
    "record_tree",
    "session_id",
    "time_us",
    "wire_item",
]


class Call(NamedTuple):
    """A call as the source has it. `arguments` is the text the model emitted; `pointer` leads to it in `raw`."""

    tool: str
    provider_id: str
    arguments: str | None
    pointer: str = ""


class Proposed(NamedTuple):
    """An open call: its action, its tool, and the id the provider gave it."""

    action: str
    tool: str
    provider_id: str
    turn: int
    arguments: str | None


class Trajectory:
    """The events of one trajectory so far. `emit` gets each item as soon as nothing later can change it.

    Everything waits until event 0 is settled: it names the model and the task, which stand further down in
    most sources. `settle()` (called by the first reply, or by the importer at its end) releases it.
    """

    def __init__(
        self,
        trajectory_id: str,
        source: ImportSource,
        emit: Callable[[Item], None],
        loss: Loss,
        *,
        agent: str = "",
        parent: ParentAction | None = None,
    ) -> None:
        self.trajectory_id = trajectory_id
        self.source = source
        self.loss = loss
        self.agent = agent
        self.parent = parent
        self.model = ""
        self.model_version = ""
        self.task: Any = None
        self.sampling: Any = None
        self.place = ""
        self.head = ContextHead()
        self._hashed_head: tuple[ContextHead | None, str] = (None, "")
        self.turn = -1
        self.sequence = 1
        self.last_at = 0
        self.ended = False
        self.settled = False
        self.replies = 0
        self.approvals = 0
        self._emit_out = emit
        self._waiting: list[Item] = []
        self._start_at: int | None = None
        self._stored: dict[str, Any] = {}
        self._items: list[int] = []
        self._digests: dict[int, str] = {}
        self._running: list[str] = [ITEMS_START]
        self._built: int | None = None
        self._built_keep = 0
        self._open: dict[str, deque[Proposed]] = {}

    # -- event 0

    def settle(self) -> None:
        """Fix event 0 and release what waits for it."""
        if self.settled:
            return
        self.settled = True
        started = TaskStarted(
            place=self.place,
            task=self.task,
            origin="imported",
            agent=label(self.agent),
            model=label(self.model) or "unknown",
            model_version=label(self.model_version),
            sampling=self.sampling,
            parent=self.parent,
            source=self.source,
        )
        self._emit_out(Item(self.trajectory_id, started, -1, self._start_at or 0))
        for item in self._waiting:
            self._emit_out(item)
        self._waiting.clear()

    def set_task(self, text: Any) -> None:
        """Give the task as first stated; the first one counts, and only before event 0 is settled."""
        if self.task is None and not self.settled and text is not None:
            self.task = record_tree(text[:TASK_CHARS_MAX] if isinstance(text, str) else text)

    # -- facts

    def message(
        self, role: str, wire: Any, *, at: int | None = None, place: str = "", origin: MessageOrigin = "imported"
    ) -> int:
        """A message that is no reply of this trajectory's model. Returns its sequence number."""
        tree, digest = wire if isinstance(wire, Wire) else wire_item(wire)
        payload = MessageAdded(place=place, role=label(role), wire=tree, item_hash=digest, origin=origin)
        number = self._add(payload, self.turn, at)
        self._push(number, digest)
        return number

    def reply(
        self,
        raw: str,
        wire: Any,
        *,
        format: str,  # noqa: A002 - the event's own word
        calls: Sequence[Call] = (),
        at: int | None = None,
        place: str = "",
        wire_pointer: str = "",
        keep_wire: bool = False,
        status: ReplyStatus = "kept",
        usage: Usage | None = None,
        model: str = "",
        context: bool = True,
        in_context: bool = True,
        purpose: str = "act",
        **more: Any,
    ) -> int:
        """One attempt of one model call: `ContextBuilt` and `ModelReplied`. Returns the reply's number.

        `raw` is the provider's body as the source has it, `wire` the reply as a context item (stored only
        with `keep_wire`, else found in `raw` by `wire_pointer`). A purpose other than `act` opens no turn.
        """
        if model and not self.model:
            self.model = model
        self.turn += purpose == "act"
        self.replies += 1
        built = self._build(at, place, purpose) if context else None
        tree, digest = wire if isinstance(wire, Wire) else wire_item(wire)
        number = self.sequence
        blob_raw = len(raw) * 3 > INLINE_MAX
        payload = ModelReplied(
            place=place,
            raw=record_tree(raw),
            format=format,
            status=status,
            context=built,
            item_hash=digest,
            wire=tree if keep_wire else None,
            wire_pointer=wire_pointer,
            calls=tuple([self._proposed(call, blob_raw) for call in calls]),
            usage=usage,
            served_model=label(model),
            **more,
        )
        self._add(payload, self.turn, at)
        for index, call in enumerate(calls):
            self._open_call(Proposed(action_id(number, index), call.tool, call.provider_id, self.turn, call.arguments))
        if in_context:
            self._push(number, digest)
        self.settle()
        return number

    def take_call(self, provider_id: str) -> Proposed | None:
        """Return the call that a result with this provider id answers, and close it; None for an orphan."""
        waiting = self._open.get(provider_id)
        if not waiting:
            return None
        call = waiting.popleft()
        if not waiting:
            del self._open[provider_id]
        return call

    def find_call(self, provider_id: str) -> Proposed | None:
        """Return the oldest open call with this provider id, and leave it open."""
        waiting = self._open.get(provider_id)
        return waiting[0] if waiting else None

    def close_call(self, call: Proposed) -> None:
        """Close one open call that the caller has found among `open_calls`."""
        waiting = self._open[call.provider_id]
        waiting.remove(call)
        if not waiting:
            del self._open[call.provider_id]

    def open_calls(self) -> list[Proposed]:
        """Return the calls that nothing has answered yet, oldest first."""
        calls = [call for waiting in self._open.values() for call in waiting]
        return sorted(calls, key=lambda call: tuple(map(int, call.action.split("."))))

    def result(
        self,
        provider_id: str,
        output: Any,
        wire: Any,
        *,
        status: ResultStatus = "ok",
        at: int | None = None,
        place: str = "",
        call: Proposed | None = None,
        full_output: Any = None,
        cut: Cut | None = None,
        error: Any = None,
        duration_ms: float | None = None,
        keep_wire: bool = False,
    ) -> int | None:
        """A tool's answer. `wire` is the message or block that carried it. Returns its number.

        A result that answers no open call is kept as `MessageAdded(role="tool")`, counted as an orphan;
        then None is returned.
        """
        call = call or self.take_call(provider_id)
        if call is None:
            self.loss.note("orphan result")
            self.message("tool", wire, at=at, place=place)
            return None
        tree, digest = wire if isinstance(wire, Wire) else wire_item(wire)
        payload = ToolResult(
            place=place,
            action_id=call.action,
            status=status,
            tool=label(call.tool),
            provider_id=label(provider_id),
            output=record_tree(output),
            full_output=None if full_output is None else record_tree(full_output),
            cut=cut,
            error=None if error is None else record_tree(error),
            duration_ms=duration_ms,
            item_hash=digest,
            wire=tree if keep_wire else None,
        )
        number = self._add(payload, call.turn, at)
        self._push(number, digest)
        return number

    def keep(self, kind: str, raw: Any, *, at: int | None = None, place: str = "") -> int:
        """A source record that has no event of its own, verbatim."""
        return self._add(SourceKept(place=place, kind=label(kind), raw=record_tree(raw)), self.turn, at)

    def compacted(
        self,
        summary: Any,
        *,
        at: int | None = None,
        place: str = "",
        keep: int = 0,
        carried: Sequence[int] = (),
        **more: Any,
    ) -> int:
        """A summary took the place of the items behind the first `keep`; the event itself is the item that holds it.

        `carried`: earlier items that still stand behind the summary.
        """
        tree = None if summary is None else record_tree(summary)
        number = self._add(Compacted(place=place, summary=tree, keep=keep, **more), self.turn, at)
        self.rewind(keep)
        if summary is not None:
            self._push(number, item_hash({"role": "user", "content": tree}))
        for item in carried:
            self._push(item, self._digests[item])
        return number

    def context_items(self) -> list[int]:
        """Return the events that hold the context as it stands, in order."""
        return list(self._items)

    def ask(
        self, call: Proposed, *, approval_id: str = "", question: str = "", at: int | None = None, place: str = ""
    ) -> tuple[str, str]:
        """The source records that somebody was asked about a call. Returns the approval's id and the arguments hash."""
        try:
            arguments = arguments_hash(to_tree(parse_arguments(call.arguments or "{}")))
        except InvalidValue:
            arguments = arguments_hash(record_tree(call.arguments))
        self.approvals += 1
        name = approval_id or f"{call.action}/{self.approvals}"
        payload = ApprovalRequested(
            place=place,
            approval_id=name,
            action_id=call.action,
            tool=label(call.tool),
            arguments_hash=arguments,
            question=label(question),
        )
        self._add(payload, call.turn, at)
        return name, arguments

    def approval(
        self,
        call: Proposed,
        granted: bool,
        *,
        approver: str,
        because: str = "",
        question: str = "",
        at: int | None = None,
        place: str = "",
    ) -> None:
        """The source records that somebody was asked about a call, and the answer."""
        name, arguments = self.ask(call, question=question, at=at, place=place)
        answer = ApprovalResolved(
            place=place,
            approval_id=name,
            action_id=call.action,
            decision="granted" if granted else "denied",
            approver=label(approver),
            approver_known_by="source",
            arguments_hash=arguments,
            because=label(because),
        )
        decided = Authorized(
            place=place,
            action_id=call.action,
            tool=label(call.tool),
            decision="allow" if granted else "deny",
            arguments_hash=arguments,
            reason=label(because),
            approval=name,
        )
        self._add(answer, call.turn, at)
        self._add(decided, call.turn, at)

    def add(self, payload: Payload, *, at: int | None = None, turn: int | None = None) -> int:
        """Any other event."""
        return self._add(payload, self.turn if turn is None else turn, at)

    def end(
        self, status: EndStatus, *, result: Any = None, reason: str = "", at: int | None = None, place: str = ""
    ) -> None:
        """The source records the end. Nothing follows."""
        ended = TaskEnded(place=place, status=status, result=record_tree(result), reason=label(reason))
        self._add(ended, self.turn, at)
        self.ended = True

    # -- context

    @property
    def context_length(self) -> int:
        """Number of items in the context as it stands."""
        return len(self._items)

    def rewind(self, length: int) -> None:
        """Go back to the first `length` items of the context (a new branch of the conversation)."""
        del self._items[length:]
        del self._running[length + 1 :]
        self._built_keep = min(self._built_keep, length)

    def recall(self, number: int, digest: str) -> None:
        """Put an item that an earlier event holds behind the context again; `digest` is its item hash."""
        self._push(number, digest)

    def recall_item(self, number: int) -> None:
        """Put an item of this trajectory that an earlier event holds behind the context again."""
        self._push(number, self._digests[number])

    def set_head(self, part: str, value: Any) -> None:
        """Note what stands before the items (`tools`, `system`, `parameters`); its bytes are stored once."""
        tree = record_tree(value)
        try:
            digest = sha256(exact_canonical(tree)).hexdigest()
        except SchemaError:
            return
        if getattr(self.head, part) != digest:
            fields = {name: getattr(self.head, name) for name in self.head.__struct_fields__}
            self.head = ContextHead(**{**fields, part: digest})
            self._stored[digest] = tree

    def _build(self, at: int | None, place: str, purpose: str) -> int:
        payload = ContextBuilt(
            place=place,
            purpose=purpose,
            context_hash=context_hash_under(self._head_digest(), self._running[-1]),
            base=self._built if self._built_keep else None,
            keep=self._built_keep,
            append=tuple(self._items[self._built_keep :]),
            head=self.head,
            stored=self._stored,
        )
        self._stored = {}
        self._built = self._add(payload, self.turn, at)
        self._built_keep = len(self._items)
        return self._built

    def _head_digest(self) -> str:
        head, digest = self._hashed_head
        if head is not self.head:
            head, digest = self._hashed_head = (self.head, head_hash(self.head))
        return digest

    def _push(self, number: int, digest: str) -> None:
        self._items.append(number)
        self._digests[number] = digest
        self._running.append(extend_items_hash(self._running[-1], (digest,)))

    # -- inside

    def _proposed(self, call: Call, blob_raw: bool) -> ProposedCall:
        spelled = call.arguments is not None and (blob_raw or not call.pointer)
        return ProposedCall(
            tool=label(call.tool),
            provider_id=label(call.provider_id),
            pointer=call.pointer,
            arguments=record_tree(call.arguments) if spelled else None,
        )

    def _open_call(self, call: Proposed) -> None:
        waiting = self._open.setdefault(call.provider_id, deque())
        if waiting:
            self.loss.note("call id repeated while open")
        waiting.append(call)

    def _add(self, payload: Payload, turn: int, at: int | None) -> int:
        if at is not None:
            self.last_at = at
        if self._start_at is None:
            self._start_at = self.last_at
        number = self.sequence
        self.sequence += 1
        item = Item(self.trajectory_id, payload, turn, self.last_at)
        if self.settled:
            self._emit_out(item)
        else:
            self._waiting.append(item)
        return number
