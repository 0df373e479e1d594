"""Servers that a test starts: a port nobody has, and the moment from which one answers."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterable

START_MAX_S = 90


def free_port() -> int:
    """Return a port of this host that nothing listens on now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def wait_for(port: int) -> None:
    """Return once something listens on a port of this host."""
    deadline = time.monotonic() + START_MAX_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"nothing listens on port {port}")


def stop(started: Iterable[subprocess.Popen[bytes]]) -> None:
    """End processes, the last first, and wait for each."""
    for process in reversed(list(started)):
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
