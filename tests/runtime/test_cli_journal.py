"""`trajlake journal ls|verify|tail|dump` over real segments, whole and damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.runtime.root_scene import REPLY, InProcess, Scene, full_root
from trajlake.runtime.blob_store import BlobStore
from trajlake.schemas.blobs import offload_payload
from trajlake.schemas.events import MessageAdded


@pytest.fixture
def trajlake(tmp_path, monkeypatch, capsys):
    return InProcess(tmp_path, monkeypatch, capsys)


@pytest.fixture
def scene(tmp_path):
    scene = full_root(tmp_path / "journal")
    yield scene
    scene.close()


def segments(scene: Scene) -> list[Path]:
    return sorted(Path(scene.root.path).glob("writers/*/*.seg"))


def verdict(trajlake, *words: str):
    done = trajlake("journal", "verify", *words, "--json")
    assert done.stdout, done.stderr
    tree = json.loads(done.stdout)
    assert done.returncode == (0 if tree["ok"] else 1)
    return tree


def test_ls_lists_each_segment_with_its_writers_life(scene, trajlake):
    (row,) = json.loads(trajlake("journal", "ls", "--json").stdout)
    assert (row["writer"], row["alive"], row["sealed"], row["error"]) == (scene.writer.writer_id, True, False, "")
    assert (row["first_lsn"], row["last_lsn"], row["events"]) == (
        0,
        scene.writer.durable_lsn,
        scene.writer.durable_lsn + 1,
    )
    scene.close()
    (row,) = json.loads(trajlake("journal", "ls", scene.root.path, "--json").stdout)
    assert (row["alive"], row["sealed"]) == (False, True)
    assert scene.writer.writer_id in trajlake("journal", "ls").stdout


def test_verify_passes_a_clean_root_beside_its_writer_and_after_it(scene, trajlake):
    for _ in range(2):
        tree = verdict(trajlake)
        assert tree["ok"]
        assert (tree["checked"]["trajectories"], tree["checked"]["events"]) == (6, scene.writer.durable_lsn + 1)
        scene.close()


def test_verify_finds_a_flipped_byte_and_names_the_segment(scene, trajlake):
    scene.close()
    (path,) = segments(scene)
    data = bytearray(path.read_bytes())
    data[data.index(b"I will pay")] ^= 1
    path.write_bytes(data)
    tree = verdict(trajlake)
    assert [finding["kind"] for finding in tree["findings"]] == ["corrupt"]
    assert path.name in tree["findings"][0]["where"]
    line = trajlake("journal", "verify")
    assert line.returncode == 1
    assert "damaged" in line.stdout


def test_verify_finds_a_missing_segment(tmp_path, trajlake):
    scene = Scene(tmp_path / "journal")
    scene.write("a", REPLY)
    scene.writer.seal()
    scene.close()
    scene = Scene(tmp_path / "journal")
    scene.write("b", REPLY)
    scene.close()
    scene = Scene(tmp_path / "journal")
    scene.write("c", REPLY)
    scene.close()
    assert len(segments(scene)) == 3
    segments(scene)[1].unlink()
    assert "lsn_gap" in [finding["kind"] for finding in verdict(trajlake)["findings"]]


def test_a_torn_tail_is_a_note_and_exit_0(scene, trajlake):
    (path,) = segments(scene)
    data = path.read_bytes()
    end = data.rindex(b"I will pay")
    path.write_bytes(data[:end] + bytes(len(data) - end))
    tree = verdict(trajlake)
    assert [(finding["kind"], finding["note"]) for finding in tree["findings"]] == [("torn", True)]


def test_verify_finds_a_missing_blob(scene, trajlake):
    message = MessageAdded(role="user", wire={"role": "user", "content": "x" * 40_000}, item_hash="00" * 32)
    message, (blob,) = offload_payload(message)
    store: BlobStore = scene.root.blobs
    store.put("default", blob.data)
    scene.write("bulky", message)
    assert verdict(trajlake)["checked"]["blobs"] == 1
    Path(store.path("default", blob.sha256)).unlink()
    assert [finding["kind"] for finding in verdict(trajlake)["findings"]] == ["blob"]


def test_verify_finds_a_damaged_lease_record(scene, trajlake):
    record = next(Path(scene.root.path).glob("trajectories/*/*.json"))
    record.write_bytes(b"{")
    assert [finding["kind"] for finding in verdict(trajlake)["findings"]] == ["lease"]


def test_dump_writes_every_event_with_the_payload_text_as_recorded(scene, trajlake):
    lines = trajlake("journal", "dump").stdout.splitlines()
    assert len(lines) == scene.writer.durable_lsn + 1
    events = [json.loads(line) for line in lines]
    assert [event["lsn"] for event in events] == list(range(len(events)))
    assert events[0]["type"] == "TaskStarted"
    assert events[0]["payload"]["task"] == {"text": "go"}
    one = trajlake("journal", "dump", "--id", "theirs", "--tenant", "acme").stdout.splitlines()
    assert [json.loads(line)["type"] for line in one] == ["TaskStarted", "ModelReplied"]


def test_tail_shows_the_last_events_for_people_and_as_json(scene, trajlake):
    shown = trajlake("journal", "tail", "-n", "3").stdout.splitlines()
    assert len(shown) == 3
    assert "acme/theirs #1" in shown[-1]
    assert len(trajlake("journal", "tail", "--id", "done").stdout.splitlines()) == 6
    assert json.loads(trajlake("journal", "tail", "-n", "1", "--json").stdout)["trajectory_id"] == "theirs"


def test_a_hostile_id_cannot_reach_the_terminal(tmp_path, trajlake):
    scene = Scene(tmp_path / "journal")
    scene.write("\N{RIGHT-TO-LEFT OVERRIDE}evil", REPLY)
    for words in (["journal", "tail"], ["status"]):
        assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in trajlake(*words).stdout
    scene.close()


def test_two_different_roots_at_once_are_refused(scene, trajlake):
    done = trajlake("journal", "ls", "a", "--journal", "b")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


@pytest.mark.parametrize("verb", ["ls", "verify", "tail", "dump"])
def test_a_folder_that_is_no_root_is_one_line_and_exit_2_and_stays_as_it_was(tmp_path, trajlake, verb):
    (tmp_path / "empty").mkdir()
    done = trajlake("journal", verb, "empty")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert list((tmp_path / "empty").iterdir()) == []
