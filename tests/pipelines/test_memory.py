"""A compaction's memory does not grow with what has landed: PSS of its whole process tree, derived tables included."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.benchmarks.bench_pipeline import OURS, TWO_WORKERS, Side
from tests.benchmarks.pipeline_data import make_landing

EVENTS = int(os.environ.get("SOAK_EVENTS", "20000000"))
"""Of about 1 KB each: the landing takes as many GB of disk as there are millions."""


@pytest.mark.soak
@pytest.mark.parametrize("events", [EVENTS // 10, EVENTS])
def test_a_compaction_stays_below_two_gibibytes(tmp_path: Path, events: int) -> None:
    made = make_landing(tmp_path / "landing", events)
    for flags in (("derive",), ("FnApiRunner", *TWO_WORKERS)):
        side = Side(tmp_path, OURS, *flags)
        seconds = side()
        print(f"{made:,} events, {flags}: {seconds:.0f} s, {side.pss_mib:.0f} MiB")
        assert side.rows == made
        assert side.pss_mib < 2048
