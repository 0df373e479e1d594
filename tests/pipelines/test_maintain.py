"""Maintenance changes files, never rows; vacuum takes what nothing names, and nothing else, whoever runs beside it."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.forgetting import A, B, a_lake, named, person, picture
from tests.pipelines.lakes import everything, rows
from tests.pipelines.segments import Story, land
from trajlake.pipelines.compaction.compact import compact
from trajlake.pipelines.connect import connect
from trajlake.pipelines.lakehouse import log_files
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.lake_errors import LakeError, LakeMissing
from trajlake.pipelines.lakehouse.pins import Pin, files_to_pin, lift_pin, put_pin
from trajlake.pipelines.upkeep.maintain import MaintainOptions, MaintainReport, maintain
from trajlake.pipelines.upkeep.vacuum import vacuum
from trajlake.schemas.events import MessageAdded
from trajlake.schemas.tables import SNAPSHOT_TABLES

NOW = MaintainOptions(kept_days=0, commits_per_checkpoint=1)


class Killed(BaseException):
    """Stands for SIGKILL inside one process: nothing in the product catches it."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("made")
    a_lake(home)
    return home


@pytest.fixture
def home(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "home")


def maintained(home: Path, options: MaintainOptions = NOW, **more: Any) -> MaintainReport:
    return maintain(str(home / "lake"), options, **more)


def data_files(home: Path) -> set[str]:
    lake = home / "lake"
    return {str(p.relative_to(lake)) for t in SNAPSHOT_TABLES for p in (lake / t).rglob("*.parquet")
            if "_delta_log" not in str(p)}  # fmt: skip


def named_files(home: Path) -> set[str]:
    lake = Lake.open(home / "lake")
    return {f"{t}/{f.relative}" for n in lake.snapshot_numbers() for t in SNAPSHOT_TABLES
            for f in lake.files(lake.snapshot(n), t)}  # fmt: skip


def test_small_files_become_large_ones_and_every_row_stays(home: Path) -> None:
    before, files = everything(home / "lake"), data_files(home)
    report = maintained(home, MaintainOptions())
    assert report.outcome == "committed"
    assert report.rows["events"] == len(before["events"])
    assert report.files_before > report.files_after
    assert everything(home / "lake") == before
    assert files < data_files(home)
    assert maintained(home, MaintainOptions()).outcome == "nothing_to_do"
    assert connect(str(home / "lake")).execute("select count(*) from events").fetchone() == (len(before["events"]),)


def test_what_no_kept_snapshot_names_goes_and_the_log_below_them_too(home: Path) -> None:
    before = everything(home / "lake")
    maintained(home)
    report = maintained(home)
    assert Lake.open(home / "lake").snapshot_numbers() == [report.snapshot]
    assert data_files(home) == named_files(home)
    log = home / "lake" / "events" / "_delta_log"
    assert sorted(p.name for p in log.glob("*.json"))[0] > f"{0:020d}.json"
    assert len(list((home / "lake/_trajlake/runs").iterdir())) == 1
    assert everything(home / "lake") == before
    with pytest.raises(LakeMissing, match="expired: older"):
        Lake.open(home / "lake").snapshot(1)
    land(home / "landing", B, 4, person(home / "landing", "next", "eve").landed)
    assert compact(str(home / "landing"), str(home / "lake")).outcome == "committed"


def test_kept_snapshots_read_the_same_after_maintenance(home: Path) -> None:
    numbers = Lake.open(home / "lake").snapshot_numbers()
    before = [rows(home / "lake", "events", n).to_dicts() for n in numbers]
    for _ in range(2):
        maintained(home, MaintainOptions(commits_per_checkpoint=1))
    assert [rows(home / "lake", "events", n).to_dicts() for n in numbers] == before


def test_a_pin_keeps_its_files_and_objects_until_it_is_lifted(home: Path) -> None:
    """delta-rs #4290, #3530: a vacuum after a merge removed files that an older version needed."""
    lake = Lake.open(home / "lake")
    at = lake.snapshot(2)
    pin = put_pin(lake, Pin(name="keep", snapshot=2, erasure_epoch=0, files=files_to_pin(lake, at, tuple(at.tables))))
    paths = {home / "lake" / path for files in pin.files.values() for path in files}
    maintained(home)
    maintained(home)
    assert all(path.exists() for path in paths)
    lift_pin(lake, "keep")
    maintained(home)
    assert not any(path.exists() for path in paths if "/events/" in str(path))
    with pytest.raises(LakeError, match="has expired"):
        put_pin(lake, pin)
    assert not (home / "lake/_trajlake/pins/keep.json").exists()


def test_a_dry_run_writes_nothing(home: Path) -> None:
    before = {str(p): p.stat().st_mtime_ns for p in home.rglob("*")}
    report = maintained(home, MaintainOptions(kept_days=0, dry_run=True))
    assert report.files_before > report.files_after > 0
    assert report.vacuum.expired == [0, 1, 2]
    assert {str(p): p.stat().st_mtime_ns for p in home.rglob("*")} == before


@pytest.mark.parametrize("last_step", ["files written", "run file put", "events committed", "tool_calls committed"])
def test_vacuum_beside_a_run_takes_none_of_its_files(home: Path, last_step: str) -> None:
    land(home / "landing", B, 4, person(home / "landing", "next", "eve", "eve").landed)
    quiet = shutil.copytree(home, home.parent / "quiet")
    compact(str(quiet / "landing"), str(quiet / "lake"))

    def progress(step: str, _: int, __: int) -> None:
        if step == last_step:
            vacuum(Lake.open(home / "lake"), kept_s=0)

    compact(str(home / "landing"), str(home / "lake"), None, progress)
    assert everything(home / "lake") == everything(quiet / "lake")


def test_a_run_left_half_done_is_finished_after_a_vacuum(home: Path) -> None:
    land(home / "landing", B, 4, person(home / "landing", "next", "eve", "eve").landed)

    def die(step: str, _: int, __: int) -> None:
        if step == "events committed":
            raise Killed

    with pytest.raises(Killed):
        compact(str(home / "landing"), str(home / "lake"), None, die)
    vacuum(Lake.open(home / "lake"), kept_s=0)
    compact(str(home / "landing"), str(home / "lake"))
    assert len(rows(home / "lake", "events").filter(rows(home / "lake", "events")["trajectory_id"] == "next")) == 6


def test_compaction_and_maintenance_at_once_both_get_their_turn(home: Path) -> None:
    land(home / "landing", B, 4, person(home / "landing", "next", "eve", "eve").landed)
    quiet = shutil.copytree(home, home.parent / "quiet")
    compact(str(quiet / "landing"), str(quiet / "lake"))
    both = threading.Barrier(2, timeout=60)
    seen = threading.local()

    def progress(step: str, _: int, __: int) -> None:
        if step == "files written" and not getattr(seen, "done", False):
            seen.done = True
            both.wait()

    jobs = [
        threading.Thread(target=lambda: compact(str(home / "landing"), str(home / "lake"), None, progress)),
        threading.Thread(target=lambda: maintain(str(home / "lake"), MaintainOptions(), progress)),
    ]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(100)
    assert everything(home / "lake") == everything(quiet / "lake")
    assert len(Lake.open(home / "lake").snapshot_numbers()) == 4 + 2


def check_kills(made: Path, tmp_path: Path, places: list[int]) -> None:
    wanted = everything(made / "lake")
    for number in places:
        home = shutil.copytree(made, tmp_path / f"killed{number}")
        left = [number]

        def progress(step: str, _: int, __: int, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Killed(step)

        with pytest.raises(Killed):
            maintained(home, progress=progress)
        maintained(home)
        maintained(home)
        assert everything(home / "lake") == wanted, number
        assert data_files(home) == named_files(home), number
        shutil.rmtree(home)


def count_steps(made: Path, tmp_path: Path) -> int:
    steps: list[str] = []
    maintained(shutil.copytree(made, tmp_path / "count"), progress=lambda step, *_: steps.append(step))
    return len(steps)


def test_killed_after_a_few_steps_and_run_again_it_ends_the_same(made: Path, tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    total = count_steps(made, tmp_path)
    check_kills(made, tmp_path, random.Random(seed).sample(range(1, total), 4))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_killed_after_every_step_and_run_again_it_ends_the_same(made: Path, tmp_path: Path) -> None:
    check_kills(made, tmp_path, list(range(1, count_steps(made, tmp_path))))


CHILD = """
import os, signal, sys
from trajlake.pipelines.upkeep.maintain import MaintainOptions, maintain
left = [int(sys.argv[2])]
def progress(step, done, total):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
maintain(sys.argv[1], MaintainOptions(kept_days=0, commits_per_checkpoint=1), progress)
"""


def test_sigkill_in_the_middle_of_vacuum_leaves_a_whole_lake(home: Path) -> None:
    wanted = everything(home / "lake")
    maintained(home, MaintainOptions())
    command = [sys.executable, "-c", CHILD, str(home / "lake"), "30"]
    assert subprocess.run(command, check=False, timeout=100).returncode == -signal.SIGKILL
    assert everything(home / "lake") == wanted
    maintained(home)
    assert data_files(home) == named_files(home)


@pytest.mark.parametrize("damage", ["empty", "torn", "pointer"])
def test_a_checkpoint_that_power_loss_tore_hides_no_table(home: Path, damage: str) -> None:
    wanted = everything(home / "lake")
    maintained(home, MaintainOptions(commits_per_checkpoint=1))
    log = home / "lake" / "events" / "_delta_log"
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    if damage == "pointer":
        (log / "_last_checkpoint").write_bytes(b'{"vers')
    else:
        checkpoint.write_bytes(b"" if damage == "empty" else checkpoint.read_bytes()[:-30])
    land(home / "landing", A, 40, Story("x").start().landed)
    compact(str(home / "landing"), str(home / "lake"))
    assert everything(home / "lake") == wanted


def test_a_checkpoint_is_synced_with_its_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = log_files.sync_all
    monkeypatch.setattr(log_files, "sync_all", lambda paths, root: (synced.extend(paths), real(paths, root)))
    maintained(home, MaintainOptions(commits_per_checkpoint=1))
    for table in SNAPSHOT_TABLES:
        log = home / "lake" / table / "_delta_log"
        wanted = [*map(str, log.glob("*.checkpoint.parquet")), str(log / "_last_checkpoint")]
        assert len(wanted) == 2
        assert set(wanted) <= set(synced)


def test_a_repeated_picture_is_stored_once_over_many_compactions(tmp_path: Path) -> None:
    check_picture(tmp_path, 8)


@pytest.mark.long
def test_a_repeated_picture_is_stored_once_over_fifty_compactions(tmp_path: Path) -> None:
    check_picture(tmp_path, 50)


def check_picture(home: Path, compactions: int) -> None:
    lsn, data = 0, picture("the same")
    for number in range(compactions):
        story = Story(f"t{number}").start()
        wire = {"role": "user", "content": named(home / "landing", data)}
        story.add(MessageAdded(role="user", wire=wire, item_hash="0" * 64))
        land(home / "landing", A, lsn, story.landed)
        lsn += len(story.landed)
        assert compact(str(home / "landing"), str(home / "lake")).events_added == 2
        if number % 10 == 9:
            maintain(str(home / "lake"), MaintainOptions(kept_days=0))
    (kept,) = rows(home / "lake", "blobs").to_dicts()
    objects = [p for p in (home / "lake" / "cas").rglob("*") if p.is_file()]
    assert (kept["sha256"], kept["run"], len(objects)) == (hashlib.sha256(data).hexdigest(), 1, 1)
    assert len(rows(home / "lake", "blob_refs")) == compactions


def test_files_of_a_lost_run_go_and_temporaries_a_day_later(home: Path) -> None:
    lake = home / "lake"
    orphan = lake / "events" / "tenant=t" / "2-00112233445566aa-0000-00000000.parquet"
    shutil.copy(next((lake / "events").rglob("*.parquet")), orphan)
    coming = orphan.with_name("99-00112233445566aa-0000-00000000.parquet")
    shutil.copy(orphan, coming)
    old, new = lake / "cas" / "x.tmp", lake / "cas" / "y.tmp"
    for path in (old, new):
        path.write_bytes(b"x")
    os.utime(old, (1, 1))
    vacuum(Lake.open(lake))
    assert [p.exists() for p in (orphan, coming, old, new)] == [False, True, False, True]
