"""The same run on other engines, with workers in an external pool: the lake is the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipelines.lakes import everything
from tests.pipelines.segments import Story, land
from tests.support.flink import FlinkCluster
from tests.support.services import free_port, stop, wait_for
from trajlake.pipelines.compaction.compact import compact
from trajlake.pipelines.lakehouse.lake_errors import LakeError
from trajlake.pipelines.lakehouse.run_report import CompactOptions

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def started(name: str, folder: Path, *module: str) -> subprocess.Popen[bytes]:
    # The pool starts workers as `python`, so ours must come first.
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen([sys.executable, "-m", *module], env=env, stdout=log, stderr=log)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[int]:
    """Beam's worker pool, the processes of which do the work wherever a job runs."""
    port = free_port()
    process = started("pool", tmp_path, "apache_beam.runners.worker.worker_pool_main", f"--service_port={port}")
    try:
        wait_for(port)
        yield port
    finally:
        stop([process])


@pytest.fixture
def beam_job_server(tmp_path: Path) -> Iterator[int]:
    """Beam's own job server, in Python."""
    port = free_port()
    process = started("jobs", tmp_path, "apache_beam.runners.portability.local_job_service_main", "-p", str(port))
    try:
        wait_for(port)
        yield port
    finally:
        stop([process])


@pytest.fixture(scope="module")
def flink(tmp_path_factory: pytest.TempPathFactory, java: str) -> Iterator[FlinkCluster]:
    cluster = FlinkCluster(java, tmp_path_factory.mktemp("flink"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def land_four(landing: Path) -> int:
    lsn = 0
    for number in range(4):
        story = Story(f"t{number}").start().say("x" * 50, 20).end()
        land(landing, b"a" * 16, lsn, story.landed)
        lsn += len(story.landed)
    return lsn


def on_job_server(port: int, pool: int, *more: str) -> CompactOptions:
    options = (
        f"--job_endpoint=127.0.0.1:{port}", "--environment_type=EXTERNAL", f"--environment_config=127.0.0.1:{pool}",
        *more,
    )  # fmt: skip
    return CompactOptions(runner="PortableRunner", beam_options=options, bucket_bytes=1 << 17)


def test_beams_job_server_with_an_external_pool_gives_the_rows_of_the_plain_functions(
    tmp_path: Path, beam_job_server: int, pool: int
) -> None:
    events = land_four(tmp_path / "landing")
    compact(str(tmp_path / "landing"), str(tmp_path / "plain"))
    on_beam = compact(str(tmp_path / "landing"), str(tmp_path / "lake"), on_job_server(beam_job_server, pool))
    assert on_beam.events_added == events
    assert everything(tmp_path / "lake") == everything(tmp_path / "plain")


def test_a_flink_cluster_gives_the_rows_of_the_plain_functions(tmp_path: Path, flink: FlinkCluster, pool: int) -> None:
    events = land_four(tmp_path / "landing")
    compact(str(tmp_path / "landing"), str(tmp_path / "plain"))
    options = on_job_server(flink.job_port, pool, "--parallelism=2")
    assert compact(str(tmp_path / "landing"), str(tmp_path / "lake"), options).events_added == events, flink.said()
    assert everything(tmp_path / "lake") == everything(tmp_path / "plain")
    assert flink.jobs()[0] == "FINISHED"


def test_a_flink_cluster_that_loses_its_workers_host_commits_nothing_and_the_next_run_all(
    tmp_path: Path, flink: FlinkCluster, pool: int
) -> None:
    events = land_four(tmp_path / "landing")
    compact(str(tmp_path / "landing"), str(tmp_path / "plain"))
    options = on_job_server(flink.job_port, pool, "--parallelism=2")

    killed = threading.Thread(target=kill_while_it_runs, args=(flink,))
    killed.start()
    with pytest.raises(LakeError, match=r"ended the job as FAILED.*nothing was committed, run it again") as raised:
        compact(str(tmp_path / "landing"), str(tmp_path / "lake"), options)
    killed.join()
    assert "\n" not in str(raised.value)

    flink.start_task_manager()
    assert compact(str(tmp_path / "landing"), str(tmp_path / "lake"), options).events_added == events, flink.said()
    assert everything(tmp_path / "lake") == everything(tmp_path / "plain")


def kill_while_it_runs(flink: FlinkCluster) -> None:
    while not flink.running_tasks():
        time.sleep(0.02)
    assert flink.task_manager is not None
    os.kill(flink.task_manager.pid, signal.SIGKILL)
