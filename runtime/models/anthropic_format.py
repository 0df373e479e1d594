"""`anthropic.messages/1`: request bodies, response bodies and streams of the messages API, without an SDK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from trajlake.schemas.events import ProposedCall, Usage

from .openai_format import count
from .protocol import Context, Delta, ModelError, Response, ToolSpec

FORMAT: Final = "anthropic.messages/1"
OUTPUT_TOKENS_MAX: Final = 8192
"""`max_tokens` where the caller names none; the API demands one."""

_RETRY_ERRORS: Final = frozenset({"overloaded_error", "api_error", "rate_limit_error", "timeout_error"})


class _Block(msgspec.Struct):
    type: str = ""
    text: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"")


class _Body(msgspec.Struct):
    content: list[_Block]
    id: str = ""
    model: str = ""
    stop_reason: str | None = None
    usage: Any = None


_decoder: Final = msgspec.json.Decoder(_Body)


def build(model: str, context: Context, tools: Sequence[ToolSpec]) -> bytes:
    """Return the request body. Items of role system become `system`; neighbours of one role become one message."""
    system = [item for item in context.items if item.get("role") == "system"]
    messages: list[dict[str, Any]] = []
    for item in context.items:
        if item.get("role") != "system":
            _join(messages, item)
    body: dict[str, Any] = {"model": model, "max_tokens": OUTPUT_TOKENS_MAX, "messages": messages}
    if system:
        body["system"] = [block for item in system for block in _blocks(item.get("content"))]
    if tools:
        body["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": dict(tool.schema)} for tool in tools
        ]
    body.update(context.parameters)
    return msgspec.json.encode(body)


def _join(messages: list[dict[str, Any]], item: Mapping[str, Any]) -> None:
    """The results of parallel calls must stand in one message; the API takes no two neighbours of one role."""
    if messages and messages[-1]["role"] == item.get("role"):
        last = messages[-1]
        last["content"] = [*_blocks(last["content"]), *_blocks(item.get("content"))]
    else:
        messages.append({"role": item.get("role"), "content": item.get("content")})


def _blocks(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [{"type": "text", "text": content or ""}]


def as_stream(request: bytes) -> bytes:
    """Return the same request, asking for a stream."""
    return msgspec.json.encode({**msgspec.json.decode(request), "stream": True})


def read(body: bytes) -> Response:
    """Read a response body. Raises `ModelError` (no retry) if it is none of this format.

    Arguments are objects in this format, so their text is the exact slice of the body.
    """
    try:
        parsed = _decoder.decode(body)
        tree = msgspec.json.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise ModelError(f"response is no {FORMAT} body: {error}", retry=False, body=body) from None
    calls = tuple(
        ProposedCall(
            tool=block.name, provider_id=block.id, pointer=f"/content/{index}/input", arguments=_text_of(block.input)
        )
        for index, block in enumerate(parsed.content)
        if block.type == "tool_use"
    )
    return Response(
        text="".join(block.text for block in parsed.content if block.type == "text"),
        calls=calls,
        item={"role": "assistant", "content": tree["content"]},
        item_pointer=None,
        usage=_usage(parsed.usage),
        stop_reason=parsed.stop_reason,
        served_model=parsed.model,
        response_id=parsed.id,
        arguments_in_place=not calls,
    )


def _text_of(raw: msgspec.Raw) -> str:
    """The text the model emitted. A string stands there when a stream's arguments were no JSON (see `Assembly`)."""
    text = bytes(raw)
    return msgspec.json.decode(text, type=str) if text.startswith(b'"') else text.decode() or "{}"


def _usage(tree: Any) -> Usage | None:
    if not isinstance(tree, dict):
        return None
    fresh = count(tree.get("input_tokens"))
    cached, written = count(tree.get("cache_read_input_tokens")), count(tree.get("cache_creation_input_tokens"))
    total = None if fresh is None else fresh + (cached or 0) + (written or 0)
    return Usage(input_total=total, cached_read=cached, cache_write=written, output=count(tree.get("output_tokens")))


class Assembly:
    """Puts a stream's events together into the message that the same call gives without streaming.

    Arguments arrive as pieces of JSON text and stand in the message as that very text; where it is no JSON (the reply
    was cut), they stand there as a string.
    """

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._arguments: dict[int, str] = {}

    def feed(self, data: bytes, on_delta: Delta) -> bool:
        try:
            event = msgspec.json.decode(data)
        except msgspec.DecodeError as error:
            raise ModelError(f"stream holds a broken event ({error})", retry=True, body=data) from None
        match event.get("type") if isinstance(event, dict) else None:
            case "message_start":
                self._message = dict(event["message"])
            case "content_block_start":
                self._blocks[event["index"]] = dict(event["content_block"])
            case "content_block_delta":
                self._add(event["index"], event["delta"], on_delta)
            case "message_delta":
                self._message.update(event.get("delta") or {})
                self._message["usage"] = {**(self._message.get("usage") or {}), **(event.get("usage") or {})}
            case "message_stop":
                return True
            case "error":
                kind = (event.get("error") or {}).get("type", "")
                raise ModelError(f"stream reported {kind or 'an error'}", retry=kind in _RETRY_ERRORS, body=data)
        return False

    def body(self) -> bytes:
        for index, text in self._arguments.items():
            self._blocks[index]["input"] = _as_json(text)
        self._message["content"] = [self._blocks[index] for index in sorted(self._blocks)]
        return msgspec.json.encode(self._message)

    def _add(self, index: int, delta: dict[str, Any], on_delta: Delta) -> None:
        block = self._blocks.setdefault(index, {})
        match delta.get("type"):
            case "text_delta":
                block["text"] = block.get("text", "") + delta["text"]
                on_delta(delta["text"])
            case "input_json_delta":
                self._arguments[index] = self._arguments.get(index, "") + delta["partial_json"]
            case "thinking_delta":
                block["thinking"] = block.get("thinking", "") + delta["thinking"]
            case "signature_delta":
                block["signature"] = block.get("signature", "") + delta["signature"]
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or []), delta["citation"]]


def _as_json(text: str) -> Any:
    if not text:
        return {}
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return msgspec.Raw(text.encode())
