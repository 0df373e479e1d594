"""Group `pipeline`: landing to committed `events`, against plain Polars doing the same work (`plain_polars.py`).

A million events of about 1 KB; every side is a fresh process that reads the same segments, interleaved, medians.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.measure import Row, interleaved, median_ratio
from tests.benchmarks.pipeline_data import make_landing

EVENTS = 1_000_000
ROUNDS = 3
PROJECT = Path(__file__).resolve().parent.parent.parent
SAMPLE_S = 0.05


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
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=PROJECT)
        while process.poll() is None:
            self.pss_mib = max(self.pss_mib, tree_pss_mib(process.pid))
            time.sleep(SAMPLE_S)
        seconds, rows = (process.stdout.read() if process.stdout else "").split()
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)} failed")
        self.rows = int(rows)
        shutil.rmtree(out, ignore_errors=True)
        return float(seconds)


def tree_pss_mib(pid: int) -> float:
    """Return the proportional set size of a process and everything below it, in MiB."""
    total = 0
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, ValueError):
        return total / 1024
    return total / 1024 + sum(tree_pss_mib(int(child)) for child in children)


def rows() -> Iterator[Row]:
    """Measure; yields the bars of the Foundation first."""
    with tempfile.TemporaryDirectory(prefix="trajlake-bench-") as folder:
        home = Path(folder)
        made = make_landing(home / "landing", EVENTS)
        plain = Side(home, "tests.benchmarks.plain_polars")
        ours = Side(home, "tests.benchmarks.pipeline_side")
        seconds = interleaved({"plain": plain, "ours": ours}, ROUNDS)
        if not plain.rows == ours.rows == made:
            raise RuntimeError(f"sides differ: {made} events made, plain {plain.rows}, ours {ours.rows}")
        note = f"{EVENTS:,} events: plain {_shown(seconds['plain'])} s, ours {_shown(seconds['ours'])} s"
        ratio = median_ratio(seconds["plain"], seconds["ours"])
        yield Row("events only, landing to snapshot, against plain Polars", ratio, 0.8, "at least", "x", note)
        yield Row(
            "memory of the process tree (PSS)", ours.pss_mib, 2048, "at most", "MiB", f"plain {plain.pss_mib:.0f}"
        )
        derived = Side(home, "tests.benchmarks.pipeline_side", "derive")
        beam = Side(home, "tests.benchmarks.pipeline_side", "FnApiRunner")
        more = interleaved({"plain": plain, "derived": derived, "beam": beam}, 1)
        for name, side, what in (
            ("derived", derived, "with all derived tables, against plain Polars"),
            ("beam", beam, "events only on Beam's FnApiRunner, against plain Polars"),
        ):
            note = f"{_shown(more[name])} s, PSS {side.pss_mib:.0f} MiB"
            yield Row(what, median_ratio(more["plain"], more[name]), unit="x", note=note)


def _shown(seconds: list[float]) -> str:
    return " ".join(f"{s:.1f}" for s in seconds)
