"""The same stages on a Beam runner give the same lake, and importing Beam leaves the user's logging alone."""

from __future__ import annotations

import logging
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipelines.lakes import everything
from tests.pipelines.segments import Story, interleaved, land
from trajlake.pipelines.compaction.compact import compact
from trajlake.pipelines.lakehouse.run_report import CompactOptions

RUNNERS = [
    pytest.param((), id="in process"),
    pytest.param(
        ("--direct_num_workers=2", "--direct_running_mode=multi_processing"), id="two workers", marks=pytest.mark.long
    ),
]


@pytest.mark.parametrize("options", RUNNERS)
def test_fn_api_runner_gives_the_rows_of_the_plain_functions(tmp_path: Path, options: tuple[str, ...]) -> None:
    stories = [Story(f"t{n}", tenant=f"x{n % 2}").start().say("x" * 200, 60).end() for n in range(12)]
    landed = interleaved(stories, random.Random(1))
    for n in range(3):
        land(tmp_path / "landing", b"a" * 16, 248 * n, landed[248 * n : 248 * (n + 1)])
    land(tmp_path / "landing", b"b" * 16, 0, landed[100:300])
    compact(str(tmp_path / "landing"), str(tmp_path / "plain"))
    on_beam = CompactOptions(runner="FnApiRunner", beam_options=options, bucket_bytes=1 << 17)
    report = compact(str(tmp_path / "landing"), str(tmp_path / "lake"), on_beam)
    assert (report.segments_taken, report.events_added, report.duplicates) == (4, 744, 200)
    assert everything(tmp_path / "lake") == everything(tmp_path / "plain")


def test_importing_the_wiring_restores_root_log_handlers_and_says_nothing() -> None:
    code = (
        "import logging; import trajlake.pipelines.compaction.beam_compact; "
        "assert logging.root.handlers == [], logging.root.handlers; assert logging.root.manager.disable == 0"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    assert logging.root.manager.disable == 0


def test_nothing_but_the_wiring_imports_beam() -> None:
    code = (
        "import sys, trajlake.pipelines.compaction.compact, trajlake.pipelines.commands.compact; "
        "assert 'apache_beam' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
