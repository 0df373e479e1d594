"""The worker's side of a gateway over HTTP: `@journal.tool(gateway=HttpGateway(url, secret_env="SHOP_SECRET"))`.

The tool's body calls `gateway.send(call, HttpRequest(...))`. Only what proves that nothing left the host is said to be
not executed; every other failure is unknown, and the runtime settles it.
"""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from contextlib import closing
from urllib.parse import urlsplit

import msgspec

from .env import REAL_ENV, Env
from .gateway import Caller, EffectUnknown, GatewayError, KeyConflict, ResultNotKept, StaleToken, VerdictRefused
from .gateway_signing import (
    ANNOUNCE_PATH,
    ANSWER,
    NOT_EXECUTED,
    SECRET_SIZE_MIN_BYTES,
    VERDICT_PATH,
    SignedCall,
    signed_headers,
)
from .tools import NotExecuted

_REFUSALS = {
    "stale": StaleToken,
    "conflict": KeyConflict,
    "unknown": EffectUnknown,
    "not_kept": ResultNotKept,
    "refused": VerdictRefused,
}


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to the service behind the gateway. `path` may have a query."""

    path: str
    body: bytes = b""
    method: str = "POST"
    headers: Mapping[str, str] = msgspec.field(default_factory=lambda: {"content-type": "application/json"})


class HttpAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The service's response; `kept`: it is that of an earlier attempt."""

    status: int
    body: bytes
    kept: bool


class HttpGateway:
    """A gateway behind `url`. `secret_env` is the NAME of the environment variable with the tenant's secret."""

    def __init__(self, url: str, *, secret_env: str, timeout_s: float = 30.0, env: Env = REAL_ENV) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise ValueError(f"gateway URL {url!r}: expected http(s)://HOST[:PORT][/PATH], without user or query")
        self._url, self._parts, self._secret_env, self._timeout_s, self._env = url, parts, secret_env, timeout_s, env

    def __repr__(self) -> str:
        return f"HttpGateway({self._url!r})"

    def announce(self, tenant: str, trajectory_id: str, token: int) -> None:
        """Tell the gateway the token; on return every lower one is refused there. Raises `StaleToken`, OSError."""
        call = SignedCall(tenant=tenant, trajectory_id=trajectory_id, token=token)
        self._demand_204(call, ANNOUNCE_PATH)

    def verdict_not_executed(self, tenant: str, trajectory_id: str, key: str, token: int) -> None:
        """Post the verdict for a key: it may run once more. Raises `StaleToken`, `VerdictRefused`, OSError."""
        call = SignedCall(tenant=tenant, trajectory_id=trajectory_id, token=token, key=key, arguments_hash="-")
        self._demand_204(call, VERDICT_PATH)

    def send(self, call: Caller, request: HttpRequest) -> HttpAnswer:
        """Send once under the call's key; a repeat gets the earlier response.

        Raises `NotExecuted` when the service says so, or when a first attempt could not even connect; a
        `GatewayError` or OSError means unknown. A response of 5xx raises `EffectUnknown`.
        """
        signed = SignedCall(
            tenant=call.tenant,
            trajectory_id=call.trajectory_id,
            token=call.token,
            key=call.key,
            arguments_hash=call.arguments_hash,
        )
        try:
            response, body = self._exchange(signed, request)
        except _NoConnection as error:
            if getattr(call, "attempt", 1) == 1:
                raise NotExecuted(str(error)) from None
            raise  # an earlier attempt may have arrived
        _raise_refusal(response, body)
        if response.headers.get(NOT_EXECUTED) == "1":
            raise NotExecuted(f"the service did nothing: {response.status} {body[:200]!r}")
        if response.status >= 500:
            raise EffectUnknown(f"the service answered {response.status}")
        return HttpAnswer(status=response.status, body=body, kept=response.headers.get(ANSWER) == "kept")

    def _demand_204(self, call: SignedCall, path: str) -> None:
        response, body = self._exchange(call, HttpRequest(path=path))
        _raise_refusal(response, body)
        if response.status != 204:
            raise GatewayError(f"{self._url}{path}: answered {response.status}; is there a gateway?")

    def _exchange(self, call: SignedCall, request: HttpRequest) -> tuple[http.client.HTTPResponse, bytes]:
        path = self._parts.path.rstrip("/") + request.path
        signed = signed_headers(
            self._secret(), call, method=request.method, path=path, body=request.body,
            now_s=self._env.now_us() // 1_000_000,
        )  # fmt: skip
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        with closing(kind(str(self._parts.hostname), self._parts.port, timeout=self._timeout_s)) as connection:
            try:
                connection.connect()
            except OSError as error:
                raise _NoConnection(f"{self._url}: no connection ({error})") from None
            try:
                connection.request(request.method, path, request.body, {**request.headers, **signed})
                response = connection.getresponse()
                return response, response.read()
            except http.client.HTTPException as error:
                raise OSError(f"{self._url}: no answer ({error or type(error).__name__})") from None

    def _secret(self) -> bytes:
        secret = (self._env.variable(self._secret_env) or "").encode()
        if len(secret) < SECRET_SIZE_MIN_BYTES:
            raise _NoConnection(
                f"environment variable {self._secret_env} is not set, or shorter than {SECRET_SIZE_MIN_BYTES} bytes"
            )
        return secret


class _NoConnection(OSError):
    """Nothing left the host."""


def _raise_refusal(response: http.client.HTTPResponse, body: bytes) -> None:
    kind = response.headers.get(ANSWER)
    if kind in (None, "kept"):
        return
    try:
        text = msgspec.json.decode(body)["error"]
    except (msgspec.DecodeError, KeyError, TypeError):
        text = str(response.status)
    raise _REFUSALS.get(str(kind), GatewayError)(f"the gateway refused: {text}")
