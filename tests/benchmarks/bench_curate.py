"""Bars: 20,000 runs of 30 turns (about 3 million events) to an SFT set in under 10 minutes on two cores within 3 GiB;
at least 0.8x the same stages in plain Polars; night two with 1 % new data at most 10 % of night one plus an empty run.

`TRAJLAKE_BENCH_RUNS` sets another size (the lake of the full one takes some minutes to make). Every run is a process
of its own, so that its memory is its own; children are counted with it.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.benchmarks.curate_lake import grow
from tests.benchmarks.measure import Row

RUNS = int(os.environ.get("TRAJLAKE_BENCH_RUNS", "20000"))
FULL, TURNS, WORKERS = 20_000, 30, 2
SECONDS_MAX, GIB_MAX = 600.0, 3.0
POLICY = """
name = "bench"
[eligibility]
tenants = ["default"]
[reward]
required = false
[models]
allow = ["*"]
"""


class Timed(NamedTuple):
    """`gib` is the peak of the process and that of what it spawned, `cpu` the seconds that all of them worked."""

    seconds: float
    gib: float
    cpu: float
    out: str


def timed(*command: str) -> Timed:
    """Run a command to its end and return what it took."""
    began, worked = time.perf_counter(), cpu_seconds()
    code = (
        "import resource, runpy, sys; sys.argv = sys.argv[1:]\n"
        "try: runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True) if sys.argv[0].startswith('trajlake')"
        " else runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "finally:\n"
        "    peak = lambda who: resource.getrusage(who).ru_maxrss\n"
        "    own, kids = peak(resource.RUSAGE_SELF), peak(resource.RUSAGE_CHILDREN)\n"
        f"    print('PEAK', own + kids * {WORKERS - 1}, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    assert done.returncode == 0, done.stderr
    peak = int(done.stderr.rsplit("PEAK ", 1)[1].split()[0])
    return Timed(seconds, peak / 1024**2, cpu_seconds() - worked, done.stdout)


def cpu_seconds() -> float:
    """Return what this process's ended children have worked."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cut(folder: Path, lake: str, name: str) -> tuple[Timed, int]:
    """Cut a set with the command line; return what it took, and its rows."""
    done = timed(
        "trajlake.runtime", "curate", "sft", "--lake", lake, "--policy", str(folder / "policy.toml"),
        "--out", str(folder / name), "--workers", str(WORKERS), "--json",
    )  # fmt: skip
    return done, int(json.loads(done.out)["rows"])


def said(lines: Path) -> set[bytes]:
    """Return a hash of what each line says: its messages and tools, whatever the order of their keys."""
    found = set()
    with open(lines, "rb") as file:
        for line in file:
            tree = msgspec.json.decode(line)
            text = msgspec.json.encode([tree["messages"], tree["tools"]], order="sorted")
            found.add(hashlib.sha256(text).digest())
    return found


def rows() -> Iterator[Row]:
    """Measure."""
    with tempfile.TemporaryDirectory(prefix="trajlake-bench-") as name:
        folder = Path(name)
        (folder / "policy.toml").write_text(POLICY)
        lake, events = grow(folder, RUNS, TURNS)
        script = str(Path(__file__).with_name("curate_in_polars.py"))
        first, made = cut(folder, lake, "one")
        note = f"{RUNS:,} runs, {events:,} events, {made:,} rows, {WORKERS} workers"
        yield Row("night one, secrets scanned", first.seconds, SECONDS_MAX * RUNS / FULL, "at most", "s", note)
        yield Row("its memory at the peak", first.gib, GIB_MAX, "at most", "GiB", "each process at its peak")
        plain = timed(script, lake, str(folder / "plain.jsonl"))
        assert said(folder / "one/openai/train.jsonl") == said(folder / "plain.jsonl"), "the sides say different things"
        both = f"{plain.out.strip()}; the same rows; CPU {plain.cpu:.1f} s over {first.cpu:.1f} s"
        yield Row(
            "speed over the same stages in plain Polars", plain.seconds / first.seconds, 0.8, "at least", note=both
        )
        empty, _ = cut(folder, lake, "empty")
        yield Row("an empty night", empty.seconds, unit="s", note="nothing new: selection and all files again")
        grow(folder, max(1, RUNS // 100), TURNS, night=2)
        second, more = cut(folder, lake, "two")
        bar = 0.1 * first.seconds + empty.seconds
        yield Row("night two with 1 % new", second.seconds, bar, "at most", "s", f"{more - made:,} rows more")


if __name__ == "__main__":
    for row in rows():
        print(row)
    print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
