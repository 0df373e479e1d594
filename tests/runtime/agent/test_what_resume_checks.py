"""The decision table of a resume: what has aged, drifted, was withdrawn, is missing, or is on another host."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from typing import Any

import pytest

from trajlake.runtime import Allow, Journal, Misuse, ResumeRefused
from trajlake.runtime.env import REAL_ENV, Env
from trajlake.runtime.models import scripted
from trajlake.runtime.root import Root
from trajlake.runtime.root_log import RootLog
from trajlake.runtime.upkeep.backup import back_up
from trajlake.runtime.upkeep.restore import restore as restore_backup
from trajlake.schemas.history import canonical

from .conftest import Bench, Died, one_call, plain_agent


def dying(first: Any) -> Any:
    """An agent that does `first` in turn 0, dies in turn 1, and finishes there the next time."""
    lives: list[int] = []

    def agent(t: Any) -> None:
        lives.append(1)
        for turn in t.turns():
            if turn.number == 0:
                first(t, turn)
                continue
            turn.now()
            if len(lives) == 1:
                raise Died
            turn.uuid()  # the first operation that is not recorded: what the runtime added has taken effect
            t.finish({name: one.invalidated is not None for name, one in t.intent.observations.items()})

    return agent


def test_observations_past_their_half_life_are_invalidated_at_the_seam(bench: Bench) -> None:
    def first(t: Any, turn: Any) -> None:
        t.observations.cache("stock", 7, half_life_s=0.2)
        t.observations.cache("name", "x", half_life_s=3600)
        t.observations.cache("law", "y")

    agent = dying(first)
    with pytest.raises(Died):
        bench.fresh().run(agent, "t", task=1)
    time.sleep(0.4)
    outcome = bench.fresh().run(agent, "t")
    assert bench.bodies("Resumed")[0].refreshed == ("stock",)
    assert outcome.result == {"stock": True, "name": False, "law": False}


def test_a_constraint_withdrawn_at_its_source_allows_a_restart_only(bench: Bench) -> None:
    agent = dying(lambda t, turn: t.constraints.accept("c", "no mondays", source="wiki:7"))
    with pytest.raises(Died):
        bench.fresh().run(agent, "t", task=1)
    answers = {"wiki:7": "withdrawn"}
    for answer, reason in (("withdrawn", "constraint_withdrawn"), ("unknown", "source_unknown")):
        answers["wiki:7"] = answer
        journal = bench.fresh()
        journal.resolver("wiki:", answers.__getitem__)
        with pytest.raises(ResumeRefused) as caught:
            journal.run(agent, "t")
        assert caught.value.reason == reason
    answers["wiki:7"] = "in_force"
    journal = bench.fresh()
    journal.resolver("wiki:", answers.__getitem__)
    assert journal.run(agent, "t").status == "completed"
    assert [one.reason for one in bench.bodies("ResumeRefused")] == ["constraint_withdrawn", "source_unknown"]


class Elsewhere(Env):
    """The same disk, another host's name."""

    def host(self) -> str:
        return "elsewhere"


class Untracked:
    """A policy that keeps no files."""

    version, workspace = "1", "untracked"

    def __call__(self, call: Any, state: Any) -> Allow:
        return Allow()


def test_an_untracked_workspace_on_another_host_is_refused_and_on_this_one_used_as_it_stands(bench: Bench) -> None:
    agent = dying(lambda t, turn: turn.now())
    with pytest.raises(Died):
        bench.fresh(policy=Untracked()).run(agent, "t", task=1, workspace=bench.work)
    with pytest.raises(ResumeRefused, match="on host"):
        bench.fresh(env=Elsewhere(), policy=Untracked()).run(agent, "t", workspace=bench.work)
    assert bench.fresh(policy=Untracked()).run(agent, "t", workspace=bench.work).status == "completed"
    assert bench.bodies("Resumed")[0].workspace == "as it stands"


def test_changed_tools_policy_and_model_are_drift_and_raise_system_no(bench: Bench) -> None:
    def opened(grown: bool) -> Any:
        journal = bench.fresh()
        if grown:

            @journal.tool(effect="read")
            def look() -> int:
                return 1

        return journal

    agent = dying(lambda t, turn: turn.now())
    with pytest.raises(Died):
        opened(False).run(agent, "t", task=1, model=scripted(["a"], name="old"), budget={"turns": 9})
    model = scripted(["a"], name="new")
    assert opened(True).run(agent, "t", model=model, budget={"turns": 5}).status == "completed"
    drift = {(one.what, one.component): (one.choice, one.system_no) for one in bench.bodies("DriftDetected")}
    assert drift == {
        ("model", "model"): ("switch", 1),
        ("tool_schema", "tools"): ("switch", 2),
        ("contract", "budget"): ("recorded", 2),
    }


def test_a_log_whose_writer_is_missing_is_refused_until_a_person_accepts_the_loss(bench: Bench) -> None:
    agent = dying(lambda t, turn: turn.now())
    with pytest.raises(Died):
        bench.fresh().run(agent, "t", task=1)
    journal = bench.fresh()
    bench.close()
    (writer,) = journal.root.writers()
    other = bench.fresh()
    shutil.copytree(f"{other.root.path}/writers/{writer}", bench.folder / "kept")
    claimed = other.ports.log.writer_id
    assert claimed == writer
    bench.close()
    shutil.rmtree(f"{other.root.path}/writers/{writer}")
    with pytest.raises(ResumeRefused) as caught:
        bench.fresh().run(agent, "t", task=1)
    assert caught.value.reason == "log_incomplete"


def test_a_loss_that_a_person_accepted_once_stays_accepted(bench: Bench) -> None:
    lives: list[int] = []

    def agent(t: Any) -> None:
        lives.append(1)
        for turn in t.turns():
            turn.now()
            if len(lives) < 3:
                raise Died
            t.finish("done")

    with pytest.raises(Died):
        bench.fresh().run(agent, "t", task=1)
    bench.close()
    back_up(Root.open(bench.folder / "root"), str(bench.folder / "backup"))
    restore_backup(REAL_ENV, str(bench.folder / "backup"), str(bench.folder / "restored"))

    def run(**options: Any) -> Any:
        with Journal.open(bench.folder / "restored") as journal:
            return journal.run(agent, "t", **options)

    with pytest.raises(ResumeRefused, match="events are missing"):
        run()
    with pytest.raises(Died):
        run(accept_loss=True, because="the old disk is gone")
    assert run().result == "done"
    found = RootLog(Root.open(bench.folder / "restored")).read("default", "t", None)
    seams = [event.body for event in canonical(found.events).events if event.type == "Resumed"]
    assert [(one.log_complete, one.accept_loss) for one in seams] == [(False, True), (True, False)]


def test_accepting_a_loss_or_closing_a_turn_needs_a_reason(bench: Bench) -> None:
    for option in ("accept_loss", "close_turn"):
        with pytest.raises(Misuse, match="because"):
            bench.fresh().run(plain_agent(), "t", task=1, **{option: True})


def test_a_closed_turn_is_left_as_it_stands_and_its_calls_are_refused(bench: Bench) -> None:
    ran: list[int] = []

    def opened() -> Any:
        journal = bench.fresh()

        @journal.tool(approve=True)
        def pay() -> None:
            ran.append(1)

        return journal

    shown: list[int] = []

    def says(context: Any) -> Any:
        shown.append(len(context.items))
        return [("pay", {})] if len(shown) == 1 else "never mind"

    model = scripted(says)
    assert opened().run(plain_agent(), "t", task=1, model=model).status == "parked"
    outcome = opened().run(plain_agent(), "t", model=model, close_turn=True, because="not any more")
    assert (outcome.status, outcome.result) == ("completed", "never mind")
    assert ran == []
    assert shown == [2, 4], "the model is shown its call and that it was refused"
    assert bench.bodies("Resumed")[0].because == "not any more"


def test_an_intent_of_a_tool_that_changed_since_is_left_to_a_person(bench: Bench) -> None:
    def opened(version: str) -> Any:
        journal = bench.fresh()

        @journal.tool(effect="idempotent", version=version)
        def put() -> None:
            raise Died

        return journal

    agent = plain_agent()
    journal = opened("1")
    assert journal.run(agent, "t", task=1, model=one_call("put")).status == "parked"
    assert opened("2").run(agent, "t", model=one_call("put")).waiting_for[0].kind == "doubt"
    assert [intent.tool_version for intent in bench.bodies("ToolIntent")] == ["1"] * 4


@dataclass
class Point:
    x: int


def test_arguments_of_every_kind_survive_a_settlement_by_key(bench: Bench) -> None:
    seen: list[Any] = []

    def opened() -> Any:
        journal = bench.fresh()

        @journal.tool(effect="idempotent", settle_attempts=1)
        def put(big: int, raw: bytes, where: Point, text: str, more: Any = None) -> str:
            seen.append((big, raw, where, text, more))
            if len(seen) < 3:
                raise ConnectionError
            return text

        return journal

    def agent(t: Any) -> None:
        for turn in t.turns():
            values = {"big": 2**70, "raw": b"\x00\xff", "where": Point(3), "text": "a\x00\ud800", "more": (1, {2})}
            t.finish(turn.call("put", values).output)

    assert opened().run(agent, "t", task=1).status == "parked"
    assert opened().run(agent, "t").result == "a\x00\ud800"
    assert len(seen) == 3
    assert seen[0] == seen[1] == seen[2]
