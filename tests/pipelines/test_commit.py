"""A run may die between any two steps, or race another: the rows are those of an undisturbed run."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.lakes import everything
from tests.pipelines.segments import Story, interleaved, land
from trajlake.pipelines.compaction.compact import compact
from trajlake.pipelines.lakehouse import commit, durable_files
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.lake_errors import LakeUnreachable
from trajlake.pipelines.lakehouse.snapshot import read_run, run_path, snapshot_path
from trajlake.schemas.tables import SNAPSHOT_TABLES

A, B = b"a" * 16, b"b" * 16


class Killed(BaseException):
    """Stands for SIGKILL inside one process: nothing in the product catches it."""


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake at snapshot 1 whose landing now holds more: a tail, a take-over that supersedes, a new trajectory."""
    home = tmp_path_factory.mktemp("half")
    first = Story("t").start().say("a", 6)
    others = [Story(f"u{n}", tenant="x", model=f"m{n}").start().say("u", 5) for n in range(3)]
    early = interleaved([first, *others], random.Random(1))
    land(home / "landing", A, 0, early[:18])
    compact(str(home / "landing"), str(home / "lake"))
    land(home / "landing", A, 18, early[18:])
    second = first.takeover(3, 2).say("b", 4).end()
    land(home / "landing", B, 0, [*second.landed[4:], *Story("new", tenant="x").start().say("n", 3).landed])
    return home


@pytest.fixture(scope="module")
def wanted(half: Path) -> dict[str, Any]:
    """What an undisturbed run makes of it."""
    return run_in(copy(half, half.parent / "undisturbed"))


def copy(half: Path, to: Path) -> Path:
    shutil.copytree(half, to)
    return to


def run_in(home: Path, progress: Callable[[str, int, int], None] | None = None) -> dict[str, Any]:
    arguments = (str(home / "landing"), str(home / "lake"), None)
    compact(*arguments, progress) if progress else compact(*arguments)
    return everything(home / "lake")


def killed_at(place: int, home: Path) -> list[str]:
    """Run until the step number `place` is done, die there; return the steps that were done."""
    steps: list[str] = []

    def progress(step: str, done: int, total: int) -> None:
        steps.append(f"{step} {done}/{total}")
        if len(steps) == place:
            raise Killed

    with pytest.raises(Killed):
        run_in(home, progress)
    return steps


def steps_of_a_run(half: Path, tmp_path: Path) -> int:
    steps: list[str] = []
    run_in(copy(half, tmp_path / "count"), lambda step, *_: steps.append(step))
    return len(steps)


def check_kills(half: Path, wanted: dict[str, Any], tmp_path: Path, places: list[int]) -> None:
    for place in places:
        home = copy(half, tmp_path / str(place))
        steps = killed_at(place, home)
        assert run_in(home) == wanted, steps
        assert Lake.open(home / "lake").snapshot_numbers() == [0, 1, 2], steps


def test_a_run_killed_after_some_steps_and_run_again_gives_the_same_rows(
    half: Path, wanted: dict[str, Any], tmp_path: Path
) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    total = steps_of_a_run(half, tmp_path)
    check_kills(half, wanted, tmp_path, sorted(random.Random(seed).sample(range(1, total + 1), 5)))


@pytest.mark.long
def test_a_run_killed_after_every_single_step_and_run_again_gives_the_same_rows(
    half: Path, wanted: dict[str, Any], tmp_path: Path
) -> None:
    check_kills(half, wanted, tmp_path, list(range(1, steps_of_a_run(half, tmp_path) + 1)))


@pytest.mark.long
def test_a_run_killed_over_and_over_still_ends_with_the_same_rows(
    half: Path, wanted: dict[str, Any], tmp_path: Path
) -> None:
    for seed in range(10):
        rng, home = random.Random(seed), copy(half, tmp_path / str(seed))
        for _ in range(rng.randrange(2, 5)):
            place = rng.randrange(1, 30)
            try:
                killed_at(place, home)
            except BaseException:  # the run ended before that step
                break
        assert run_in(home) == wanted, seed


CHILD = """
import os, signal, sys
from trajlake.pipelines.compaction.compact import compact
left = [int(sys.argv[3])]
def progress(step, done, total):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
compact(sys.argv[1], sys.argv[2], None, progress)
"""


def sigkilled(home: Path, place: int) -> int:
    command = [sys.executable, "-c", CHILD, str(home / "landing"), str(home / "lake"), str(place)]
    return subprocess.run(command, check=False, timeout=100).returncode


def test_a_process_killed_by_sigkill_between_two_commits_leaves_nothing_half_done(
    half: Path, wanted: dict[str, Any], tmp_path: Path
) -> None:
    home = copy(half, tmp_path / "home")
    assert sigkilled(home, 11) == -signal.SIGKILL
    assert run_in(home) == wanted


@pytest.mark.long
@pytest.mark.parametrize("place", range(1, 21))
def test_sigkill_at_twenty_moments(half: Path, wanted: dict[str, Any], tmp_path: Path, place: int) -> None:
    home = copy(half, tmp_path / "home")
    assert sigkilled(home, place) == -signal.SIGKILL
    assert run_in(home) == wanted


def test_of_two_launchers_at_once_one_wins_and_the_other_starts_again_on_its_snapshot(
    half: Path, wanted: dict[str, Any], tmp_path: Path
) -> None:
    home = copy(half, tmp_path / "home")
    both = threading.Barrier(2, timeout=60)
    waited = threading.local()
    reports: list[Any] = []

    def progress(step: str, _: int, __: int) -> None:
        if step == "files written" and not getattr(waited, "done", False):
            waited.done = True
            both.wait()

    def launcher() -> None:
        reports.append(compact(str(home / "landing"), str(home / "lake"), None, progress))

    threads = [threading.Thread(target=launcher) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert sorted(report.outcome for report in reports) == ["committed", "nothing_to_do"]
    assert sorted(report.lost_races for report in reports) == [0, 1]
    assert everything(home / "lake") == wanted
    assert Lake.open(home / "lake").snapshot_numbers() == [0, 1, 2]


def test_two_launchers_may_make_one_lake(half: Path, wanted: dict[str, Any], tmp_path: Path) -> None:
    landing, lake = copy(half, tmp_path / "home") / "landing", tmp_path / "home" / "new"
    both = threading.Barrier(2, timeout=60)
    reports: list[Any] = []

    def launcher() -> None:
        both.wait()
        reports.append(compact(str(landing), str(lake)))

    threads = [threading.Thread(target=launcher) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert sorted(report.outcome for report in reports) == ["committed", "nothing_to_do"]
    assert everything(lake)["events"] == wanted["events"]


def test_a_launcher_paused_after_its_first_commit_doubles_nothing_when_others_went_on(
    half: Path, wanted: dict[str, Any], tmp_path: Path
) -> None:
    home = copy(half, tmp_path / "home")
    paused, go = threading.Event(), threading.Event()

    def progress(step: str, _: int, __: int) -> None:
        if step == "trajectories committed" and not paused.is_set():
            paused.set()
            assert go.wait(60)

    slow = threading.Thread(target=lambda: run_in(home, progress))
    slow.start()
    assert paused.wait(60)
    story = Story("later", tenant="x").start().say("z", 2)
    land(home / "landing", B, 20, story.landed)
    land(home / "landing", B, 10, Story("between", tenant="x").start().say("z", 9).landed)
    compact(str(home / "landing"), str(home / "lake"))
    go.set()
    slow.join(100)
    lake = Lake.open(home / "lake")
    newest = lake.newest()
    assert newest.number == 3
    assert {commit.transaction_of(lake.handle(name)) for name in SNAPSHOT_TABLES} == {3}
    for number in lake.snapshot_numbers()[1:]:
        snapshot = lake.snapshot(number)
        assert read_run(lake.url, snapshot.run).number == number
        assert all(
            commit.transaction_of(lake.handle(name, snapshot.tables[name])) == number for name in SNAPSHOT_TABLES
        )
    events = everything(home / "lake")["events"]
    assert len({(e["trajectory_id"], e["sequence_number"]) for e in events}) == len(events)
    assert [e for e in events if e["trajectory_id"] not in ("later", "between")] == wanted["events"]


@pytest.mark.parametrize("damage", ["empty", "torn"])
@pytest.mark.parametrize("last_step", ["events committed", "tool_calls committed", "checkpoints committed"])
def test_commit_files_that_power_loss_tore_are_removed_and_the_run_is_finished(
    half: Path, wanted: dict[str, Any], tmp_path: Path, damage: str, last_step: str
) -> None:
    home = copy(half, tmp_path / "home")

    def progress(step: str, _: int, __: int) -> None:
        if step == last_step:
            raise Killed

    with pytest.raises(Killed):
        run_in(home, progress)
    newest = Lake.open(home / "lake").newest()
    torn = [p for p in (home / "lake").glob("*/_delta_log/*.json")
            if int(p.stem) > newest.tables.get(p.parent.parent.name, 10**9)]  # fmt: skip
    assert torn
    for path in torn:
        path.write_bytes(b"" if damage == "empty" else path.read_bytes()[:-20])
    assert run_in(home) == wanted


def test_data_and_run_file_are_synced_before_events_and_every_log_before_the_snapshot(
    half: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = copy(half, tmp_path / "home")
    seen: list[str] = []
    paths: dict[int, str] = {}
    real_open, real_fsync = os.open, os.fsync

    def opening(path: Any, *rest: Any, **more: Any) -> int:
        descriptor = real_open(path, *rest, **more)
        paths[descriptor] = str(path)
        return descriptor

    def syncing(descriptor: int) -> None:
        real_fsync(descriptor)
        seen.append(paths[descriptor])

    monkeypatch.setattr(durable_files.os, "open", opening)
    monkeypatch.setattr(durable_files.os, "fsync", syncing)
    run_in(home, lambda step, *_: seen.append(f"step {step}"))
    lake = Lake.open(home / "lake")
    snapshot = lake.newest()
    run = read_run(lake.url, snapshot.run)
    before_events = seen[: seen.index("step events committed")]
    for name, adds in run.adds.items():
        for add in adds:
            path = lake.path(name, add.path)
            assert path in before_events
            assert os.path.dirname(path) in before_events
    assert any(path.startswith(run_path(lake.url, run.name)) for path in before_events)
    assert lake.path("_trajlake", "runs") in before_events
    put = next(n for n, path in enumerate(seen) if path.startswith(snapshot_path(lake.url, 2)))
    after_events = seen[seen.index("step events committed") : put]
    for name, version in snapshot.tables.items():
        assert lake.path(name, "_delta_log", f"{version:020d}.json") in after_events
        assert lake.path(name, "_delta_log") in after_events
    assert lake.path("_trajlake", "snapshots") in seen[put:]


def test_a_second_run_on_a_stale_handle_is_refused(half: Path, tmp_path: Path) -> None:
    home = copy(half, tmp_path / "home")
    lake = Lake.open(home / "lake")
    stale = commit.head_handle(lake, lake.newest())
    run_in(home)
    run = read_run(lake.url, lake.newest().run)
    with pytest.raises(Exception, match=r"(?i)concurrent|conflict|transaction"):
        commit._commit(stale, "events", run)


def test_an_error_after_a_commit_that_stands_is_no_loss(
    half: Path, wanted: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = copy(half, tmp_path / "home")
    real = commit._commit

    def failing(*arguments: Any) -> None:
        real(*arguments)
        raise OSError("checkpoint hook failed")

    monkeypatch.setattr(commit, "_commit", failing)
    assert run_in(home) == wanted


def test_removing_a_run_file_is_reported_and_never_guessed(half: Path, tmp_path: Path) -> None:
    home = copy(half, tmp_path / "home")

    def progress(step: str, _: int, __: int) -> None:
        if step == "events committed":
            raise Killed

    with pytest.raises(Killed):
        run_in(home, progress)
    run = next(path for path in (home / "lake/_trajlake/runs").iterdir() if path.name.startswith("2-"))
    run.unlink()
    with pytest.raises(Exception, match="missing"):
        run_in(home)


def test_a_store_that_does_not_answer_is_no_damage(half: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: Any) -> None:
        raise LakeUnreachable("s3://b/lake: no answer; run it again")

    monkeypatch.setattr(commit, "_commit", unreachable)
    with pytest.raises(LakeUnreachable, match="run it again"):
        run_in(copy(half, tmp_path / "home"))
