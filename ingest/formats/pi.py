"""Pi session files (`~/.pi/agent/sessions/*/*.jsonl`): a header, then messages that are each complete in one line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from trajlake.schemas.events import Usage

from ..sources import Source
from .anthropic_parts import count, is_text_blocks, text_or_value, wire_of
from .build import Call, Trajectory, label, time_us
from .contract import BadSource, Item, Loss, ReadOptions
from .documents import first_value
from .json_text import raw_elements, raw_members, text_of, value_of
from .session_lines import Entry, SessionLines

NAME: Final = "pi"
FORMAT: Final = "pi.message/1"


class _Reader(SessionLines):
    name = NAME

    def __init__(self, source: Source, options: ReadOptions, loss: Loss) -> None:
        super().__init__(source, options, loss)
        self.branched_at: int | None = None
        self.lengths: dict[str, int] = {}
        self.last_id = ""
        self.items: list[int | None] = []

    def time_of(self, value: dict[str, Any]) -> int | None:
        return time_us(value.get("timestamp"))

    def opening(self, entry: Entry) -> Trajectory:
        value = entry.value
        if value.get("type") != "session":
            raise BadSource(self.source.name, entry.place, "is no Pi session (no session header)")
        trajectory = self.open(value["id"] if isinstance(value.get("id"), str) else self.unnamed(entry), entry)
        trajectory.model = label(value.get("modelId"))
        if value.get("branchedFrom") or value.get("parentSession"):
            self.branched_at = entry.at
        return trajectory

    def take(self, entry: Entry) -> None:
        kind = label(entry.value.get("type")) or "untyped"
        self._follow_tree(entry)
        number = self.trajectory.sequence
        if kind == "compaction":
            self._compaction(entry)
        elif kind != "message" or not self._message(entry):
            self.keep(kind, entry)
            number = -1
        self.items.append(number if number >= 0 else None)
        identity = entry.value.get("id")
        if isinstance(identity, str) and kind != "session":
            self.lengths[identity] = self.trajectory.context_length
            self.last_id = identity

    def _follow_tree(self, entry: Entry) -> None:
        """Newer files are a tree: an entry whose parent is not the one before goes back to that parent."""
        parent = entry.value.get("parentId")
        if isinstance(parent, str) and self.last_id and parent != self.last_id and parent in self.lengths:
            self.loss.note("branch: an entry goes back to an earlier one")
            self.trajectory.rewind(self.lengths[parent])

    def _message(self, entry: Entry) -> bool:
        message = entry.value.get("message")
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            return False
        raw = (raw_members(entry.data) or {})["message"]
        role = message["role"]
        copied = self.branched_at is not None and entry.at is not None and entry.at < self.branched_at
        if copied:
            self.trajectory.message(role, message, at=entry.at, place=entry.place, origin="copied")
        elif role == "assistant":
            self._reply(raw, message, entry)
        elif role == "toolResult":
            self._result(message, entry)
        else:
            self.trajectory.set_task(text_or_value(message.get("content")) if role == "user" else None)
            self.trajectory.message(role, message, at=entry.at, place=entry.place)
        self.loss.map(f"message/{role}" + ("/copied" if copied else ""))
        return True

    def _reply(self, raw: msgspec.Raw, message: dict[str, Any], entry: Entry) -> None:
        wire, keep_wire = wire_of(raw)
        calls = _calls(raw)
        stop = message.get("stopReason")
        failed = label(message.get("errorMessage")) or (label(stop) if stop in ("aborted", "error") else "")
        usage, cost = _usage(message.get("usage"))
        self.trajectory.reply(
            text_of(raw),
            wire,
            format=FORMAT,
            calls=calls,
            at=entry.at,
            place=entry.place,
            keep_wire=keep_wire,
            status="error" if failed and not message.get("content") else "kept",
            usage=usage,
            model=label(message.get("model")),
            stop_reason=label(stop) if stop is not None else None,
            endpoint=label(message.get("provider")),
            error=failed,
            cost=cost,
            in_context=bool(message.get("content")),
        )

    def _result(self, message: dict[str, Any], entry: Entry) -> None:
        content = message.get("content")
        plain = is_text_blocks(content) and len(content or ()) == 1
        self.trajectory.result(
            label(message.get("toolCallId")),
            text_or_value(content),
            message,
            status="error" if message.get("isError") is True else "ok",
            at=entry.at,
            place=entry.place,
            keep_wire=not plain or "details" in message,
        )

    def _compaction(self, entry: Entry) -> None:
        value = entry.value
        first = value.get("firstKeptEntryIndex")
        kept = self.items[first:] if isinstance(first, int) and not isinstance(first, bool) else []
        known = set(self.trajectory.context_items())
        before = value.get("tokensBefore")
        self.trajectory.compacted(
            value.get("summary"),
            at=entry.at,
            place=entry.place,
            carried=[item for item in kept if item in known and item is not None],
            tokens_before=before if isinstance(before, int) else None,
        )
        self.loss.map("compaction")


def _calls(raw: msgspec.Raw) -> list[Call]:
    content = (raw_members(raw) or {}).get("content")
    calls = []
    for block in (raw_elements(content) if content is not None else None) or []:
        parts = raw_members(block) or {}
        if "type" in parts and value_of(parts["type"]) == "toolCall":
            arguments = text_of(parts["arguments"]) if "arguments" in parts else None
            calls.append(Call(_label(parts, "name"), _label(parts, "id"), arguments))
    return calls


def _label(parts: dict[str, msgspec.Raw], key: str) -> str:
    return label(value_of(parts[key])) if key in parts else ""


def _usage(tree: Any) -> tuple[Usage | None, dict[str, str]]:
    if not isinstance(tree, dict):
        return None, {}
    fresh, read, written = count(tree.get("input")), count(tree.get("cacheRead")), count(tree.get("cacheWrite"))
    total = None if fresh is None else fresh + (read or 0) + (written or 0)
    cost = tree.get("cost")
    paid = cost.get("total") if isinstance(cost, dict) else None
    usage = Usage(input_total=total, cached_read=read, cache_write=written, output=count(tree.get("output")))
    return usage, ({"usd": f"{paid:.12f}".rstrip("0").rstrip(".")} if isinstance(paid, (int, float)) and paid else {})


class Pi:
    """The importer `pi`."""

    name = NAME
    mapping_version = 0
    suffixes = (".jsonl", ".jsonl.gz", ".jsonl.zst")

    def sniff(self, head: bytes, name: str) -> int:  # noqa: ARG002 - content alone decides
        value = first_value(head.lstrip().partition(b"\n")[0])
        if not isinstance(value, dict) or value.get("type") != "session" or "payload" in value:
            return 0
        return 92 if "cwd" in value and ("modelId" in value or "provider" in value or "version" in value) else 40

    def read(self, source: Source, options: ReadOptions, loss: Loss) -> Iterator[Item]:
        return _Reader(source, options, loss).read()


IMPORTER: Final = Pi()
