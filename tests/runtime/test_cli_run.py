"""`trajlake resume` and `trajlake recover` against a real root, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


class Shell:
    """Runs commands at the project's root with one journal."""

    def __init__(self, root: Path, project: Path) -> None:
        self.root, self.project = root, project

    def __call__(self, *words: str, **env: str) -> Any:
        environ = {**os.environ, "TRAJLAKE_TEST_ROOT": str(self.root), "TRAJLAKE_JOURNAL": str(self.root), **env}
        command = [sys.executable, "-m", *words]
        return subprocess.run(
            command, cwd=self.project, env=environ, capture_output=True, text=True, timeout=60, check=False
        )

    def trajlake(self, *words: str, **env: str) -> Any:
        return self("trajlake.runtime", *words, **env)

    def start(self, trajectory_id: str, task: str = "go", **env: str) -> Any:
        return self("tests.runtime.resumable_agent", trajectory_id, task, **env)


@pytest.fixture
def shell(tmp_path: Path, project: Path) -> Shell:
    return Shell(tmp_path / "root", project)


def test_resume_goes_on_with_the_recorded_agent(shell: Shell) -> None:
    assert shell.start("t", "stop", TRAJLAKE_TEST_STOPS="1").returncode != 0
    done = shell.trajlake("resume", "t", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"id": "t", "status": "completed", "result": "paid", "waiting_for": []}


def test_a_resume_that_waits_for_a_person_exits_1_and_goes_on_after_settle(shell: Shell) -> None:
    assert shell.start("t", TRAJLAKE_TEST_FAILS="1").returncode == 0
    done = shell.trajlake("resume", "t", "tests.runtime.resumable_agent:work", "--json")
    assert done.returncode == 1, done.stderr
    (waiting,) = json.loads(done.stdout)["waiting_for"]
    assert waiting["kind"] == "doubt"
    settled = shell.trajlake("settle", "t", waiting["action_id"], "--executed", "--because", "seen")
    assert settled.returncode == 0, settled.stderr
    done = shell.trajlake("resume", "t")
    assert (done.returncode, done.stdout) == (0, "t: completed: paid\n"), done.stderr
    dumped = shell.trajlake("journal", "dump").stdout
    assert "its output was lost. A person said so: seen" in dumped, "a reason is not called evidence"


def test_recover_resumes_what_is_open_and_names_what_is_stuck(shell: Shell) -> None:
    shell.start("a", "stop", TRAJLAKE_TEST_STOPS="1")
    shell.start("b", TRAJLAKE_TEST_FAILS="1")
    shell.start("c")
    done = shell.trajlake("recover")
    assert done.returncode == 1, "b waits for a person"
    assert "a: completed: paid" in done.stdout
    assert "b: parked" in done.stdout
    assert "c:" not in done.stdout


def test_an_unanswered_turn_can_be_closed_and_the_reason_is_recorded(shell: Shell) -> None:
    shell.start("t", "stop", TRAJLAKE_TEST_STOPS="1")
    refused = shell.trajlake("resume", "t", "--close-turn")
    assert refused.returncode == 2
    assert "--because" in refused.stderr
    done = shell.trajlake("resume", "t", "--close-turn", "--because", "old code is gone")
    assert done.returncode == 0, done.stderr
    dumped = shell.trajlake("journal", "dump")
    assert "old code is gone" in dumped.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("resume", "nobody"), "nothing is recorded"),
        (("resume", "t", "no_such_module:work"), "no_such_module"),
        (("resume", "t", "json"), "expected module:name"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(shell: Shell, words: tuple[str, ...], told: str) -> None:
    shell.start("t", "stop", TRAJLAKE_TEST_STOPS="1")
    done = shell.trajlake(*words)
    assert done.returncode == 2
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
