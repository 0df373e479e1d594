"""Real processes, a real root, SIGKILL between an effect and its result; the outside world counts for itself."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from trajlake.runtime import Journal, Misuse
from trajlake.runtime.root_log import RootLog
from trajlake.runtime.wal.reader import iter_events
from trajlake.schemas.chain import verify
from trajlake.schemas.history import canonical

from .killed_agent import agent_of


class Scene:
    """One root and one outside world."""

    def __init__(self, folder: Path, project: Path, tool: str) -> None:
        self.root, self.world, self.project, self.tool = folder / "root", folder / "world", project, tool

    def run(self, how: str = "fine") -> Any:
        """Run the program; return what it printed, or None if it was killed."""
        command = [
            sys.executable,
            "-m",
            "tests.runtime.agent.killed_agent",
            str(self.root),
            str(self.world),
            self.tool,
            how,
        ]
        done = subprocess.run(command, cwd=self.project, capture_output=True, text=True, timeout=60, check=False)
        if how == "kill":
            assert done.returncode == -signal.SIGKILL, done.stderr
            return None
        assert done.returncode == 0, done.stderr
        return msgspec.json.decode(done.stdout)

    def charges(self) -> int:
        return len(self.world.read_text().splitlines())

    def types(self) -> list[str]:
        journal = Journal.open(self.root)
        events = canonical(RootLog(journal.root).read("default", "charge-7", None).events).events
        assert verify(events) == []
        return [event.type for event in events]


def test_a_killed_charge_is_settled_by_its_key_in_a_second_process(tmp_path: Path, project: Path) -> None:
    scene = Scene(tmp_path, project, "by_key")
    scene.run("kill")
    assert scene.run() == ["completed", ["done", ["ok"]], []]
    assert scene.charges() == 1
    assert scene.types().count("ToolSettled") == 1


def test_a_killed_charge_is_settled_by_its_probe(tmp_path: Path, project: Path) -> None:
    scene = Scene(tmp_path, project, "by_probe")
    scene.run("kill")
    assert scene.run() == ["completed", ["done", ["ok"]], []]
    assert scene.charges() == 1


def test_a_killed_charge_that_nothing_can_tell_parks_for_a_person_and_goes_on(tmp_path: Path, project: Path) -> None:
    scene = Scene(tmp_path, project, "by_person")
    scene.run("kill")
    status, _, questions = scene.run()
    assert (status, len(questions)) == ("parked", 1)
    assert scene.run()[0] == "parked", "nobody has answered yet"
    with Journal.open(scene.root, principal="ops") as journal:
        journal.settle("charge-7", questions[0], executed=True, because="the bank statement shows it")
    assert scene.run() == ["completed", ["done", ["ok"]], []]
    assert scene.charges() == 1


@pytest.mark.parametrize("tool", ["by_key", "by_probe", "by_person"])
def test_a_charge_killed_again_and_again_is_made_once(tmp_path: Path, project: Path, tool: str) -> None:
    scene = Scene(tmp_path, project, tool)
    scene.run("kill")
    if tool == "by_key":
        scene.run("kill")
        scene.run("kill")
    scene.run()
    assert scene.charges() == 1


def test_an_ended_trajectory_answers_with_its_recorded_outcome_and_no_new_event(tmp_path: Path, project: Path) -> None:
    scene = Scene(tmp_path, project, "by_key")
    first = scene.run()
    before = scene.types()
    assert scene.run() == first
    assert scene.types() == before


def test_a_successor_that_did_not_recover_the_dead_writer_copies_its_frames(tmp_path: Path, project: Path) -> None:
    scene = Scene(tmp_path, project, "by_key")
    with Journal.open(scene.root) as journal:
        agent, model = agent_of(journal, scene.world, "by_key", "fine")
        assert journal.run(lambda t: t.id, "other", task=1).status == "completed"
        own = journal.ports.log.writer_id
        scene.run("kill")
        assert len(journal.root.writers()) == 2, "the killed process had a writer of its own"
        assert journal.run(agent, "charge-7", model=model).result == ["done", ["ok"]]
    copied = [
        event
        for event in iter_events(journal.root.env, journal.root.writer_folder(own))
        if event.trajectory_id == "charge-7" and event.fencing_token == 1
    ]
    assert [event.sequence_number for event in copied] == list(range(len(copied)))
    assert [event.type for event in copied][-1] == "ToolIntent"
    assert scene.charges() == 1
    scene.types()


def test_a_closed_journal_says_so_and_takes_no_lease(tmp_path: Path, project: Path) -> None:
    with Journal.open(tmp_path / "root") as journal:
        journal.run(lambda t: 1, "a", task=1)
    with pytest.raises(Misuse, match="closed"):
        journal.run(lambda t: 1, "b", task=1)
