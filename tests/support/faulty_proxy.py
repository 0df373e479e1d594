"""A proxy before an object store that goes wrong on purpose: what S3 does on a bad day, one request at a time."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tests.support.object_store import ACCESS_KEY, SECRET_KEY

Fault = str
"""error500 | slow | cut_upload | cut_answer | lost_answer | expired | unconditional"""


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # with the usual 5, a client with ten connections waits seconds for some of them


class FaultyProxy:
    """`plan(method, path)` names the fault of a request, or None. `counts` says how often each fault was met.

    * error500: answered with 500 and not passed on;   * slow: passed on after `slow_s`
    * cut_upload: half of the body is passed on, then both connections are cut
    * cut_answer: half of the answer is passed on;     * lost_answer: carried out, and the connection cut
    * expired: 403 ExpiredToken;                       * unconditional: If-Match and If-None-Match are left out
    """

    def __init__(self, endpoint: str, plan: Callable[[str, str], Fault | None] = lambda *_: None) -> None:
        self.target = urlsplit(endpoint)
        self.plan = plan
        self.counts: Counter[str] = Counter()
        self.slow_s = 0.3
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                if self.headers.get("Expect", "").lower() == "100-continue":
                    self.send_response_only(100)
                    self.end_headers()
                body = self.rfile.read(length)
                fault = proxy.plan(self.command, self.path)
                if fault:
                    proxy.counts[fault] += 1
                proxy.answer(self, body, fault)

            do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = serve  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        return Handler

    def answer(self, handler: BaseHTTPRequestHandler, body: bytes, fault: Fault | None) -> None:
        if fault == "error500":
            _say(handler, 500, "InternalError")
            return
        if fault == "expired":
            _say(handler, 403, "ExpiredToken")
            return
        if fault == "slow":
            time.sleep(self.slow_s)
        upstream = http.client.HTTPConnection(self.target.hostname or "", self.target.port, timeout=30)
        with contextlib.closing(upstream):
            headers = dict(handler.headers.items())
            if fault == "unconditional":
                headers = _without_conditions(handler, headers, body)
            upstream.putrequest(handler.command, handler.path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                if name.lower() != "expect":
                    upstream.putheader(name, value)
            upstream.endheaders()
            if fault == "cut_upload":
                upstream.send(body[: len(body) // 2])
                _cut(handler)
                return
            upstream.send(body)
            answer = upstream.getresponse()
            data = answer.read()
            if fault == "lost_answer":
                _cut(handler)
                return
            self._pass_on(handler, answer, data, fault)

    def _pass_on(
        self, handler: BaseHTTPRequestHandler, answer: http.client.HTTPResponse, data: bytes, fault: Fault | None
    ) -> None:
        handler.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                handler.send_header(name, value)
        size = answer.getheader("Content-Length") if handler.command == "HEAD" else str(len(data))
        handler.send_header("Content-Length", size or "0")
        handler.end_headers()
        with contextlib.suppress(OSError):
            handler.wfile.write(data[: len(data) // 2] if fault == "cut_answer" else data)
        if fault == "cut_answer":
            _cut(handler)


def _without_conditions(handler: BaseHTTPRequestHandler, headers: dict[str, str], body: bytes) -> dict[str, str]:
    """Leave the conditions out, and sign anew: they were part of what was signed."""
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    left_out = ("if-", "authorization", "x-amz-date", "x-amz-content-sha256", "user-agent", "connection", "expect")
    kept = {name: value for name, value in headers.items() if not name.lower().startswith(left_out)}
    request = AWSRequest(handler.command, f"http://{headers['Host']}{handler.path}", headers=kept, data=body)
    S3SigV4Auth(Credentials(ACCESS_KEY, SECRET_KEY), "s3", "us-east-1").add_auth(request)
    return dict(request.headers.items())


def _say(handler: BaseHTTPRequestHandler, status: int, code: str) -> None:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>on purpose</Message></Error>".encode()
    handler.send_response_only(status)
    handler.send_header("Content-Type", "application/xml")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


def _cut(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True
    with contextlib.suppress(OSError):
        handler.connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def faulty(endpoint: str, plan: Callable[[str, str], Fault | None]) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(endpoint, plan)
    try:
        yield proxy
    finally:
        proxy.close()
