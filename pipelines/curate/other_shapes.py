"""Replies and messages in shapes of their own (OpenAI Responses items, ATIF steps) as chat messages.

Texts of arguments are exact slices. What a chat message cannot say is refused by name, never dropped.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from trajlake.ingest.formats.json_text import NotJson, raw_elements, raw_members, value_of
from trajlake.ingest.formats.openai_parts import arguments_text

_ROLES: Final = {"agent": "assistant", "user": "user", "system": "system"}
Wire = dict[str, Any]


class NotSayable(Exception):
    """What this shape says cannot be said as a chat message."""


def responses_wire(items: list[msgspec.Raw]) -> list[Wire]:
    """Return the chat messages that a list of Responses items says; neighbours of one reply are one message.

    Reasoning that came encrypted is not there to be trained and is left out.
    """
    wires: list[Wire] = []
    for raw in items:
        parts = _members(raw)
        kind = _text(parts, "type") or ("message" if "role" in parts else "")
        if kind == "function_call_output":
            output = _value(parts, "output")
            content = output if isinstance(output, str) else msgspec.json.encode(output).decode()
            wires.append({"role": "tool", "tool_call_id": _text(parts, "call_id"), "content": content})
            continue
        role = _text(parts, "role") or "assistant"
        if not wires or wires[-1]["role"] != role or role != "assistant":
            wires.append({"role": role, "content": None})
        _add_item(wires[-1], kind, parts)
    return wires


def _add_item(wire: Wire, kind: str, parts: dict[str, msgspec.Raw]) -> None:
    if kind == "message":
        if wire.get("tool_calls"):
            raise NotSayable("has text after a call: a chat message puts it before")
        wire["content"] = (wire["content"] or "") + _said(_value(parts, "content"))
    elif kind == "reasoning":
        if _value(parts, "encrypted_content") is None:
            told = [*(_value(parts, "summary") or ()), *(_value(parts, "content") or ())]
            thought = "".join(str(one.get("text") or "") for one in told if isinstance(one, dict))
            wire["reasoning_content"] = wire.get("reasoning_content", "") + thought
    elif kind == "function_call":
        text, _ = arguments_text(parts["arguments"]) if "arguments" in parts else ("", True)
        call = {
            "id": _text(parts, "call_id"),
            "type": "function",
            "function": {"name": _text(parts, "name"), "arguments": text or ""},
        }
        wire.setdefault("tool_calls", []).append(call)
    else:
        raise NotSayable(f"holds an item of type {kind or 'none'}")


def atif_wire(parts: dict[str, msgspec.Raw]) -> Wire:
    """Return the chat message of an ATIF step (its observation is an event of its own)."""
    role = _ROLES.get(_text(parts, "source"))
    if role is None:
        raise NotSayable(f"is a step of source {_text(parts, 'source') or 'none'}")
    message = _value(parts, "message")
    wire: Wire = {"role": role, "content": message if isinstance(message, str) else _said(message)}
    if role == "assistant" and _text(parts, "reasoning_content"):
        wire["reasoning_content"] = _text(parts, "reasoning_content")
    calls = []
    for raw in raw_elements(parts["tool_calls"]) or () if "tool_calls" in parts else ():
        call = _members(raw)
        text, _ = arguments_text(call["arguments"]) if "arguments" in call else ("", True)
        name = _text(call, "function_name")
        calls.append(
            {"id": _text(call, "tool_call_id"), "type": "function", "function": {"name": name, "arguments": text or ""}}
        )
    if calls:
        wire["tool_calls"] = calls
    return wire


def _said(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    texts = []
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        else:
            raise NotSayable(
                f"holds a part of type {part.get('type') if isinstance(part, dict) else type(part).__name__}"
            )
    return "".join(texts)


def _members(raw: msgspec.Raw) -> dict[str, msgspec.Raw]:
    try:
        return raw_members(raw) or {}
    except NotJson:
        return {}


def _value(parts: dict[str, msgspec.Raw], key: str) -> Any:
    return value_of(parts[key]) if key in parts else None


def _text(parts: dict[str, msgspec.Raw], key: str) -> str:
    value = _value(parts, key)
    return value if isinstance(value, str) else ""
