"""`journal retain`, `gc`, `doctor`, `backup`, `restore`, and one event by its place, from the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.runtime.root_scene import InProcess
from tests.support.roots import Story, land


@pytest.fixture
def trajlake(tmp_path, monkeypatch, capsys):
    return InProcess(tmp_path, monkeypatch, capsys)


@pytest.fixture
def story(tmp_path):
    story = Story(tmp_path / "journal")
    for name in ("a", "b", "c"):
        story.write(name)
    yield story
    story.close()


def test_retain_drops_what_the_landing_holds_and_says_why_the_rest_stays(story, trajlake, tmp_path):
    done = trajlake("journal", "retain")
    assert done.returncode == 2
    assert "no landing is named" in done.stderr
    land(story.root, tmp_path / "landing")
    assert json.loads(trajlake("journal", "retain", "--landing", "landing", "--dry-run", "--json").stdout)["dry_run"]
    done = trajlake("journal", "retain", "--landing", "landing")
    assert done.returncode == 0
    assert "dropped 2 segments" in done.stdout
    assert "last segment" in done.stdout
    assert trajlake("journal", "verify").returncode == 0
    assert json.loads(trajlake("journal", "dump").stdout.splitlines()[0])["lsn"] == 8


def test_a_landing_that_is_no_folder_is_read_through_the_shippers_store(story, trajlake, tmp_path):
    pytest.importorskip("fsspec")
    land(story.root, tmp_path / "landing")
    done = trajlake("journal", "retain", "--landing", f"local://{tmp_path}/landing", "--json")
    assert len(json.loads(done.stdout)["segments"]) == 2


def test_gc_counts_what_it_removed(story, trajlake):
    name = story.root.blobs.put("default", b"unnamed")
    path = Path(story.root.blobs.path("default", name))
    os.utime(path, (time.time() - 90_000,) * 2)
    assert "would remove 1 blobs" in trajlake("gc", "--dry-run").stdout
    assert json.loads(trajlake("gc", "--json").stdout)["blobs"] == [f"default/{name}"]
    assert not path.exists()


def test_doctor_measures_three_schemes_and_doubts_memory(trajlake, tmp_path):
    done = trajlake("doctor", "--count", "20", "--json")
    tree = json.loads(done.stdout)
    assert [one["scheme"].split(",")[0] for one in tree["schemes"]][:2] == ["growing file", "zero-filled file"]
    assert all(one["median_us"] <= one["p99_us"] for one in tree["schemes"])
    assert done.returncode == (1 if tree["warnings"] else 0)
    assert not list(tmp_path.rglob("*.tmp"))
    if not os.path.isdir("/dev/shm"):
        pytest.skip("no /dev/shm on this machine")
    done = trajlake("doctor", "/dev/shm/none", "--count", "20")
    assert done.returncode == 1
    assert "nothing there survives a restart" in done.stderr


def test_backup_and_restore_from_the_command_line(story, trajlake):
    assert trajlake("backup", "copy").returncode == 0
    done = trajlake("restore", "copy", "again")
    assert done.returncode == 1
    assert "never run agents on both" in done.stderr
    assert trajlake("journal", "dump", "again").stdout == trajlake("journal", "dump").stdout
    assert trajlake("journal", "verify", "again").returncode == 0
    done = trajlake("restore", "journal", "third")
    assert done.returncode == 2
    assert "no whole backup" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_dump_finds_one_event_by_lsn_or_by_trajectory_and_number(story, trajlake):
    (line,) = trajlake("journal", "dump", "--lsn", "5").stdout.splitlines()
    by_lsn = json.loads(line)
    assert (by_lsn["trajectory_id"], by_lsn["sequence_number"]) == ("b", 1)
    assert trajlake("journal", "dump", "--id", "b", "--number", "1").stdout.splitlines() == [line]
    assert trajlake("journal", "dump", "--writer", story.writer.writer_id, "--lsn", "5").stdout.splitlines() == [line]
    for words in (["--lsn", "99"], ["--id", "b", "--number", "9"], ["--number", "1"], ["--writer", "00"]):
        done = trajlake("journal", "dump", *words)
        assert (done.returncode, done.stdout) == (2, "")


def test_tail_follow_prints_events_as_they_come_also_of_a_new_writer(story, tmp_path):
    command = [sys.executable, "-m", "trajlake.runtime", "journal", "tail", "-n", "1", "-f", "--json"]
    reader = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert reader.stdout is not None
    try:
        assert json.loads(reader.stdout.readline())["trajectory_id"] == "c"
        story.write("d", seal=False)
        assert [json.loads(reader.stdout.readline())["trajectory_id"] for _ in range(4)] == ["d"] * 4
        other = Story(tmp_path / "journal")
        assert other.writer.writer_id != story.writer.writer_id
        other.write("e")
        assert [json.loads(reader.stdout.readline())["trajectory_id"] for _ in range(4)] == ["e"] * 4
        other.close()
    finally:
        reader.send_signal(signal.SIGINT)
        reader.wait(20)
    assert reader.returncode == 130
