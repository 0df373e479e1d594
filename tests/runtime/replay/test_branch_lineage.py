"""Branches of branches, branches that are killed and go on, their children, and their replay."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from trajlake.runtime import Change, Journal, Misuse, ResumeRefused, Stubs, branch, replay, resume_branch
from trajlake.runtime.branches.divergence import diverge
from trajlake.runtime.branches.time_travel import text_of, turn_view
from trajlake.runtime.models import ScriptedReply, scripted
from trajlake.runtime.replaying.sources import RootSource
from trajlake.schemas.chain import verify
from trajlake.schemas.envelope import Event

PROMPT = "You count."


class Counting:
    """A harness of five turns: each asks for one `step`, and the text shown to the model is kept per call."""

    def __init__(self, journal: Journal) -> None:
        self.journal, self.shown, self.stepped = journal, [], []
        self.prompt, self.die_at = PROMPT, -1

        @journal.tool(effect="external")
        def step(n: int) -> str:
            self.stepped.append(n)
            return f"step {n} done"

        self.model = scripted(self._says, name="counting", version="1")

    def _says(self, context: Any) -> ScriptedReply:
        self.shown.append([str(item.get("content")) for item in context.items])
        if context.turn < 4:
            return ScriptedReply(calls=[("step", {"n": context.turn})])
        return ScriptedReply(text="counted")

    def agent(self, t: Any) -> None:
        t.context.system(self.prompt)
        t.context.user(t.task)
        for turn in t.turns(max=6):
            reply = turn.model()
            if turn.number == self.die_at:
                raise KeyError("died")
            turn.tools(reply.calls)
            t.vars["turns"] = t.vars.get("turns", 0) + 1
            if not reply.calls:
                t.finish(t.vars["turns"])

    def record(self) -> None:
        assert self.journal.run(self.agent, "one", task="count", model=self.model).result == 5
        self.shown.clear()

    def branch(self, of: str, at_turn: int, change: Any = "look", **more: Any) -> str:
        more.setdefault("tools", Stubs(step="stubbed"))
        return branch(self.journal, of, at_turn, change, agent=self.agent, model=self.model, **more).ids[0]

    def events(self, name: str) -> list[Event]:
        record = RootSource(self.journal.root, "default").record(name)
        assert record is not None
        return list(record.read())

    def replayed(self, name: str, **more: Any) -> Any:
        return replay(self.agent, self.events(name), journal=self.journal, **more)


@pytest.fixture
def counting(journal: Journal) -> Counting:
    return Counting(journal)


# -- a branch of a branch -------------------------------------------------------------------------------------------


def test_a_branch_of_a_branch_inherits_both_and_each_is_replayed(counting: Counting) -> None:
    counting.record()
    first = counting.branch("one", 1)
    second = counting.branch(first, 3, "look again", tools=Stubs(step="stubbed twice"))
    third = counting.branch(second, 4)
    assert (first, second, third) == ("one~1.0", "one~1.0~3.0", "one~1.0~3.0~4.0")
    assert counting.stepped == [0, 1, 2, 3], "only the first trajectory ran its tool"
    counting.shown.clear()
    fourth = counting.branch(third, 4)
    assert counting.shown == [
        [PROMPT, "count", "None", "step 0 done", "None", "stubbed", "None", "stubbed", "None", "stubbed twice"]
    ], "its one model call is shown what each ancestor did"
    report = None
    for name in ("one", first, second, third, fourth):
        assert verify(counting.events(name)) == []
        for cold in (False, True):
            report = counting.replayed(name, cold=cold)
            assert report.same, report.text()
    assert report is not None
    assert "from turn 4 on, where it left 'one~1.0~3.0~4.0'" in report.notes[0]
    built = next(event.body for event in counting.events(third) if event.type == "ContextBuilt")
    assert built.base == (
        1,
        max(e.sequence_number for e in counting.events(second) if e.type == "ContextBuilt" and e.turn == 3),
    )


def test_changes_are_made_to_items_of_any_ancestor_and_stay(counting: Counting) -> None:
    counting.record()
    result = next(e.sequence_number for e in counting.events("one") if e.type == "ToolResult")
    first = counting.branch("one", 1, Change(what="other result", messages={result: "step 0 failed"}))
    counting.shown.clear()
    second = counting.branch(first, 2)
    assert "step 0 failed" in counting.shown[0], "what the parent changed stays changed"
    counting.shown.clear()
    third = counting.branch(second, 4, Change(what="other task", messages={(3, 2): "count down"}))
    assert counting.shown[0][:4] == [PROMPT, "count down", "None", "step 0 failed"]
    assert all(counting.replayed(name).same for name in (first, second, third))
    with pytest.raises(Misuse, match="no inherited event is named"):
        counting.branch(second, 4, Change(what="x", messages={(4, 1): "none"}))


def test_a_prompt_that_the_code_changed_takes_its_place_in_each_branch(counting: Counting) -> None:
    counting.record()
    counting.prompt = "You count slowly."
    first = counting.branch("one", 1)
    assert counting.replayed(first).same
    counting.shown.clear()
    second = counting.branch(first, 2)
    assert [shown[0] for shown in counting.shown] == ["You count slowly."] * 3
    counting.prompt = "You count fast."
    counting.shown.clear()
    third = counting.branch(second, 3)
    assert [shown[0] for shown in counting.shown] == ["You count fast."] * 2
    assert counting.replayed(third).same
    report = counting.replayed(first)
    assert (report.verdict, report.turn, report.component) == ("differs", 1, "system prompt")
    counting.prompt = PROMPT
    assert counting.replayed(first).component == "system prompt"


def test_an_ancestor_that_is_gone_or_another_history_is_named(counting: Counting) -> None:
    counting.record()
    first = counting.branch("one", 1)
    nobody: Any = type("Alone", (), {"tools": counting.journal.tools, "policy": None, "resolvers": {}})()
    nobody.ports_for_reading = counting.journal.ports_for_reading
    report = replay(counting.agent, counting.events(first), journal=nobody)
    assert (report.verdict, "'one' of tenant 'default' is not recorded here" in report.cause) == ("refused", True)


def test_the_divergence_of_a_branch_from_its_parent_is_where_they_part(counting: Counting) -> None:
    counting.record()
    first = counting.branch("one", 1)
    second = counting.branch(first, 3, tools=Stubs(step="another answer"))
    source = RootSource(counting.journal.root, "default")
    found = {name: source.record(name) for name in ("one", first, second)}
    answer = diverge(found["one"], found[first])
    assert answer.context is not None
    assert answer.context.turn == 2, "the stub's answer is seen from turn 2 on"
    assert answer.context.source == "environment"
    answer = diverge(found[first], found[second])
    assert answer.context is not None
    assert answer.context.turn == 4
    assert diverge(found[second], found[second]).cause is None


# -- cut short, and gone on with ------------------------------------------------------------------------------------


def test_a_branch_whose_agent_failed_goes_on_and_nothing_is_done_twice(counting: Counting) -> None:
    counting.record()
    answered: list[int] = []

    def stub(n: int) -> str:
        answered.append(n)
        return f"answer {n}"

    stubs = Stubs(step=stub)
    counting.prompt, counting.die_at = "You count slowly.", 3
    change = Change(what="other task", messages={2: "count down"})
    with pytest.raises(KeyError):
        counting.branch("one", 1, change, tools=stubs)
    assert answered == [1, 2]
    with pytest.raises(ResumeRefused, match="--resume"):
        counting.journal.run(counting.agent, "one~1.0", model=counting.model)
    with pytest.raises(Misuse, match="step was stub at the fork and would be recorded now"):
        resume_branch(counting.journal, "one~1.0", agent=counting.agent, model=counting.model)
    with pytest.raises(Misuse, match="is no branch"):
        resume_branch(counting.journal, "one", agent=counting.agent, model=counting.model)
    counting.die_at = -1
    counting.shown.clear()
    outcome = resume_branch(counting.journal, "one~1.0", tools=stubs, agent=counting.agent, model=counting.model)
    assert (outcome.status, outcome.result) == ("completed", 5)
    assert (answered, counting.stepped) == ([1, 2, 3], [0, 1, 2, 3])
    assert len(counting.shown) == 1, "the reply of turn 3 was recorded: only turn 4 asks"
    assert counting.shown[0][:2] == ["You count slowly.", "count down"]
    events = counting.events("one~1.0")
    assert verify(events) == []
    assert [e.type for e in events if e.type in ("Branched", "Resumed", "TaskEnded")] == [
        "Branched",
        "Resumed",
        "TaskEnded",
    ]
    assert counting.replayed("one~1.0").same
    again = resume_branch(counting.journal, "one~1.0", tools=stubs, agent=counting.agent, model=counting.model)
    assert again.result == 5, "an ended branch answers as it ended"


POINTS = [2, 9] + [pytest.param(at, marks=pytest.mark.long) for at in (3, 4, 5, 6, 7, 8, *range(10, 24))]


@pytest.mark.parametrize("point", POINTS)
def test_a_branch_killed_at_any_event_goes_on_as_if_it_had_not_been(tmp_path: Path, point: int) -> None:
    place = str(tmp_path)
    program = [sys.executable, str(Path(__file__).with_name("killed_branch.py")), place]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = partial(subprocess.run, env=env, capture_output=True, text=True, timeout=120, check=False)
    killed = run([*program, "branch", str(point)])
    assert killed.returncode in (0, 9), killed.stderr
    went_on = run([*program, "resume", "0"])
    assert went_on.returncode == 0, went_on.stderr
    if "did not begin" in went_on.stdout:
        assert point <= 3
        return
    calls = (tmp_path / "calls").read_text().split()
    assert sorted(calls) == ["one:0", "one:1", "one:2", "stub:1", "stub:2"], f"point {point}: {calls}"
    assert "completed 4 same" in went_on.stdout, went_on.stdout


def test_answers_that_were_given_before_the_crash_are_not_given_again(journal: Journal) -> None:
    answers = iter(["first", "second", "third", "fourth"])
    seen: list[str] = []
    dies = [True]

    @journal.tool(effect="read")
    def poll() -> str:
        return next(answers)

    def agent(t: Any) -> None:
        t.context.user(t.task)
        for turn in t.turns(max=5):
            reply = turn.model()
            if turn.number == 3 and dies[0] and t.id != "polls":
                raise KeyError("died")
            seen.extend(result.text for result in turn.tools(reply.calls))
            if not reply.calls:
                t.finish()

    def says(context: Any) -> ScriptedReply:
        return ScriptedReply(text="done") if context.turn == 4 else ScriptedReply(calls=[("poll", {})])

    model = scripted(says)
    journal.run(agent, "polls", task="go", model=model)
    assert seen == ["first", "second", "third", "fourth"]
    seen.clear()
    with pytest.raises(KeyError):
        branch(journal, "polls", 1, "x", agent=agent, model=model)
    dies[0] = False
    assert resume_branch(journal, "polls~1.0", agent=agent, model=model).status == "completed"
    assert seen == ["first", "second", "third"]


def test_a_branch_waits_for_a_person_and_goes_on(journal: Journal) -> None:
    done: list[str] = []

    @journal.tool(effect="external", approve=True)
    def deploy(where: str) -> str:
        done.append(where)
        return "deployed"

    def agent(t: Any) -> None:
        t.context.user(t.task)
        for turn in t.turns(max=3):
            reply = turn.model()
            turn.tools(reply.calls)
            if not reply.calls:
                t.finish("ok")

    model = scripted([[("deploy", {"where": "here"})], "done"])
    outcome = journal.run(agent, "d", task="go", model=model)
    journal.approve("d", outcome.waiting_for[0].action_id, "fine")
    assert journal.run(agent, "d", model=model).result == "ok"
    stubs = Stubs(deploy="pretended")
    report = branch(journal, "d", 0, "again", agent=agent, model=model, tools=stubs)
    assert report.outcomes[0].status == "parked", "the parent's approval is not inherited"
    journal.approve("d~0.0", report.outcomes[0].waiting_for[0].action_id, "fine")
    assert resume_branch(journal, "d~0.0", tools=stubs, agent=agent, model=model).result == "ok"
    assert done == ["here"]


# -- children -------------------------------------------------------------------------------------------------------


class Family:
    """A parent that spawns a child in turn 1; the child calls the same external tool."""

    def __init__(self, journal: Journal) -> None:
        self.journal, self.sent = journal, []
        self.model = scripted([[("send", {"text": "from the parent"})], "two", "three"])

        @journal.tool(effect="external")
        def send(text: str) -> str:
            self.sent.append(text)
            return f"sent {text}"

    def child(self, t: Any) -> None:
        for turn in t.turns(max=1):
            t.finish(turn.call("send", {"text": f"from the child of {t.task}"}).text)

    def agent(self, t: Any) -> None:
        t.context.user(t.task)
        for turn in t.turns(max=3):
            turn.tools(turn.model().calls)
            if turn.number == 1:
                t.vars["said"] = turn.spawn(self.child, "part", task=t.task).result
            if turn.number == 2:
                t.finish(t.vars["said"])


def test_a_branch_spawns_a_child_of_its_own_with_the_same_stand_ins(journal: Journal) -> None:
    family = Family(journal)
    assert journal.run(family.agent, "f", task="go", model=family.model).result == "sent from the child of go"
    sent = list(family.sent)
    recorded = branch(journal, "f", 1, "nothing", agent=family.agent, model=family.model)
    assert recorded.outcomes[0].result == "sent from the child of go", "as the parent's own child was answered"
    stubbed = branch(journal, "f", 1, "stub", agent=family.agent, model=family.model, tools=Stubs(send="pretended"))
    assert stubbed.outcomes[0].result == "pretended"
    later = branch(journal, "f", 2, "later", agent=family.agent, model=family.model, tools=Stubs(send="pretended"))
    assert later.outcomes[0].result == "sent from the child of go", "a child before the fork is the record's"
    assert family.sent == sent, "nothing was really sent again"
    source = RootSource(journal.root, "default")
    assert [name for name in source.trajectory_ids() if "/" in name] == ["f/1.part", "f~1.0/1.part", "f~1.1/1.part"]
    child = source.record("f~1.1/1.part")
    assert child is not None
    assert child.outline.notable[0].body.parent.trajectory_id == "f~1.1"
    for name in ("f~1.0", "f~1.1", "f~2.0"):
        record = source.record(name)
        assert record is not None
        assert replay(family.agent, record, journal=journal).same


def test_a_child_of_a_branch_never_touches_the_real_childs_folder(journal: Journal, tmp_path: Path) -> None:
    real, own = tmp_path / "real", tmp_path / "own"
    real.mkdir()
    own.mkdir()

    @journal.tool(effect="local")
    def write(text: str) -> str:
        (real / "a.txt").write_text(text)
        return "ok"

    def child(t: Any) -> None:
        for turn in t.turns(max=1):
            t.finish(turn.call("write", {"text": "x"}).text)

    def agent(t: Any) -> None:
        for turn in t.turns(max=1):
            turn.model()
            t.finish(turn.spawn(child, "c", task=1, workspace=str(real)).result)

    journal.run(agent, "w", task="go", model=scripted(["one"]), workspace=str(own))
    (real / "a.txt").write_text("by hand")
    stubs = Stubs(write="ok")
    report = branch(journal, "w", 0, "x", agent=agent, model=scripted(["one"]), tools=stubs)
    assert report.outcomes[0].result == "ok"
    assert (real / "a.txt").read_text() == "by hand"
    with pytest.raises(Misuse, match="would really work"):
        branch(
            journal, "w", 0, "x", agent=agent, model=scripted(["one"]), tools=Stubs(real=["write"]),
            workspace=str(tmp_path / "branches"),
        )  # fmt: skip


def test_an_asyncio_branch_spawns_and_goes_on_too(journal: Journal) -> None:
    fails = [True]

    async def child(t: Any) -> None:
        async for _ in t.turns(max=1):
            await t.finish("child's")

    async def agent(t: Any) -> None:
        t.context.user(t.task)
        async for turn in t.turns(max=3):
            reply = await turn.model()
            if turn.number == 1:
                t.vars["child"] = (await turn.spawn(child, "c", task=1)).result
                if t.id != "a" and fails[0]:
                    raise KeyError("died")
            if turn.number == 2:
                await t.finish(f"{t.vars['child']} {reply.text}")

    model = scripted(["one", "two", "three"])
    asyncio.run(journal.arun(agent, "a", task="go", model=model))
    with pytest.raises(KeyError):
        branch(journal, "a", 1, "x", agent=agent, model=model)
    fails[0] = False
    assert resume_branch(journal, "a~1.0", agent=agent, model=model).result == "child's three"
    record = RootSource(journal.root, "default").record("a~1.0")
    assert record is not None
    assert replay(agent, record, journal=journal).same


# -- replay ---------------------------------------------------------------------------------------------------------


def test_a_branch_of_intercepted_code_is_intercepted_too(journal: Journal) -> None:
    import time

    def agent(t: Any) -> None:
        t.context.user(t.task)
        for turn in t.turns(max=2):
            t.vars["at"] = time.time()
            if turn.model().text and turn.number == 1:
                t.finish(t.vars["at"])

    model = scripted(["one", "two"])
    journal.run(agent, "clock", task="go", model=model, intercept=True)
    name = branch(journal, "clock", 1, "x", agent=agent, model=model).ids[0]
    source = RootSource(journal.root, "default")
    record = source.record(name)
    assert record is not None
    assert any(event.type == "InputRead" and event.body.kind == "intercepted" for event in record.read())
    assert replay(agent, record, journal=journal).same


def test_a_branch_with_another_tool_schema_is_refused_by_name_until_it_is_given(counting: Counting) -> None:
    counting.record()

    def step(n: int, note: str = "") -> str:
        return f"{n}{note}"

    from trajlake.runtime.tools import ToolOptions, make_tool

    other = make_tool(step, ToolOptions(effect="external"))
    name = counting.branch("one", 1, Change(what="schema", tools={"step": other}))
    report = counting.replayed(name)
    assert (report.verdict, "other schemas of step" in report.cause) == ("refused", True)
    counting.journal.tools["step"] = other
    assert counting.replayed(name).same


def test_changed_code_differs_in_a_branch_at_its_turn(counting: Counting) -> None:
    counting.record()
    name = counting.branch("one", 2)

    def other(t: Any) -> None:
        t.context.system(PROMPT)
        t.context.user(t.task)
        for turn in t.turns(max=6):
            reply = turn.model()
            turn.tools(reply.calls)
            t.vars["turns"] = t.vars.get("turns", 0) + (2 if turn.number == 3 else 1)
            if not reply.calls:
                t.finish(t.vars["turns"])

    report = replay(other, counting.events(name), journal=counting.journal)
    assert (report.verdict, report.turn, report.component) == ("differs", 3, "variable: turns")


def test_time_travel_shows_a_branch_with_what_it_inherited_and_whose_each_item_is(counting: Counting) -> None:
    counting.record()
    first = counting.branch("one", 1)
    second = counting.branch(first, 3, Change(what="other task", messages={(2, 2): "count down"}))
    record = RootSource(counting.journal.root, "default").record(second)
    assert record is not None
    view = turn_view(record, 3)
    assert view is not None
    (call,) = view.calls
    assert [item.up for item in call.items] == [2, 0, 2, 2, 1, 1, 1, 1]
    assert call.items[1].delivered["content"] == "count down"
    assert "[0] ^2:1 message system" in text_of(view)
    inherited = turn_view(record, 2)
    assert inherited is not None
    assert (inherited.calls[0].up, len(inherited.calls[0].items)) == (1, 6)
    assert "authorized ^1:" in text_of(inherited)
