"""The driver of a fleet: `python -m tests.e2e.fleet SEED ORDERS WORKERS KILLS`, with FLEET naming the folder.

Forks shops and workers, kills and stops them at random, and starts again what died. When every worker is through it
prints what it did as one line of JSON, and keeps the shops open, calm now, until its input ends.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.fleet_services import SHOPS, serve

STOP_MAX_S = 2.5
"""Longer than a lease that was not extended for a call; shorter than any bound on which a probe is believed."""
PATIENCE_S = 240.0


class Fleet:
    """The processes, and what was done to them."""

    def __init__(self, folder: Path, seed: int, count: int, workers: int, kills: int) -> None:
        from tests.e2e.fleet_workers import work  # once, before the forks

        self.folder, self.seed, self.chance = folder, seed, random.Random(seed)
        self.sockets = {shop: listen() for shop in SHOPS}
        (folder / "over").mkdir()
        (folder / "ports.json").write_text(json.dumps({s: one.getsockname()[1] for s, one in self.sockets.items()}))
        self.work: dict[int, Callable[[], None]] = {
            me: lambda me=me: work(me, workers, count) for me in range(workers)  # type: ignore[misc]
        }  # fmt: skip
        self.shops: dict[int, str] = {}
        self.workers: dict[int, int] = {}
        self.stopped: dict[int, float] = {}
        self.done = {"kills": 0, "stops": 0, "shop_kills": 0, "shop_deaths": 0, "failures": 0}
        self.left = [*["kill"] * kills, *["stop"] * kills, *["shop"] * (kills // 3)]
        self.chance.shuffle(self.left)

    def fork(self, run: Callable[[], None]) -> int:
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            run()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def open_shop(self, shop: str) -> None:
        pid = self.fork(lambda: serve(self.folder, shop, self.sockets[shop], self.seed))
        self.shops[pid] = shop

    def start(self, me: int) -> None:
        self.workers[self.fork(self.work[me])] = me

    def run(self) -> None:
        for shop in SHOPS:
            self.open_shop(shop)
        for me in self.work:
            self.start(me)
        due_s = 0.0
        give_up_s = time.monotonic() + PATIENCE_S
        while self.workers:
            now_s = time.monotonic()
            if now_s > give_up_s:
                raise SystemExit("the workers did not come to an end")
            if self.left and now_s > due_s:
                due_s = now_s + self.chance.uniform(0.02, 0.3)
                self.harm(self.left.pop())
            for pid in [pid for pid, until_s in self.stopped.items() if now_s > until_s]:
                del self.stopped[pid]
                os.kill(pid, signal.SIGCONT)
            self.reap()
            time.sleep(0.01)

    def harm(self, what: str) -> None:
        if what == "shop":
            self.done["shop_kills"] += 1
            os.kill(self.chance.choice(list(self.shops)), signal.SIGKILL)
            return
        running = [pid for pid in self.workers if pid not in self.stopped]
        if not running:
            return
        pid = self.chance.choice(running)
        self.done[f"{what}s"] += 1
        if what == "kill":
            os.kill(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGSTOP)
            self.stopped[pid] = time.monotonic() + self.chance.uniform(0.1, STOP_MAX_S)

    def reap(self) -> None:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            if pid in self.shops:
                self.done["shop_deaths"] += 1
                self.open_shop(self.shops.pop(pid))
                continue
            self.stopped.pop(pid, None)
            me = self.workers.pop(pid)
            if status:
                self.done["failures"] += not os.WIFSIGNALED(status)
                self.start(me)

    def close(self) -> None:
        for pid in [*self.shops, *self.workers]:
            os.kill(pid, signal.SIGKILL)


def listen() -> socket.socket:
    """A socket that outlives the shop: while it is shut, requests wait."""
    one = socket.create_server(("127.0.0.1", 0), backlog=128)
    one.set_inheritable(True)
    return one


def main(arguments: list[Any]) -> None:
    folder = Path(os.environ["FLEET"])
    fleet = Fleet(folder, *(int(word) for word in arguments))
    begun_s = time.monotonic()
    try:
        fleet.run()
        (folder / "calm").touch()
        print(json.dumps({**fleet.done, "seconds": round(time.monotonic() - begun_s, 1)}), flush=True)
        sys.stdin.read()
    finally:
        fleet.close()


if __name__ == "__main__":
    main(sys.argv[1:])
