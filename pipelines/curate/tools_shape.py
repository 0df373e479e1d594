"""Tools and system prompts as a context's head stores them, in OpenAI's shape."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from .chat_shape import Chat, ShapeRefused, messages_of, untagged


@lru_cache(maxsize=256)
def tool_list(stored: bytes | None) -> str | None:
    """Return the tools shown, as JSON text of OpenAI's list; None where their bytes were never stored."""
    if stored is None:
        return None
    value = msgspec.json.decode(untagged(stored))
    if isinstance(value, dict):
        value = [{"name": name, **one} if isinstance(one, dict) else one for name, one in value.items()]
    if not isinstance(value, list):
        raise ShapeRefused("tools: no list")
    return msgspec.json.encode([_tool(one) for one in value]).decode()


@lru_cache(maxsize=256)
def tool_names(tools: str) -> frozenset[str]:
    """Return the names in an OpenAI list of tools."""
    return frozenset(one["function"]["name"] for one in msgspec.json.decode(tools))


@lru_cache(maxsize=256)
def system_message(stored: bytes) -> Chat:
    """Return a stored system prompt as a message."""
    value = msgspec.json.decode(untagged(stored))
    if isinstance(value, list):
        texts = [one.get("text") if isinstance(one, dict) else one for one in value]
        if not all(isinstance(text, str) for text in texts):
            raise ShapeRefused("system prompt: holds more than text")
        value = "\n".join(str(text) for text in texts)
    if not isinstance(value, str):
        raise ShapeRefused("system prompt: no text")
    return messages_of(msgspec.json.encode({"role": "system", "content": value}))[0]


def _tool(one: Any) -> dict[str, Any]:
    if not isinstance(one, dict):
        raise ShapeRefused("tools: one is no object")
    inner = one["function"] if isinstance(one.get("function"), dict) else one
    name = inner.get("name")
    if not isinstance(name, str):
        raise ShapeRefused("tools: one has no name")
    schema: Any = next(
        (inner[key] for key in ("parameters", "input_schema", "schema", "inputSchema") if key in inner), {}
    )
    function = {"name": name, "description": inner.get("description") or "", "parameters": schema}
    if inner.get("strict") is not None:
        function["strict"] = inner["strict"]
    return {"type": "function", "function": function}
