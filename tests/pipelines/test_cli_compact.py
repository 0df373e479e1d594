"""`trajlake compact` from the command line: reports, exit codes, one-line refusals."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conftest import Command
from tests.pipelines.segments import Story, land

A = b"a" * 16


def test_compact_prints_a_report_people_and_programs_can_read(trajlake: Command, tmp_path: Path) -> None:
    land(tmp_path / "landing", A, 0, Story("t").start().say("x", 3).landed)
    done = trajlake("compact", "--landing", "landing", "--lake", "lake", "--json", "--runner", "none")
    report = json.loads(done.stdout)
    assert (done.returncode, report["outcome"], report["events_added"], report["snapshot"]) == (0, "committed", 4, 1)
    again = trajlake("compact", "--landing", "landing", "--lake", "lake")
    assert again.returncode == 0
    assert "nothing to do" in again.stdout
    assert again.stderr == ""


def test_waiting_and_corrupt_segments_are_named_and_make_exit_code_1(trajlake: Command, tmp_path: Path) -> None:
    story = Story("t").start().say("x", 5)
    bad = land(tmp_path / "landing", A, 0, story.landed[:2])
    bad.write_bytes(bad.read_bytes()[:-10])
    land(tmp_path / "landing", A, 4, story.landed[4:])
    (tmp_path / "landing" / "writers" / A.hex() / "notes.txt").write_text("?")
    done = trajlake("compact", "--landing", "landing", "--lake", "lake", "--runner", "none")
    assert done.returncode == 1
    assert "corrupt: writers/" in done.stderr
    assert "lsn 2 to 3 of the writer have not landed" in done.stderr
    assert "notes.txt" in done.stderr


def test_bad_options_are_refused_in_one_line(trajlake: Command, tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    for options, words in (
        (["--landing", "nowhere", "--lake", "lake"], "no landing there"),
        (["--landing", "landing", "--lake", "lake", "--settle-after", "soon"], "--settle-after"),
        (["--landing", "landing", "--lake", "lake", "--declare-lost", "x"], "--declare-lost"),
        (["--landing", "landing", "--lake", "lake", "--declare-lost", f"{'a' * 32}:0-9"], "--because"),
        (["--landing", "landing", "--lake", "full"], "not empty"),
        (["--landing", "landing", "--lake", "lake2", "--partition-by", "tenant,colour"], "partition columns"),
    ):
        done = trajlake("compact", *options, "--runner", "none")
        assert done.returncode in (2, 3), options
        assert words in done.stderr
        assert done.stderr.count("\n") == 1


def test_dry_run_and_settle_after_are_understood(trajlake: Command, tmp_path: Path) -> None:
    land(tmp_path / "landing", A, 0, Story("t").start().end().landed)
    done = trajlake("compact", "--landing", "landing", "--lake", "lake", "--dry-run", "--settle-after", "7d", "--json")
    assert json.loads(done.stdout)["outcome"] == "dry_run"
    assert not (tmp_path / "lake").exists()
