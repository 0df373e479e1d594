"""`trajlake status` and `show`: every trajectory has a live owner, an end, or a line that says what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.runtime.root_scene import INTENT, REPLY, InProcess, Scene, full_root
from trajlake.runtime.commands.status import span
from trajlake.schemas.events import Authorized, ModelReplied


@pytest.fixture
def trajlake(tmp_path, monkeypatch, capsys):
    return InProcess(tmp_path, monkeypatch, capsys)


@pytest.fixture
def scene(tmp_path):
    scene = full_root(tmp_path / "journal")
    yield scene
    scene.close()


def rows(done) -> dict[str, dict]:
    assert done.returncode == 0, done.stderr
    return {row["trajectory_id"]: row for row in json.loads(done.stdout)}


def test_each_trajectory_is_told_apart_with_owner_doubts_approvals_and_what_to_do(scene, trajlake):
    found = rows(trajlake("status", "--json"))
    assert {name: row["status"] for name, row in found.items()} == {
        "done": "completed", "at-work": "running", "asks": "parked", "doubtful": "parked", "left": "open",
        "theirs": "open", "unborn": "unsent",
    }  # fmt: skip
    assert (found["at-work"]["owner"], found["done"]["owner"]) == ("worker-1", "")
    assert 0 < found["at-work"]["lease_s"] <= 60
    assert found["doubtful"]["doubts"] == [{"action_id": "1.0", "tool": "pay", "effect": "external", "attempt": 1}]
    assert "settle doubtful 1.0" in found["doubtful"]["next"]
    assert found["asks"]["approvals"][0]["question"] == "pay?"
    assert "approve asks ask-1" in found["asks"]["next"]
    assert [one["text"] for one in found["asks"]["obligations"]] == ["send the receipt"]
    assert (found["done"]["stages"], found["done"]["events"]) == ({"settled": 1}, 6)
    assert found["left"]["next"] == "trajlake resume left"
    assert found["unborn"]["events"] == 0


def test_a_dead_worker_owns_nothing_and_its_intent_is_in_doubt(tmp_path, trajlake):
    scene = Scene(tmp_path / "journal")
    scene.write("killed", REPLY, INTENT)
    assert rows(trajlake("status", "--json"))["killed"]["status"] == "running"
    scene.close()
    found = rows(trajlake("status", "--json"))["killed"]
    assert (found["status"], found["owner"], found["stages"]) == ("open", "", {"in_doubt": 1})
    assert found["next"] == "trajlake resume killed"


def test_people_get_a_table_with_the_next_step(scene, trajlake):
    done = trajlake("status")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split()[:2] == ["trajectory", "status"]
    assert any("acme/theirs" in line for line in lines)
    assert any("doubt 1.0 pay" in line and "--because" in line for line in lines)


def test_tenant_and_open_narrow_the_list(scene, trajlake):
    assert set(rows(trajlake("status", "--json", "--tenant", "acme"))) == {"theirs"}
    assert "done" not in rows(trajlake("status", "--json", "--open"))


def test_waiting_mail_is_counted(scene, trajlake):
    assert trajlake("steer", "left", "hurry").returncode == 0
    assert rows(trajlake("status", "--json"))["left"]["mail"] == 1


def test_once_a_person_has_answered_the_next_step_is_to_resume(scene, trajlake):
    assert trajlake("settle", "doubtful", "1.0", "--executed", "--because", "bank").returncode == 0
    assert rows(trajlake("status", "--json"))["doubtful"]["next"] == "trajlake resume doubtful"


def test_no_root_there_is_one_line_and_exit_2(tmp_path, trajlake):
    done = trajlake("status", "--journal", "nowhere")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "nowhere" in done.stderr
    assert not (tmp_path / "nowhere").exists()


def test_a_damaged_segment_does_not_hide_the_rest(scene, trajlake):
    segment = next(Path(scene.root.path).glob("writers/*/*.seg"))
    scene.close()
    data = bytearray(segment.read_bytes())
    data[5000] ^= 255
    segment.write_bytes(data)
    found = rows(trajlake("status", "--json"))
    assert len(found) >= 6
    assert any(row["trouble"] for row in found.values())


def test_show_tells_a_trajectory_turn_by_turn(scene, trajlake):
    done = trajlake("show", "doubtful")
    assert done.returncode == 0, done.stderr
    assert "doubtful: parked" in done.stdout
    assert "turn 0" in done.stdout
    assert "I will pay pay[1.0]" in done.stdout
    assert "1.0 pay attempt 1 external" in done.stdout
    only = json.loads(trajlake("show", "doubtful", "--turn", "-1", "--json").stdout)
    assert [event["type"] for event in only["events"]] == ["TaskStarted"]
    missing = trajlake("show", "nobody")
    assert (missing.returncode, len(missing.stderr.splitlines())) == (2, 1)


def test_show_reads_the_text_of_a_reply_out_of_its_body(tmp_path, trajlake):
    raw = '{"choices":[{"message":{"role":"assistant","content":"from the body"}}]}'
    scene = Scene(tmp_path / "journal")
    scene.write("a", ModelReplied(raw=raw, format="openai.chat/1"), ModelReplied(raw="{", format="openai.chat/1"))
    scene.close()
    done = trajlake("show", "a")
    assert "kept from the body" in done.stdout
    assert "  #2 ModelReplied kept" in done.stdout


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (200_000, "2 d")]
)
def test_ages_are_said_as_people_say_them(seconds, said):
    assert span(seconds) == said


def test_an_import_has_no_next_step_and_no_age_where_its_source_tells_no_time(tmp_path, trajlake):
    chat = {"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}
    (tmp_path / "chat.jsonl").write_text(json.dumps(chat) + "\n")
    assert trajlake("import", "openai-chat", str(tmp_path / "chat.jsonl")).returncode == 0
    ((name, row),) = rows(trajlake("status", "--json")).items()
    assert (row["origin"], row["next"], row["age_s"]) == ("imported", "", None)
    assert "resume" not in trajlake("show", name).stdout


def test_show_says_how_many_events_it_leaves_out(tmp_path, trajlake):
    scene = Scene(tmp_path / "journal")
    scene.write("a", REPLY, Authorized(action_id="1.0", tool="pay", decision="allow", arguments_hash="00"))
    scene.close()
    assert "what stands beside them: 1; --all shows them\n" in trajlake("show", "a").stdout
    assert "left out" not in trajlake("show", "a", "--all").stdout
