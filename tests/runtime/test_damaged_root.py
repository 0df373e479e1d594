"""A root that lost bytes or files: every verb says so, and none takes what is left for the whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.runtime.root_scene import InProcess
from tests.support.recorded import journal_of, long_agent, long_model, look_tool, record_agent
from trajlake.ingest.shipper import Shipper, ShipReport
from trajlake.pipelines.lake_events import COLUMNS, LakeEvents
from trajlake.pipelines.lakehouse.lake_errors import LakeMissing
from trajlake.pipelines.replay_source import LakeRecords
from trajlake.runtime import Journal, replay
from trajlake.runtime.checkpoints.checkpoint import CheckpointFiles, objects_of_record
from trajlake.runtime.models import scripted
from trajlake.runtime.replaying import sources
from trajlake.runtime.replaying.record import record_of
from trajlake.runtime.root import Root
from trajlake.runtime.wal.frame import TrajectoryInfo
from trajlake.runtime.wal.reader import list_segments, load_seal, read_segment
from trajlake.runtime.wal.segment_format import TRAILER_SIZE
from trajlake.schemas.envelope import Event

GAP = "incomplete: {} events are held back behind a gap at number 10"


@pytest.fixture
def trajlake(tmp_path, monkeypatch, capsys):
    return InProcess(tmp_path, monkeypatch, capsys)


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return record_agent(long_agent(6), "order-7", tools=look_tool(), model=long_model(0))


@pytest.fixture
def root(tmp_path: Path, events: list[Event]) -> Root:
    """One trajectory in three sealed segments, of ten events but for the last."""
    root = Root.open(tmp_path / "journal")
    info = TrajectoryInfo(tenant="default", trajectory_id="order-7", started_on="2026-11-30")
    for part in (events[:10], events[10:20], events[20:]):
        writer = root.claim_writer()
        writer.append(part, info).wait()
        writer.close()
    return root


def segment(root: Root, place: int) -> Path:
    return sorted(Path(root.path).glob("writers/*/*.seg"))[place]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def verdict(trajlake: Any) -> list[dict[str, Any]]:
    done = trajlake("journal", "verify", "--json")
    tree = json.loads(done.stdout)
    assert done.returncode == (0 if tree["ok"] else 1)
    return list(tree["findings"])


def test_a_damaged_seal_is_damage_wherever_it_was_hit(root, trajlake):
    """In front of a later segment or as the last one; with the trailer that says where it is, and without."""
    assert verdict(trajlake) == []
    for place in (0, 1, 2):
        path = segment(root, place)
        whole = path.read_bytes()
        (writer,) = root.writers()
        opened = list_segments(root.env, root.writer_folder(writer))[place]
        load_seal(root.env, opened)
        assert opened.trailer is not None
        for at in (opened.trailer.seal_offset + 8, opened.trailer.seal_offset + 140, len(whole) - TRAILER_SIZE):
            flip(path, at)
            (found,) = verdict(trajlake)
            assert (found["kind"], found["note"], found["where"]) == ("corrupt", False, str(path)), (place, at)
            assert "its SEAL" in found["detail"]
            path.write_bytes(whole)
        path.write_bytes(whole[: opened.trailer.seal_offset] + bytes(20_000))
        kinds = [found["kind"] for found in verdict(trajlake)]
        assert kinds == (["corrupt"] if place < 2 else []), "with the file made longer nothing but its neighbour tells"
        path.write_bytes(whole)


def test_a_damaged_segment_is_not_shipped_and_said(root, tmp_path):
    class Landing:
        url = "nowhere"

        def __init__(self) -> None:
            self.names: list[str] = []

        def size_and_age_s(self, name: str) -> None: ...

        def put_file(self, name: str, path: str) -> None:
            self.names.append(name)

    def shipped() -> tuple[list[str], ShipReport]:
        landing: Any = Landing()
        report = Shipper(root, landing).run()
        return landing.names, report

    path = segment(root, 1)
    whole = path.read_bytes()
    assert len(shipped()[0]) == 3
    for at in (5_000, read_segment(root.env, str(path)).seal_offset + 140, len(whole) - TRAILER_SIZE):
        flip(path, at)
        names, report = shipped()
        assert len(names) == 2, at
        assert [str(path) in line for line in report.missing] == [True], at
        path.write_bytes(whole)


@pytest.mark.parametrize("held", [0, 1 << 30])
def test_a_record_with_a_gap_is_refused_not_called_the_same(root, events, monkeypatch, held):
    monkeypatch.setattr(sources, "HELD_MAX_BYTES", held)
    segment(root, 1).unlink()
    record = sources.RootSource(root, "default").record("order-7")
    assert record is not None
    report = replay(long_agent(6), record, journal=journal_of(look_tool()))
    assert (report.verdict, report.cause) == ("refused", GAP.format(len(events) - 20))
    assert record_of([*events[:10], *events[20:]]).outline.problem == GAP.format(len(events) - 20)


def test_show_export_handover_and_status_say_that_events_are_missing(root, events, trajlake):
    segment(root, 1).unlink()
    gap = GAP.format(len(events) - 20)
    shown = trajlake("show", "order-7")
    assert shown.returncode == 1
    assert gap in shown.stdout
    turn = trajlake("show", "order-7", "--turn", "0")
    assert (turn.returncode, gap in turn.stderr) == (1, True)
    sheet = trajlake("handover", "order-7")
    assert sheet.returncode == 1
    assert gap in sheet.stdout
    assert json.loads(trajlake("handover", "order-7", "--json").stdout)["lacks"] == gap
    exported = trajlake("export", "order-7", "--to", "jsonl")
    assert (exported.returncode, exported.stdout) == (2, "")
    assert gap in exported.stderr
    table = trajlake("status").stdout.splitlines()
    assert [line.rstrip().endswith("trajlake journal verify") for line in table[:2]] == [False, True]
    assert "resume" not in table[1]
    assert str(segment(root, 1)) not in table[1]
    assert str(segment(root, 1)) in table[2]


def test_what_cannot_be_read_at_all_is_one_line_and_exit_3(root, trajlake):
    flip(segment(root, 0), read_segment(root.env, str(segment(root, 0))).seal_offset + 140)
    for done in (trajlake("show", "order-7"), trajlake("handover", "order-7"), trajlake("show", "order-7", "--all")):
        assert (done.returncode, done.stdout) == (3, "")
        assert len(done.stderr.splitlines()) == 1


def test_advice_and_paths_stand_once_in_a_line(root, trajlake):
    path = segment(root, 1)
    flip(path, 5_000)
    lines = [*trajlake("journal", "verify").stdout.splitlines(), *trajlake("status").stdout.splitlines()]
    for words in (("dump",), ("tail",), ("dump", "--lsn", "12")):
        lines += trajlake("journal", *words).stderr.splitlines()
    assert sum("journal verify" in line for line in lines) >= 4
    for line in lines:
        assert line.count("run 'trajlake journal verify") <= 1, line
        assert line.count(str(path)) <= 1, line


def test_verify_looks_at_everything_that_a_checkpoint_names(tmp_path, trajlake):
    work = tmp_path / "work"
    work.mkdir()
    (work / "kept.txt").write_text("kept " * 100)
    with Journal.open(tmp_path / "journal") as journal:
        outcome = journal.run(lambda t: "done", "t", task="go", model=scripted([]), workspace=work)
        assert outcome.status == "completed"
    root = Root.open(tmp_path / "journal", create=False)
    records = list(CheckpointFiles(root.env, root.path).all())
    needed = {sha256 for record in records for sha256 in objects_of_record(root.blobs, record)}
    assert len(needed) >= 3, "the root, the folder and its file"
    assert verdict(trajlake) == []
    for sha256 in sorted(needed):
        path = Path(root.blobs.path("default", sha256))
        whole = path.read_bytes()
        for damage in (path.unlink, lambda path=path, whole=whole: path.write_bytes(whole + b" ")):
            damage()
            found = verdict(trajlake)
            assert {one["kind"] for one in found} <= {"blob", "checkpoint"}
            assert any(sha256[:12] in one["detail"] for one in found), sha256
            path.write_bytes(whole)
    file = next(Path(root.path).glob("checkpoints/*/*.json"))
    file.write_bytes(b"{")
    assert [one["kind"] for one in verdict(trajlake)] == ["checkpoint"]


def test_a_lake_that_holds_events_back_refuses_replay_and_export():
    connection = duckdb.connect()
    connection.execute("create table trajectories(tenant text, trajectory_id text, conflicts int, held_back int, "
                       "last_sequence int)")  # fmt: skip
    connection.execute("insert into trajectories values ('default', 'order-7', 0, 8, 9), ('default', 'whole', 0, 0, 9)")
    connection.execute(f"create table events({', '.join(f'{name} text' for name in COLUMNS)})")
    nowhere: Any = None
    record = LakeRecords(connection, nowhere, "default").record("order-7")
    assert record is not None
    assert record.outline.problem == GAP.format(8)
    with pytest.raises(LakeMissing, match="held back behind a gap at number 10"):
        LakeEvents(connection, nowhere, "default").events("order-7")
    assert LakeEvents(connection, nowhere, "default").events("whole") == []
