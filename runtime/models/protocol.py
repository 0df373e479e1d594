"""What the runtime asks of a model, and what a reader hands back. Source: design/agent.md, *Models*."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from trajlake.schemas.events import ProposedCall, Usage

Delta = Callable[[str], None]
"""Receives pieces of text while a reply streams. Provisional: nothing it saw is journaled or durable, an attempt may
fail after it, and the next one starts over. It is called from the thread that runs `send`."""


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as offered to a model; `schema` is the JSON Schema of its arguments object."""

    name: str
    description: str = ""
    schema: Mapping[str, Any] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What one model call is shown: items in wire shape, oldest first, and request parameters (sampling)."""

    items: Sequence[Mapping[str, Any]]
    parameters: Mapping[str, Any] = {}
    turn: int = -1
    purpose: str = "act"


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader found in a response body.

    `item` is the reply as a context item. Where it stands in the body as it is, `item_pointer` is its JSON pointer
    (else None, and the event must carry the item). Each call's `pointer` leads to its arguments in the body;
    `arguments` is their text, byte for byte as emitted. `arguments_in_place`: the body holds them as one string there.
    """

    text: str
    calls: tuple[ProposedCall, ...]
    item: Mapping[str, Any]
    item_pointer: str | None
    usage: Usage | None
    stop_reason: str | None
    served_model: str
    response_id: str
    arguments_in_place: bool = True
    cache_key: str = ""


@runtime_checkable
class Model(Protocol):
    """One model. `format` names the shape of items and bodies (`openai.chat/1`, `anthropic.messages/1`, ...).

    A model of a format that `read_response` does not know also has `read(body: bytes) -> Response`.
    """

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def format(self) -> str: ...

    def request(self, context: Context, tools: Sequence[ToolSpec]) -> bytes:
        """Return the request body. Pure: same context, same bytes; no credential in it."""
        ...

    def send(self, request: bytes, on_delta: Delta | None = None) -> bytes:
        """Make one attempt and return the response body, whole. Raises `ModelError`. Never retries by itself."""
        ...


class ModelError(Exception):
    """One attempt failed. `retry`: another attempt may succeed. `spend_unknown`: it may have been paid for.

    `status` is the HTTP status (None: no answer), `body` what the provider said, credentials taken out.
    `retry_after_s` is the provider's wish.
    """

    def __init__(
        self,
        message: str,
        *,
        retry: bool,
        spend_unknown: bool = True,
        status: int | None = None,
        body: bytes = b"",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.retry, self.spend_unknown, self.status = retry, spend_unknown, status
        self.body, self.retry_after_s = body, retry_after_s


def result_item(format_name: str, call: ProposedCall, text: str, *, failed: bool = False) -> dict[str, Any]:
    """Return the context item that gives a model the result of its call, in the shape of `format_name`."""
    if format_name.startswith("anthropic.messages/"):
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call.provider_id, "content": text}
        if failed:
            block["is_error"] = True
        return {"role": "user", "content": [block]}
    return {"role": "tool", "tool_call_id": call.provider_id, "content": text}
