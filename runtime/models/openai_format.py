"""`openai.chat/1`: request bodies, response bodies and streams of the chat completions API, without an SDK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from trajlake.schemas.events import ProposedCall, Usage

from .protocol import Context, Delta, ModelError, Response, ToolSpec

FORMAT: Final = "openai.chat/1"

_NOT_SENT_BACK: Final = frozenset({"annotations", "audio"})
"""Keys of a response's message that the API does not take in a request."""


_OF_THE_BODY: Final = ("id", "created", "model", "system_fingerprint", "service_tier", "prompt_cache_key")
"""Keys that stand beside the choices, in every chunk of a stream alike."""


class _Text(msgspec.Struct):
    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b"")
    input: msgspec.Raw = msgspec.Raw(b"")


class _Call(msgspec.Struct):
    id: str | None = None
    function: _Text | None = None
    custom: _Text | None = None


class _Message(msgspec.Struct):
    content: Any = None
    tool_calls: list[_Call] | None = None
    function_call: _Text | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Body(msgspec.Struct):
    choices: list[_Choice]
    id: str | None = None
    model: str | None = None
    usage: Any = None
    prompt_cache_key: Any = None


_decoder: Final = msgspec.json.Decoder(_Body)


def build(model: str, context: Context, tools: Sequence[ToolSpec]) -> bytes:
    """Return the request body: the context's items as they are, without what the API does not take back."""
    body: dict[str, Any] = {"model": model, "messages": [_sendable(item) for item in context.items]}
    if tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.schema)},
            }
            for tool in tools
        ]
    body.update(context.parameters)
    return msgspec.json.encode(body)


def as_stream(request: bytes) -> bytes:
    """Return the same request, asking for a stream that reports its usage."""
    body = msgspec.json.decode(request)
    return msgspec.json.encode({**body, "stream": True, "stream_options": {"include_usage": True}})


def read(body: bytes) -> Response:
    """Read a response body. Raises `ModelError` (no retry) if it is none of this format."""
    try:
        parsed = _decoder.decode(body)
        tree = msgspec.json.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise ModelError(f"response is no {FORMAT} body: {error}", retry=False, body=body) from None
    if not parsed.choices:
        raise ModelError(f"response is no {FORMAT} body: it holds no choice", retry=True, body=body)
    message = parsed.choices[0].message
    calls, in_place = _calls(message)
    return Response(
        text=_text(message.content),
        calls=calls,
        item=tree["choices"][0]["message"],
        item_pointer="/choices/0/message",
        usage=_usage(parsed.usage),
        stop_reason=parsed.choices[0].finish_reason,
        served_model=parsed.model or "",
        response_id=parsed.id or "",
        cache_key=parsed.prompt_cache_key if isinstance(parsed.prompt_cache_key, str) else "",
        arguments_in_place=in_place,
    )


def _calls(message: _Message) -> tuple[tuple[ProposedCall, ...], bool]:
    found: list[tuple[str, str, str, msgspec.Raw]] = []
    for index, call in enumerate(message.tool_calls or ()):
        at = f"/choices/0/message/tool_calls/{index}"
        if call.custom is not None:
            found.append((call.custom.name, call.id or "", f"{at}/custom/input", call.custom.input))
        elif call.function is not None:
            found.append((call.function.name, call.id or "", f"{at}/function/arguments", call.function.arguments))
    if message.function_call is not None:
        legacy = message.function_call
        found.append((legacy.name, "", "/choices/0/message/function_call/arguments", legacy.arguments))
    in_place = all(bytes(raw).startswith(b'"') for *_, raw in found)
    return tuple(
        ProposedCall(tool=tool, provider_id=provider_id, pointer=pointer, arguments=_as_text(raw))
        for tool, provider_id, pointer, raw in found
    ), in_place


def _as_text(raw: msgspec.Raw) -> str:
    """The text the model emitted: the string itself, or (servers that send an object) its exact JSON text."""
    text = bytes(raw)
    return msgspec.json.decode(text, type=str) if text.startswith(b'"') else text.decode()


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(part.get("text") or "" for part in parts if isinstance(part, dict) and part.get("type") == "text")


def _usage(tree: Any) -> Usage | None:
    if not isinstance(tree, dict):
        return None
    shown = tree.get("prompt_tokens_details") or {}
    made = tree.get("completion_tokens_details") or {}
    return Usage(
        input_total=count(tree.get("prompt_tokens")),
        cached_read=count(shown.get("cached_tokens", tree.get("prompt_cache_hit_tokens"))),
        cache_write=count(shown.get("cache_write_tokens")),
        output=count(tree.get("completion_tokens")),
        reasoning=count(made.get("reasoning_tokens")),
    )


def count(value: Any) -> int | None:
    """Return a token count, None where the provider reports none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _sendable(item: Mapping[str, Any]) -> dict[str, Any]:
    keep = item.get("role") != "assistant"
    return {name: value for name, value in item.items() if keep or (value is not None and name not in _NOT_SENT_BACK)}


class Assembly:
    """Puts a stream's chunks together into the body that the same call gives without streaming."""

    def __init__(self) -> None:
        self._top: dict[str, Any] = {}
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self._calls: dict[int, dict[str, Any]] = {}
        self._finish: str | None = None
        self._usage: Any = None

    def feed(self, data: bytes, on_delta: Delta) -> bool:
        if data.strip() == b"[DONE]":
            if self._finish is None:
                raise ModelError("stream was closed without a finish reason", retry=True)
            return True
        try:
            chunk = msgspec.json.decode(data)
        except msgspec.DecodeError as error:
            raise ModelError(f"stream holds a broken chunk ({error})", retry=True, body=data) from None
        if not isinstance(chunk, dict) or chunk.get("error") is not None:
            raise ModelError("stream reported an error", retry=True, body=data)
        for name in _OF_THE_BODY:
            if chunk.get(name) is not None:
                self._top.setdefault(name, chunk[name])
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices") or ():
            if choice.get("index", 0) == 0:
                self._add(choice.get("delta") or {}, on_delta)
                self._finish = choice.get("finish_reason") or self._finish
        return False

    def body(self) -> bytes:
        if self._calls:
            self._message["tool_calls"] = [self._calls[index] for index in sorted(self._calls)]
        choice = {"index": 0, "message": self._message, "finish_reason": self._finish}
        whole = {"object": "chat.completion", **self._top, "choices": [choice], "usage": self._usage}
        return msgspec.json.encode(whole)

    def _add(self, delta: dict[str, Any], on_delta: Delta) -> None:
        for name, value in delta.items():
            if name == "tool_calls":
                for piece in value or ():
                    self._add_call(piece)
            elif isinstance(value, str) and name != "role":
                self._message[name] = (self._message.get(name) or "") + value
                if name == "content" and value:
                    on_delta(value)
            elif value is not None and name != "role":
                self._message[name] = value

    def _add_call(self, piece: dict[str, Any]) -> None:
        index = piece.get("index", len(self._calls))
        call = self._calls.setdefault(index, {"id": None, "type": "function"})
        call["id"] = call["id"] or piece.get("id")
        call["type"] = piece.get("type") or call["type"]
        for kind in ("function", "custom"):
            for name, value in (piece.get(kind) or {}).items():
                into = call.setdefault(kind, {})
                # Some servers repeat the whole name in every chunk.
                if isinstance(value, str) and not (name == "name" and into.get(name) == value):
                    into[name] = (into.get(name) or "") + value
