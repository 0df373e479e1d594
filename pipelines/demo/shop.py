"""The outside world of the demo: a small HTTP service that charges orders and counts what it did.

`POST /charges` with an `Idempotency-Key` charges once per key and answers a repeat with the first charge; `GET
/charges` lists them. It lives in the telling process, so it survives the agent's death, as a real one would.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import msgspec

BODY_MAX: Final = 1 << 16


class Charge(msgspec.Struct, frozen=True):
    """One charge as the service keeps it; `answered` counts how often it was asked for."""

    id: str
    order: str
    cents: int
    key: str


class Shop:
    """The service and its books. Listens on 127.0.0.1 on a free port until `close`."""

    def __init__(self) -> None:
        self.charges: dict[str, Charge] = {}
        self.requests = 0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, name="demo-shop", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def charge(self, key: str, order: str, cents: int) -> tuple[Charge, bool]:
        """Charge once per key; return the charge and whether it had been made before."""
        with self._lock:
            self.requests += 1
            known = self.charges.get(key)
            if known is None:
                known = self.charges[key] = Charge(f"ch_{len(self.charges) + 1:04d}", order, cents, key)
                return known, False
            return known, True

    def charges_of(self, order: str) -> int:
        """Return how many charges stand in the books for `order`."""
        return sum(charge.order == order for charge in self.charges.values())

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(shop: Shop) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, list(shop.charges.values()))

        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length", "0"))
            key = self.headers.get("Idempotency-Key", "")
            if not key or size > BODY_MAX:
                self._answer(400, {"error": "Idempotency-Key and a small body, please"})
                return
            asked = msgspec.json.decode(self.rfile.read(size))
            charge, repeated = shop.charge(key, str(asked["order"]), int(asked["cents"]))
            self._answer(200, {"charge": charge.id, "order": charge.order, "cents": charge.cents, "repeat": repeated})

        def _answer(self, status: int, body: Any) -> None:
            text = msgspec.json.encode(body)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name the base class has
            """Say nothing: the story is told elsewhere."""

    return Handler
