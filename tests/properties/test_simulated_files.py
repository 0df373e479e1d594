"""Random agents that change files, crashed at every step, their workspace lost or scrambled at random.

After each run: the files are what the kept turns make of the first ones, whatever was lost, applied again or rolled
back; the chain verifies, the log folds, every checkpoint gives the state of its event, and a replay asks for the same.
A run may be left to a person only where an effect outside lies behind the last checkpoint and a change is not recorded.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.simulated_host import Crash, Host, Process, SimulatedCheckpoints, SimulatedLog, performer, ports_of
from trajlake.runtime import Allow, ResumeRefused
from trajlake.runtime.agent import driver_sync
from trajlake.runtime.agent.enter import Order
from trajlake.runtime.agent.outcome import Outcome
from trajlake.runtime.agent.session import Session, Setup
from trajlake.runtime.checkpoints.checkpoint import load
from trajlake.runtime.env import REAL_ENV
from trajlake.runtime.replaying.replay_run import replay
from trajlake.runtime.tools import Tool, ToolOptions, make_tool
from trajlake.schemas.chain import verify
from trajlake.schemas.envelope import Event
from trajlake.schemas.history import canonical
from trajlake.schemas.state import fold, initial, state_bytes

ID = "files"
NAMES = ("a", "b", "deep/c")
LIVES_MAX = 40


class Rules:
    """Rolls back by itself; checkpoints often."""

    version, on_lost_change = "1", "roll_back"

    def __init__(self, seed: int) -> None:
        dice = random.Random(f"{seed}/rules")
        self.checkpoint_every_turns = dice.choice((1, 1, 2, 3))
        self.checkpoint_before_effect = dice.random() < 0.5
        self.checkpoints_keep = 1

    def __call__(self, call: Any, state: Any) -> Allow:
        return Allow()


class Run:
    """One simulated trajectory with a real folder."""

    def __init__(self, agent_seed: int, luck_seed: int, folder: Path) -> None:
        self.agent_seed, self.folder = agent_seed, folder
        self.host = Host(luck_seed)
        self.luck = random.Random(luck_seed + 7)
        self.notes = SimulatedCheckpoints()
        self.sent: Counter[str] = Counter()
        self.steps: list[int] = []
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "deep").mkdir(parents=True)
        (folder / "first").write_text("first")

    def tools(self, process: Process) -> dict[str, Tool]:
        def edit(name: str, text: str) -> str:
            process.tick()
            path = self.folder / name
            path.write_text("half of it")
            process.tick()
            path.write_text(text)
            process.tick()
            return text

        def build(text: str) -> str:
            (self.folder / "out").mkdir(exist_ok=True)
            process.tick()
            (self.folder / "out" / "o").write_text(text)
            return text

        def pay(n: int, *, call: Any) -> int:
            self.sent[call.key] += 1
            return n

        return {
            "edit": make_tool(edit, ToolOptions(effect="local")),
            "build": make_tool(build, ToolOptions(effect="local", opaque=True)),
            "pay": make_tool(pay, ToolOptions(effect="idempotent")),
        }

    def live(self, crash_at: int | None) -> Outcome | None:
        process = self.host.start(crash_at)
        log = SimulatedLog(self.host, process)
        self.ports = replace(
            ports_of(self.host, process, log), checkpoints=self.notes, files_env=REAL_ENV
        )  # fmt: skip
        session = Session(
            self.ports, Setup(tools=self.tools(process), policy=Rules(self.agent_seed)), "default", ID
        )  # fmt: skip
        order = Order(
            task="work", model="sim", workspace=str(self.folder), started=lambda: {"policy_version": "1"},
            roll_back=False,
        )  # fmt: skip
        try:
            outcome = driver_sync.run(
                session, order, agent_for(self.agent_seed), driver_sync_trajectory, performer(self.host, process)
            )
        except Crash:
            self.host.end(process, log.queued)
            self.lose_files()
            return None
        finally:
            self.steps.append(process.step)
        return outcome

    def lose_files(self) -> None:
        """Sometimes the folder is gone, or holds something else."""
        luck = self.luck.random()
        late = [event for _, event in self.host.paused]  # of a process that may wake up and end the task yet
        types = {event.type for event in self.host.find()[0]}
        if not types or "TaskEnded" in types | {event.type for event in late}:
            return  # what is in the folder is what it starts with; nobody goes on after the end
        if luck < 0.4:
            shutil.rmtree(self.folder, ignore_errors=True)
        elif luck < 0.6:
            self.folder.mkdir(exist_ok=True)
            (self.folder / "stray").write_text("stray")
            (self.folder / "a").write_text("older")

    def to_the_end(self, crashes: list[int]) -> Outcome | ResumeRefused:
        plan = list(crashes)
        for _ in range(LIVES_MAX):
            try:
                outcome = self.live(plan.pop(0) if plan else None)
            except ResumeRefused as refused:
                return refused
            if outcome is not None:
                return outcome
        raise AssertionError(f"still not over after {LIVES_MAX} lives")

    def history(self) -> list[Event]:
        history = canonical(self.host.find()[0])
        assert not history.conflicts
        assert not history.held_back
        return history.events


def driver_sync_trajectory(s: Session, perform: Any) -> driver_sync.Trajectory:
    return driver_sync.Trajectory(s, perform, lambda *_: None)


def agent_for(seed: int) -> Callable[[Any], Any]:
    turns = random.Random(f"{seed}/turns").randint(2, 6)

    def agent(t: Any) -> Any:
        for turn in t.turns(max=turns):
            dice = random.Random(f"{seed}/turn/{turn.number}")
            for _ in range(dice.randint(0, 3)):
                step(t, turn, dice)
            t.vars["turn"] = turn.number
        return t.finish(t.vars.get("kept", 0))

    return agent


def step(t: Any, turn: Any, dice: random.Random) -> None:
    luck = dice.random()
    if luck < 0.55:
        text = f"{turn.number} {dice.randint(0, 9)}\n" * dice.randint(1, 40)
        done = turn.call("edit", {"name": dice.choice(NAMES), "text": text})
        if done.ok:
            t.vars["kept"] = t.vars.get("kept", 0) + len(text)
        else:
            turn.call("edit", {"name": "failed", "text": f"turn {turn.number}"}, step="again")
    elif luck < 0.7:
        turn.call("build", {"text": f"{turn.number}"})
    elif luck < 0.85:
        turn.call("pay", {"n": dice.randint(1, 3)})
    else:
        turn.uuid()


def rolled_back(events: list[Event]) -> set[int]:
    """The numbers inside roll-backs."""
    backs = [event.body for event in events if event.type == "RolledBack"]
    return {number for back in backs for number in range(back.to + 1, back.from_ + 1)}


def expected_files(events: list[Event]) -> dict[str, str]:
    """What the kept calls make of the first files: a plain reading of the log."""
    given_up = rolled_back(events)
    files = {"first": "first"}
    wanted: dict[str, Any] = {}
    for event in events:
        if event.sequence_number in given_up:
            continue
        if event.type == "ToolIntent":
            wanted[event.body.action_id] = event.body
        elif event.type == "ToolResult" and event.body.status == "ok":
            intent = wanted[event.body.action_id]
            if intent.tool == "edit":
                files[intent.arguments["name"]] = intent.arguments["text"]
            elif intent.tool == "build":
                files["out/o"] = intent.arguments["text"]
    return files


def check(run: Run, outcome: Outcome | ResumeRefused) -> None:
    events = run.history()
    assert verify(events) == []
    if isinstance(outcome, ResumeRefused):
        check_refusal(events, outcome)
        return
    assert outcome.status == "completed"
    found = {str(path.relative_to(run.folder)): path.read_text() for path in run.folder.rglob("*") if path.is_file()}
    assert found == expected_files(events)
    state = fold(initial("default", ID), events)
    last = next(event.body for event in reversed(events) if event.type == "CheckpointSaved")
    assert state.execution.workspace == last.workspace_snapshot
    assert all(count == 1 or key for key, count in run.sent.items())
    check_checkpoints(run, events)
    journal: Any = SimpleNamespace(
        tools=run.tools(run.host.start(None)),
        policy=Rules(run.agent_seed),
        resolvers={},
        ports_for_reading=run.ports,
    )
    for cold in (False, True):
        report = replay(agent_for(run.agent_seed), events, journal=journal, cold=cold)
        assert report.same, report


def check_checkpoints(run: Run, events: list[Event]) -> None:
    """The newest checkpoint gives the state that folding the log gives, and names it by its hash."""
    saved = next(event for event in reversed(events) if event.type == "CheckpointSaved")
    loaded = load(run.ports.blobs, "default", saved.body.root)
    assert state_bytes(loaded.state) == state_bytes(fold(initial("default", ID), events[: saved.body.covers + 1]))
    assert any(record.root == saved.body.root for record in run.notes.records)


def check_refusal(events: list[Event], refused: ResumeRefused) -> None:
    """Left to a person: a change is not recorded, and there is no checkpoint, or an effect lies behind it."""
    assert refused.reason == "workspace", refused
    inside = rolled_back(events)
    points = [event for event in events if event.type == "CheckpointSaved"]
    saved = [event.sequence_number for event in points if event.sequence_number not in inside]
    later = [event for event in events if event.sequence_number > max(saved, default=-1)]
    assert any(event.type == "ToolResult" and event.body.opaque for event in later)
    reached = any(event.type == "ToolIntent" and event.body.effect == "idempotent" for event in later)
    assert not saved or reached


def simulate(first_seed: int, runs: int, folder: Path, *, stride: int) -> Counter[str]:
    """Make `runs` runs, each agent crashed at every `stride`th step; return how many met what."""
    met: Counter[str] = Counter()
    done, agent_seed = 0, first_seed
    while done < runs:
        agent_seed += 1
        whole = Run(agent_seed, agent_seed, folder)
        attempt(whole, [], met)
        done += 1
        length = whole.steps[0]
        dice = random.Random(agent_seed)
        for at in range(dice.randint(1, stride), length + 1, stride):
            if done >= runs:
                break
            crashes = [at, *(dice.randint(1, length) for _ in range(dice.choice((0, 0, 1, 2))))]
            attempt(Run(agent_seed, agent_seed * 1000 + at, folder), crashes, met)
            done += 1
    return met


def attempt(run: Run, crashes: list[int], met: Counter[str]) -> None:
    try:
        outcome = run.to_the_end(crashes)
        check(run, outcome)
    except BaseException as error:
        error.add_note(f"agent seed {run.agent_seed}, luck seed {run.host.seed}, crashes at {crashes}")
        raise
    events = run.history()
    met["refused"] += isinstance(outcome, ResumeRefused)
    met["rolled back"] += any(event.type == "RolledBack" for event in events)
    met["applied again"] += any(event.type == "Resumed" and "applied" in event.body.workspace for event in events)
    met["cut short"] += any(
        event.type == "ToolResult" and str(event.body.error or "").startswith("interrupted") for event in events
    )


def test_files_are_what_the_kept_turns_make_of_them_whatever_is_lost(tmp_path: Path) -> None:
    met = simulate(0, 150, tmp_path / "work", stride=12)
    assert min(met[name] for name in ("rolled back", "applied again", "cut short")) >= 3, met


@pytest.mark.long
def test_files_are_what_the_kept_turns_make_of_them_in_many_runs(tmp_path: Path) -> None:
    met = simulate(5_000, 4_000, tmp_path / "work", stride=1)
    assert min(met.values()) >= 10, met  # refusals are the rarest: 13, since checkpoints are saved in every life


def test_calls_that_a_roll_back_gave_up_are_not_asked_for_again_in_the_turn_it_opened(tmp_path: Path) -> None:
    """The given-up calls (a build, an edit of the next turn) stand between kept calls of the reopened turn."""
    met: Counter[str] = Counter()
    for crashes in ([43, 86, 105], [60, 67, 109], [95, 44, 100]):
        attempt(Run(5001, 5001000 + crashes[0], tmp_path / "work"), crashes, met)
    assert met["rolled back"] >= 2
