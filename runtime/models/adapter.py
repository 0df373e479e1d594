"""A model behind HTTP: a format (how bodies are built and read) at an endpoint (where one attempt goes)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from . import anthropic_format, openai_format
from .protocol import Context, Delta, Response, ToolSpec
from .wire import Assembler, Endpoint, post


class Format(msgspec.Struct, frozen=True):
    """The four functions of a wire format. Without `assembler` a format does not stream."""

    build: Callable[[str, Context, Sequence[ToolSpec]], bytes]
    read: Callable[[bytes], Response]
    as_stream: Callable[[bytes], bytes] | None = None
    assembler: Callable[[], Assembler] | None = None


FORMATS: Final[dict[str, Format]] = {
    openai_format.FORMAT: Format(
        openai_format.build, openai_format.read, openai_format.as_stream, openai_format.Assembly
    ),
    anthropic_format.FORMAT: Format(
        anthropic_format.build, anthropic_format.read, anthropic_format.as_stream, anthropic_format.Assembly
    ),
}


class HttpModel:
    """A `Model`. Holds no connection and no credential; any thread may call, several at once."""

    def __init__(self, name: str, version: str, format_name: str, format_: Format, endpoint: Endpoint) -> None:
        self.name = name
        self.version = version
        self.format = format_name
        self.endpoint = endpoint.url
        self._format = format_
        self._to = endpoint

    def __repr__(self) -> str:
        return f"{self.format} model {self.name!r} at {self.endpoint}"

    def request(self, context: Context, tools: Sequence[ToolSpec] = ()) -> bytes:
        """Return the request body. Pure."""
        return self._format.build(self.name, context, tools)

    def send(self, request: bytes, on_delta: Delta | None = None) -> bytes:
        """Make one attempt; with `on_delta` it is streamed. A body that cannot be read raises here, not later."""
        if on_delta is not None and self._format.as_stream is not None:
            body = post(self._to, self._format.as_stream(request), self._format.assembler, on_delta)
        else:
            body = post(self._to, request, self._format.assembler, on_delta)
        self._format.read(body)
        return body

    def read(self, body: bytes) -> Response:
        """Read a body that `send` returned, now or in another process."""
        return self._format.read(body)


def format_named(name: str) -> Format:
    """Return a known format; raise ValueError naming those there are."""
    found = FORMATS.get(name)
    if found is None:
        raise ValueError(f"format {name!r} is not known; there are {', '.join(FORMATS)}, or pass build= and read=")
    return found
