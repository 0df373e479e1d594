"""One trajectory's events, read for curation: contexts, replies, and the items that contexts are made of.

Items are rendered on demand. In a branch the ancestors' events are read first; their items are context only.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

import msgspec

from trajlake.ingest.formats.json_text import raw_elements, raw_members
from trajlake.runtime.agent.texts import error_text, text_of
from trajlake.schemas.blobs import inline, is_blob
from trajlake.schemas.context import Builds
from trajlake.schemas.events import ContextBuilt, Ref, ToolResult

from .chat_shape import NULL, Chat, ShapeRefused, messages_of, tool_message, untagged

KINDS_READ: Final = (
    "TaskStarted", "MessageAdded", "ContextBuilt", "ModelReplied", "ToolResult", "ToolSettled", "Compacted",
    "RolledBack", "Branched", "DriftDetected", "Resumed",
)  # fmt: skip
"""Event types that a row stands on; the others are not decoded."""

Fetch = Callable[[str], bytes]
"""Bytes of a blob by its hash."""


class _Fields(msgspec.Struct):
    pass


class _Call(_Fields):
    tool: str = ""
    provider_id: str = ""
    pointer: str = ""
    arguments: Any = None


class _Message(_Fields):
    role: str = ""
    wire: msgspec.Raw = NULL
    item_hash: str = ""
    origin: str = ""


class Head(msgspec.Struct, frozen=True):
    """Hashes of what a model call stood on beside its messages."""

    system: str = ""
    tools: str = ""
    template: str = ""
    tokenizer: str = ""


NO_HEAD: Final = Head()


class _Built(_Fields):
    context_hash: str = ""
    purpose: str = "act"
    base: int | tuple[int, int] | None = None
    keep: int = 0
    append: tuple[int | tuple[int, int], ...] = ()
    head: Head = NO_HEAD
    stored: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)


class _Replied(_Fields):
    raw: str | dict[str, Any] | None = None
    status: str = "kept"
    context: int | tuple[int, int] | None = None
    item_hash: str = ""
    wire: msgspec.Raw = NULL
    wire_pointer: str = ""
    stop_reason: str | None = None
    calls: tuple[_Call, ...] = ()
    served_model: str = ""
    token_ids: Any = None
    logprobs: Any = None
    system_no: int = 0


class _Result(_Fields):
    action_id: str = ""
    status: str = "ok"
    provider_id: str = ""
    output: msgspec.Raw = NULL
    error: msgspec.Raw = NULL
    wire: msgspec.Raw = NULL
    item_hash: str = ""


class _Settled(_Fields):
    action_id: str = ""
    verdict: str = ""
    output: msgspec.Raw = NULL
    has_output: bool = False
    delivered: str = ""
    item_hash: str = ""


class _Compacted(_Fields):
    reply: int | tuple[int, int] | None = None
    summary: msgspec.Raw = NULL


class _Started(_Fields):
    origin: str = "live"
    model: str = ""
    parent: dict[str, Any] | None = None


class _Drift(_Fields):
    choice: str = ""
    system_no: int = 0


_BLOB: Final = re.compile(r'"\$blob":"([0-9a-f]{64})"')

_DECODERS: Final[dict[str, Callable[[str], Any]]] = {
    kind: msgspec.json.Decoder(struct).decode
    for kind, struct in {
        "TaskStarted": _Started, "MessageAdded": _Message, "ContextBuilt": _Built, "ModelReplied": _Replied,
        "ToolResult": _Result, "ToolSettled": _Settled, "Compacted": _Compacted, "DriftDetected": _Drift,
    }.items()
}  # fmt: skip


class Reply(msgspec.Struct, frozen=True):
    """A kept reply of the trajectory itself, in order, with the context it answered."""

    seq: int
    context: Ref | None
    purpose: str
    head: Head
    model: str
    system_no: int
    stop_reason: str
    token_ids: Any
    logprobs: Any


class Item(msgspec.Struct, frozen=True):
    """A context item as recorded: which type of event holds it, its body, and the ids of a reply's calls."""

    kind: str
    hash: str
    body: Any
    live: bool
    call_ids: tuple[str, ...] = ()


class Reading:
    """What curation knows of one trajectory after its events were read in order. `failed`: replies with a call whose
    result is an error."""

    def __init__(self, fetch: Fetch) -> None:
        self.fetch = fetch
        self.items: dict[Ref, Item] = {}
        self.builds = Builds()
        self.appends: dict[Ref, _Built] = {}
        self.replies: list[Reply] = []
        self.breaks: list[int] = []
        self.heads: dict[str, bytes] = {}
        self.heads_at: dict[str, int] = {}
        self.failed: set[int] = set()
        self.call_ids: dict[str, str] = {}
        self.is_subagent = False
        self.live = True
        self._open_purpose: dict[Ref, tuple[str, Head]] = {}
        self._results: set[str] = set()
        self._latest: Ref | None = None
        self._blobs: dict[Ref, frozenset[str]] = {}

    def read(self, rows: Iterable[tuple[int, str, str]], up: int = 0, given_up: frozenset[int] = frozenset()) -> None:
        """Read (sequence number, type, payload) in order; `up` > 0 for the events of an ancestor, which come first."""
        for seq, kind, payload in rows:
            decoder = _DECODERS.get(kind)
            if decoder is None:
                if kind in ("RolledBack", "Branched", "Resumed") and not up:
                    self.breaks.append(seq)
                continue
            body = decoder(payload)
            ref: Ref = (up, seq) if up else seq
            _STEPS[kind](self, ref, seq, body, up, seq in given_up)
            if "$" in payload and '"$blob"' in payload:
                self._blobs[ref] = frozenset(_BLOB.findall(payload))

    # -- one step per type

    def _started(self, _: Ref, __: int, body: _Started, up: int, ___: bool) -> None:
        if not up:
            self.live = body.origin == "live"
            self.is_subagent = body.parent is not None

    def _message(self, ref: Ref, _: int, body: _Message, __: int, ___: bool) -> None:
        self.items[ref] = Item("MessageAdded", body.item_hash, body, self.live)

    def _built(self, ref: Ref, seq: int, body: _Built, up: int, _: bool) -> None:
        if up:
            body.base = shifted(body.base, up)
            body.append = tuple(cast(Ref, shifted(one, up)) for one in body.append)
        self.builds.extend(ref, cast(ContextBuilt, body))
        self._open_purpose[ref] = body.purpose, body.head
        self.appends[ref] = body
        self._latest = ref
        for digest, tree in body.stored.items():
            self.heads[digest] = self._tree(bytes(tree))
            self.heads_at[digest] = -1 if up else seq

    def _replied(self, ref: Ref, seq: int, body: _Replied, up: int, given_up: bool) -> None:
        if body.status != "kept":
            return
        prefix = f"^{up}:" if up else ""
        ids = tuple([call.provider_id or f"call_{seq}_{place}" for place, call in enumerate(body.calls)])
        for place, call_id in enumerate(ids):
            self.call_ids[f"{prefix}{seq}.{place}"] = call_id
        self.items[ref] = Item("ModelReplied", body.item_hash, body, self.live, ids)
        if up or given_up:
            return
        context = body.context if body.context is not None else self._latest
        purpose, head = "act", NO_HEAD
        if context is not None:
            purpose, head = self._open_purpose.get(context, (purpose, head))
        self.replies.append(
            Reply(seq, context, purpose, head, body.served_model, body.system_no,
                  body.stop_reason or "", body.token_ids, body.logprobs)
        )  # fmt: skip

    def _result(self, ref: Ref, seq: int, body: _Result, up: int, _: bool) -> None:
        self._outcome(ref, seq, "ToolResult", body, up)
        if body.status == "error" and body.action_id in self.call_ids and not up:
            self.failed.add(int(body.action_id.partition(".")[0]))

    def _settled(self, ref: Ref, seq: int, body: _Settled, up: int, _: bool) -> None:
        self._outcome(ref, seq, "ToolSettled", body, up)

    def _outcome(self, ref: Ref, seq: int, kind: str, body: Any, up: int) -> None:
        self.items[ref] = Item(kind, body.item_hash, body, self.live)
        if up:
            body.action_id = f"^{up}:{body.action_id}"
        # A second outcome of one action takes the first one's place in the context: a declared break.
        if body.action_id in self._results and not up:
            self.breaks.append(seq)
        self._results.add(body.action_id)

    def _compacted(self, ref: Ref, seq: int, body: _Compacted, up: int, _: bool) -> None:
        if not up:
            self.breaks.append(seq)
        if bytes(body.summary) != b"null":
            self.items[ref] = Item("Compacted", f"compacted {ref}", body, self.live)

    def _drift(self, _: Ref, seq: int, body: _Drift, up: int, __: bool) -> None:
        if not up and body.choice in ("switch", "recorded", "pin"):
            self.breaks.append(seq)

    def blobs_of(self, refs: Iterable[Ref]) -> set[str]:
        """Return the blobs that these items stand on."""
        found: set[str] = set()
        for ref in refs:
            found |= self._blobs.get(ref, frozenset())
        return found

    # -- rendering

    def render(self, ref: Ref) -> list[Chat]:
        """Return the messages of one item. Raises `ShapeRefused` with what cannot be said, naming the event."""
        item = self.items.get(ref)
        if item is None:
            raise ShapeRefused(f"event {ref}: no item of this trajectory")
        try:
            said: list[Chat] = _RENDER[item.kind](self, ref, item)
            return said
        except ShapeRefused as refused:
            raise ShapeRefused(f"event {ref}: {refused}") from None

    def _tree(self, tree: bytes) -> bytes:
        """Return a recorded tree as plain JSON text, blobs put back and tags undone."""
        if b'"$blob"' in tree:
            tree = msgspec.json.encode(inline(msgspec.json.decode(tree), self.fetch))
        return untagged(tree)

    def _render_message(self, _: Ref, item: Item) -> list[Chat]:
        wire = self._tree(bytes(item.body.wire))
        try:
            return messages_of(wire)
        except ShapeRefused:
            # An observation that answers no call is what the environment said to the model: a user's message.
            content = (raw_members(wire) or {}).get("content")
            if (
                item.body.role not in ("observation", "user", "environment")
                or content is None
                or bytes(content)[:1] != b'"'
            ):
                raise
            return messages_of(b'{"role":"user","content":' + bytes(content) + b"}")

    def _render_reply(self, _: Ref, item: Item) -> list[Chat]:
        body: _Replied = item.body
        ids = item.call_ids
        if bytes(body.wire) != b"null":
            return messages_of(self._tree(bytes(body.wire)), ids)
        raw = body.raw
        if isinstance(raw, dict):
            whole = inline(raw, self.fetch) if is_blob(raw) else raw
            raw = text_of(whole)
        if raw is None:
            raise ShapeRefused("holds no reply")
        found = messages_of(raw if not body.wire_pointer else slice_at(raw.encode(), body.wire_pointer), ids)
        if len(found) != 1 or found[0].role != "assistant":
            raise ShapeRefused("is no single assistant message")
        return found

    def _render_result(self, _: Ref, item: Item) -> list[Chat]:
        body: _Result = item.body
        call_id = self._call_id(body.action_id, body.provider_id)
        if bytes(body.wire) != b"null":
            with contextlib.suppress(ShapeRefused):
                found = messages_of(self._tree(bytes(body.wire)))
                if len(found) == 1 and found[0].role == "tool":
                    return found
        output = bytes(body.output)
        if item.live and body.status not in ("ok", "replayed"):
            text = error_text(
                ToolResult(action_id="", status=cast(Any, body.status), error=self._value(bytes(body.error)))
            )
            return [tool_message(call_id, msgspec.Raw(msgspec.json.encode(text)))]
        if output[:1] == b'"':
            return [tool_message(call_id, msgspec.Raw(output))]
        value = self._value(output)
        text = "" if value is None and not item.live else text_of(value)
        return [tool_message(call_id, msgspec.Raw(_text(text)))]

    def _render_settled(self, _: Ref, item: Item) -> list[Chat]:
        body: _Settled = item.body
        text = text_of(self._value(bytes(body.output))) if body.has_output else body.delivered
        return [tool_message(self._call_id(body.action_id, ""), msgspec.Raw(_text(text)))]

    def _render_compacted(self, _: Ref, item: Item) -> list[Chat]:
        content = self._tree(bytes(item.body.summary))
        return messages_of(b'{"role":"user","content":' + content + b"}")

    def _call_id(self, action_id: str, provider_id: str) -> str:
        return self.call_ids.get(action_id) or provider_id or action_id

    def _value(self, tree: bytes) -> Any:
        value = msgspec.json.decode(tree)
        return inline(value, self.fetch) if b'"$blob"' in tree else value


_STEPS: Final[dict[str, Any]] = {
    "TaskStarted": Reading._started, "MessageAdded": Reading._message, "ContextBuilt": Reading._built,
    "ModelReplied": Reading._replied, "ToolResult": Reading._result, "ToolSettled": Reading._settled,
    "Compacted": Reading._compacted, "DriftDetected": Reading._drift,
}  # fmt: skip
_RENDER: Final[dict[str, Any]] = {
    "MessageAdded": Reading._render_message, "ModelReplied": Reading._render_reply,
    "ToolResult": Reading._render_result, "ToolSettled": Reading._render_settled,
    "Compacted": Reading._render_compacted,
}  # fmt: skip


def shifted(ref: Any, up: int) -> Ref | None:
    """Return an ancestor's own reference as its descendant `up` levels below writes it."""
    if ref is None:
        return None
    return (up, ref) if isinstance(ref, int) else (ref[0] + up, ref[1])


def slice_at(text: bytes, pointer: str) -> bytes:
    """Return the exact text at an RFC 6901 pointer; raise `ShapeRefused` if there is nothing."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        members = raw_members(text)
        try:
            text = bytes(members[key] if members is not None else (raw_elements(text) or [])[int(key)])
        except (KeyError, IndexError, ValueError):
            raise ShapeRefused(f"has nothing at {pointer}") from None
    return text


def _text(text: str) -> bytes:
    try:
        return msgspec.json.encode(text)
    except UnicodeEncodeError:
        import json

        return json.dumps(text).encode()
