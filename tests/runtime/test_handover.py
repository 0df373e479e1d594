"""The handover sheet: from the checkpoint alone it equals the one from the whole log."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from trajlake.runtime import Journal
from trajlake.runtime.models import scripted


def parked(root: Path) -> None:
    """A trajectory with something in every part of the sheet, waiting for a person."""
    journal = Journal.open(root, principal="team-7")

    @journal.tool(effect="external")
    def pay(to: str, cents: int) -> str:
        return f"paid {to}"

    @journal.tool(effect="external", settle_attempts=1)
    def ship(order: str) -> None:
        raise ConnectionError("no answer")

    @journal.tool(effect="read", half_life_s=3600)
    def stock() -> int:
        return 7

    @journal.tool(approve=True)
    def fire(what: str) -> None:
        raise AssertionError("nobody said so")

    def agent(t: Any) -> None:
        t.context.user("go")
        for turn in t.turns():
            if turn.number == 0:
                t.goal.revise({"aim": "ship order 7"}, source="mail:9", because="the customer asked")
                t.constraints.accept("c1", "never above 100", source="wiki:1", tool="pay", arguments={"cents": "1??"})
                t.constraints.accept("c2", "gone", source="wiki:2")
                t.constraints.withdraw("c2", because="over")
                t.assumptions.commit("a1", "the address is right", rests_on=[1], source="crm:4")
                t.obligations.open("o1", "tell the customer", owed_to="customer")
                t.obligations.open("o2", "done already")
                t.obligations.discharge("o2", how="told")
                t.plan.commit(["pay", "ship"], because="as always")
                t.observations.cache("weather", "rain", source="met", half_life_s=60)
                t.vars["phase"] = "pay"
                turn.call("stock")
                turn.call("pay", {"to": "ann", "cents": 99})
                continue
            turn.tools(turn.model().calls)

    model = scripted([[("ship", {"order": "7"}), ("fire", {"what": "rocket"})]])
    outcome = journal.run(agent, "t", task={"text": "sell"}, model=model, budget={"turns": 20, "tool_calls": 9})
    assert outcome.status == "parked"
    journal.close()


def test_the_sheet_of_the_checkpoint_alone_equals_the_full_one(
    tmp_path: Path, trajlake: Callable[..., CompletedProcess[str]]
) -> None:
    root = tmp_path / "root"
    parked(root)

    def read(*more: str) -> Any:
        done = trajlake("handover", "t", "--journal", str(root), "--json", *more)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    whole = read()
    shutil.move(root / "writers", tmp_path / "writers")
    alone = read("--from-checkpoint")
    assert alone["sheet"] == whole["sheet"]
    assert alone["as_of_event"] == whole["as_of_event"] - 2, "the checkpoint's event and the release come after it"
    sheet = alone["sheet"]
    assert sheet["goal"] == {"aim": "ship order 7"}
    assert sheet["first_goal"] == {"text": "sell"}
    assert [one["id"] for one in sheet["constraints"]] == ["c1"]
    assert sheet["constraints"][0]["predicate"] == {"tool": "pay", "arguments": {"cents": "1??"}, "verdict": "deny"}
    assert [one["id"] for one in sheet["obligations"]] == ["o1"]
    assert sheet["plan"] == ["pay", "ship"]
    assert {one["id"].partition(":")[0] for one in sheet["observations"]} == {"weather", "stock"}
    assert [one["tool"] for one in sheet["in_doubt"]] == ["ship"]
    assert [one["tool"] for one in sheet["questions"]] == ["fire"]
    assert [(one["tool"], one["status"]) for one in sheet["effects"]] == [("pay", "ok")]
    assert all(len(one["key"]) == 64 for one in sheet["effects"] + sheet["in_doubt"])
    assert sheet["budget_left"]["tool_calls"] == "6"
    assert sheet["principal"] == "team-7"


def test_the_sheet_is_readable_and_says_what_is_missing(
    tmp_path: Path, trajlake: Callable[..., CompletedProcess[str]]
) -> None:
    root = tmp_path / "root"
    parked(root)
    shown = trajlake("handover", "t", "--journal", str(root)).stdout
    for text in (
        "open, turn 1",
        "goal: ",
        "never above 100",
        "tell the customer",
        "in doubt:",
        "questions:",
        "effects:",
    ):
        assert text in shown, text
    for wrong in (("nobody",), ("nobody", "--from-checkpoint")):
        done = trajlake("handover", *wrong, "--journal", str(root))
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
