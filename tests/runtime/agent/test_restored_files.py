"""Restore means the files too: applied again from the record, rolled back, or left to a person."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from trajlake.runtime import Allow, Misuse, Outcome, ResumeRefused, replay
from trajlake.runtime.checkpoints.checkpoint import load
from trajlake.schemas.state import fold, initial, state_bytes

from .conftest import Bench, Died

SAVED_AT, EDITS, LOST_AT = 300, (301, 302, 303, 304), 305
"""The checkpoint, the recorded edits after it, and the deletion that is not recorded."""


class Policy:
    """Allows everything; what it says beside that is given by the test."""

    version = "1"

    def __init__(self, **said: Any) -> None:
        self.__dict__.update(said)

    def __call__(self, call: Any, state: Any) -> Allow:
        return Allow()


class Story:
    """An agent that edits files, whose tools count what they did; `die_at` is the turn in which it is killed."""

    def __init__(self, bench: Bench, *, turns: int, saved_at: int, die_at: int | None = None) -> None:
        self.bench, self.turns, self.saved_at, self.die_at = bench, turns, saved_at, die_at
        self.edits = 0
        self.lost: dict[str, bytes | str] = {}

    def open(self, policy: Any = None, **options: Any) -> Any:
        journal = self.bench.fresh(policy=policy or Policy(), **options)

        @journal.tool(effect="local")
        def edit(name: str, text: str) -> int:
            self.edits += 1
            path = Path(self.bench.work) / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            return len(text)

        @journal.tool(effect="local", opaque=True)
        def wipe(name: str) -> None:
            shutil.rmtree(Path(self.bench.work) / name)

        @journal.tool(effect="external")
        def pay(cents: int) -> int:
            return cents

        return journal

    def agent(self, t: Any) -> None:
        for turn in t.turns(max=self.turns + 1):
            self.do(t, turn)
            if turn.number == self.die_at:
                self.die_at = None
                self.lost = files_in(Path(self.bench.work))
                raise Died
            if turn.number == self.turns - 1:
                t.finish({"length": t.vars["length"]})

    def do(self, t: Any, turn: Any) -> None:
        if turn.number == LOST_AT:
            turn.call("wipe", {"name": "build"})
        elif turn.number in EDITS or turn.number < 3:
            done = turn.call("edit", {"name": f"src/f{turn.number % 3}", "text": f"turn {turn.number}\n" * 50})
            t.vars["length"] = t.vars.get("length", 0) + done.output
        else:
            t.vars["last"] = turn.number

    def run(self, journal: Any, **options: Any) -> Outcome:
        done: Outcome = journal.run(self.agent, "t", workspace=self.bench.work, **options)
        return done


def files_in(folder: Path) -> dict[str, bytes | str]:
    """Every file of a folder by its path."""
    found: dict[str, bytes | str] = {}
    for at, _, names in os.walk(folder):
        for name in names:
            path = Path(at) / name
            found[str(path.relative_to(folder))] = os.readlink(path) if path.is_symlink() else path.read_bytes()
    return found


def lose_workspace(bench: Bench) -> None:
    shutil.rmtree(bench.work)


def begun(bench: Bench, *, die_at: int, **policy: Any) -> Story:
    """Turns 0 to `die_at` of a story with its checkpoint before turn 301; then the process and the files are lost."""
    (Path(bench.work) / "build").mkdir()
    (Path(bench.work) / "build" / "out.o").write_bytes(b"\x7fELF" * 100)
    (Path(bench.work) / "run.sh").write_text("#!/bin/sh\n")
    (Path(bench.work) / "run.sh").chmod(0o755)
    os.symlink("run.sh", Path(bench.work) / "go")
    story = Story(bench, turns=310, saved_at=SAVED_AT, die_at=die_at)
    with pytest.raises(Died):
        story.run(story.open(Policy(checkpoint_every_turns=SAVED_AT + 1, **policy)), task={"text": "mend"})
    saved = [event for event in bench.events() if event.type == "CheckpointSaved"]
    assert [(event.turn, event.body.cause) for event in saved] == [(SAVED_AT, "interval")]
    lose_workspace(bench)
    return story


def test_a_trajectory_that_has_ended_answers_without_its_workspace(bench: Bench) -> None:
    story = Story(bench, turns=1, saved_at=SAVED_AT)
    with pytest.raises(Misuse, match="workspace"):
        story.open().run(story.agent, "t", task={"text": "mend"})
    assert story.run(story.open(), task={"text": "mend"}).status == "completed"
    assert story.open().run(story.agent, "t").status == "completed"


def test_recorded_edits_are_applied_again_and_the_workspace_equals_the_lost_one(bench: Bench) -> None:
    story = begun(bench, die_at=304)
    edits_before = story.edits
    seen: list[dict[str, Any]] = []
    story.do = lambda t, turn, do=story.do: (seen.append(files_in(Path(bench.work))), do(t, turn))  # type: ignore[method-assign,misc]
    story.turns = 305
    outcome = story.run(story.open())
    assert seen[0] == story.lost
    assert os.stat(Path(bench.work) / "run.sh").st_mode & 0o777 == 0o755
    assert outcome.status == "completed"
    assert story.edits == edits_before, "no tool was run to bring the files back"
    resumed = bench.bodies("Resumed")[0]
    assert resumed.workspace == "restored, 4 changes applied again"
    assert resumed.checkpoint == bench_checkpoint(bench)
    assert bench.bodies("RolledBack") == []


def bench_checkpoint(bench: Bench) -> int:
    return next(event.sequence_number for event in bench.events() if event.type == "CheckpointSaved")


def test_an_unrecorded_deletion_is_rolled_back_where_the_policy_says_so(bench: Bench) -> None:
    story = begun(bench, die_at=LOST_AT)
    edits_before = story.edits
    outcome = story.run(story.open(Policy(on_lost_change="roll_back")))
    assert outcome.status == "completed"
    assert outcome.result == {"length": sum(len(f"turn {n}\n" * 50) for n in (0, 1, 2, *EDITS))}
    assert story.edits == edits_before + len(EDITS), "the given-up turns were done again"
    events = bench.events()
    back = next(event for event in events if event.type == "RolledBack")
    assert back.body.to == bench_checkpoint(bench)
    assert back.turn == SAVED_AT
    assert bench.bodies("Resumed")[0].workspace == f"rolled back to {back.body.to}"
    assert not (Path(bench.work) / "build").exists(), "and the deletion too"
    assert fold(initial("default", "t"), events).execution.ended is not None
    for cold in (False, True):
        assert replay(story.agent, events, journal=story.open(), cold=cold).same


def test_an_unrecorded_deletion_is_left_to_a_person_by_default(bench: Bench) -> None:
    story = begun(bench, die_at=LOST_AT)
    with pytest.raises(ResumeRefused, match="wipe") as caught:
        story.run(story.open())
    assert caught.value.reason == "workspace"
    assert bench.bodies("ResumeRefused")[0].reason == "workspace"
    assert bench.bodies("RolledBack") == []
    outcome = story.run(story.open(), roll_back=True, because="the build can be made again")
    assert outcome.status == "completed"
    assert bench.bodies("RolledBack")[0].because == "the build can be made again"


def test_a_person_may_also_bring_the_files_back_by_hand(bench: Bench) -> None:
    story = begun(bench, die_at=LOST_AT)
    with pytest.raises(ResumeRefused):
        story.run(story.open())
    for name, data in story.lost.items():
        path = Path(bench.work) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(data, str):
            os.symlink(data, path)
        else:
            path.write_bytes(data)
    (Path(bench.work) / "run.sh").chmod(0o755)
    (Path(bench.work) / "src").chmod(0o755)
    for path in (Path(bench.work) / "src").iterdir():
        path.chmod(0o644)
    assert story.run(story.open()).status == "completed"
    assert bench.bodies("Resumed")[-1].workspace == "as it stands"


def test_going_back_over_an_effect_outside_is_refused(bench: Bench) -> None:
    story = Story(bench, turns=5, saved_at=0, die_at=3)
    (Path(bench.work) / "build").mkdir()
    (Path(bench.work) / "kept").write_text("kept")

    def do(t: Any, turn: Any) -> None:
        if turn.number == 2:
            turn.call("pay", {"cents": 5})
        elif turn.number == 3:
            turn.call("wipe", {"name": "build"})
        t.vars["length"] = turn.number

    story.do = do  # type: ignore[method-assign]
    with pytest.raises(Died):
        story.run(story.open(Policy(checkpoint_every_turns=2)), task=1)
    lose_workspace(bench)
    with pytest.raises(ResumeRefused, match="reached outside"):
        story.run(story.open(Policy(on_lost_change="roll_back")))
    assert bench.bodies("RolledBack") == []


def test_without_a_checkpoint_there_is_nowhere_to_go_back_to(bench: Bench) -> None:
    story = Story(bench, turns=3, saved_at=0, die_at=0)
    (Path(bench.work) / "build").mkdir()
    (Path(bench.work) / "kept").write_text("kept")
    story.do = lambda t, turn: turn.call("wipe", {"name": "build"})  # type: ignore[method-assign]
    with pytest.raises(Died):
        story.run(story.open(), task=1)
    lose_workspace(bench)
    with pytest.raises(ResumeRefused, match="no checkpoint"):
        story.run(story.open(Policy(on_lost_change="roll_back")))


def test_files_that_were_changed_behind_the_record_are_put_back_before_anything_runs(bench: Bench) -> None:
    story = Story(bench, turns=3, saved_at=0, die_at=1)
    with pytest.raises(Died):
        story.run(story.open(), task=1)
    (Path(bench.work) / "src" / "f0").write_text("older")
    (Path(bench.work) / "stray").write_text("stray")
    seen: list[dict[str, Any]] = []
    story.do = lambda t, turn, do=story.do: (seen.append(files_in(Path(bench.work))), do(t, turn))  # type: ignore[method-assign,misc]
    assert story.run(story.open()).status == "completed"
    assert seen[0] == story.lost
    assert bench.bodies("Resumed")[0].workspace == "restored, 2 changes applied again"


def test_a_call_that_was_cut_short_is_taken_back_and_told(bench: Bench) -> None:
    answers: list[Any] = []

    def opened(dies: bool) -> Any:
        journal = bench.fresh()

        @journal.tool(effect="local")
        def edit() -> None:
            (Path(bench.work) / "half").write_text("half of the change")
            if dies:
                os._exit(7)

        return journal

    def agent(t: Any) -> None:
        for turn in t.turns():
            done = turn.call("edit")
            answers.append((done.status, done.text, (Path(bench.work) / "half").exists()))
            t.finish()

    bench.close()
    pid = os.fork()
    if pid == 0:
        opened(dies=True).run(agent, "t", task=1, workspace=bench.work)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert (Path(bench.work) / "half").exists()
    assert opened(dies=False).run(agent, "t", workspace=bench.work).status == "completed"
    assert answers == [
        ("error", "Error: interrupted: the worker died during the call; its change was taken back", False)
    ]


def test_a_tracked_trajectory_wants_its_folder(bench: Bench) -> None:
    story = Story(bench, turns=3, saved_at=0, die_at=1)
    with pytest.raises(Died):
        story.run(story.open(), task=1)
    with pytest.raises(ResumeRefused, match="workspace=PATH"):
        bench.fresh().run(story.agent, "t")


def test_checkpoints_hold_the_state_of_their_event_and_of_the_start_of_the_open_turn(bench: Bench) -> None:
    journal = bench.fresh()

    @journal.tool(approve=True)
    def pay() -> int:
        return 1

    def agent(t: Any) -> None:
        t.context.user("x")
        for turn in t.turns():
            t.vars["n"] = turn.number
            if turn.number == 2:
                t.finish(turn.call("pay").output)

    assert journal.run(agent, "t", task=1).status == "parked"
    events = bench.events()
    assert [event.type for event in events[-2:]] == ["CheckpointSaved", "LeaseReleased"]
    saved = events[-2]
    loaded = load(journal.root.blobs, "default", saved.body.root)
    begin = initial("default", "t")
    assert state_bytes(loaded.state) == state_bytes(fold(begin, events[:-2]))
    turn_start = next(event.sequence_number for event in events if event.turn == 2)
    assert state_bytes(loaded.turn_start) == state_bytes(fold(begin, events[:turn_start]))
    assert saved.body.state_hash == hashlib.sha256(state_bytes(loaded.state)).hexdigest()
    approval = bench.bodies("ApprovalRequested")[0].approval_id
    journal.approve("t", approval)
    assert journal.run(agent, "t").status == "completed"
    assert bench.bodies("Resumed")[0].checkpoint == saved.sequence_number
    assert bench.types()[-3:] == ["CheckpointSaved", "TaskEnded", "LeaseReleased"]


def test_the_policy_can_ask_for_a_checkpoint_before_each_effect(bench: Bench) -> None:
    journal = bench.fresh(policy=Policy(checkpoint_before_effect=True))

    @journal.tool(effect="external")
    def pay(n: int) -> int:
        return n

    @journal.tool(effect="read")
    def look() -> int:
        return 1

    def agent(t: Any) -> None:
        for turn in t.turns(max=2):
            turn.call("look")
            turn.call("pay", {"n": turn.number})
        t.finish()

    journal.run(agent, "t", task=1)
    types = bench.types()
    for at, name in enumerate(types):
        if name == "ToolIntent" and bench.events()[at].body.effect == "external":
            assert types[at - 2 : at] == ["CheckpointSaved", "Authorized"]
    assert [one.cause for one in bench.bodies("CheckpointSaved")] == ["before_effect", "before_effect", "end"]


def test_old_checkpoints_are_given_up_and_the_newest_stay(bench: Bench) -> None:
    journal = bench.fresh(policy=Policy(checkpoint_every_turns=1, checkpoints_keep=2))

    def agent(t: Any) -> None:
        for turn in t.turns(max=6):
            t.vars["n"] = turn.number
        t.finish()

    journal.run(agent, "t", task=1)
    saved = bench.bodies("CheckpointSaved")
    assert len(saved) == 6
    left = journal.ports.checkpoints.of("default", "t")
    assert [one.root for one in left] == [one.root for one in saved[-2:]]


def test_a_damaged_checkpoint_is_passed_over_for_an_older_one(bench: Bench) -> None:
    lives: list[int] = []

    def agent(t: Any) -> None:
        lives.append(1)
        for turn in t.turns(max=4):
            t.vars["n"] = t.vars.get("n", 0) + turn.number
            if turn.number == 3 and len(lives) == 1:
                raise Died
        t.finish(t.vars["n"])

    journal = bench.fresh(policy=Policy(checkpoint_every_turns=1))
    with pytest.raises(Died):
        journal.run(agent, "t", task=1)
    saved = [event for event in bench.events() if event.type == "CheckpointSaved"]
    Path(journal.root.blobs.path("default", saved[-1].body.root)).write_bytes(b"{}")
    assert bench.fresh().run(agent, "t").result == 6
    assert bench.bodies("Resumed")[0].checkpoint == saved[-2].sequence_number
