"""Messages inside the values that traces carry: JSON as text or as data; one, a list, or an object around one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from .chat_shapes import Said
from .json_text import NotJson, raw_elements, raw_members, value_of


def first_reply(found: Iterable[Said]) -> Said | None:
    """Return the first message that is a model's."""
    return next((said for said in found if said.role == "assistant"), None)


def messages_in(told: Any) -> list[msgspec.Raw]:
    """Return the messages inside a value: it is one, a list of them, or holds a list under a known key."""
    raws = elements_of(told)
    if raws:
        return raws if all(_looks_like_message(raw) for raw in raws) else []
    parts = members_of(told)
    if "role" in parts or ("type" in parts and "content" in parts):
        return [_text(told)]
    for key in ("messages", "input", "contents", "prompt"):
        if key in parts:
            inner = raw_elements(parts[key])
            if inner:
                return inner
            if isinstance(text := value_of(parts[key]), str):
                return [raw_of({"role": "user", "content": text})]
    choices = raw_elements(parts["choices"]) if "choices" in parts else None
    first = (raw_members(choices[0]) if choices else None) or {}
    if "message" in first:
        return [first["message"]]
    return raw_elements(parts["output"]) or [] if "output" in parts else []


def _looks_like_message(raw: msgspec.Raw) -> bool:
    parts = raw_members(raw) or {}
    return "role" in parts or "type" in parts


def elements_of(told: Any) -> list[msgspec.Raw]:
    """Return the elements of a value that is, or holds as text, a JSON array; else []."""
    try:
        return raw_elements(_text(told)) or []
    except NotJson:
        return []


def members_of(told: Any) -> dict[str, msgspec.Raw]:
    """Return the members of a value that is, or holds as text, a JSON object; else {}."""
    try:
        return raw_members(_text(told)) or {}
    except NotJson:
        return {}


def _text(told: Any) -> msgspec.Raw:
    # A lone surrogate in JSON text stands inside a string, where its escape means the same.
    return msgspec.Raw(as_text(told).encode("utf-8", "backslashreplace"))


def raw_of(value: Any) -> msgspec.Raw:
    """Return a value as JSON text."""
    return msgspec.Raw(json.dumps(value).encode())


def opened(told: Any) -> Any:
    """Return what a value says, JSON in text opened."""
    if not isinstance(told, str):
        return told
    try:
        return value_of(_text(told))
    except NotJson:
        return told


def as_text(value: Any) -> str:
    """Return an attribute as the JSON text that it holds or is."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
