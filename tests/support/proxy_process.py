"""The faulty proxy in a process of its own: libraries that hold Python's lock while they wait would wait for ever on
one in theirs (deltalake's commits do).
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

PROJECT: Final = Path(__file__).resolve().parent.parent.parent


class ProxyProcess:
    """`counts` is filled once the proxy has been closed."""

    def __init__(self, target: str, faults: list[str], chance: float, seed: int, methods: list[str] | None) -> None:
        plan = {"target": target, "faults": faults, "chance": chance, "seed": seed, "methods": methods}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.proxy_process", json.dumps(plan)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=PROJECT, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self.endpoint = self._process.stdout.readline().strip()
        self.counts: dict[str, int] = {}

    def close(self) -> None:
        told, _ = self._process.communicate(timeout=60)
        self.counts = json.loads(told or "{}")


@contextlib.contextmanager
def faulty_process(
    target: str, faults: list[str], *, chance: float = 1.0, seed: int = 0, methods: list[str] | None = None
) -> Iterator[ProxyProcess]:
    """Run a proxy before `target`: each request (of `methods`, if given) meets one of `faults` with that chance."""
    proxy = ProxyProcess(target, faults, chance, seed, methods)
    try:
        yield proxy
    finally:
        proxy.close()


def main(plan: dict[str, Any]) -> None:
    from tests.support.faulty_proxy import FaultyProxy

    chance = random.Random(plan["seed"])

    def often(method: str, path: str) -> str | None:
        if "_trajlake/probe/" in path and plan["chance"] < 1:
            return None  # a lost answer to a probe looks like a server that ignores conditions
        if plan["methods"] is not None and method not in plan["methods"]:
            return None
        return chance.choice(plan["faults"]) if chance.random() < plan["chance"] else None

    proxy = FaultyProxy(plan["target"], often)
    proxy.slow_s = 0.05
    print(proxy.endpoint, flush=True)
    sys.stdin.read()
    print(json.dumps(proxy.counts), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
