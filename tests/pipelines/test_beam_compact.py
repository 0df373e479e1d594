"""The same stages on a Beam runner give the same lake, and importing Beam leaves the user's logging alone."""

from __future__ import annotations

import inspect
import logging
import random
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.benchmarks.pipeline_data import make_landing
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


@pytest.mark.long
def test_a_worker_that_is_killed_amid_a_segment_ends_the_run_with_one_line(tmp_path: Path) -> None:
    made = make_landing(tmp_path / "landing", 16_000, per_segment=1_000)
    command = [
        sys.executable,
        "-m",
        "trajlake.runtime",
        "compact",
        "--landing",
        "landing",
        "--lake",
        "lake",
        "--runner",
    ]
    command += ["FnApiRunner", "--", "--direct_num_workers=2", "--direct_running_mode=multi_processing"]
    run = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while run.poll() is None and not any(tmp_path.glob("lake/_trajlake/staging/*/*.arrow")):
        time.sleep(0.002)
    workers = [one for one in psutil.Process(run.pid).children(recursive=True) if one.name().startswith("python")]
    workers[0].kill()
    _, said = run.communicate(timeout=100)
    assert (run.returncode, said.splitlines()[-1].count("a worker process of this run is no more")) == (3, 1), said
    assert compact(str(tmp_path / "landing"), str(tmp_path / "lake")).events_added == made


def test_a_worker_process_loads_beam_without_pandas_and_leaves_pandas_to_its_stages() -> None:
    code = (
        "import sys; from trajlake.pipelines.compaction.beam_worker_process import NOT_NEEDED, load_beam; load_beam(); "
        "import apache_beam; assert not set(NOT_NEEDED) & set(sys.modules); import pandas; pandas.DataFrame({'a': [1]})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr


def test_only_our_own_stages_run_our_worker_process() -> None:
    from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

    from trajlake.pipelines.compaction.beam_workers import BEAMS_OWN, OURS, command_of, our_workers

    asked_for = BEAMS_OWN.decode().removeprefix(sys.executable)
    assert asked_for in inspect.getsource(FnApiRunner.run_pipeline)
    with our_workers():
        assert [command_of(BEAMS_OWN), command_of(b"python other.py")] == [OURS, b"python other.py"]
    assert command_of(BEAMS_OWN) == BEAMS_OWN
