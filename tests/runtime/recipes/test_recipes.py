"""Behind every recipe an effect is made once, a person is asked, and the record answers the same."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.model_server import ModelServer, model_server
from trajlake.runtime import Journal, replay
from trajlake.runtime.root_log import RootLog
from trajlake.schemas.chain import verify
from trajlake.schemas.history import canonical

from .scene import RECIPES, World, anthropic_body, openai_body, run

QUICK = ("openai_client", "langgraph", "openai_agents")
EVERY = [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in RECIPES]
"""Importing the libraries is what takes the time."""


class Died(BaseException):
    """Stands for a crash in tests within one process: nothing of ours catches it."""


def dies_at_its_first_result(journal: Journal) -> None:
    """From the first result on nothing is written any more: the effect happened, its result is lost."""
    log: Any = journal.ports.log
    append = log.append

    def cut(events: Any, info: Any, *, lazy: bool = False) -> Any:
        if any(event.type == "ToolResult" for event in events) or log.append is dead:
            log.append = dead
        return log.append(events, info, lazy=lazy) if log.append is dead else append(events, info, lazy=lazy)

    def dead(events: Any, info: Any, *, lazy: bool = False) -> Any:
        raise Died

    log.append = cut


def nothing() -> None:
    pass


@pytest.fixture
def served() -> Iterator[ModelServer]:
    with model_server() as server:
        yield server


def answers(server: ModelServer, recipe: str) -> None:
    body = anthropic_body if recipe == "anthropic_client" else openai_body
    server.says(body(None, ("call_1", "charge", '{"order": "7"}')))
    server.says(body("done"))


@pytest.mark.parametrize("recipe", EVERY)
def test_a_charge_cut_off_before_its_result_is_made_once_and_replays_the_same(
    tmp_path: Path, served: ModelServer, recipe: str
) -> None:
    answers(served, recipe)
    world = World(tmp_path / "world", nothing)
    with Journal.open(tmp_path / "root") as journal:
        dies_at_its_first_result(journal)
        with pytest.raises(Died):
            run(recipe, journal, world, served.url)
    assert len(world.charges()) == 1
    with Journal.open(tmp_path / "root") as journal:
        outcome, agent = run(recipe, journal, world, served.url)
        assert (outcome.status, outcome.result) == ("completed", "done")
        assert len(world.charges()) == 1
        assert len(served.asked) == 2, "a recorded reply is never asked for again"
        events = canonical(RootLog(journal.root).read("default", "t", None).events).events
        assert verify(events) == []
        assert sum(event.type == "ToolSettled" for event in events) == 1
        if not recipe.endswith("_client"):
            asked = {event.body.endpoint for event in events if event.type == "ModelReplied"}
            assert asked == {f"{served.url}/chat/completions"}, "a resume can go to the server that holds the prefix"
        brought = {event.body.role for event in events if event.type == "MessageAdded"}
        assert brought <= {"system", "user"}, "replies and results come back as the items they are recorded as"
        for cold in (False, True):
            report = replay(agent, events, journal=journal, cold=cold)
            assert report.same, report.text()


@pytest.mark.parametrize("recipe", EVERY)
def test_a_person_is_asked_before_the_charge_and_the_framework_never_sees_it(
    tmp_path: Path, served: ModelServer, recipe: str
) -> None:
    answers(served, recipe)
    world = World(tmp_path / "world", nothing)
    with Journal.open(tmp_path / "root") as journal:
        outcome, _ = run(recipe, journal, world, served.url, approve=True)
        assert outcome.status == "parked"
        assert world.charges() == []
        journal.approve("t", outcome.waiting_for[0].action_id, actor="ops")
    with Journal.open(tmp_path / "root") as journal:
        outcome, _ = run(recipe, journal, world, served.url, approve=True)
        assert (outcome.status, outcome.result) == ("completed", "done")
    assert len(world.charges()) == 1
    assert len(served.asked) == 2


@pytest.mark.long
@pytest.mark.parametrize("recipe", ["openai_client", "mcp", "langgraph", "openai_agents", "pydantic_ai"])
def test_a_killed_process_charges_once(tmp_path: Path, project: Path, served: ModelServer, recipe: str) -> None:
    answers(served, recipe)
    root, ledger = tmp_path / "root", tmp_path / "world"
    command = [sys.executable, "-m", "tests.runtime.recipes.scene", recipe, str(root), str(ledger), served.url]
    killed = subprocess.run([*command, "kill"], cwd=project, capture_output=True, text=True, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = subprocess.run([*command, "fine"], cwd=project, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == '["completed", "done"]', done.stderr
    assert len(World(ledger, nothing).charges()) == 1
    assert len(served.asked) == 2
