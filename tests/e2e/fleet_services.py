"""Three shops that charge for orders, each a process of its own over a ledger in SQLite.

`keys` honours idempotency keys, `probe` can be asked whether a key was charged, `neither` does neither. Each fails at
random before it charges, and after: it drops the connection, answers too late, or dies. None charges once the caller's
deadline has passed; that is what bounds how late a request can still act. `calm` in the folder ends all that.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import sqlite3
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SHOPS = ("keys", "probe", "neither")
TIMEOUT_S, SETTLE_AFTER_S = 1.0, 2.0
"""How long a caller waits, and how long after that a request may still act."""


def open_ledger(folder: Path, shop: str) -> sqlite3.Connection:
    """The charges of one shop. Without syncs: a killed process loses nothing, and no power is lost here."""
    ledger = sqlite3.connect(folder / f"{shop}.sqlite", timeout=60, isolation_level=None, check_same_thread=False)
    ledger.execute("pragma journal_mode = wal")
    ledger.execute("pragma synchronous = off")
    ledger.execute("create table if not exists charges (name text, key text)")
    ledger.execute("create index if not exists by_key on charges (key)")
    return ledger


class Shop:
    """What one shop does with an order."""

    def __init__(self, folder: Path, name: str, seed: int) -> None:
        self.folder, self.name = folder, name
        self.chance = random.Random(f"{seed} {name} {os.getpid()}")

    def happens(self, share: float) -> bool:
        return self.chance.random() < share and not (self.folder / "calm").exists()

    def was_charged(self, key: str) -> bool:
        with contextlib.closing(open_ledger(self.folder, self.name)) as ledger:
            return bool(list(ledger.execute("select 1 from charges where key = ?", (key,))))

    def charge(self, order: Any) -> bool:
        """Charge, if it is not too late. False: nothing was charged, and nothing will be."""
        with contextlib.closing(open_ledger(self.folder, self.name)) as ledger:
            ledger.execute("begin immediate")
            if self.name == "keys" and list(ledger.execute("select 1 from charges where key = ?", (order["key"],))):
                ledger.execute("rollback")
                return True
            if time.time() > order["deadline"]:
                ledger.execute("rollback")
                return False
            ledger.execute("insert into charges values (?, ?)", (order["name"], order["key"]))
            ledger.execute("commit")
            return True


class Handler(BaseHTTPRequestHandler):
    """One request to a shop."""

    shop: Shop

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if self.shop.happens(0.03):
            self.answer(500, {})
            return
        self.answer(200, {"charged": self.shop.was_charged(self.path.rpartition("/")[2])})

    def do_POST(self) -> None:
        order = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.shop.happens(0.08):
            self.answer(503, {"charged": False})
            return
        if self.shop.happens(0.05):
            self.answer(500, {})
            return
        if not self.shop.charge(order):
            self.answer(503, {"charged": False})
            return
        if self.shop.happens(0.01):
            os._exit(1)
        if self.shop.happens(0.07):
            self.close_connection = True
            return
        if self.shop.happens(0.03):
            time.sleep(TIMEOUT_S * 1.2)
        self.answer(200, {"receipt": order["name"]})


class Server(ThreadingHTTPServer):
    """Answers on a socket that outlives it."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that did not wait for the answer is nothing to tell of."""


def serve(folder: Path, shop: str, listening: socket.socket, seed: int) -> None:
    """Answer until killed."""
    handler = type("ShopHandler", (Handler,), {"shop": Shop(folder, shop, seed)})
    server = Server(("127.0.0.1", 0), handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listening
    server.serve_forever(poll_interval=0.05)
