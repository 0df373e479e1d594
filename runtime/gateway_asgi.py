"""The gateway as ASGI middleware before a service: `app = GatewayMiddleware(app, gateway, secrets={"default": ...})`.

Every request must be signed; it passes to the service at most once per key, and its response is kept before it is
sent. A response with the header `Trajlake-Not-Executed: 1` frees the key; a 5xx or an exception leaves the outcome
unknown. Serve it on 127.0.0.1 unless something else in front keeps strangers out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

import msgspec

from .env import REAL_ENV, Env
from .gateway import EffectUnknown, Gateway, Kept, KeyConflict, StaleToken, Started, VerdictRefused
from .gateway_signing import ANNOUNCE_PATH, ANSWER, NOT_EXECUTED, VERDICT_PATH, SignedCall, Unsigned, check_signature

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

BODY_SIZE_MAX_BYTES: Final = 1024 * 1024
_STATUS: Final = {"unsigned": 401, "too_large": 413, "stale": 409, "conflict": 409, "unknown": 409, "refused": 409}


class KeptResponse(msgspec.Struct, frozen=True):
    """A response as it is kept and sent again."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class GatewayMiddleware:
    """Wraps an ASGI app. `secrets` maps tenants to their secrets (16 bytes or more)."""

    def __init__(
        self,
        app: App,
        gateway: Gateway,
        *,
        secrets: Mapping[str, bytes],
        body_size_max_bytes: int = BODY_SIZE_MAX_BYTES,
        env: Env = REAL_ENV,
    ) -> None:
        self._app, self._gateway, self._secrets = app, gateway, secrets
        self._body_size_max_bytes = body_size_max_bytes
        self._env = env
        self._running: set[asyncio.Future[KeptResponse]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            raise RuntimeError(f"the gateway lets no {scope['type']} through: it cannot know what that does")

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _body(receive, self._body_size_max_bytes)
        if body is None:
            await _answer(send, "too_large", f"the body is longer than {self._body_size_max_bytes} bytes")
            return
        path = scope["raw_path"].decode("latin-1") if scope.get("raw_path") else scope["path"]
        query = scope.get("query_string", b"").decode("latin-1")
        try:
            call = check_signature(
                self._secrets,
                {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]},
                method=scope["method"],
                path=path + (f"?{query}" if query else ""),
                body=body,
                now_s=self._env.now_us() / 1e6,
            )
        except Unsigned as error:
            await _answer(send, "unsigned", str(error))
            return
        try:
            await self._signed(scope, path, call, body, send)
        except StaleToken as error:
            await _answer(send, "stale", str(error))
        except KeyConflict as error:
            await _answer(send, "conflict", str(error))
        except EffectUnknown as error:
            await _answer(send, "unknown", str(error))
        except VerdictRefused as error:
            await _answer(send, "refused", str(error))

    async def _signed(self, scope: Scope, path: str, call: SignedCall, body: bytes, send: Send) -> None:
        if path == ANNOUNCE_PATH:
            await asyncio.to_thread(self._gateway.announce, call.tenant, call.trajectory_id, call.token)
            await _send(send, KeptResponse(204, [], b""))
        elif not call.key or not call.arguments_hash:
            await _answer(send, "unsigned", "the request names no key and arguments")
        elif path == VERDICT_PATH:
            await asyncio.to_thread(
                self._gateway.verdict_not_executed, call.tenant, call.trajectory_id, call.key, call.token
            )
            await _send(send, KeptResponse(204, [], b""))
        else:
            begun = await asyncio.to_thread(self._gateway.begin, call)
            # A caller that goes away must not stop an effect half way, nor keep its result from being kept.
            running = asyncio.ensure_future(self._respond(scope, body, begun))
            self._running.add(running)  # the loop itself keeps no task alive
            running.add_done_callback(self._running.discard)
            response = await asyncio.shield(running)
            await _send(send, response)

    async def _respond(self, scope: Scope, body: bytes, begun: Started | Kept) -> KeptResponse:
        if isinstance(begun, Kept):
            return _kept(begun)
        try:
            response = await _run(self._app, scope, body)
        except BaseException:
            begun.lost()
            raise
        said_not = any(name.lower() == NOT_EXECUTED.encode() and value == b"1" for name, value in response.headers)
        if said_not:
            await asyncio.to_thread(begun.not_executed)
        elif response.status >= 500:
            begun.lost()
        else:
            await asyncio.to_thread(begun.done, "http", msgspec.msgpack.encode(response))
        return response


def _kept(kept: Kept) -> KeptResponse:
    if kept.kind != "http":
        text = b'{"error":"it was executed; its response was too large to keep"}'
        return KeptResponse(409, [(ANSWER.encode(), b"not_kept")], text)
    response = msgspec.msgpack.decode(kept.result, type=KeptResponse)
    return msgspec.structs.replace(response, headers=[*response.headers, (ANSWER.encode(), b"kept")])


async def _run(app: App, scope: Scope, body: bytes) -> KeptResponse:
    """Run the service with the body that was read, and collect its whole response."""
    status, headers, parts = 0, [], list[bytes]()
    delivered = False

    async def receive() -> Message:
        nonlocal delivered
        if delivered:
            await asyncio.Event().wait()  # the caller is never said to have gone
        delivered = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status = message["status"]
            headers = [(bytes(name), bytes(value)) for name, value in message.get("headers", [])]
        elif message["type"] == "http.response.body":
            parts.append(bytes(message.get("body", b"")))

    await app(scope, receive, send)
    if not status:
        raise RuntimeError("the service gave no response")
    return KeptResponse(status, headers, b"".join(parts))


async def _body(receive: Receive, size_max_bytes: int) -> bytes | None:
    """Read the whole body; None once it is too long."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(bytes(message.get("body", b"")))
        size += len(parts[-1])
        if size > size_max_bytes:
            return None
        if not message.get("more_body", False):
            return b"".join(parts)


async def _answer(send: Send, kind: str, text: str) -> None:
    headers = [(b"content-type", b"application/json"), (ANSWER.encode(), kind.encode())]
    await _send(send, KeptResponse(_STATUS[kind], headers, msgspec.json.encode({"error": text})))


async def _send(send: Send, response: KeptResponse) -> None:
    await send({"type": "http.response.start", "status": response.status, "headers": response.headers})
    await send({"type": "http.response.body", "body": response.body})
