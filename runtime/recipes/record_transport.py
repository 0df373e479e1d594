"""The transport of `record_only`: one HTTP exchange as a `Model` of one attempt, and what the program gets of it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import Any, Protocol

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


class Send(Protocol):
    """Sends a request for which a program waits at a future; returns the response and its whole content."""

    in_loop: bool

    def __call__(self, answer: Future[Any]) -> tuple[Any, bytes]: ...


class _Here:
    in_loop = False

    def __init__(self, inner: Any, request: Any) -> None:
        self._inner, self._request = inner, request

    def __call__(self, answer: Future[Any]) -> tuple[Any, bytes]:
        del answer
        response = self._inner.handle_request(self._request)
        return response, response.read()


class _InLoop:
    """By the program's loop; given up when the answer is no longer waited for, so that the recorder is free again."""

    in_loop = True

    def __init__(self, inner: Any, request: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._inner, self._request, self._loop = inner, request, loop

    def __call__(self, answer: Future[Any]) -> tuple[Any, bytes]:
        under_way = asyncio.run_coroutine_threadsafe(self._sent(), self._loop)
        answer.add_done_callback(lambda _: under_way.cancel())
        try:
            return under_way.result()
        except CancelledError:
            raise ModelError("the program no longer waited for the answer", retry=False) from None

    async def _sent(self) -> tuple[Any, bytes]:
        response = await self._inner.handle_async_request(self._request)
        return response, await response.aread()


def _model_call(sent: bytes) -> dict[str, Any] | None:
    """The body of a request that asks a model: other APIs have paths that end alike, and no list of messages."""
    try:
        body = msgspec.json.decode(sent)
    except msgspec.DecodeError:
        return None
    messages = body.get("messages") if isinstance(body, dict) else None
    return body if isinstance(messages, list) and all(isinstance(one, dict) for one in messages) else None


class Exchange:
    """A request of the program. As a `Model` it sends just that, and keeps what came back."""

    version = ""

    def __init__(self, http: Any, sent: bytes, body: dict[str, Any], format_name: str, send: Send) -> None:
        self.name, self.format, self.answer = str(body.get("model", "unknown")), format_name, Future[Any]()
        self._body, self._sent, self._send, self._http = body, sent, send, http

    @property
    def in_loop(self) -> bool:
        """Whether it is sent by an event loop, which must not be blocked meanwhile."""
        return self._send.in_loop

    def record(self, t: Any, turn: Any) -> None:
        """Make the call in a turn of the recorder, and hand the program its answer or exception."""
        try:
            body = dict(self._body)
            messages = found_again(system_first(body), t.context.items)
            turn.model(self, tools=[], messages=messages, parameters=body, retry=Retry(0))
            self.tell(self._got)
        except ModelFailed as failed:
            if isinstance(failed.__cause__, ModelError) and failed.__cause__.status is not None:
                self.tell(self._got)
            else:
                self.fail(failed.__cause__ or failed)
        except BaseException as error:
            self.fail(error)
            raise

    def tell(self, response: Any) -> None:
        """Give the program its response, unless it no longer waits."""
        with contextlib.suppress(InvalidStateError):
            self.answer.set_result(response)

    def fail(self, error: BaseException) -> None:
        """Raise an error where the program waits, unless it no longer does."""
        with contextlib.suppress(InvalidStateError):
            self.answer.set_exception(error)

    def request(self, context: Context, tools: Any = ()) -> bytes:
        del context, tools
        return self._sent

    def send(self, request: bytes, on_delta: Delta | None = None) -> bytes:
        del request, on_delta
        response, content = self._send(self.answer)
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
        exchange = self._exchange(request, request.read(), _Here(self._inner, request))
        return self._inner.handle_request(request) if exchange is None else exchange.answer.result()

    async def handle_async_request(self, request: Any) -> Any:
        sent = await request.aread()
        exchange = self._exchange(request, sent, _InLoop(self._inner, request, asyncio.get_running_loop()))
        if exchange is None:
            return await self._inner.handle_async_request(request)
        return await asyncio.wrap_future(exchange.answer)

    def _exchange(self, request: Any, sent: bytes, send: Send) -> Exchange | None:
        named = next((name for end, name in FORMATS.items() if request.url.path.endswith(end)), None)
        body = _model_call(sent) if named is not None and request.method == "POST" else None
        if named is None or body is None:
            return None
        exchange = Exchange(sys.modules[type(request).__module__.partition(".")[0]], sent, body, named, send)
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
