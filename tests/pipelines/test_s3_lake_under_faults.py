"""A run into object storage is killed, cut off, answered wrongly, raced: the rows are those of an undisturbed run."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.lakes import everything
from tests.pipelines.s3_lakes import Bucket
from tests.pipelines.test_s3_lake import first_landing, second_landing
from tests.support.object_store import ObjectStore
from trajlake.pipelines.compaction.compact import compact
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.lake_errors import LakeError
from trajlake.pipelines.lakehouse.standing import read_standing
from trajlake.pipelines.upkeep.erase import Wanted, request

pytestmark = pytest.mark.s3

CHILD = """
import os, signal, sys
from trajlake.pipelines.compaction.compact import compact
def progress(step, done, total):
    if step == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)
compact(sys.argv[1], sys.argv[2], None, progress)
"""
STEPS = (
    "planned", "segments read", "buckets written", "files written", "run file put", "events committed",
    "trajectories committed", "model_calls committed", "tool_calls committed", "quarantine committed",
    "judgements committed", "imports committed", "blobs committed", "blob_refs committed", "approvals committed",
    "checkpoints committed", "logs synced", "snapshot put",
)  # fmt: skip
SAMPLE = ("files written", "run file put", "events committed", "tool_calls committed", "logs synced")


class Half:
    """A lake at snapshot 1 on both sides, a landing that holds more, and what an undisturbed run makes of it."""

    def __init__(self, bucket: Bucket, home: Path) -> None:
        self.bucket, self.home = bucket, home
        left = first_landing(home)
        bucket.ship(home / "landing")
        compact(bucket.landing, bucket.lake)
        compact(str(home / "landing"), str(home / "lake"))
        second_landing(home, *left)
        bucket.ship(home / "landing")
        compact(str(home / "landing"), str(home / "lake"))

    def check(self, what: str) -> None:
        assert everything(self.bucket.lake) == everything(self.home / "lake"), what
        assert Lake.open(self.bucket.lake).snapshot_numbers() == [0, 1, 2], what


@pytest.fixture
def half(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Half:
    return Half(Bucket(monkeypatch, tmp_path / "staging"), tmp_path / "home")


def sigkilled_after(step: str, half: Half) -> None:
    command = [sys.executable, "-c", CHILD, half.bucket.landing, half.bucket.lake, step]
    assert subprocess.run(command, check=False, timeout=100).returncode == -signal.SIGKILL
    compact(half.bucket.landing, half.bucket.lake)
    half.check(step)


@pytest.mark.long
@pytest.mark.parametrize("step", SAMPLE)
def test_a_launcher_killed_between_two_commits_leaves_nothing_half_done(half: Half, step: str) -> None:
    sigkilled_after(step, half)


@pytest.mark.soak
@pytest.mark.parametrize("step", STEPS)
def test_a_launcher_killed_after_any_step_leaves_nothing_half_done(half: Half, step: str) -> None:
    sigkilled_after(step, half)


def runs_until_done(half: Half, tries_max: int = 30) -> list[str]:
    """Run the compaction again after each refusal, as a schedule would; return the refusals."""
    refused: list[str] = []
    while len(refused) < tries_max:
        try:
            compact(half.bucket.landing, half.bucket.lake)
        except LakeError as error:
            refused.append(str(error))
            continue
        assert not [text for text in refused if len(text.splitlines()) != 1]
        return refused
    raise AssertionError(refused)


PASSING = ("error500", "slow", "cut_upload", "cut_answer", "lost_answer")


@pytest.mark.long
def test_every_passing_fault_at_random_changes_no_row(half: Half) -> None:
    seed = random.randrange(1 << 30)
    with half.bucket.through(*PASSING, chance=0.08, seed=seed) as proxy:
        refused = runs_until_done(half)
    assert sum(proxy.counts.values()) > 5, proxy.counts
    half.check(f"seed {seed}: {proxy.counts} {refused}")


@pytest.mark.soak
@pytest.mark.parametrize("fault", PASSING)
@pytest.mark.parametrize("seed", range(4))
def test_many_faults_of_one_kind_change_no_row(half: Half, fault: str, seed: int) -> None:
    with half.bucket.through(fault, chance=0.15, seed=seed) as proxy:
        refused = runs_until_done(half)
    assert proxy.counts[fault] > 5
    half.check(f"{fault} {seed}: {refused}")


@pytest.mark.long
def test_answers_to_puts_that_are_lost_double_no_row_of_a_ledger(half: Half) -> None:
    """The commit stands and its answer is gone: an erasure is asked for once, and a run is noted once."""
    lake = Lake.open(half.bucket.lake)
    for number in range(3):
        with half.bucket.through("lost_answer", methods=["PUT"], chance=0.5, seed=number):
            request(lake, Wanted(tenant="t", trajectory_id=f"none-{number}", because="letter"))
    found = [(one.epoch, one.trajectory_id) for one in read_standing(lake).erasures]
    assert found == [(1, "none-0"), (2, "none-1"), (3, "none-2")]


@pytest.mark.long
def test_of_two_launchers_at_once_one_wins_and_the_other_goes_on_from_its_snapshot(half: Half) -> None:
    both, waited, reports = threading.Barrier(2, timeout=100), threading.local(), []

    def progress(step: str, _: int, __: int) -> None:
        if step == "files written" and not getattr(waited, "done", False):
            waited.done = True
            both.wait()

    def launcher() -> None:
        reports.append(compact(half.bucket.landing, half.bucket.lake, None, progress))

    threads = [threading.Thread(target=launcher) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    assert sorted(report.outcome for report in reports) == ["committed", "nothing_to_do"]
    half.check("two launchers")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_a_server_killed_under_a_run_costs_a_run_and_no_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    server = ObjectStore(folder)
    server.start()
    try:
        half = Half(Bucket(monkeypatch, tmp_path / "staging", server.endpoint), tmp_path / "home")
        step = random.Random(seed).choice(STEPS[3:-1])
        monkeypatch.setattr("trajlake.pipelines.lakehouse.object_places.PATIENCE_S", 1.0)

        def progress(done: str, *_: Any) -> None:
            if done == step:
                server.kill()

        with pytest.raises(LakeError):
            compact(half.bucket.landing, half.bucket.lake, None, progress)
        server.start()
        half.bucket.use(server.endpoint)
        runs_until_done(half)
        half.check(f"seed {seed}: killed after {step!r}")
    finally:
        server.kill()
