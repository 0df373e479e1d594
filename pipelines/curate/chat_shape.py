"""Context items as chat messages in OpenAI's shape, which every writer starts from.

What a model emitted stays byte for byte: arguments are the emitted text, content its exact JSON string. Other
providers' messages are translated where that shape says all of it, else `ShapeRefused` names what it cannot say.
A lone surrogate becomes U+FFFD and is counted; nothing else is changed.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import msgspec

from trajlake.ingest.formats.chat_shapes import said_of
from trajlake.ingest.formats.json_text import NotJson, raw_elements, raw_members, value_of
from trajlake.schemas.values import from_tree

from .other_shapes import NotSayable, atif_wire, responses_wire

NULL: Final = msgspec.Raw(b"null")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SURROGATE_ESCAPE: Final = re.compile(rb"\\u[dD]")
_OTHER_ESCAPE: Final = re.compile(rb"\\[u/]")
_PARTS_OF_CALLS: Final = frozenset({"tool_use", "tool_call", "tool-call", "toolCall", "function_call"})
_PARTS_OF_TEXT: Final = frozenset({"text", "input_text", "output_text"})


class ShapeRefused(Exception):
    """A message that a chat row cannot hold without losing part of it."""


class Call(msgspec.Struct, frozen=True):
    """One call of an assistant message. `arguments` is the text the model emitted."""

    call_id: str
    tool: str
    arguments: str


class Chat(msgspec.Struct, frozen=True):
    """One message: its JSON text, and what the stages ask about it. `spoken` is what a model emitted of it."""

    text: bytes
    role: str
    calls: tuple[Call, ...] = ()
    call_id: str = ""
    spoken: bytes = b""
    is_text: bool = True
    surrogates: int = 0


class _Function(msgspec.Struct):
    name: str
    arguments: str


class _Call(msgspec.Struct, kw_only=True):
    id: str | None = None
    type: str | None = None
    function: _Function


class _Message(msgspec.Struct, omit_defaults=True):
    """A message of this shape as it comes, and, its ids filled in, as it goes into a row."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: msgspec.Raw = NULL
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    function_call: None = None
    parts: None = None


_decode: Final = msgspec.json.Decoder(_Message).decode
_encode: Final = msgspec.json.Encoder().encode


def messages_of(wire: bytes | str, call_ids: tuple[str, ...] = ()) -> list[Chat]:
    """Return the messages that one context item says: mostly one, several where it answers several calls.

    `call_ids` stand in, in order, where calls have no id of their own. Raises `ShapeRefused`.
    """
    data = wire.encode() if isinstance(wire, str) else wire
    if not _has_surrogates(data):
        try:
            message = _decode(data)
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
            message = None
        if message is not None and (chat := _plain(message, call_ids)) is not None:
            return [chat]
    return _translated(data, call_ids)


def tool_message(call_id: str, content: msgspec.Raw) -> Chat:
    """Return the answer to a call; `content` is the JSON string that the model was given."""
    if _has_surrogates(bytes(content)):
        return _translated(_encode({"role": "tool", "tool_call_id": call_id, "content": content}), ())[0]
    message = _Message("tool", msgspec.Raw(_canonical(bytes(content))), tool_call_id=call_id)
    return Chat(_encode(message), "tool", (), call_id)


def untagged(tree: bytes) -> bytes:
    """Return the JSON text behind a recorded tree: the codec's tags and `$`-escapes undone."""
    if b'"$' not in tree:
        return tree
    value = from_tree(msgspec.json.decode(tree))
    try:
        return _encode(value)
    except (UnicodeEncodeError, TypeError):
        import json

        return json.dumps(value, ensure_ascii=True, default=repr).encode()


def _plain(message: _Message, call_ids: tuple[str, ...]) -> Chat | None:
    content = bytes(message.content)
    if content[:1] != b'"' and content != b"null":
        return None
    content = _canonical(content)
    message.content = msgspec.Raw(content)
    message.reasoning_content = message.reasoning_content or None
    message.tool_calls = message.tool_calls or None
    calls = []
    for place, one in enumerate(message.tool_calls or ()):
        one.id = one.id or _at(call_ids, place)
        one.type = "function"
        calls.append(Call(one.id, one.function.name, one.function.arguments))
    call_id = message.tool_call_id or ""
    message.tool_call_id = call_id if message.role == "tool" else None
    spoken = content if message.role == "assistant" else b""
    return Chat(_encode(message), message.role, tuple(calls), call_id, spoken)


def _has_surrogates(text: bytes) -> bool:
    return b"\\" in text and _SURROGATE_ESCAPE.search(text) is not None


def _canonical(text: bytes) -> bytes:
    """Return a JSON string as msgspec writes it: rows go into files without another reading."""
    return _encode(msgspec.json.decode(text)) if b"\\" in text and _OTHER_ESCAPE.search(text) else text


def _at(call_ids: tuple[str, ...], place: int) -> str:
    return call_ids[place] if place < len(call_ids) else f"call_{place}"


def _translated(data: bytes, call_ids: tuple[str, ...]) -> list[Chat]:
    own = _own_shape(data)
    if own is not None:
        return [_from_dict(wire, wire["role"], call_ids) for wire in own]
    _check_order(data)
    try:
        found = said_of(msgspec.Raw(data))
    except NotJson as error:
        raise ShapeRefused(f"is no JSON: {error}") from None
    chats = []
    for said in found:
        wire = said.wire if isinstance(said.wire, dict) and "role" in said.wire else None
        if wire is None:
            raise ShapeRefused("is no chat message")
        if said.role == "tool" and not isinstance(wire.get("content"), str):
            content = wire.get("content")
            wire = {
                "role": "tool",
                "tool_call_id": said.call_id,
                "content": content if content is None else _dump(content),
            }
        chats.append(_from_dict(wire, said.role, call_ids))
    if not chats:
        raise ShapeRefused("is no chat message")
    return chats


def _own_shape(data: bytes) -> list[dict[str, Any]] | None:
    """Return what a shape of its own says; None for the shapes that importers read themselves."""
    try:
        items = raw_elements(data)
        if items is not None:
            return responses_wire(items)
        parts = raw_members(data) or {}
        if "role" not in parts and "step_id" in parts and "source" in parts:
            return [atif_wire(parts)]
        kind = _kind(msgspec.Raw(data)) if "role" not in parts else ""
        if kind in ("function_call_output", "reasoning"):
            return responses_wire([msgspec.Raw(data)])
        if kind == "context.apply_compaction" and "summary" in parts:
            return [{"role": "assistant", "content": value_of(parts["summary"])}]
    except NotSayable as error:
        raise ShapeRefused(str(error)) from None
    except NotJson as error:
        raise ShapeRefused(f"is no JSON: {error}") from None
    return None


def _from_dict(wire: dict[str, Any], role: str, call_ids: tuple[str, ...]) -> Chat:
    out: dict[str, Any] = {"role": role, "content": wire.get("content")}
    if isinstance(wire.get("reasoning_content"), str) and wire["reasoning_content"]:
        out["reasoning_content"] = wire["reasoning_content"]
    calls = []
    for place, one in enumerate(wire.get("tool_calls") or ()):
        function = one.get("function") if isinstance(one, dict) else None
        if not isinstance(function, dict):
            raise ShapeRefused("has a call that is no function call")
        arguments = function.get("arguments")
        text = "" if arguments is None else arguments if isinstance(arguments, str) else _dump(arguments)
        calls.append(Call(str(one.get("id") or _at(call_ids, place)), str(function.get("name") or ""), text))
    if calls:
        out["tool_calls"] = [
            {"id": c.call_id, "type": "function", "function": {"name": c.tool, "arguments": c.arguments}} for c in calls
        ]
    call_id = str(wire.get("tool_call_id") or "")
    if role == "tool":
        out["tool_call_id"] = call_id
    out, surrogates = _mended(out)
    calls = [Call(*(_SURROGATE.sub("\ufffd", part) for part in msgspec.structs.astuple(call))) for call in calls]
    content = out["content"]
    spoken = _encode(content) if role == "assistant" and isinstance(content, str) else b""
    is_text = content is None or isinstance(content, str)
    return Chat(_encode(out), role, tuple(calls), call_id, spoken, is_text, surrogates)


def _mended(value: Any) -> tuple[Any, int]:
    """Return the tree with every lone surrogate as U+FFFD, and how many there were."""
    if isinstance(value, str):
        return _SURROGATE.subn("\ufffd", value)
    if isinstance(value, list):
        parts = [_mended(one) for one in value]
        return [one for one, _ in parts], sum(count for _, count in parts)
    if isinstance(value, dict):
        pairs = {key: _mended(one) for key, one in value.items()}
        return {key: one for key, (one, _) in pairs.items()}, sum(count for _, count in pairs.values())
    return value, 0


def _check_order(data: bytes) -> None:
    """Refuse content in which text follows a call: one message cannot say that order."""
    try:
        parts = raw_members(data) or {}
        blocks = raw_elements(parts["content"]) if "content" in parts else None
    except NotJson:
        return
    called = False
    for block in blocks or ():
        value = _kind(block)
        called |= value in _PARTS_OF_CALLS
        if called and value in _PARTS_OF_TEXT:
            raise ShapeRefused("has text after a call: a chat message puts it before")


def _kind(block: msgspec.Raw) -> str:
    try:
        value = value_of(block)
    except NotJson:
        return ""
    return str(value.get("type") or "") if isinstance(value, dict) else ""


def _dump(value: Any) -> str:
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:
        import json

        return json.dumps(value, ensure_ascii=True)
