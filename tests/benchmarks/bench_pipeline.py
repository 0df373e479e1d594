"""Group `pipeline`: landing to committed `events`, against plain Polars and DuckDB doing the same work.

A million events of about 1 KB (`TRAJLAKE_BENCH_EVENTS` sets another size); every side is a fresh process that reads
the same segments (DuckDB the same events as JSONL, hashes included), interleaved, medians.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.measure import Row, interleaved, median_ratio
from tests.benchmarks.pipeline_data import make_landing

EVENTS = int(os.environ.get("TRAJLAKE_BENCH_EVENTS", "1000000"))
ROUNDS = 3
PROJECT = Path(__file__).resolve().parent.parent.parent
SAMPLE_S = 0.05
OURS, DUCKDB = "tests.benchmarks.pipeline_side", "tests.benchmarks.plain_duckdb"
TWO_WORKERS = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")


class Side:
    """One command, run again and again over one landing; remembers rows and the largest memory of its processes."""

    def __init__(self, home: Path, module: str, *flags: str) -> None:
        self._home, self._module, self._flags = home, module, flags
        self.rows = 0
        self.pss_mib = 0.0

    def __call__(self) -> float:
        out = self._home / "out"
        shutil.rmtree(out, ignore_errors=True)
        command = [sys.executable, "-m", self._module, str(self._home / "landing"), str(out), *self._flags]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=PROJECT)
        while process.poll() is None:
            self.pss_mib = max(self.pss_mib, tree_pss_mib(process.pid))
            time.sleep(SAMPLE_S)
        seconds, rows = (process.stdout.read() if process.stdout else "").split()
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)} failed")
        self.rows = int(rows)
        shutil.rmtree(out, ignore_errors=True)
        return float(seconds)


def with_bytecode(home: Path) -> dict[str, str]:
    """The environment with compiled modules kept below `home`, as an ordinary installation has them."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | {
        "PYTHONPYCACHEPREFIX": str(home / "bytecode")
    }


def tree_pss_mib(pid: int) -> float:
    """Return the proportional set size of a process and everything below it, in MiB."""
    total = 0
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
        # Each thread has children of its own, and Beam starts workers from threads.
        children = [child for one in Path(f"/proc/{pid}/task").glob("*/children") for child in one.read_text().split()]
    except (OSError, ValueError):
        return total / 1024
    return total / 1024 + sum(tree_pss_mib(int(child)) for child in children)


def rows() -> Iterator[Row]:
    """Measure; yields the bars of the Foundation first."""
    with tempfile.TemporaryDirectory(prefix="trajlake-bench-") as folder:
        home = Path(folder)
        made = make_landing(home / "landing", EVENTS)
        subprocess.run([sys.executable, "-m", DUCKDB, "make", str(home / "landing")], cwd=PROJECT, check=True)
        sides = {
            "plain": Side(home, "tests.benchmarks.plain_polars"),
            "duckdb": Side(home, DUCKDB),
            "ours": Side(home, OURS),
            "derived": Side(home, OURS, "derive"),
            "two": Side(home, OURS, "FnApiRunner", *TWO_WORKERS),
        }
        yield from compared(sides, interleaved(sides, ROUNDS), made)
        beam = Side(home, OURS, "FnApiRunner")
        more = interleaved({"plain": sides["plain"], "beam": beam}, 1)
        note = f"{_shown(more['beam'])} s, PSS {beam.pss_mib:.0f} MiB"
        what = "events only on Beam's FnApiRunner, against plain Polars"
        yield Row(what, median_ratio(more["plain"], more["beam"]), unit="x", note=note)


def compared(sides: dict[str, Side], seconds: dict[str, list[float]], made: int) -> Iterator[Row]:
    """The bars over one interleaved run; raises where a side has other rows than were made."""
    counts = {name: side.rows for name, side in sides.items()}
    if set(counts.values()) != {made}:
        raise RuntimeError(f"sides differ: {made} events made, {counts}")
    bars = [
        ("ours", "plain", 0.9, "events only, landing to snapshot, against plain Polars"),
        ("ours", "duckdb", 1.0, "the same, against DuckDB over the equivalent JSONL"),
        ("two", "plain", 1.1, "the same on two worker processes, against plain Polars"),
        ("derived", "plain", 0.6, "with all derived tables, against plain Polars"),
    ]
    for name, against, bar, what in bars:
        note = f"{made:,} events: {_shown(seconds[name])} s against {_shown(seconds[against])} s"
        yield Row(what, median_ratio(seconds[against], seconds[name]), bar, "at least", "x", note)
    most = max(sides[name].pss_mib for name in ("ours", "derived", "two"))
    note = f"plain {sides['plain'].pss_mib:.0f}, DuckDB {sides['duckdb'].pss_mib:.0f}"
    yield Row("memory of the process tree (PSS)", most, 2048, "at most", "MiB", note)


def _shown(seconds: list[float]) -> str:
    return " ".join(f"{s:.1f}" for s in seconds)
