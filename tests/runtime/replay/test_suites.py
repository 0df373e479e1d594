"""Recorded trajectories as a regression suite: pytest, the command line, in parallel, on a lake, on Beam.

The worked case: a parser of edit blocks is tightened, and exactly one recorded trajectory differs, at turn 14.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

AGENT = "tests.support.edit_blocks"
COUNT = 6


class Runs:
    """Commands against one recorded root, in processes of their own."""

    def __init__(self, folder: Path, project: Path) -> None:
        self.folder, self.project = folder, project
        self.environment = os.environ | {"EDIT_BLOCKS_ROOT": str(folder / "root"), "PYTHONPATH": str(project)}

    def __call__(self, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(arguments), cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=500,
            check=False, **more,
        )  # fmt: skip

    def replay(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self(sys.executable, "-m", "trajlake.runtime", "replay", *arguments)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, project: Path) -> Runs:
    made = Runs(tmp_path_factory.mktemp("suite"), project)
    done = made(
        sys.executable, "-c", f"from {AGENT} import journal, record; record({COUNT}); journal.close()"
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return made


def test_the_tightened_parser_differs_in_one_trajectory_at_turn_14(runs: Runs) -> None:
    done = runs.replay("--all", "--journal", "root", "--agent", f"{AGENT}:strict_agent", "--json", "--jobs", "2")
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert (told["summary"]["same"], told["summary"]["differs"], told["summary"]["refused"]) == (COUNT - 1, 1, 0)
    (report,) = [one for one in told["reports"] if one["verdict"] == "differs"]
    assert (report["id"], report["turn"]) == ("task-3", 14)
    assert (report["expected"]["tool"], report["operation"].split()[0]) == ("apply_patch", "message")
    assert "fence" in str(report["got"])
    assert "does not show whether it succeeds more often" in told["summary"]["not_shown"]


def test_an_unchanged_parser_is_the_same_and_the_summary_says_what_that_is_worth(runs: Runs) -> None:
    done = runs.replay("--all", "--journal", "root", "--cold")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{COUNT} same, 0 differs, 0 refused")
    assert "takes new trajectories" in done.stdout.replace("That takes", "takes")


def test_the_pytest_plugin_fails_that_trajectory_with_turn_payload_and_both_sides(runs: Runs) -> None:
    suite = f'agent = "{AGENT}:strict_agent"\njournal = "root"\nids = ["task-*"]\n'
    (runs.folder / "edits.replay.toml").write_text(suite)
    (runs.folder / "pytest.ini").write_text("[pytest]\n")
    done = runs(sys.executable, "-m", "pytest", "-q", "edits.replay.toml", "-p", "no:cacheprovider")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"1 failed, {COUNT - 1} passed" in done.stdout
    assert "task-3: differs at turn 14" in done.stdout
    assert f"{COUNT - 1} same, 1 differs, 0 refused" in done.stdout
    kept = json.loads((runs.folder / ".replay" / "edits-task-3.json").read_text())
    assert kept["expected"]
    assert kept["got"]


def test_a_suite_that_names_nothing_is_an_error(runs: Runs) -> None:
    (runs.folder / "none.replay.toml").write_text('journal = "root"\nids = ["nothing-*"]\n')
    done = runs(sys.executable, "-m", "pytest", "-q", "none.replay.toml", "-p", "no:cacheprovider")
    assert done.returncode == 2
    assert "no recorded trajectory matches" in done.stdout


def test_bad_orders_are_refused_in_one_line(runs: Runs) -> None:
    for arguments in (
        ("--journal", "root"),
        ("task-1", "--all", "--journal", "root"),
        ("--all", "--journal", "nowhere"),
        ("--all", "--journal", "root", "--lake", "lake"),
        ("--all", "--journal", "root", "--runner", "FnApiRunner"),
    ):
        done = runs.replay(*arguments)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), (arguments, done.stderr)
    done = runs.replay("task-77", "--journal", "root")
    assert done.returncode == 2
    assert "refused: nothing is recorded" in done.stdout
    done = runs.replay("task-1", "--journal", "root", "--agent", "no_such_module:agent")
    assert (done.returncode, "refused" in done.stdout) == (2, True)


def test_without_network_and_on_a_read_only_disk_the_answer_is_the_same(runs: Runs) -> None:
    asked = ["--all", "--journal", "root", "--json", "--jobs", "1"]
    command = [sys.executable, "-m", "trajlake.runtime", "replay", *asked]
    plain = runs(*command)
    bound = f"mount --bind {runs.folder} {runs.folder} && mount -o remount,ro,bind {runs.folder} && cd {runs.folder}"
    shut_in = ["unshare", "-n", "-m", "sh", "-c", f'{bound} && ! touch here 2>/dev/null && exec "$@"', "sh"]
    alone = runs(*shut_in, *command)
    if alone.returncode != plain.returncode and "unshare" in alone.stderr + alone.stdout:
        pytest.skip(f"no right to unshare here: {alone.stderr.strip()[:200]}")
    assert alone.returncode == 0, alone.stderr
    assert json.loads(alone.stdout) == json.loads(plain.stdout)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_from_a_lake_and_on_beam_the_answer_is_the_same(runs: Runs) -> None:
    trajlake = [sys.executable, "-m", "trajlake.runtime"]
    for step in (("ship", "root", "--to", "landing"), ("compact", "landing", "lake", "--runner", "none")):
        done = runs(*trajlake, *step)
        assert done.returncode == 0, (step, done.stderr)
    asked = ("--all", "--agent", f"{AGENT}:strict_agent", "--json")
    root = json.loads(runs.replay(*asked, "--journal", "root", "--jobs", "1").stdout)
    lake = runs.replay(*asked, "--lake", "lake", "--jobs", "1")
    assert lake.returncode == 1, lake.stderr
    assert json.loads(lake.stdout) == root
    beam = runs.replay(*asked, "--lake", "lake", "--runner", "DirectRunner", "--out", str(runs.folder / "out" / "r"))
    assert beam.returncode == 1, beam.stderr
    assert json.loads(beam.stdout) == root
    show = runs(*trajlake, "show", "task-3", "--turn", "14", "--lake", "lake")
    assert "```diff" in show.stdout or "EDIT" in show.stdout, show.stderr
    part = runs(*trajlake, "diverge", "task-1", "task-2", "--lake", "lake", "--json")
    assert part.returncode == 1, part.stderr
    told = json.loads(part.stdout)
    assert (told["context"]["turn"], told["cause"]["source"]) == (0, "harness input")


def test_the_branch_verb_writes_beside_its_parent(runs: Runs) -> None:
    command = [sys.executable, "-m", "trajlake.runtime", "branch", "task-3", "--at-turn", "16", "--change", "nothing"]
    done = runs(*command, "--agent", f"{AGENT}:agent", "--journal", "root")
    assert done.returncode == 2
    assert "a model is asked" in done.stderr


BRANCHING = """
import os
from tests.support.edit_blocks import *
from tests.support.edit_blocks import agent as plain
model = model_of(3, 14)
def agent(t):
    if os.environ.get("DIE") and "~" in t.id:
        t.turns, turns = (lambda max: dying(turns(max))), t.turns
    return plain(t)
def dying(turns):
    for turn in turns:
        if turn.number == 16:
            raise KeyError("died")
        yield turn
"""


@pytest.fixture
def branching(tmp_path: Path, project: Path) -> Runs:
    """A root with one trajectory, and a module that has a model."""
    made = Runs(tmp_path, project)
    made.environment["TRAJLAKE_JOURNAL"] = "root"
    (tmp_path / "blocks_with_model.py").write_text(BRANCHING)
    done = made(
        sys.executable, "-c", "from blocks_with_model import *; journal.run(agent, 'task-3', task='fix', model=model)"
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return made


def test_the_command_line_branches_a_branch_goes_on_with_one_and_replays_them_all(branching: Runs) -> None:
    verb = [sys.executable, "-m", "trajlake.runtime", "branch"]
    code = ["--agent", "blocks_with_model:agent"]
    done = branching(*verb, "task-3", "--at-turn", "15", "--change", "nothing", *code)
    assert (done.returncode, "branches: task-3~15.0" in done.stdout) == (0, True), done.stderr
    done = branching(*verb, "task-3~15.0", "--at-turn", "16", "--change", "x", "--item", "^2:2=other task", *code)
    assert done.returncode == 0, done.stderr
    branching.environment["DIE"] = "1"
    died = branching(*verb, "task-3", "--at-turn", "15", "--change", "cut short", *code)
    assert died.returncode != 0
    del branching.environment["DIE"]
    refused = branching(sys.executable, "-m", "trajlake.runtime", "resume", "task-3~15.1", "blocks_with_model:agent")
    assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1), refused.stderr
    assert "trajlake branch task-3~15.1 --resume" in refused.stderr
    done = branching(*verb, "task-3~15.1", "--resume", *code, "--json")
    assert (done.returncode, json.loads(done.stdout)["status"]) == (0, "completed"), done.stderr
    every = branching.replay("--all", "--journal", "root", "--json", "--jobs", "1")
    told = json.loads(every.stdout)
    assert (every.returncode, told["summary"]["same"], told["summary"]["refused"]) == (0, 4, 0), every.stdout
    notes = {report["id"]: report.get("notes", []) for report in told["reports"]}
    assert "a branch: replayed from turn 16 on" in notes["task-3~15.0~16.0"][0]
    shown = branching(
        sys.executable, "-m", "trajlake.runtime", "show", "task-3~15.0~16.0", "--turn", "16", "--journal", "root"
    )  # fmt: skip
    assert "^2:" in shown.stdout, shown.stderr
    assert "other task" in shown.stdout
    for wrong in (
        ["task-3"], ["task-3", "--at-turn", "1"], ["task-3", "--resume"], ["task-3~15.1", "--resume", "--at-turn", "2"],
        ["task-3", "--at-turn", "1", "--change", "x", "--item", "two=x"], ["nobody", "--resume"],
        ["task-3", "--at-turn", "99", "--change", "x"],
    ):  # fmt: skip
        done = branching(*verb, *wrong, *code)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), (wrong, done.stderr)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_branch_from_a_lake_is_written_beside_the_agents_journal(branching: Runs) -> None:
    trajlake = [sys.executable, "-m", "trajlake.runtime"]
    verb = [*trajlake, "branch", "task-3", "--at-turn", "15", "--agent", "blocks_with_model:agent"]
    assert branching(*verb, "--change", "from the root").returncode == 0

    def to_lake() -> None:
        for step in (("ship", "root", "--to", "landing"), ("compact", "landing", "lake", "--runner", "none")):
            done = branching(*trajlake, *step)
            assert done.returncode == 0, (step, done.stderr)

    to_lake()
    (branching.folder / "root").rename(branching.folder / "elsewhere")
    done = branching(*verb, "--change", "from the lake", "--item", "2=other task", "--lake", "lake", "--json")
    assert done.returncode == 0, done.stderr
    (made,) = [run["id"] for run in json.loads(done.stdout)["branches"]]
    of_branch = [*trajlake, "branch", "task-3~15.0", "--at-turn", "16", "--agent", "blocks_with_model:agent"]
    done = branching(*of_branch, "--change", "a branch of a branch", "--lake", "lake")
    assert done.returncode == 0, done.stderr
    alone = branching.replay(made, "--journal", "root")
    assert (alone.returncode, "its parent 'task-3'" in alone.stdout) == (2, True), alone.stdout
    every = branching.replay("--all", "--lake", "lake", "--jobs", "1")
    assert (every.returncode, every.stdout.splitlines()[0][:6]) == (0, "2 same"), every.stdout
