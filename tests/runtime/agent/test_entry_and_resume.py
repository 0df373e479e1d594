"""Starting, resuming, refusing: what `run` does with what it finds, and what an agent may and may not do."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import Any

import msgspec
import pytest

from trajlake.runtime import (
    Busy,
    Cancelled,
    Conflict,
    Diverged,
    Misuse,
    ModelFailed,
    Parked,
    ResumeRefused,
    Retry,
    UnknownTrajectory,
)
from trajlake.runtime.models import ScriptedReply, scripted
from trajlake.schemas.errors import InvalidId

from .conftest import Bench, Died, one_call, plain_agent


def test_an_unknown_id_without_a_task_is_refused_and_nothing_is_written(bench: Bench) -> None:
    with pytest.raises(UnknownTrajectory, match="give a task"):
        bench.fresh().run(plain_agent(), "t")
    assert bench.events() == []
    assert bench.fresh().run(plain_agent(), "t", task="go", model=scripted(["hi"])).status == "completed"


@pytest.mark.parametrize("bad", ["", "  ", "a\x00b", "x" * 300, "judge/x"])
def test_ids_outside_the_grammar_are_refused(bench: Bench, bad: str) -> None:
    with pytest.raises(InvalidId):
        bench.fresh().run(plain_agent(), bad, task=1)


def test_another_task_under_the_same_id_is_a_conflict(bench: Bench) -> None:
    bench.fresh().run(plain_agent(), "t", task={"n": 1}, model=scripted(["hi"]))
    with pytest.raises(Conflict):
        bench.fresh().run(plain_agent(), "t", task={"n": 2}, model=scripted(["hi"]))
    assert bench.fresh().run(plain_agent(), "t", task={"n": 1}).result == "hi"


def test_a_trajectory_that_lives_elsewhere_is_busy(bench: Bench) -> None:
    journal = bench.fresh()

    @journal.tool(effect="read")
    def look() -> str:
        with pytest.raises(Busy):
            journal.run(plain_agent(), "t")
        return "seen"

    assert journal.run(plain_agent(), "t", task="go", model=one_call("look")).status == "completed"


def test_an_agent_that_raises_leaves_its_trajectory_open_and_resumes_at_its_open_turn(bench: Bench) -> None:
    entered: list[Any] = []

    def agent(t: Any) -> None:
        t.context.user("go")
        for turn in t.turns():
            entered.append((turn.number, str(turn.now()), turn.model().text))
            t.vars["n"] = turn.number
            if turn.number == 1 and len(entered) < 3:
                raise ZeroDivisionError
            if turn.number == 2:
                t.finish(t.vars["n"])

    model = scripted(["a", "b", "c"])
    with pytest.raises(ZeroDivisionError):
        bench.fresh().run(agent, "t", task=1, model=model)
    assert bench.types()[-1] == "LeaseReleased"
    assert bench.fresh().run(agent, "t", model=model).result == 2
    assert [number for number, _, _ in entered] == [0, 1, 1, 2]
    assert entered[1] == entered[2], "the open turn is served from the record: same time, same reply"
    resumed = bench.bodies("Resumed")[0]
    assert resumed.context == "same"
    assert resumed.log_complete


def test_state_and_vars_are_those_of_earlier_turns_when_the_open_turn_is_entered_again(bench: Bench) -> None:
    seen: list[Any] = []

    def agent(t: Any) -> None:
        for turn in t.turns():
            seen.append((turn.number, dict(t.vars), t.state.execution.turn))
            t.vars["log"] = [*t.vars.get("log", []), turn.number]
            t.goal.revise(f"goal {turn.number}")
            if turn.number == 1 and len(seen) == 2:
                raise Died
            if turn.number == 2:
                t.finish(t.vars["log"])

    with pytest.raises(Died):
        bench.fresh().run(agent, "t", task=1)
    assert bench.fresh().run(agent, "t").result == [0, 1, 2]
    assert seen[1][1] == seen[2][1] == {"log": [0]}


def test_code_that_asks_for_something_else_than_is_recorded_diverges(bench: Bench) -> None:
    def agent(word: str, fail: bool) -> Any:
        def run(t: Any) -> None:
            for turn in t.turns():
                t.vars["word"] = word
                if fail:
                    raise ZeroDivisionError
                t.finish()
                del turn

        return run

    with pytest.raises(ZeroDivisionError):
        bench.fresh().run(agent("a", True), "t", task=1)
    with pytest.raises(Diverged, match="var word #0 changed") as caught:
        bench.fresh().run(agent("b", False), "t")
    assert caught.value.turn == 0
    assert bench.fresh().run(agent("a", False), "t").status == "completed"


def test_code_that_skips_a_recorded_operation_diverges(bench: Bench) -> None:
    def agent(t: Any) -> None:
        for turn in t.turns():
            if not skip:
                turn.now()
                raise ZeroDivisionError
            t.finish()

    skip = False
    with pytest.raises(ZeroDivisionError):
        bench.fresh().run(agent, "t", task=1)
    skip = True
    with pytest.raises(Diverged, match="missing"):
        bench.fresh().run(agent, "t")


def test_a_changed_prologue_is_drift_and_the_recorded_message_stands(bench: Bench) -> None:
    def agent(prompt: str, fail: bool) -> Any:
        def run(t: Any) -> None:
            t.context.system(prompt)
            for turn in t.turns():
                turn.model()
                if fail:
                    raise ZeroDivisionError
                t.finish(t.context.items[0]["content"])

        return run

    model = scripted(["a", "b"])
    with pytest.raises(ZeroDivisionError):
        bench.fresh().run(agent("old", True), "t", task=1, model=model)
    assert bench.fresh().run(agent("new", False), "t", model=model).result == "old"
    drift = bench.bodies("DriftDetected")[0]
    assert (drift.what, drift.choice) == ("message", "recorded")


def test_an_agent_that_swallows_parking_is_stopped_at_its_next_operation(bench: Bench) -> None:
    journal = bench.fresh()

    @journal.tool(approve=True)
    def pay() -> None: ...

    said: list[Any] = []

    def agent(t: Any) -> None:
        for turn in t.turns():
            try:
                turn.call("pay")
            except BaseException as error:
                said.append(type(error))
            try:
                turn.now()
            except Misuse as error:
                said.append(str(error))

    assert journal.run(agent, "t", task=1).status == "parked"
    assert said[0] is Parked
    assert "caught Parked" in said[1]
    assert issubclass(Parked, BaseException)
    assert not issubclass(Cancelled, Exception)


def test_nothing_may_follow_the_end(bench: Bench) -> None:
    def agent(t: Any) -> None:
        for turn in t.turns():
            t.finish("x")
            with pytest.raises(Misuse, match="has ended"):
                turn.now()

    assert bench.fresh().run(agent, "t", task=1).result == "x"


def test_a_loop_that_runs_out_of_turns_fails_and_says_so(bench: Bench) -> None:
    def agent(t: Any) -> None:
        for turn in t.turns(max=3):
            turn.now()

    outcome = bench.fresh().run(agent, "t", task=1)
    assert (outcome.status, outcome.result) == ("failed", "no turns left")


def test_an_agent_that_just_returns_completes_with_its_value(bench: Bench) -> None:
    def agent(t: Any) -> Any:
        return {"task": t.task, "id": t.id}

    assert bench.fresh().run(agent, "t", task=[1]).result == {"task": [1], "id": "t"}


def test_a_trajectory_belongs_to_one_thread(bench: Bench) -> None:
    told: list[Any] = []

    def agent(t: Any) -> None:
        for turn in t.turns():

            def other(turn: Any = turn) -> None:
                try:
                    turn.now()
                except Misuse as error:
                    told.append(str(error))

            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            t.finish()

    bench.fresh().run(agent, "t", task=1)
    assert "belongs to the thread or task" in told[0]


def test_the_plain_api_inside_a_running_loop_raises_at_once(bench: Bench) -> None:
    journal = bench.fresh()

    async def main() -> None:
        with pytest.raises(Misuse, match="arun"):
            journal.run(plain_agent(), "t", task=1)

    asyncio.run(main())


def test_each_attempt_at_a_model_is_an_event_and_retries_stop_where_they_should(bench: Bench) -> None:
    def agent(t: Any) -> None:
        t.context.user("hi")
        for turn in t.turns():
            reply = turn.model(retry=Retry(2, 0))
            with pytest.raises(ModelFailed):
                turn.model(retry=Retry(1, 0))
            t.finish(reply.text)

    model = scripted([ScriptedReply(text="a", fails_before=2), ScriptedReply(text="b", fails_before=5)])
    assert bench.fresh().run(agent, "t", task=1, model=model).result == "a"
    assert [(one.status, one.attempt) for one in bench.bodies("ModelReplied")] == [
        ("retried", 1), ("retried", 2), ("kept", 3), ("retried", 1), ("error", 2),
    ]  # fmt: skip


class Misleading:
    """A model whose reader points to the wrong places; its replies must be recorded so that they can be read again."""

    name, version, format = "odd", "1", "odd/1"

    def request(self, context: Any, tools: Any) -> bytes:
        return str(len(context.items)).encode()

    def send(self, request: bytes, on_delta: Any = None) -> bytes:
        return b'{"says": "go", "n": 7}' if request == b"1" else b'{"says": "stop", "n": 7}'

    def read(self, body: bytes) -> Any:
        from trajlake.runtime.models import Response
        from trajlake.schemas.events import ProposedCall

        says = msgspec.json.decode(body)["says"]
        calls = (ProposedCall(tool="look", provider_id="1", pointer="/nowhere", arguments='{"n": 7}'),)
        return Response(
            text=says, calls=calls if says == "go" else (), item={"role": "assistant", "content": says},
            item_pointer="/says", usage=None, stop_reason=None, served_model="odd", response_id="",
        )  # fmt: skip


def test_a_reader_that_points_to_the_wrong_place_loses_nothing(bench: Bench) -> None:
    def opened() -> Any:
        journal = bench.fresh()

        @journal.tool(effect="read")
        def look(n: int) -> int:
            return n

        return journal

    def agent(t: Any) -> None:
        t.context.user("x")
        for turn in t.turns():
            reply = turn.model()
            given = [one.output for one in turn.tools(reply.calls)]
            if fails:
                raise ZeroDivisionError
            if not reply.calls:
                t.finish(t.vars["given"])
            t.vars["given"] = given

    fails = True
    with pytest.raises(ZeroDivisionError):
        opened().run(agent, "t", task=1, model=Misleading())
    fails = False
    assert opened().run(agent, "t", model=Misleading()).result == [7]


def test_a_compacted_context_is_what_the_model_is_shown_next(bench: Bench) -> None:
    shown: list[int] = []

    def says(context: Any) -> Any:
        shown.append(len(context.items))
        return "summary" if context.purpose == "summary" else "ok"

    def agent(t: Any) -> None:
        t.context.system("s")
        t.context.user("u")
        for turn in t.turns():
            turn.model()
            if turn.number == 1:
                turn.compact(keep=2, summary=turn.model(purpose="summary"))
            if turn.number == 2:
                t.finish(len(t.context.items))

    assert bench.fresh().run(agent, "t", task=1, model=scripted(says)).result == 4
    assert shown == [2, 3, 4, 3]


def test_a_child_runs_under_its_own_id_and_its_outcome_is_recorded_once(bench: Bench) -> None:
    ran: list[str] = []

    def child(t: Any) -> str:
        ran.append(t.id)
        return f"part of {t.task}"

    def agent(t: Any) -> None:
        for turn in t.turns():
            outcome = turn.spawn(child, "part-1", task="big")
            if fails:
                raise ZeroDivisionError
            t.finish([outcome.status, outcome.result])

    fails = True
    with pytest.raises(ZeroDivisionError):
        bench.fresh().run(agent, "t", task=1)
    fails = False
    assert bench.fresh().run(agent, "t").result == ["completed", "part of big"]
    assert ran == ["t/0.part-1"]
    assert bench.bodies("TaskStarted", "t/0.part-1")[0].parent.trajectory_id == "t"


def test_a_newer_schema_is_refused_by_name(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Died):
        bench.fresh().run(lambda t: (_ for _ in ()).throw(Died()), "t", task=1)
    import trajlake.runtime.agent.enter as enter

    monkeypatch.setattr(enter, "resumable", lambda version: type("V", (), {"ok": False, "reason": "written by 9"})())
    with pytest.raises(ResumeRefused, match="written by 9"):
        bench.fresh().run(plain_agent(), "t")
    assert bench.bodies("ResumeRefused")[0].reason == "schema"


def test_importing_the_runtime_costs_little_more_than_its_parts(project: Any) -> None:
    code = (
        "import sys, msgspec, asyncio; before = set(sys.modules); import trajlake.runtime; "
        "print(len(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=project)
    assert int(done.stdout) <= 3
    assert msgspec


def test_every_public_name_can_be_imported() -> None:
    import trajlake.runtime as runtime

    for name in runtime.__all__:
        assert getattr(runtime, name) is not None
