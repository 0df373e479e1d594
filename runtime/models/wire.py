"""One HTTP attempt with the standard library: POST a JSON body, read it whole or as server-sent events.

No redirect, no retry, no proxy, no connection kept: what happened is one request or none. The key is read from the
environment at the send, by the name of its variable, and is taken out of whatever the server says back.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec

from trajlake.runtime.env import REAL_ENV

from .protocol import Delta, ModelError

BODY_MAX: Final = 64 * 1024 * 1024
"""Largest response (bytes) that is read; a longer one is an error, not a truncated reply."""

_RETRY_STATUS: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_REDACTED: Final = b"[credential removed]"


class Assembler(Protocol):
    """Builds the final response body out of the data of server-sent events."""

    def feed(self, data: bytes, on_delta: Delta) -> bool:
        """Take one event's data; True when the stream is complete. Raises `ModelError` for an error event."""
        ...

    def body(self) -> bytes: ...


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where requests go. `key_env` is the NAME of the environment variable that holds the key, or None for no key."""

    url: str
    key_env: str | None = None
    key_header: str = "Authorization"
    key_prefix: str = "Bearer "
    headers: Mapping[str, str] = {}
    timeout_s: float = 600.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"model URL {self.url!r}: expected http://HOST/... or https://HOST/...")
        if parts.username or parts.password:
            raise ValueError("model URL holds a user name or password: name a variable in key_env instead")
        if not self.timeout_s > 0:
            raise ValueError(f"timeout_s {self.timeout_s!r}: must be above 0")

    def key(self) -> str | None:
        """Return the key, None where none is configured; raise `ModelError` if its variable is unset or unusable."""
        if self.key_env is None:
            return None
        value = (REAL_ENV.variable(self.key_env) or "").strip()
        if not value:
            raise ModelError(f"environment variable {self.key_env} is not set", retry=False, spend_unknown=False)
        if not value.isprintable() or not value.isascii():
            raise ModelError(f"environment variable {self.key_env} is no usable key", retry=False, spend_unknown=False)
        return value


def post(endpoint: Endpoint, body: bytes, make: Callable[[], Assembler] | None, on_delta: Delta | None) -> bytes:
    """Send `body` once and return the response body; with `make`, a stream's final object. Raises `ModelError`."""
    key = endpoint.key()
    deadline = REAL_ENV.monotonic() + endpoint.timeout_s
    try:
        with closing(_connect(endpoint)) as connection:
            answer = _exchange(connection, endpoint, body, key, deadline)
            if make is not None and "text/event-stream" in answer.headers.get("content-type", ""):
                whole = _read_stream(connection, answer, make(), on_delta or (lambda _: None), deadline)
            else:
                whole = b"".join(_pieces(connection, answer, deadline))
    except ModelError as error:
        error.body = _redact(error.body, key)
        raise
    return _redact(whole, key)


def _connect(endpoint: Endpoint) -> http.client.HTTPConnection:
    parts = urlsplit(endpoint.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    assert parts.hostname is not None
    connection = kind(parts.hostname, parts.port, timeout=min(30.0, endpoint.timeout_s))
    try:
        connection.connect()
    except ssl.SSLCertVerificationError as error:
        why = f"certificate refused ({error.verify_message})"
        raise ModelError(f"{_place(endpoint)}: {why}", retry=False, spend_unknown=False) from None
    except OSError as error:
        raise ModelError(f"{_place(endpoint)}: no connection ({error})", retry=True, spend_unknown=False) from None
    return connection


def _exchange(
    connection: http.client.HTTPConnection, endpoint: Endpoint, body: bytes, key: str | None, deadline: float
) -> http.client.HTTPResponse:
    parts = urlsplit(endpoint.url)
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **endpoint.headers}
    if key is not None:
        headers[endpoint.key_header] = endpoint.key_prefix + key
    try:
        _limit(connection, deadline)
        connection.request("POST", (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), body, headers)
        answer = connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        raise ModelError(f"{_place(endpoint)}: no answer ({_said(error)})", retry=True) from None
    if answer.status != 200:
        raise _refusal(connection, endpoint, answer, deadline)
    return answer


def _refusal(
    connection: http.client.HTTPConnection, endpoint: Endpoint, answer: http.client.HTTPResponse, deadline: float
) -> ModelError:
    try:
        body = b"".join(_pieces(connection, answer, deadline))
    except ModelError:
        body = b""
    hint = f"; it points to {answer.headers.get('location', '?')!r}" if 300 <= answer.status < 400 else ""
    return ModelError(
        f"{_place(endpoint)}: answered {answer.status} {answer.reason}{hint}",
        retry=answer.status in _RETRY_STATUS,
        spend_unknown=answer.status >= 500,
        status=answer.status,
        body=body,
        retry_after_s=_seconds(answer.headers.get("retry-after")),
    )


def _pieces(
    connection: http.client.HTTPConnection, answer: http.client.HTTPResponse, deadline: float
) -> Iterator[bytes]:
    """Yield the body in pieces as they arrive, within deadline and size limit."""
    size = 0
    try:
        while piece := answer.read1(65536):
            size += len(piece)
            if size > BODY_MAX:
                raise ModelError(f"response is longer than {BODY_MAX} bytes", retry=False, status=answer.status)
            yield piece
            _limit(connection, deadline)
        if answer.length:
            raise ModelError(f"response ended {answer.length} bytes early", retry=True, status=answer.status)
    except (OSError, http.client.HTTPException) as error:
        raise ModelError(f"response broke off ({_said(error)})", retry=True, status=answer.status) from None


def _read_stream(
    connection: http.client.HTTPConnection,
    answer: http.client.HTTPResponse,
    assembler: Assembler,
    on_delta: Delta,
    deadline: float,
) -> bytes:
    for data in event_data(_pieces(connection, answer, deadline)):
        if assembler.feed(data, on_delta):
            return assembler.body()
    raise ModelError("stream ended before the reply was complete", retry=True, status=answer.status)


def event_data(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the data of each server-sent event: lines end in CR, LF or CRLF, data lines are joined by LF."""
    pending: list[bytes] = []
    for line in _lines(pieces):
        if line.startswith(b"data"):
            name, _, value = line.partition(b":")
            if name == b"data":
                pending.append(value.removeprefix(b" "))
        elif not line and pending:
            yield b"\n".join(pending)
            pending = []
    if pending:
        yield b"\n".join(pending)


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    tail = b""
    for piece in pieces:
        tail += piece
        if tail.endswith(b"\r"):
            whole, tail = tail[:-1], b"\r"
        else:
            whole, tail = tail, b""
        *lines, rest = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        yield from lines
        tail = rest + tail
    if tail.strip(b"\r"):
        yield tail.strip(b"\r")


def _limit(connection: http.client.HTTPConnection, deadline: float) -> None:
    left = deadline - REAL_ENV.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    if connection.sock is not None:
        connection.sock.settimeout(left)


def _redact(text: bytes, key: str | None) -> bytes:
    return text.replace(key.encode(), _REDACTED) if key else text


def _place(endpoint: Endpoint) -> str:
    parts = urlsplit(endpoint.url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _seconds(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else None
    except ValueError:
        return None
    return value if value is not None and 0 <= value < 86_400 else None
