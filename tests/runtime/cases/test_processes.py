"""Failures of other systems in which processes raced, died early, or left work that nobody saw again."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.killing import KillingEnv, dies_at
from tests.support.roots import land
from trajlake.runtime import Conflict, Journal, ResumeRefused
from trajlake.runtime.checkpoints.checkpoint import CheckpointFiles
from trajlake.runtime.commands.run import Runner
from trajlake.runtime.crashing.life import Plan, live
from trajlake.runtime.crashing.person import answer
from trajlake.runtime.crashing.places import Place, Told
from trajlake.runtime.crashing.processes import Ended, Life, run_all
from trajlake.runtime.models import scripted
from trajlake.runtime.root import Root
from trajlake.runtime.root_log import RootLog
from trajlake.runtime.root_view import RootView, StatusRow, status_row
from trajlake.runtime.upkeep.landed import open_landed
from trajlake.runtime.upkeep.retention import retain


def hold_up(side: str) -> None:
    """Hold up one side of the journal for 80 ms, before and after: where results are appended, or checkpoints noted."""
    owner, name = (RootLog, "append") if side == "results" else (CheckpointFiles, "note")
    real: Callable[..., Any] = getattr(owner, name)

    def held_up(self: Any, given: Any, *args: Any, **kwargs: Any) -> Any:
        slow = side != "results" or any(event.type == "ToolResult" for event in given)
        time.sleep(0.08 if slow else 0)
        value = real(self, given, *args, **kwargs)
        time.sleep(0.08 if slow else 0)
        return value

    setattr(owner, name, held_up)


def paying_runner(slow: str = "") -> Runner:
    """An agent that pays once, outside; `slow`: the side of the journal that is held up."""
    if slow:
        hold_up(slow)
    journal = Journal.open("journal")

    @journal.tool
    def pay(cents: int) -> str:
        with open("bank", "a") as bank:
            bank.write(f"{cents}\n")
        return "paid"

    def agent(t: Any) -> None:
        for turn in t.turns(max=3):
            reply = turn.model()
            t.vars["told"] = [*t.vars.get("told", []), *(one.output for one in turn.tools(reply.calls))]
            if not reply.calls:
                t.finish(t.vars["told"])

    agent.__module__ = __name__
    return Runner(agent, journal, scripted([[("pay", {"cents": 990})], "done"]))


class Lives:
    """Lives of that agent in one place, each in a process of its own."""

    def __init__(self, folder: Path, slow: str = "") -> None:
        self.place = Place(str(folder), "work")
        self.place.make("")
        (folder / "replies").mkdir()
        load = partial(paying_runner, slow)
        self._plan = Plan(load=load, trajectory_id="t", task=1, replies=str(folder / "replies"), import_path=".")
        self._count = 0

    def run(self, kill_at: int = 0) -> Told | None:
        """One more life; None if it was killed."""
        number, self._count = self._count, self._count + 1
        life = Life(
            partial(live, self._plan, self.place, number, kill_at), self.place.told(str(number)),
            self.place.output(str(number)),
        )  # fmt: skip

        def one() -> Iterator[Any]:
            ended: Ended = yield life
            return ended

        (ended,) = run_all([one()], 1)
        assert not ended.hung
        told = self.place.read_told(str(number))
        assert told is None or not (told.refused or told.error), told
        return told

    def boundaries(self, life: int = 0) -> list[str]:
        return self.place.boundaries(life)

    def row(self) -> StatusRow:
        root = Root.open(self.place.root, create=False)
        view = RootView(root).trajectory("default", "t")
        assert view is not None
        return status_row(view, root.env.now_us())

    def to_the_end(self) -> Told:
        """Run on, answering what a person would, until it has ended."""
        answered: set[tuple[str, str]] = set()
        while True:
            told = self.run()
            assert told is not None
            if told.status != "parked":
                return told
            assert answer(self.place, answered)

    def bank(self) -> list[str]:
        path = Path(self.place.files, "bank")
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def labels(tmp_path: Path) -> list[str]:
    """The boundaries of an undisturbed life."""
    lives = Lives(tmp_path / "undisturbed")
    assert lives.run() is not None
    return lives.boundaries()


def test_a_run_that_died_before_its_first_event_is_listed_as_unsent(tmp_path: Path, labels: list[str]) -> None:
    """T6."""
    lives = Lives(tmp_path / "t6")
    assert lives.run(labels.index("after: lease taken") + 1) is None
    row = lives.row()
    assert (row.status, row.events, row.token) == ("unsent", 0, 1)
    assert lives.to_the_end().result == ["paid"]
    assert lives.bank() == ["990"]


def classified(folder: Path, at: int, slow: str) -> tuple[dict[str, int], Any, list[str]]:
    """Kill a life; return the stage of its payment then, and what it came to in the end, inside and outside."""
    lives = Lives(folder, slow)
    assert lives.run(at) is None
    stages = lives.row().stages
    return stages, lives.to_the_end().result, lives.bank()


def settled_points(labels: list[str]) -> list[int]:
    """Boundaries from the payment to the end where nothing is queued that may reach the disk by itself or not."""
    found, queued = [], False
    for number, label in enumerate(labels, start=1):
        if label.startswith("after: append"):
            queued = True
        elif label.startswith("after: barrier"):
            queued = False
        if not queued and number >= labels.index("before: tool pay") + 1 and "append" not in label:
            found.append(number)
    return found


def same_on_both_sides(folder: Path, points: list[int], labels: list[str]) -> None:
    for at in points:
        sides = [classified(folder / f"{at}-{side}", at, side) for side in ("results", "checkpoints")]
        assert sides[0] == sides[1], labels[at - 1]
        stages, result, bank = sides[0]
        assert stages in ({"in_doubt": 1}, {"settled": 1}), labels[at - 1]
        sent = labels[at - 1] != "before: tool pay"
        assert (result, bank) == ((["paid"], ["990"]) if sent else ([None], [])), labels[at - 1]


def test_a_kill_beside_the_payment_is_classified_the_same_whichever_side_is_slow(
    tmp_path: Path, labels: list[str]
) -> None:
    """T1, at the boundary that matters most."""
    same_on_both_sides(tmp_path, [labels.index("after: tool pay") + 1], labels)


@pytest.mark.long
def test_a_kill_at_any_settled_point_is_classified_the_same_whichever_side_is_slow(
    tmp_path: Path, labels: list[str]
) -> None:
    """T1."""
    points = settled_points(labels)
    assert len(points) > 10
    same_on_both_sides(tmp_path, points, labels)


def found_again(folder: Path, at: int, kill_resume_at: int) -> bool:
    """Kill a run, then its resume; whatever was left is listed with what to do, and ends. False: no such boundary."""
    lives = Lives(folder)
    assert lives.run(at) is None
    killed = lives.run(kill_resume_at) is None
    row = lives.row()
    assert row.status in ("open", "parked", "waiting", "unsent", "completed"), row
    assert row.status in ("completed", "unsent") or row.next, row
    assert lives.to_the_end().result == ["paid"]
    assert lives.bank() == ["990"]
    return killed


def test_a_resume_that_is_killed_leaves_its_trajectory_listed_and_able_to_end(
    tmp_path: Path, labels: list[str]
) -> None:
    """T32, at two boundaries of the resume."""
    after = labels.index("after: tool pay") + 1
    assert all(found_again(tmp_path / f"{number}", after, number) for number in (2, 12))


@pytest.mark.long
def test_a_resume_killed_at_every_boundary_leaves_its_trajectory_listed_and_able_to_end(
    tmp_path: Path, labels: list[str]
) -> None:
    """T32."""
    number, after = 1, labels.index("after: barrier ToolResult") + 1
    while found_again(tmp_path / f"{number}", after, number):
        number += 1
    assert number > 20


def race(folder: Path, project: Path, ids: list[str]) -> list[tuple[str, str]]:
    """Let a worker for each id begin at once; return what each printed."""
    command = [sys.executable, "-m", "tests.runtime.cases.racing_worker", str(folder / "root"), str(folder)]
    racers = [
        subprocess.Popen([*command, one], cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for one in ids
    ]
    (folder / "go").touch()
    return [racer.communicate(timeout=120) for racer in racers]


def test_processes_that_race_for_one_trajectory_all_get_its_one_outcome(tmp_path: Path, project: Path) -> None:
    """T5."""
    told = race(tmp_path, project, ["t"] * 4)
    assert [msgspec.json.decode(out) for out, _ in told] == [["completed", [990]]] * 4, told
    assert (tmp_path / "bank").read_text().splitlines() == ["t 990"]


@pytest.mark.parametrize("count", [4, pytest.param(16, marks=pytest.mark.long)])
def test_processes_that_start_at_once_on_a_new_root_agree_on_its_one_format(
    tmp_path: Path, project: Path, count: int
) -> None:
    """T14: one root.json, a writer each, all of them done."""
    told = race(tmp_path, project, [f"t{number}" for number in range(count)])
    assert [out.strip() for out, _ in told] == ['["completed",[990]]'] * count, told
    root = Root.open(str(tmp_path / "root"), create=False)
    assert [one.name for one in (tmp_path / "root").glob("root.json*")] == ["root.json"]
    assert len({one.trajectory_id for one in RootView(root).trajectories()}) == count
    assert len((tmp_path / "bank").read_text().splitlines()) == count


def ended_and_landed(folder: Path) -> Path:
    """A root whose trajectory `job` has ended and landed, with another one behind it."""
    with Journal.open(folder / "root") as journal:
        assert journal.run(lambda t: "old result", "job", task="old").result == "old result"
    with Journal.open(folder / "root") as journal:
        assert journal.run(lambda t: 1, "next", task=1).status == "completed"
        land(journal.root, folder / "landing")
    return folder / "root"


def test_an_id_used_again_while_retention_was_cut_off_never_gets_an_old_result(tmp_path: Path) -> None:
    """T4: killed between any two steps, the id runs afresh, or is refused; an old result is no answer to a new task."""
    made = ended_and_landed(tmp_path / "made")
    landing = str(tmp_path / "made" / "landing")
    fates = set()

    def dropping(env: KillingEnv, root: Path) -> None:
        retain(Root.open(str(root), env), open_landed(landing, env))

    at = 0
    while True:
        at += 1
        root = tmp_path / f"root{at}"
        shutil.copytree(made, root)
        died = dies_at(at, lambda env, root=root: dropping(env, root))  # type: ignore[misc]
        with Journal.open(root) as journal:
            try:
                fates.add(str(journal.run(lambda t: "new result", "job", task="new").result))
            except (Conflict, ResumeRefused) as error:
                fates.add(type(error).__name__)
        if not died:
            break
    assert at > 2
    assert fates <= {"new result", "Conflict", "ResumeRefused"}, fates
