"""Anthropic Messages: a response body, a request with its response, or a list of messages with content blocks.

Server tools put their results inside the assistant message; a server-side compaction is a block of it whose pass
is counted only in `usage.iterations`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from trajlake.schemas.events import ImportSource

from ..sources import Source
from .anthropic_parts import (
    FORMAT,
    Message,
    blocks_of,
    call_of,
    is_call,
    needs_wire,
    output_of,
    text_or_value,
    usage_of,
    wire_of,
)
from .build import Trajectory, first_record_hash, label, record_tree, session_id
from .contract import Item, Loss, ReadOptions
from .documents import WHOLE, Document, first_value, read_records, refuse, safe_stem, under
from .json_text import NotJson, decode, object_text, raw_elements, raw_members, text_of, value_of

NAME: Final = "anthropic-messages"
PARAMETERS: Final = ("max_tokens", "temperature", "top_p", "top_k", "thinking", "tool_choice", "stop_sequences")
BLOCKS: Final = frozenset(
    {"text", "thinking", "redacted_thinking", "tool_use", "tool_result", "image", "document", "compaction"}
)


def _is_blocks(content: Any) -> bool:
    return (
        isinstance(content, list)
        and bool(content)
        and all(isinstance(one, dict) and one.get("type") in BLOCKS for one in content)
    )


def _is_response(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.get("role") == "assistant"
        and isinstance(value.get("content"), list)
        and (value.get("type") == "message" or "stop_reason" in value)
    )


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and any(
        isinstance(one, dict) and one.get("role") in ("user", "assistant") and _is_blocks(one.get("content"))
        for one in value
    )


class AnthropicMessages:
    """The importer `anthropic-messages`."""

    name = NAME
    mapping_version = 0

    def sniff(self, head: bytes, name: str) -> int:  # noqa: ARG002 - content alone decides
        value = first_value(head)
        if value is None:
            start = head[:20_000]
            if b'"type": "message"' in start or b'"type":"message"' in start:
                return 45 if b'"stop_reason"' in head and b'"sessionId"' not in start else 0
            return 0
        if isinstance(value, list) and value and not _is_list(value):
            value = value[0]
        if _is_response(value):
            return 88
        if isinstance(value, dict) and _is_response(value.get("response")):
            return 88
        if _is_list(value) or (isinstance(value, dict) and _is_list(value.get("messages"))):
            return 70 if _has_tool_blocks(value) else 58
        return 0

    def read(self, source: Source, options: ReadOptions, loss: Loss) -> Iterator[Item]:  # noqa: ARG002
        ready: list[Item] = []
        found = False
        for record in _grouped(source, loss):
            if not _read_record(source, record, loss, ready):
                if not found:
                    raise refuse(source, "holds no Anthropic message")
                loss.skip("no message")
                loss.problem(record.place, "is no Anthropic message; left out")
                continue
            found = True
            yield from ready
            ready.clear()
        if not found:
            raise refuse(source, "holds no Anthropic message")


def _has_tool_blocks(value: Any) -> bool:
    messages = value.get("messages") if isinstance(value, dict) else value
    return any(
        isinstance(block, dict) and block.get("type") in ("tool_use", "tool_result", "thinking")
        for one in (messages if isinstance(messages, list) else [])
        if isinstance(one, dict) and isinstance(one.get("content"), list)
        for block in one["content"]
    )


def _grouped(source: Source, loss: Loss) -> Iterator[Document]:
    """A file that is a list of messages is one record."""
    records = list(read_records(source, loss))
    if len(records) > 1 and all(_is_turn(record) for record in records):
        yield Document(msgspec.Raw(b"[" + b",".join(bytes(record.raw) for record in records) + b"]"), "")
    else:
        yield from records


def _is_turn(record: Document) -> bool:
    value = value_of(record.raw)
    return isinstance(value, dict) and value.get("role") in ("user", "assistant", "system") and "type" not in value


def _read_record(source: Source, record: Document, loss: Loss, ready: list[Item]) -> bool:
    value = value_of(record.raw)
    parts = raw_members(record.raw) or {}
    messages: list[tuple[msgspec.Raw, str]] = []
    if isinstance(value, list) and _is_list(value):
        messages = [(raw, f"/{n}") for n, raw in enumerate(raw_elements(record.raw) or [])]
    elif _is_response(value):
        messages = [(record.raw, "")]
    elif isinstance(value, dict):
        listed = raw_elements(parts["messages"]) if "messages" in parts else None
        messages = [(raw, f"/messages/{n}") for n, raw in enumerate(listed or [])]
        if _is_response(value.get("response")):
            messages.append((parts["response"], "/response"))
    if not messages:
        return False
    trajectory = _open(source, record, parts, messages, loss, ready)
    if len(messages) > 1 or messages[0][1]:
        _head(trajectory, parts)
    for raw, pointer in messages:
        _feed(trajectory, raw, under(record.place, pointer) or WHOLE, loss)
    rest = set(parts) - {"messages", "response", "tools"}
    if rest and messages[0][1]:
        trajectory.keep("document", object_text(parts, without=("messages", "response", "tools")), place=WHOLE)
        loss.keep("document")
    trajectory.settle()
    return True


def _open(
    source: Source,
    record: Document,
    parts: dict[str, msgspec.Raw],
    messages: list[tuple[msgspec.Raw, str]],
    loss: Loss,
    ready: list[Item],
) -> Trajectory:
    given = value_of(parts["id"]) if "id" in parts else None
    opening = bytes(messages[0][0])
    session = given if isinstance(given, str) and given else ""
    if not session:
        session = f"{safe_stem(source)}-{first_record_hash(opening)[:12]}"
        session += f"/{record.place.rpartition(' ')[2].strip('/')}" if record.place else ""
    trajectory = Trajectory(
        session_id(NAME, session, source.name, record.place),
        ImportSource(format=NAME, session=session, first_record_hash=first_record_hash(opening), producer=NAME),
        ready.append,
        loss,
        agent=NAME,
    )
    trajectory.place = record.place or WHOLE
    trajectory.model = label(value_of(parts["model"])) if "model" in parts else ""
    return trajectory


def _head(trajectory: Trajectory, parts: dict[str, msgspec.Raw]) -> None:
    for name in ("tools", "system"):
        if name in parts and (value := value_of(parts[name])):
            trajectory.set_head(name, value)
    parameters = {key: value_of(parts[key]) for key in PARAMETERS if key in parts}
    if parameters:
        trajectory.set_head("parameters", parameters)
        trajectory.sampling = record_tree(parameters)


def _feed(trajectory: Trajectory, raw: msgspec.Raw, place: str, loss: Loss) -> None:
    try:
        message = decode(raw, Message)
    except NotJson:
        message = None
    if message is None or not isinstance(message.role, str):
        trajectory.keep("message", text_of(raw), place=place)
        loss.keep("message")
        return
    blocks = blocks_of(message.content)
    if message.role == "assistant":
        _reply(trajectory, raw, message, place)
    elif blocks is None or not any(block.type == "tool_result" for _, block in blocks):
        value = value_of(raw)
        if message.role == "user":
            trajectory.set_task(text_or_value(value.get("content")))
        trajectory.message(message.role, value, place=place)
    else:
        for part, block in blocks:
            if block.type == "tool_result":
                trajectory.result(
                    label(block.tool_use_id),
                    output_of(block.content),
                    value_of(part),
                    status="error" if block.is_error is True else "ok",
                    place=place,
                    keep_wire=needs_wire(block.content),
                )
        rest = [value_of(part) for part, block in blocks if block.type != "tool_result"]
        if rest:
            trajectory.message(message.role, {"role": message.role, "content": rest}, place=place)
    loss.map(message.role)


def _reply(trajectory: Trajectory, raw: msgspec.Raw, message: Message, place: str) -> None:
    blocks = blocks_of(message.content) or []
    calls = [call_of(block, f"/content/{n}/input") for n, (_, block) in enumerate(blocks) if is_call(block)]
    wire, keep_wire = wire_of(raw)
    number = trajectory.reply(
        text_of(raw),
        wire,
        format=FORMAT,
        calls=calls,
        place=place,
        keep_wire=keep_wire,
        usage=usage_of(message.usage),
        model=label(message.model),
        stop_reason=label(message.stop_reason) if message.stop_reason is not None else None,
        response_id=label(message.id),
    )
    for part, block in blocks:
        # A server tool's answer stands in the same message as its call.
        if isinstance(block.type, str) and block.type.endswith("_tool_result"):
            trajectory.result(
                label(block.tool_use_id), output_of(block.content), value_of(part), place=place, keep_wire=True
            )
        elif block.type == "compaction":
            trajectory.compacted(output_of(block.content), reply=number, trigger="server", place=place)


IMPORTER: Final = AnthropicMessages()
