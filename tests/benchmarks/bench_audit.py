"""Bar: all controls over 10 million events in under 120 s on two cores within 4 GiB; a tenant-day opens its files only.

`TRAJLAKE_BENCH_EVENTS` sets another size. The audit runs in a process of its own, so that its memory is its own.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from tests.benchmarks.audit_lake import build
from tests.benchmarks.measure import Row

EVENTS = int(os.environ.get("TRAJLAKE_BENCH_EVENTS", "10000000"))
SECONDS_MAX, GIB_MAX = 120.0, 4.0
LIVE = ("Q13", "Q14", "Q16b", "Q20", "Q24", "X05")
"""Controls that need something this lake has not: a scan, an anchor, a policy, a data set, an earlier audit."""


def audited(lake: str, *options: str) -> tuple[dict[str, object], float, float, float]:
    """Run `trajlake audit` and return its report, seconds, CPU seconds and peak memory in GiB."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "trajlake.runtime", "audit", "--lake", lake, "--no-ledger", "--json", *options],
        capture_output=True, check=False,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode in (0, 1), done.stderr.decode()
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout), seconds, cpu, after.ru_maxrss / 1024**2


def rows() -> Iterator[Row]:
    """Measure."""
    with tempfile.TemporaryDirectory(prefix="trajlake-bench-") as folder:
        lake = f"{folder}/lake"
        violations = build(lake, EVENTS)
        report, seconds, cpu, gib = audited(lake)
        events = report["rows_in_scope"]["events"]  # type: ignore[index]
        assert report["found"] == violations, (report["found"], violations)
        slow = sorted(report["controls"], key=lambda control: -control["seconds"])[:3]  # type: ignore[call-overload]
        note = ", ".join(f"{control['id']} {control['seconds']:.1f} s" for control in slow)
        note = f"{events:,} events, {cpu:.0f} s of CPU; longest: {note}"
        yield Row("all controls over the lake", seconds, SECONDS_MAX * EVENTS / 10_000_000, "at most", "s", note)
        yield Row("its memory at the peak", gib, GIB_MAX, "at most", "GiB")
        report, seconds, cpu, _ = audited(lake, "--tenant", "acme", "--from", "2026-11-03", "--to", "2026-11-03")
        opened, total = report["files_read"]["events"]  # type: ignore[index]
        yield Row(
            "files of events opened for one tenant-day", opened, 1, "at most", "files", f"of {total}, {seconds:.1f} s"
        )
