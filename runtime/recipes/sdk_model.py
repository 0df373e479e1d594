"""A `Model` whose one attempt goes through a provider's own client: its proxies, headers and signing stay in force.

The runtime retries and records each attempt, so the client must not: give it with its retries off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ..models.adapter import format_named
from ..models.protocol import Context, Delta, ModelError, Response, ToolSpec
from ..models.wire import event_data

Post = Callable[[dict[str, Any]], Any]
"""Takes a request body, makes one attempt, and returns the client's raw response (`iter_bytes`, `read`, `headers`)."""

RETRY_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


class SdkModel:
    """A `Model` over a client. Any thread may call, if the client allows it."""

    def __init__(self, name: str, version: str, format_name: str, post: Post) -> None:
        self.name, self.version, self.format = name, version, format_name
        self._format, self._post = format_named(format_name), post

    def request(self, context: Context, tools: Sequence[ToolSpec] = ()) -> bytes:
        """Return the request body. Pure."""
        return self._format.build(self.name, context, tools)

    def send(self, request: bytes, on_delta: Delta | None = None) -> bytes:
        """Make one attempt; with `on_delta` it is streamed. Raises `ModelError`."""
        streams = on_delta is not None and self._format.as_stream is not None
        body = self._format.as_stream(request) if streams and self._format.as_stream else request
        try:
            with self._post(msgspec.json.decode(body)) as answer:
                whole = self._assembled(answer, on_delta) if streams and on_delta else answer.read()
        except ModelError:
            raise
        except Exception as error:
            raise told(error) from error
        self._format.read(whole)
        return bytes(whole)

    def read(self, body: bytes) -> Response:
        """Read a body that `send` returned, now or in another process."""
        return self._format.read(body)

    def _assembled(self, answer: Any, on_delta: Delta) -> bytes:
        assert self._format.assembler is not None
        assembly = self._format.assembler()
        for data in event_data(answer.iter_bytes()):
            if assembly.feed(data, on_delta):
                return assembly.body()
        raise ModelError("stream ended before the reply was complete", retry=True)


def told(error: Exception) -> ModelError:
    """Return what a client raised, in the runtime's words: the SDKs' errors carry `status_code` and `response`."""
    status = getattr(error, "status_code", None)
    wished = getattr(getattr(error, "response", None), "headers", {}).get("retry-after", "")
    return ModelError(
        f"{type(error).__name__}: {error}",
        retry=status is None or status in RETRY_STATUS,
        spend_unknown=status is None or status >= 500,
        status=status,
        retry_after_s=float(wished) if wished.isdigit() else None,
    )
