"""`import --lake` of much that is new: the same rows as by way of the root, nothing twice, nothing after a kill.

The commands run as processes of their own; a prelude lowers the size from which an import goes straight, or kills one
at a chosen place.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.reading import jsonl
from tests.ingest.test_claude_code import block, call, result, user
from tests.pipelines.lakes import everything, rows
from trajlake.ingest import bulk_run, into_lake
from trajlake.ingest.import_run import ImportOptions, Outcome
from trajlake.ingest.lake_side import LakeSide
from trajlake.ingest.watch import follow_paths
from trajlake.pipelines.bulk import bulk_door, bulk_import
from trajlake.pipelines.lakehouse.grown_files import is_grown
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.lake_errors import LakeUnreachable
from trajlake.pipelines.upkeep.maintain import maintain
from trajlake.runtime.root import Root
from trajlake.runtime.settings import load
from trajlake.schemas.tables import SNAPSHOT_TABLES

STRAIGHT = "from trajlake.ingest import bulk_run; bulk_run.WORTH_BYTES = 1; bulk_run.BATCH_SIZE_BYTES = 1\n"
BY_ROOT = "from trajlake.ingest import bulk_run; bulk_run.WORTH_BYTES = 1 << 60\n"
MAIN = "import sys; from trajlake.runtime.cli import main; sys.exit(main())\n"
FORMATS = ("claude-code", "openai-chat", "codex", "pi", "inspect")


def run(folder: Path, prelude: str, *arguments: str, timeout_s: int = 240) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", prelude + MAIN, *arguments],
        cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False,
    )  # fmt: skip


def imported(folder: Path, prelude: str, *paths: str | Path, lake: str = "lake") -> dict[str, Any]:
    done = run(folder, prelude, "import", "auto", *map(str, paths), "--lake", lake, "--json")
    assert done.returncode in (0, 1, 2), done.stderr
    report: dict[str, Any] = json.loads(done.stdout) | {"exit": done.returncode}
    return report


def session(name: str, turns: int = 3, text: str = "go") -> list[dict[str, Any]]:
    records = [user(f"{text} {name}", f"u-{name}", None, session=name)]
    for turn in range(turns):
        a, r, message = f"a{turn}-{name}", f"r{turn}-{name}", f"m{turn}-{name}"
        reply = block(message, call(f"c{turn}-{name}", command="x" * 40), a, records[-1]["uuid"], stop="tool_use")
        records += [
            reply | {"sessionId": name},
            user(result(f"c{turn}-{name}", f"{name} {turn} " * 50), r, a, session=name),
        ]
    return records


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    folder = tmp_path / "sessions"
    folder.mkdir()
    for name in ("one", "two", "three", "four", "five"):
        (folder / f"{name}.jsonl").write_bytes(jsonl(*session(name)))
    (folder / "big.jsonl").write_bytes(jsonl(*session("big", text="b" * 50_000)))
    return folder


def runs_straight(folder: Path, lake: str = "lake") -> int:
    where = folder / lake / "_trajlake/inbox/journal/bulk"
    return len(list(where.iterdir())) if where.is_dir() else 0


def comparable(lake: Path | str) -> dict[str, list[dict[str, Any]]]:
    """All rows of all tables without what says where a frame was: a bulk import has none."""
    tables = everything(lake)
    for table in ("events", "quarantine"):
        tables[table] = [{k: v for k, v in row.items() if k not in ("writer", "lsn")} for row in tables[table]]
    return {name: sorted(found, key=lambda row: json.dumps(row, default=str)) for name, found in tables.items()}


def test_rows_of_every_table_are_those_of_an_import_by_the_root(tmp_path: Path, sessions: Path) -> None:
    straight = imported(tmp_path, STRAIGHT, sessions)
    by_root = imported(tmp_path, BY_ROOT, sessions, lake="other")
    assert (runs_straight(tmp_path), runs_straight(tmp_path, "other")) == (1, 0)
    assert straight["total"] == by_root["total"]
    assert comparable(tmp_path / "lake") == comparable(tmp_path / "other")
    assert len(rows(tmp_path / "lake", "blob_refs")) > 0


def test_files_that_grew_by_small_row_groups_are_written_anew_by_maintenance_once(
    tmp_path: Path, sessions: Path
) -> None:
    imported(tmp_path, STRAIGHT, sessions)
    lake, before = str(tmp_path / "lake"), everything(tmp_path / "lake")
    assert any(is_grown(file.relative) for file in Lake(lake).files(Lake(lake).newest(), "events"))
    assert maintain(lake).outcome == "committed"
    newest = Lake(lake).newest()
    assert not [
        file for table in SNAPSHOT_TABLES for file in Lake(lake).files(newest, table) if is_grown(file.relative)
    ]
    assert everything(tmp_path / "lake") == before
    assert maintain(lake).outcome == "nothing_to_do"


HELPERS_FIND_NOTHING_NEW = (
    "import os; from trajlake.ingest import bulk_run; from trajlake.pipelines.bulk import bulk_door\n"
    "bulk_run._processes = lambda batches: 2; first = os.getpid(); begin = bulk_door.begin\n"
    "def begin_(*a):\n"
    "    plan, _ = begin(*a)\n"
    "    return plan, bulk_door.BulkKnown(sources=frozenset(f'{n:064}' for n in range(20_000)))\n"
    "parcel_of = bulk_run.BulkRun.parcel_of\n"
    "def parcel_of_(self, paths):\n"
    "    if os.getpid() == first: return parcel_of(self, paths)\n"
    "    self.share.left.extend([*paths, 'x' * 2_000_000])\n"
    "    return bulk_run.Parcel()\n"
    "bulk_door.begin = begin_; bulk_run.BulkRun.parcel_of = parcel_of_\n"
)


def test_helpers_that_need_no_plan_do_not_wait_for_one_who_tells_it(
    tmp_path: Path, sessions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What the lake knows, and what a helper says, are each more than a pipe holds.
    report = imported(tmp_path, STRAIGHT + HELPERS_FIND_NOTHING_NEW, sessions)
    assert report["total"]["files"] == 6
    lake = str(tmp_path / "lake")
    assert len(rows(tmp_path / "lake", "trajectories")) == 6

    begun = bulk_door.begin(lake, "default")
    assert begun is not None
    assert len(begun[1].trajectories) == 6
    # More than every process could hold: not for a bulk import.
    monkeypatch.setattr(bulk_import, "KNOWN_MAX", 6)
    assert bulk_door.begin(lake, "default") is None
    assert bulk_door.begin(lake, "another") is not None


def test_a_source_that_cannot_be_opened_is_one_error_and_ends_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "folder.jsonl"
    folder.mkdir()
    side = LakeSide(str(tmp_path / "lake"), Root.open(str(tmp_path / "root")), "default", lambda: None)
    taker = bulk_run.BulkRun(side, ImportOptions(), lambda: (None, None))
    taker.parcel_of([str(folder), str(tmp_path / "gone.jsonl")])
    assert [one.error for one in taker.share.outcomes] == [
        f"{folder}: Is a directory",
        f"{tmp_path}/gone.jsonl: No such file or directory",
    ]
    taker.finish()


class Unsearched(list[str]):
    """Paths that nobody may look through one by one: a lake's worth of files would be looked through for each file."""

    def __contains__(self, one: object) -> bool:
        raise AssertionError(f"searched for {one}")


def test_what_a_bulk_import_left_is_not_searched_through_for_every_source(
    tmp_path: Path, sessions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = str(sessions / "two.jsonl")
    monkeypatch.setattr(into_lake, "worth_it", lambda _: True)
    monkeypatch.setattr(into_lake, "import_bulk", lambda *_: bulk_run.BulkDone([], Unsearched([left]), {}))
    side = LakeSide(str(tmp_path / "lake"), Root.open(str(tmp_path / "root")), "default", lambda: None)
    with into_lake.LakeRun(side, ImportOptions()) as taker:
        outcomes = list(taker.run([str(sessions)]))
    assert [one.name for one in outcomes] == [left]


def test_a_run_that_failed_after_its_snapshot_is_no_other_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, commit_run = str(tmp_path / "lake"), bulk_import.commit_run
    first, second = bulk_import.begin(lake), bulk_import.begin(lake)
    assert first is not None and second is not None  # noqa: PT018 - a new lake

    def fail_after(*arguments: Any) -> Any:
        commit_run(*arguments)
        raise LakeUnreachable("no answer")

    monkeypatch.setattr(bulk_import, "commit_run", fail_after)
    report = bulk_import.commit(first, bulk_door.writer(first), [], [])
    assert report is not None
    assert (report["outcome"], Lake(lake).newest().run) == ("committed", first.run)
    monkeypatch.undo()
    assert bulk_import.commit(second, bulk_door.writer(second), [], []) is None


KILLED_BEFORE_IT_READS = (
    "import os; from trajlake.ingest import bulk_run; bulk_run._processes = lambda batches: 3\n"
    "parcel_of = bulk_run.BulkRun.parcel_of\n"
    "def parcel_of_(self, paths):\n"
    "    parcel = parcel_of(self, paths)\n"
    "    parcel.payloads.append(b'x' * 1_000_000)\n"
    "    return parcel\n"
    "bulk_run.BulkRun.parcel_of = parcel_of_; bulk_run._write_all = lambda *_: os.kill(os.getpid(), 9)\n"
)


def test_a_killed_import_leaves_no_helper_behind(tmp_path: Path, sessions: Path) -> None:
    # Each parcel is more than a pipe holds. A pipe to this test stays open for as long as any process holds it.
    command = ("import", "auto", str(sessions), "--lake", "lake")
    killed = run(tmp_path, STRAIGHT + KILLED_BEFORE_IT_READS, *command, timeout_s=60)
    assert killed.returncode == -signal.SIGKILL, killed.stderr


@pytest.mark.long
def test_rows_of_real_files_are_those_of_an_import_by_the_root(tmp_path: Path, shared_data: Path) -> None:
    paths = [shared_data / name for name in FORMATS]
    straight = imported(tmp_path, STRAIGHT, *paths)
    by_root = imported(tmp_path, BY_ROOT, *paths, lake="other")
    assert (runs_straight(tmp_path), runs_straight(tmp_path, "other")) == (1, 0)
    assert straight["total"] == by_root["total"]
    one, other = comparable(tmp_path / "lake"), comparable(tmp_path / "other")
    for table in one:
        assert one[table] == other[table], table


@pytest.mark.long
def test_what_came_straight_is_known_afterwards_grows_and_does_not_change_unseen(
    tmp_path: Path, sessions: Path
) -> None:
    first = imported(tmp_path, STRAIGHT, sessions)
    again = imported(tmp_path, STRAIGHT, sessions)
    assert (again["total"]["events_added"], again["total"]["unchanged"]) == (0, 6)
    assert again["lake"]["outcome"] == "nothing_to_do"

    (sessions / "one.jsonl").write_bytes(jsonl(*session("one", turns=4)))
    (sessions / "two.jsonl").write_bytes(jsonl(*session("two", text="changed")))
    (sessions / "six.jsonl").write_bytes(jsonl(*session("six")))
    third = imported(tmp_path, STRAIGHT, sessions)
    added = {Path(one["name"]).stem: one["events_added"] for one in third["files"] if one["events_added"]}
    assert set(added) == {"one", "six"}
    assert third["exit"] == 1
    assert [list(one["report"]["conflicts"]) for one in third["files"] if one["report"]["conflicts"]] == [
        ["claude-code/two"]
    ]
    fresh = imported(tmp_path, BY_ROOT, sessions / "one.jsonl", lake="other")
    assert fresh["total"]["events_added"] == first["files"][2]["events_added"] + added["one"]
    mine = [row for row in comparable(tmp_path / "lake")["events"] if row["trajectory_id"] == "claude-code/one"]
    assert mine == comparable(tmp_path / "other")["events"]
    assert len(rows(tmp_path / "lake", "quarantine")) == 0


@pytest.mark.long
def test_a_copy_of_a_session_that_came_straight_gives_only_what_is_new(tmp_path: Path, sessions: Path) -> None:
    imported(tmp_path, STRAIGHT, sessions)
    copied = [record | {"sessionId": "fork"} for record in session("one")]
    copied.append(user("and now", "u-fork", copied[-1]["uuid"], session="fork"))
    last = block("m-fork", {"type": "text", "text": "done"}, "a-fork", "u-fork", stop="end_turn")
    (tmp_path / "fork.jsonl").write_bytes(jsonl(*copied, last | {"sessionId": "fork"}))
    imported(tmp_path, BY_ROOT, tmp_path / "fork.jsonl")
    mine = rows(tmp_path / "lake", "events").filter(trajectory_id="claude-code/fork")
    assert (mine["event_type"] == "ModelReplied").sum() == 1
    assert mine["payload"].str.contains('"origin":"copied"', literal=True).sum() == 7


@pytest.mark.long
def test_a_watched_folder_adds_only_the_tail_of_what_came_straight(tmp_path: Path, sessions: Path) -> None:
    imported(tmp_path, STRAIGHT, sessions)
    (sessions / "one.jsonl").write_bytes(jsonl(*session("one", turns=4)))
    shown: list[Outcome] = []
    follow_paths(
        load(lake=str(tmp_path / "lake")), [str(sessions)], ImportOptions(format="claude-code"),
        into_lake=True, show=shown.append, rounds=1,
    )  # fmt: skip
    assert [(Path(one.name).stem, one.events_known > 0) for one in shown] == [("one", True)]
    assert len(rows(tmp_path / "lake", "trajectories")) == 6
    assert (rows(tmp_path / "lake", "model_calls")["trajectory_id"] == "claude-code/one").sum() == 4


@pytest.mark.long
def test_one_trajectory_in_two_files_goes_by_the_root(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    records = session("same", turns=6)
    # Without message ids nothing tells beforehand that the files belong together.
    for record in records:
        record["message"].pop("id", None)
    (folder / "a.jsonl").write_bytes(jsonl(*records[:7]))
    (folder / "b.jsonl").write_bytes(jsonl(*records))
    for name in ("x", "y"):
        (folder / f"{name}.jsonl").write_bytes(jsonl(*session(name)))
    imported(tmp_path, STRAIGHT, folder)
    imported(tmp_path, BY_ROOT, folder, lake="other")
    for table in ("events", "trajectories", "tool_calls"):
        assert comparable(tmp_path / "lake")[table] == comparable(tmp_path / "other")[table], table


KILLS = {
    "the process that writes, at its second batch": (
        "from trajlake.pipelines.bulk import bulk_rows; bulk_rows.BATCH_SIZE_BYTES = 1; seen = []\n"
        "write = bulk_rows.BulkWriter._flush\n"
        "def flush(self):\n"
        "    seen.append(1)\n"
        "    if len(seen) == 2: os.kill(os.getpid(), 9)\n"
        "    write(self)\n"
        "bulk_rows.BulkWriter._flush = flush\n"
    ),
    "a helper, as it takes its first batch": (
        "from trajlake.ingest import bulk_team; take = bulk_team.Work.next; first = os.getpid()\n"
        "def next_(self):\n"
        "    if os.getpid() != first: os.kill(os.getpid(), 9)\n"
        "    return take(self)\n"
        "bulk_team.Work.next = next_\n"
    ),
    "before the commit of events": (
        "from trajlake.pipelines.lakehouse import commit\n"
        "commit._commit = lambda *_: os.kill(os.getpid(), 9)\n"
    ),
    "between events and the other tables": (
        "from trajlake.pipelines.lakehouse import commit\n"
        "commit._follow = lambda *_: os.kill(os.getpid(), 9)\n"
    ),
    "before the reports are noted": (
        "from trajlake.ingest import lake_side\n"
        "lake_side.LakeSide.note = lambda *_: os.kill(os.getpid(), 9)\n"
    ),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("where", KILLS)
def test_a_kill_leaves_nothing_or_all_and_the_next_run_completes_it(tmp_path: Path, sessions: Path, where: str) -> None:
    killed = run(tmp_path, f"import os\n{STRAIGHT}{KILLS[where]}", "import", "auto", str(sessions), "--lake", "lake")
    if where.startswith("a helper"):
        assert "nothing was committed" in killed.stderr, killed.stderr
    else:
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    imported(tmp_path, STRAIGHT, sessions)
    imported(tmp_path, BY_ROOT, sessions, lake="other")
    one, other = comparable(tmp_path / "lake"), comparable(tmp_path / "other")
    for table in one:
        assert one[table] == other[table], table
    assert imported(tmp_path, STRAIGHT, sessions)["total"]["events_added"] == 0


KILLS_BY_ROOT = {
    "while events are appended": (
        "from trajlake.runtime.wal.writer import Writer; seen = []; append = Writer.append\n"
        "def append_(self, *a, **k):\n"
        "    seen.append(1)\n"
        "    if len(seen) == 3: os.kill(os.getpid(), 9)\n"
        "    return append(self, *a, **k)\n"
        "Writer.append = append_\n"
    ),
    "before the sources are stored": (
        "from trajlake.ingest import import_run\n"
        "import_run.ImportRun._store = lambda *_: os.kill(os.getpid(), 9)\n"
    ),
    "between a segment and its blobs": (
        "from trajlake.ingest.shipper import Shipper\n"
        "Shipper._look_again = lambda *_: os.kill(os.getpid(), 9)\n"
    ),
    "before the reports are shipped": (
        "from trajlake.ingest.shipper import Shipper\n"
        "Shipper._imports = lambda *_: os.kill(os.getpid(), 9)\n"
    ),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("where", KILLS_BY_ROOT)
def test_a_kill_on_the_way_by_the_root_leaves_what_the_next_run_completes(
    tmp_path: Path, sessions: Path, where: str
) -> None:
    prelude = f"import os\n{BY_ROOT}{KILLS_BY_ROOT[where]}"
    killed = run(tmp_path, prelude, "import", "auto", str(sessions), "--lake", "lake")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    # Much that is new would go straight: what the root holds already must not.
    imported(tmp_path, STRAIGHT, sessions)
    imported(tmp_path, BY_ROOT, sessions, lake="other")
    one, other = comparable(tmp_path / "lake"), comparable(tmp_path / "other")
    for table in one:
        assert one[table] == other[table], table


@pytest.mark.long
def test_a_lake_in_which_something_was_erased_is_not_written_straight(tmp_path: Path, sessions: Path) -> None:
    imported(tmp_path, STRAIGHT, sessions / "one.jsonl", sessions / "two.jsonl")
    gone = run(tmp_path, "", "erase", "claude-code/one", "--because", "asked", "--lake", "lake", "--json")
    assert gone.returncode == 0, gone.stderr + gone.stdout
    assert '"complete"' in gone.stdout  # no journal holds what came straight: nobody has to show one
    imported(tmp_path, STRAIGHT, sessions)
    assert runs_straight(tmp_path) == 1
    events = rows(tmp_path / "lake", "events")
    assert events.filter(trajectory_id="claude-code/one")["payload"].null_count() > 0
    assert len(events["trajectory_id"].unique()) == 6
