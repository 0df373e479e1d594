"""The same run on a job server with an external worker pool: other processes do the work, the lake is the same."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipelines.lakes import everything
from tests.pipelines.segments import Story, land
from trajlake.pipelines.compaction.compact import compact
from trajlake.pipelines.lakehouse.run_report import CompactOptions


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def wait_for(port: int) -> None:
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"nothing listens on port {port}")


@pytest.fixture
def services(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """A Beam job server and a worker pool; the pool starts workers as `python`, so ours must come first."""
    job, pool = free_port(), free_port()
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    modules = [
        ["apache_beam.runners.portability.local_job_service_main", "-p", str(job)],
        ["apache_beam.runners.worker.worker_pool_main", f"--service_port={pool}"],
    ]
    started = []
    for number, module in enumerate(modules):
        with (tmp_path / f"service{number}.log").open("wb") as log:
            started.append(subprocess.Popen([sys.executable, "-m", *module], env=env, stdout=log, stderr=log))
    try:
        wait_for(job)
        wait_for(pool)
        yield job, pool
    finally:
        for process in started:
            process.terminate()
            process.wait(30)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_portable_runner_with_an_external_pool_gives_the_rows_of_the_plain_functions(
    tmp_path: Path, services: tuple[int, int]
) -> None:
    lsn = 0
    for number in range(4):
        story = Story(f"t{number}").start().say("x" * 50, 20).end()
        land(tmp_path / "landing", b"a" * 16, lsn, story.landed)
        lsn += len(story.landed)
    compact(str(tmp_path / "landing"), str(tmp_path / "plain"))
    options = (
        f"--job_endpoint=127.0.0.1:{services[0]}",
        "--environment_type=EXTERNAL",
        f"--environment_config=127.0.0.1:{services[1]}",
    )
    on_beam = CompactOptions(runner="PortableRunner", beam_options=options, bucket_bytes=1 << 17)
    assert compact(str(tmp_path / "landing"), str(tmp_path / "lake"), on_beam).events_added == lsn
    assert everything(tmp_path / "lake") == everything(tmp_path / "plain")
