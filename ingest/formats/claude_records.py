"""Claude Code's records: the envelope, an open reply, a session being read, and pure leaves over them."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from ..sources import Line, Source
from .anthropic_parts import CALL_BLOCKS, NO_RAW, Message
from .build import Trajectory, label
from .contract import Lineage
from .json_text import NotJson, decode, is_absent, members, text_of


class Record(msgspec.Struct, rename="camel"):
    """The envelope fields that the mapping needs."""

    type: Any = None
    uuid: Any = None
    parent_uuid: Any = None
    session_id: Any = None
    timestamp: Any = None
    version: Any = None
    is_sidechain: Any = None
    agent_id: Any = None
    subtype: Any = None
    message: msgspec.Raw = NO_RAW
    tool_use_result: msgspec.Raw = NO_RAW
    tool_denial_kind: Any = None
    source_tool_assistant_uuid: Any = msgspec.field(default=None, name="sourceToolAssistantUUID")
    is_compact_summary: Any = None
    compact_metadata: Any = None
    is_api_error_message: Any = None
    is_aborted_mid_stream: Any = None
    request_id: Any = None
    attribution_agent: Any = None
    leaf_uuid: Any = None


def identity_of(record: Record) -> str:
    """Return what a copied record has in common with its original: uuid and message; "" where it has no uuid."""
    if not isinstance(record.uuid, str) or record.uuid == record.parent_uuid:
        return ""
    return f"{record.uuid} {sha256(bytes(record.message)).hexdigest()[:16]}"


class Part(NamedTuple):
    """One record of a reply: its message decoded, and whether a plain decoder refuses the message's text."""

    record: Record
    message: dict[str, Any]
    odd: bool

    @property
    def blocks(self) -> list[Any]:
        content = self.message.get("content")
        return content if isinstance(content, list) else []


class OpenReply:
    """A reply whose later blocks may still come, and the records that wait behind it."""

    def __init__(self, part: Part, line: Line) -> None:
        self.message_id = part.message.get("id")
        self.first = part.record
        self.line = line
        self.parts: list[Part] = [part]
        self.waiting: list[Callable[[], None]] = []
        self.waiting_kinds: list[str] = []

    def finished(self) -> bool:
        """Return whether what is there can be a whole reply: its stop reason fits its blocks."""
        reason = self.parts[-1].message.get("stop_reason")
        if not isinstance(reason, str) or not reason:
            return False
        kinds = [block.get("type") for part in self.parts for block in part.blocks if isinstance(block, dict)]
        if reason == "tool_use":
            return any(kind in CALL_BLOCKS for kind in kinds)
        return reason not in ("end_turn", "stop_sequence") or "text" in kinds


class Session:
    """One trajectory being read: its open reply, and what is known of the uuid graph."""

    def __init__(self, trajectory: Trajectory) -> None:
        self.trajectory = trajectory
        self.name = trajectory.source.session
        self.reply: OpenReply | None = None
        self.closed: set[str] = set()
        self.seen: dict[str, int] = {}
        self.places: dict[str, int] = {}
        self.last_own = 0
        self.branched = False
        self.has_parents = False
        self.boundary: tuple[Record, Line] | None = None
        self.counted: tuple[tuple[int | None, ...], int] | None = None
        self.prompted = True
        self.copies: list[tuple[Record, Line]] = []
        self.own = False


def merged(parts: list[Part]) -> msgspec.Raw:
    """Return the reply's message as one text: the last record's, with the blocks of all records in order."""
    contents = [(decode(part.record.message, Message) or Message()).content for part in parts]
    blocks = b",".join(inner for content in contents if (inner := bytes(content).strip()[1:-1].strip()))
    text = text_of(parts[-1].record.message)
    start, end = next((start, end) for key, start, end in members(text) if key == "content")
    return msgspec.Raw(b"".join((_bytes(text[:start]), b"[", blocks, b"]", _bytes(text[end:]))))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def error_text(blocks: list[Any], is_error: bool) -> str:
    """Return the text of a reply that only reports an API error."""
    if not is_error:
        return ""
    texts = (block.get("text") for block in blocks if isinstance(block, dict))
    return label("".join(text for text in texts if isinstance(text, str)))


def text_of_message(message: Any) -> str | None:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return content
    parts = [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return next((part for part in parts if isinstance(part, str)), None)


def opening_of(head: bytes) -> str:
    """Return the id of the first reply, which resumed and forked copies repeat."""
    for data in head.split(b"\n"):
        if b'"assistant"' not in data:
            continue
        try:
            record = decode(data, Record)
            message = None if record is None or is_absent(record.message) else decode(record.message, Message)
        except NotJson:
            return ""
        if record is None or record.type != "assistant" or message is None:
            continue
        known = isinstance(message.id, str) and message.id and message.id != record.uuid
        return message.id if known else ""
    return ""


def lineage_of(source: Source) -> Lineage:
    """Return the sessions of a file and the identities of its records."""
    sessions: set[str] = set()
    records: set[str] = set()
    for line in source.lines(lambda *_: None):
        try:
            record = decode(line.data, Record)
        except NotJson:
            continue
        if record is not None and isinstance(record.session_id, str):
            sessions.add(record.session_id)
            records.add(identity_of(record))
    return Lineage(frozenset(sessions), frozenset(records - {""}))
