"""`import --lake` into object storage, on a real server: the rows of a lake on a disk, from any host, killed or not."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.reading import jsonl
from tests.ingest.test_bulk_run import BY_ROOT, FORMATS, MAIN, comparable, session
from tests.pipelines.lakes import everything
from tests.pipelines.s3_lakes import Bucket
from trajlake.ingest import import_run
from trajlake.ingest.import_run import ImportOptions, Outcome
from trajlake.ingest.into_lake import import_into_lake
from trajlake.ingest.watch import follow_paths
from trajlake.pipelines.forgetting.erase_places import Places
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.lake_errors import LakeUnreachable
from trajlake.pipelines.lakehouse.staging import stage
from trajlake.pipelines.upkeep.erase import Wanted, continue_erasures, erase
from trajlake.runtime.settings import load

pytestmark = pytest.mark.s3
CLAUDE_CODE = ImportOptions(format="claude-code")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bucket:
    return Bucket(monkeypatch, tmp_path / "staging")


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    folder = tmp_path / "sessions"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.jsonl").write_bytes(jsonl(*session(name)))
    (folder / "big.jsonl").write_bytes(jsonl(*session("big", text="b" * 50_000)))
    return folder


def imported(lake: str, *paths: Path, options: ImportOptions = CLAUDE_CODE) -> dict[str, Any]:
    outcomes, run = import_into_lake(lake, [str(path) for path in paths], options)
    assert not [one.error for one in outcomes if one.error]
    return {
        "added": {Path(one.name).stem: one.events_added for one in outcomes if one.events_added},
        "unchanged": sum(one.unchanged for one in outcomes),
        "conflicts": [name for one in outcomes if one.report for name in one.report.conflicts],
        "run": run,
    }


def same_rows(bucket: Bucket, lake: Path) -> None:
    far, near = comparable(bucket.lake), comparable(lake)
    for table, found in near.items():
        assert far[table] == found, table


def nothing_stays_here(tmp_path: Path, bucket: Bucket) -> None:
    assert not list((tmp_path / "staging").glob("*/*")), "texts stay on this host"
    assert bucket.keys("lake/_trajlake/staging") == [], "a note stays of what is gone"


def test_rows_are_those_of_a_disk_and_nothing_stays_on_this_host(
    bucket: Bucket, tmp_path: Path, sessions: Path
) -> None:
    first, on_disk = imported(bucket.lake, sessions), imported(str(tmp_path / "lake"), sessions)
    assert first["added"] == on_disk["added"]
    same_rows(bucket, tmp_path / "lake")
    nothing_stays_here(tmp_path, bucket)
    assert Lake.open(bucket.lake).newest().cursors == {}
    assert {row["writer"] for row in everything(bucket.lake)["events"]} == {"0" * 32}


@pytest.mark.long
def test_another_host_finds_what_is_in_what_grew_and_what_was_changed(
    bucket: Bucket, tmp_path: Path, sessions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported(bucket.lake, sessions)
    imported(str(tmp_path / "lake"), sessions)
    monkeypatch.setenv("TRAJLAKE_STAGING", str(tmp_path / "of another host"))
    again = imported(bucket.lake, sessions)
    assert (again["added"], again["unchanged"], again["run"]["outcome"]) == ({}, 3, "nothing_to_do")
    (sessions / "one.jsonl").write_bytes(jsonl(*session("one", turns=4)))
    (sessions / "two.jsonl").write_bytes(jsonl(*session("two", text="changed")))
    (sessions / "six.jsonl").write_bytes(jsonl(*session("six")))
    far, near = imported(bucket.lake, sessions), imported(str(tmp_path / "lake"), sessions)
    assert set(far["added"]) == {"one", "six"}
    assert far["conflicts"] == ["claude-code/two"]
    assert (far["added"], far["conflicts"]) == (near["added"], near["conflicts"])
    same_rows(bucket, tmp_path / "lake")
    assert imported(bucket.lake, sessions)["added"] == {}


@pytest.mark.long
def test_a_raised_mapping_version_replaces_the_old_import_as_on_a_disk(
    bucket: Bucket, tmp_path: Path, sessions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trajlake.ingest.formats.registry import importer

    lakes = (bucket.lake, str(tmp_path / "lake"))
    for lake in lakes:
        imported(lake, sessions)
    reader = importer("claude-code")
    raised = reader.mapping_version + 1
    monkeypatch.setattr(type(reader), "mapping_version", raised, raising=False)
    assert import_run.importer("claude-code").mapping_version == raised
    for lake in lakes:
        assert set(imported(lake, sessions)["added"]) == {"one", "two", "big"}
        assert imported(lake, sessions)["unchanged"] == 3
    same_rows(bucket, tmp_path / "lake")
    assert {row["fencing_token"] for row in everything(bucket.lake)["events"]} == {raised}


@pytest.mark.long
def test_a_watched_folder_and_what_is_told_afterwards(bucket: Bucket, tmp_path: Path, sessions: Path) -> None:
    shown: list[Outcome] = []

    def look() -> list[str]:
        shown.clear()
        settings = load(lake=bucket.lake)
        follow_paths(settings, [str(sessions)], CLAUDE_CODE, into_lake=True, show=shown.append, rounds=1)
        nothing_stays_here(tmp_path, bucket)
        return sorted(Path(one.name).stem for one in shown)

    assert look() == ["big", "one", "two"]
    assert look() == []
    (sessions / "one.jsonl").write_bytes(jsonl(*session("one", turns=4)))
    assert look() == ["one"]
    imported(str(tmp_path / "lake"), sessions)
    mine = comparable(bucket.lake)["events"]
    assert mine == comparable(tmp_path / "lake")["events"]
    told = trajlake(tmp_path, "import", "--report", "--lake", bucket.lake, "--json")
    assert {len(one["trajectories"]) for one in json.loads(told.stdout)} == {1}
    assert len(json.loads(told.stdout)) == 4  # `one` as it was, and as it is
    rewards = tmp_path / "rewards.jsonl"
    rewards.write_text('{"trajectory_id": "claude-code/one", "value": 1}\n')
    for known in (False, True):
        done = trajlake(tmp_path, "import", "rewards", str(rewards), "--verifier", "v", "--verifier-version", "1",
                        "--lake", bucket.lake, "--json")  # fmt: skip
        assert [one["known"] for one in json.loads(done.stdout)["judgements"]] == [known]
    assert len(everything(bucket.lake)["judgements"]) == 1


@pytest.mark.long
def test_every_format_gives_the_rows_of_a_disk(bucket: Bucket, tmp_path: Path, shared_data: Path) -> None:
    paths = [shared_data / name for name in FORMATS]
    for lake in (bucket.lake, str(tmp_path / "lake")):
        import_into_lake(lake, [str(path) for path in paths], ImportOptions(ended=True))
    same_rows(bucket, tmp_path / "lake")


def trajlake(folder: Path, *arguments: str, prelude: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"import os\n{prelude}{MAIN}", *arguments],
        cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


SAMPLE = ("while events are appended", "between events and the other tables")
KILLS = {
    "while events are appended": (
        "from trajlake.runtime.wal.writer import Writer; seen = []; append = Writer.append\n"
        "def append_(self, *a, **k):\n"
        "    seen.append(1)\n"
        "    if len(seen) == 2: os.kill(os.getpid(), 9)\n"
        "    return append(self, *a, **k)\n"
        "Writer.append = append_\n"
    ),
    "before the reports are shipped": (
        "from trajlake.ingest.shipper import Shipper\n"
        "Shipper._imports = lambda *_: os.kill(os.getpid(), 9)\n"
    ),
    "before the commit of events": (
        "from trajlake.pipelines.lakehouse import commit\n"
        "commit._commit = lambda *_: os.kill(os.getpid(), 9)\n"
    ),
    "between events and the other tables": (
        "from trajlake.pipelines.lakehouse import commit\n"
        "commit._follow = lambda *_: os.kill(os.getpid(), 9)\n"
    ),
    "before the inbox goes": (
        "from trajlake.pipelines.lakehouse import staging\n"
        "staging.unstage = lambda *_: os.kill(os.getpid(), 9)\n"
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "where", [pytest.param(one, marks=pytest.mark.long if one in SAMPLE else pytest.mark.soak) for one in KILLS]
)
def test_a_killed_import_leaves_what_the_next_one_completes(
    bucket: Bucket, tmp_path: Path, sessions: Path, where: str
) -> None:
    imported(bucket.lake, sessions / "two.jsonl")
    arguments = ("import", "auto", str(sessions), "--lake", bucket.lake)
    killed = trajlake(tmp_path, *arguments, prelude=BY_ROOT + KILLS[where])
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert list((tmp_path / "staging").glob("*/inbox-*"))
    assert bucket.keys("lake/_trajlake/staging")
    imported(bucket.lake, sessions)
    nothing_stays_here(tmp_path, bucket)
    imported(str(tmp_path / "lake"), sessions)
    same_rows(bucket, tmp_path / "lake")
    assert imported(bucket.lake, sessions)["added"] == {}


def test_a_server_that_ignores_conditions_is_refused_before_anything_is_written(
    bucket: Bucket, sessions: Path, tmp_path: Path
) -> None:
    with (
        bucket.through("unconditional", methods=["PUT"]),
        pytest.raises(LakeUnreachable, match="ignores conditional puts"),
    ):
        imported(bucket.lake, sessions)
    assert bucket.keys("lake") == []
    assert not list((tmp_path / "staging").glob("*/*"))


@pytest.mark.long
def test_an_erasure_names_an_import_killed_on_another_host_until_its_texts_are_gone(
    bucket: Bucket, tmp_path: Path, sessions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported(bucket.lake, sessions / "one.jsonl")
    killed = trajlake(
        tmp_path, "import", "auto", str(sessions), "--lake", bucket.lake,
        prelude=BY_ROOT + KILLS["before the reports are shipped"],
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL
    (texts,) = (tmp_path / "staging").glob("*/inbox-*")
    monkeypatch.setenv("TRAJLAKE_STAGING", str(tmp_path / "of another host"))
    wanted = Wanted(tenant="default", trajectory_id="claude-code/one", because="letter")
    report = erase(bucket.lake, wanted)
    assert report.state == "pending"
    assert [line for line in report.left if str(texts) in line and texts.name in line] == report.left
    assert continue_erasures(bucket.lake)[0].state == "pending"
    # There, an erasure that goes on takes them away.
    monkeypatch.setenv("TRAJLAKE_STAGING", str(tmp_path / "staging"))
    assert continue_erasures(bucket.lake)[0].state == "complete"
    assert not texts.exists()
    nothing_stays_here(tmp_path, bucket)


@pytest.mark.long
def test_a_disk_that_is_no_more_is_told_once(bucket: Bucket, tmp_path: Path, sessions: Path) -> None:
    imported(bucket.lake, sessions / "one.jsonl")
    lake = Lake.open(bucket.lake)
    names = {"inbox-0123456789abcdef", "1-0123456789abcdef"}
    for name in names:
        stage(lake, name)
    shutil.rmtree(tmp_path / "staging")  # what comes now is another disk in its place
    report = erase(bucket.lake, Wanted(tenant="default", trajectory_id="claude-code/one", because="letter"))
    assert report.state == "pending"
    assert {name for line in report.left for name in names if name in line} == names
    report = continue_erasures(bucket.lake, Places(gone=frozenset(names)))[0]
    assert (report.state, report.left) == ("complete", [])
    assert bucket.keys("lake/_trajlake/staging") == []
