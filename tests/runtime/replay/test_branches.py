"""Branches: the record up to the fork at no cost, one change, live after it against stand-ins, counted."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from trajlake.runtime import Change, Journal, Misuse, Stubs, branch, cut
from trajlake.runtime.branches.branching import wilson
from trajlake.runtime.models import ScriptedReply, scripted
from trajlake.runtime.replaying.sources import RootSource
from trajlake.runtime.root_log import RootLog
from trajlake.schemas.chain import verify
from trajlake.schemas.envelope import Event
from trajlake.schemas.state import fold, initial
from trajlake.schemas.state.inherit import inherit

BRANCHES = "\n".join([*(f"feature-{n}  merged" for n in range(40)), "release  protected: never delete"])


class Case:
    """The worked case: a list is cut before the line that protects a branch, and the model deletes it."""

    def __init__(self, journal: Journal) -> None:
        self.journal, self.deleted, self.asked, self.listed = journal, [], [], 0
        self.luck = random.Random(0)
        self.model = scripted(self._says, name="case", version="1")

        @journal.tool(effect="read")
        def list_branches() -> Any:
            self.listed += 1
            return cut(BRANCHES, head=400)

        @journal.tool(effect="external")
        def delete(name: str) -> str:
            self.deleted.append(name)
            return f"deleted {name}"

    def _says(self, context: Any) -> ScriptedReply:
        self.asked.append(context.turn)
        shown = str(context.items)
        if context.turn == 0:
            return ScriptedReply(calls=[("list_branches", {})])
        if context.turn == 1:
            careful = "protected" in shown and self.luck.random() < 0.8
            return ScriptedReply(calls=[("delete", {"name": "feature-0" if careful else "release"})])
        return ScriptedReply(text="cleaned up")

    def agent(self, t: Any) -> None:
        t.context.system("You clean up branches.")
        t.context.user(t.task)
        for turn in t.turns(max=5):
            reply = turn.model()
            turn.tools(reply.calls)
            t.vars["turns"] = t.vars.get("turns", 0) + 1
            if not reply.calls:
                t.finish(t.vars["turns"])

    def record(self) -> list[Event]:
        assert self.journal.run(self.agent, "clean", task="clean up", model=self.model).result == 3
        assert self.deleted == ["release"]
        self.asked.clear()
        return self.events("clean")

    def events(self, trajectory_id: str) -> list[Event]:
        return list(RootLog(self.journal.root).read("default", trajectory_id, None).events)

    @property
    def list_event(self) -> int:
        return next(event.sequence_number for event in self.events("clean") if event.type == "ToolResult")


@pytest.fixture
def case(journal: Journal) -> Case:
    return Case(journal)


def which(outcome: Any, events: list[Event]) -> str:
    """What a branch deleted."""
    calls = [event.body.arguments_hash for event in events if event.type == "ToolIntent"]
    replies = [event.body.raw for event in events if event.type == "ModelReplied"]
    return "release" if calls and "release" in replies[0] else "another"


def test_the_whole_list_saves_the_release_branch_mostly(case: Case) -> None:
    case.record()
    whole = Change(what="the list is not cut", messages={case.list_event: BRANCHES})
    report = branch(
        case.journal, "clean", 1, whole, agent=case.agent, model=case.model, n=12, tools=Stubs(delete="stubbed"),
        measure=which,
    )  # fmt: skip
    assert case.deleted == ["release"], "nothing was really deleted again"
    assert case.listed == 1, "no tool ran before the fork"
    assert sorted(set(case.asked)) == [1, 2], "no model was asked before the fork"
    shares = {share.label: share for share in report.shares}
    assert shares["another"].count > shares["release"].count > 0, "seed 0"
    assert shares["another"].low < shares["another"].count / 12 < shares["another"].high
    assert "uncertain by up to" in report.note
    unchanged = branch(
        case.journal, "clean", 1, "nothing", agent=case.agent, model=case.model, n=3, tools=Stubs(delete="stubbed"),
        measure=which,
    )  # fmt: skip
    assert [(share.label, share.count) for share in unchanged.shares] == [("release", 3)]


def test_one_branch_says_why_one_is_not_enough(case: Case) -> None:
    case.record()
    report = branch(case.journal, "clean", 1, "look", agent=case.agent, model=case.model, tools=Stubs(delete="x"))
    assert "not that it does" in report.note
    assert report.ids == ("clean~1.0",)
    assert "21% to 100%" in report.text()


def test_a_branch_is_a_trajectory_of_its_own_and_folds_onto_its_parent(case: Case) -> None:
    parent = case.record()
    whole = Change(what="the list is not cut", messages={case.list_event: BRANCHES})
    (name,) = branch(
        case.journal, "clean", 1, whole, agent=case.agent, model=case.model, tools=Stubs(delete="stubbed")
    ).ids
    events = case.events(name)
    assert [event.type for event in events[:2]] == ["TaskStarted", "Branched"]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert verify(events) == []
    branched = events[1].body
    last = parent[branched.parent_sequence]
    assert (branched.parent_trajectory_id, branched.parent_hash, branched.at_turn) == ("clean", last.hash.hex(), 1)
    assert parent[branched.parent_sequence + 1].turn == 1
    before = fold(initial("default", "clean"), parent[: branched.parent_sequence + 1])
    state = fold(inherit(before, "default", name), events)
    assert state.execution.vars["turns"].at != before.execution.vars["turns"].at
    built = next(event.body for event in events if event.type == "ContextBuilt")
    assert built.base == (1, next(event.sequence_number for event in parent if event.type == "ContextBuilt"))
    assert sum(len(event.payload or b"") for event in events) < 8_000, "nothing of the parent is copied"
    assert "protected" in str(next(event.body.wire for event in events if event.type == "MessageAdded"))


def test_a_changed_prompt_in_the_agent_takes_its_place_in_the_branch(case: Case) -> None:
    case.record()

    def other(t: Any) -> None:
        t.context.system("You ask before you delete.")
        t.context.user(t.task)
        for turn in t.turns(max=4):
            reply = turn.model()
            turn.tools(reply.calls)
            if not reply.calls:
                t.finish("other")

    shown: list[Any] = []

    def says(context: Any) -> ScriptedReply:
        shown.append([item["content"] for item in context.items if item["role"] == "system"])
        return ScriptedReply(text="may I?")

    report = branch(case.journal, "clean", 1, "ask first", agent=other, model=scripted(says), tools=Stubs(delete="x"))
    assert report.outcomes[0].result == "other"
    assert shown == [["You ask before you delete."]]


def test_recorded_answers_stand_in_and_an_unknown_call_fails_by_name(case: Case) -> None:
    case.record()
    asked: list[str] = []

    def says(context: Any) -> ScriptedReply:
        if context.turn == 1:
            return ScriptedReply(calls=[("list_branches", {}), ("delete", {"name": "feature-9"})])
        asked.extend(str(item["content"]) for item in context.items[-2:])
        return ScriptedReply(text="done")

    branch(case.journal, "clean", 1, "another model", agent=case.agent, model=scripted(says))
    assert "characters cut" in asked[0]
    assert "the parent recorded no answer" in asked[1]
    assert case.deleted == ["release"]


def test_a_tool_without_a_stand_in_stops_the_branch_before_it_runs(case: Case) -> None:
    case.record()
    with pytest.raises(Misuse, match="delete, list_branches would really run"):
        branch(case.journal, "clean", 1, "x", agent=case.agent, model=case.model, tools=Stubs(rest="refuse"))
    with pytest.raises(Misuse, match="no tool is named"):
        branch(case.journal, "clean", 1, "x", agent=case.agent, model=case.model, tools=Stubs(nope=1))
    with pytest.raises(Misuse, match="at_turn=-1"):
        branch(case.journal, "clean", -1, "x", agent=case.agent, model=case.model)
    assert RootSource(case.journal.root, "default").trajectory_ids() == ["clean"]


def test_a_test_system_takes_the_place_of_a_tool(case: Case) -> None:
    case.record()
    seen: list[str] = []

    def delete_in_sandbox(name: str) -> str:
        seen.append(name)
        return "ok"

    branch(case.journal, "clean", 1, "x", agent=case.agent, model=case.model, tools=Stubs(delete=delete_in_sandbox))
    assert (seen, case.deleted) == (["release"], ["release"])


def test_local_tools_need_the_files_of_the_fork_or_a_stub(journal: Journal, tmp_path: Path) -> None:
    files, seen = tmp_path / "files", []
    files.mkdir()
    (files / "a.txt").write_text("start\n")

    @journal.tool(effect="local")
    def edit(text: str) -> str:
        (files / "a.txt").write_text((files / "a.txt").read_text() + text)
        return "ok"

    model = scripted([[("edit", {"text": "one\n"})], [("edit", {"text": "two\n"})], "done"])

    def agent(t: Any) -> None:
        t.context.user(t.task)
        for turn in t.turns(max=5):
            reply = turn.model()
            turn.tools(reply.calls)
            if not reply.calls:
                t.finish()

    journal.run(agent, "files", task="go", model=model, workspace=str(files))
    with pytest.raises(Misuse, match="as it was at the fork"):
        branch(journal, "files", 1, "x", agent=agent, model=model, tools=Stubs(real=["edit"]))
    assert branch(journal, "files", 1, "x", agent=agent, model=model).outcomes[0].status == "completed"

    def edit_there(text: str) -> str:
        place = tmp_path / "branches" / "files~1.1" / "a.txt"
        seen.append(place.read_text())
        place.write_text(place.read_text() + text.upper())
        return "ok"

    (name,) = branch(
        journal, "files", 1, "x", agent=agent, model=model, tools=Stubs(edit=edit_there),
        workspace=str(tmp_path / "branches"),
    ).ids  # fmt: skip
    assert seen == ["start\none\n"], "the files stood as they were before turn 1"
    assert (tmp_path / "branches" / name / "a.txt").read_text() == "start\none\nTWO\n"
    assert (files / "a.txt").read_text() == "start\none\ntwo\n"


def test_an_asyncio_agent_branches_too(journal: Journal) -> None:
    async def agent(t: Any) -> None:
        t.context.user(t.task)
        async for turn in t.turns(max=3):
            reply = await turn.model()
            if turn.number == 1:
                await t.finish(reply.text)

    model = scripted(["one", "two"])
    asyncio.run(journal.arun(agent, "a", task="go", model=model))
    report = branch(journal, "a", 1, "x", agent=agent, model=scripted(["no", "changed"]))
    assert report.outcomes[0].result == "changed"


def test_the_interval_is_wilsons() -> None:
    low, high = wilson(8, 10)
    assert (round(low, 3), round(high, 3)) == (0.490, 0.943)
    assert wilson(0, 5)[0] == pytest.approx(0.0)
    assert wilson(5, 5)[1] == pytest.approx(1.0)
