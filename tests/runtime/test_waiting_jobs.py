"""Asynchronous tools across processes: one hands the job over and ends, another brings the answer, a third goes on."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from .test_cli_run import Shell

AGENT = "tests.runtime.waiting_agent"


class Jobs:
    """A root, a queue that jobs are handed to, and processes that work on one trajectory."""

    def __init__(self, folder: Path, project: Path) -> None:
        self.queue = folder / "queue"
        self.shell = Shell(folder / "root", project)

    def start(self, **env: str) -> Any:
        return self.shell(AGENT, "t", TRAJLAKE_TEST_QUEUE=str(self.queue), **env)

    def trajlake(self, *words: str, **env: str) -> Any:
        done = self.shell.trajlake(*words, TRAJLAKE_TEST_QUEUE=str(self.queue), **env)
        assert done.returncode in (0, 1), done.stderr
        return done

    def handed_over(self) -> list[str]:
        return self.queue.read_text().split()

    def waiting(self, **env: str) -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = json.loads(self.trajlake("resume", "t", "--json", **env).stdout)["waiting_for"]
        return told


@pytest.fixture
def jobs(tmp_path: Path, project: Path) -> Jobs:
    return Jobs(tmp_path, project)


def test_jobs_that_others_answer_wake_their_trajectory_in_another_process(jobs: Jobs) -> None:
    assert jobs.start().returncode == 0
    first, second = jobs.waiting()
    assert (first["kind"], second["kind"]) == ("job", "job")
    jobs.trajlake("deliver", "t", second["action_id"], "--output", '{"artifact": "y"}')
    jobs.trajlake("recover", f"{AGENT}:work")
    assert [one["action_id"] for one in jobs.waiting()] == [first["action_id"]], "one of two has answered"
    jobs.trajlake("deliver", "t", first["action_id"], "--error", "the compiler said no")
    jobs.trajlake("recover", f"{AGENT}:work")
    told = json.loads(jobs.trajlake("resume", "t", "--json").stdout)
    assert (told["status"], told["result"]) == ("completed", [None, {"artifact": "y"}])
    assert sorted(jobs.handed_over()) == ["x", "y"], "a job is handed over once"


@pytest.mark.long
def test_a_job_past_its_deadline_is_settled_from_another_process(jobs: Jobs) -> None:
    soon = {"TRAJLAKE_TEST_DEADLINE_S": "0.001"}
    assert jobs.start(**soon).returncode == 0
    doubts = jobs.waiting(**soon)
    assert [one["kind"] for one in doubts] == ["doubt", "doubt"]
    for place, one in enumerate(doubts):
        jobs.trajlake("settle", "t", one["action_id"], "--executed", "--because", "seen", "--output", str(place))
    assert json.loads(jobs.trajlake("resume", "t", "--json").stdout)["result"] == [0, 1]
    assert sorted(jobs.handed_over()) == ["x", "y"]


@pytest.mark.long
def test_a_hand_over_cut_off_by_a_kill_is_not_repeated_and_its_answer_still_counts(jobs: Jobs) -> None:
    assert jobs.start(TRAJLAKE_TEST_DIES="y").returncode == -signal.SIGKILL
    waiting = jobs.waiting()
    assert [one["kind"] for one in waiting] == ["job", "job"]
    for one in waiting:
        jobs.trajlake("deliver", "t", one["action_id"], "--output", "7")
    assert json.loads(jobs.trajlake("resume", "t", "--json").stdout)["result"] == [7, 7]
    assert sorted(jobs.handed_over()) == ["x", "y"]
