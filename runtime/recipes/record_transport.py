"""The transport of `record_only`: one HTTP exchange as a `Model` of one attempt, and what the program gets of it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import msgspec

from ..agent.errors import ModelFailed
from ..models.adapter import format_named
from ..models.protocol import Context, Delta, ModelError, Response
from ..models.wire import event_data
from ..tools import Retry
from .messages import found_again, system_first
from .sdk_model import RETRY_STATUS

FORMATS = {"/chat/completions": "openai.chat/1", "/messages": "anthropic.messages/1"}
"""End of a request's path -> format. Other requests go through unrecorded."""

_OF_THE_WIRE = frozenset({"content-encoding", "content-length", "transfer-encoding"})


class Exchange:
    """A request of the program. As a `Model` it sends just that, and keeps what came back."""

    version = ""

    def __init__(self, http: Any, sent: bytes, format_name: str, send: Callable[[], tuple[Any, bytes]]) -> None:
        body = msgspec.json.decode(sent)
        self.name, self.format, self.answer = str(body.get("model", "unknown")), format_name, Future[Any]()
        self._body, self._sent, self._send, self._http = body, sent, send, http

    def record(self, t: Any, turn: Any) -> None:
        """Make the call in a turn of the recorder, and hand the program its answer or exception."""
        body = dict(self._body)
        messages = found_again(system_first(body), t.context.items)
        try:
            turn.model(self, tools=[], messages=messages, parameters=body, retry=Retry(0))
        except ModelFailed as failed:
            if isinstance(failed.__cause__, ModelError) and failed.__cause__.status is not None:
                self.answer.set_result(self._got)
            else:
                self.answer.set_exception(failed.__cause__ or failed)
        except BaseException as error:
            self.answer.set_exception(error)
            raise
        else:
            self.answer.set_result(self._got)

    def request(self, context: Context, tools: Any = ()) -> bytes:
        del context, tools
        return self._sent

    def send(self, request: bytes, on_delta: Delta | None = None) -> bytes:
        del request, on_delta
        response, content = self._send()
        headers = [(name, value) for name, value in response.headers.items() if name.lower() not in _OF_THE_WIRE]
        self._got = self._http.Response(response.status_code, headers=headers, content=content)
        if response.status_code != 200:
            retry = response.status_code in RETRY_STATUS
            raise ModelError(f"answered {response.status_code}", retry=retry, status=response.status_code, body=content)
        found = format_named(self.format)
        if "text/event-stream" not in response.headers.get("content-type", "") or found.assembler is None:
            return content
        assembly = found.assembler()
        for data in event_data(iter([content])):
            if assembly.feed(data, lambda _: None):
                return assembly.body()
        raise ModelError("stream ended before the reply was complete", retry=True, status=response.status_code)

    def read(self, body: bytes) -> Response:
        return format_named(self.format).read(body)


class RecordingTransport:
    """For `httpx.Client(transport=...)` and `httpx.AsyncClient(transport=...)`, httpx2's too."""

    def __init__(self, inner: Any, hand_over: Callable[[Exchange], None]) -> None:
        self._inner, self._hand_over = inner, hand_over

    def handle_request(self, request: Any) -> Any:
        def send() -> tuple[Any, bytes]:
            response = self._inner.handle_request(request)
            return response, response.read()

        exchange = self._exchange(request, request.read(), send)
        return self._inner.handle_request(request) if exchange is None else exchange.answer.result()

    async def handle_async_request(self, request: Any) -> Any:
        loop = asyncio.get_running_loop()

        async def asend() -> tuple[Any, bytes]:
            response = await self._inner.handle_async_request(request)
            return response, await response.aread()

        sent = await request.aread()
        exchange = self._exchange(request, sent, lambda: asyncio.run_coroutine_threadsafe(asend(), loop).result())
        if exchange is None:
            return await self._inner.handle_async_request(request)
        return await asyncio.wrap_future(exchange.answer)

    def _exchange(self, request: Any, sent: bytes, send: Callable[[], tuple[Any, bytes]]) -> Exchange | None:
        named = next((name for end, name in FORMATS.items() if request.url.path.endswith(end)), None)
        if named is None or request.method != "POST":
            return None
        exchange = Exchange(sys.modules[type(request).__module__.partition(".")[0]], sent, named, send)
        self._hand_over(exchange)
        return exchange

    def close(self) -> None:
        self._inner.close()

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __enter__(self) -> RecordingTransport:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> RecordingTransport:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
