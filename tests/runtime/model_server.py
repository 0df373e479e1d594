"""A local HTTP server that answers like a model provider: what it is told to say, keeping what it was asked."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Asked:
    """One request as it arrived."""

    def __init__(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.path, self.headers, self.body = path, headers, body

    @property
    def tree(self) -> Any:
        return json.loads(self.body)


class ModelServer:
    """`answers` are used one after another, the last one again and again; each gets the handler and answers by it."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answers: list[Callable[[BaseHTTPRequestHandler], None]] = []
        self.url = ""

    def says(self, body: bytes, *, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """Answer with a body of known length."""

        def answer(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(status)
            for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)

        self.answers.append(answer)

    def streams(self, *pieces: bytes, chunked: bool = True) -> None:
        """Answer with server-sent events, cut into `pieces` however the test likes."""

        def answer(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(200)
            handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
            if chunked:
                handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            for piece in pieces:
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
                handler.wfile.flush()
            if chunked:
                handler.wfile.write(b"0\r\n\r\n")

        self.answers.append(answer)

    def does(self, answer: Callable[[BaseHTTPRequestHandler], None]) -> None:
        self.answers.append(answer)


@contextlib.contextmanager
def model_server() -> Iterator[ModelServer]:
    """Serve on a free port of the loopback until the block ends."""
    served = ModelServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            served.asked.append(Asked(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            self.close_connection = True
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                served.answers[min(len(served.asked), len(served.answers)) - 1](self)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    served.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def event_stream(*data: Any) -> bytes:
    """Return the bytes of server-sent events; a string is sent as it is, anything else as JSON."""
    texts = [one if isinstance(one, str) else json.dumps(one) for one in data]
    return b"".join(f"data: {text}\n\n".encode() for text in texts)
