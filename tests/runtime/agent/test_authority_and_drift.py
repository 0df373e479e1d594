"""Rows of the resume table: authority crossed, components that drifted, arguments that would mean something else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from trajlake.runtime import Allow, Ask, Deny, ResumeRefused, replay
from trajlake.runtime.agent import texts
from trajlake.runtime.agent.tool_pins import still_takes
from trajlake.runtime.models import scripted
from trajlake.schemas.history import canonical

from .conftest import Bench, Died, one_call, plain_agent
from .test_restored_files import Policy
from .test_what_resume_checks import dying


def ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


def started(bench: Bench, agent: Any, **options: Any) -> None:
    with pytest.raises(Died):
        bench.fresh(**{name: options.pop(name) for name in ("policy",) if name in options}).run(
            agent, "t", task=1, **options
        )


def test_an_expired_principal_is_approved_again_before_anything_runs(bench: Bench) -> None:
    agent = dying(lambda t, turn: turn.now())
    started(bench, agent, principal={"id": "ann", "expires_at": ago(1)})
    outcome = bench.fresh().run(agent, "t", principal="ann")
    assert (outcome.status, outcome.waiting_for[0].kind) == ("parked", "approval")
    assert "expired" in outcome.waiting_for[0].question
    assert bench.fresh().run(agent, "t", principal="ann").status == "parked"
    (asked,) = bench.bodies("ApprovalRequested")
    bench.fresh().approve("t", asked.approval_id, actor="boss")
    assert bench.fresh().run(agent, "t", principal="ann").status == "completed"
    assert bench.bodies("Resumed")[-1].reapproved == (asked.approval_id,)


def test_an_approval_of_a_resume_is_good_for_one(bench: Bench) -> None:
    lives: list[int] = []

    def agent(t: Any) -> None:
        lives.append(1)
        for turn in t.turns():
            turn.now()
            if len(lives) < 3:
                raise Died
            t.finish()

    started(bench, agent, principal={"id": "ann", "expires_at": ago(1)})
    bench.fresh().run(agent, "t")
    bench.fresh().approve("t", bench.bodies("ApprovalRequested")[0].approval_id)
    with pytest.raises(Died):
        bench.fresh().run(agent, "t")
    assert bench.fresh().run(agent, "t").status == "parked"
    asked = bench.bodies("ApprovalRequested")
    assert len({one.approval_id for one in asked}) == 2
    bench.fresh().approve("t", asked[1].approval_id)
    assert bench.fresh().run(agent, "t").status == "completed"


def test_a_denied_resume_is_refused(bench: Bench) -> None:
    agent = dying(lambda t, turn: turn.now())
    started(bench, agent, principal={"id": "ann", "expires_at": ago(1)})
    bench.fresh().run(agent, "t")
    bench.fresh().deny("t", bench.bodies("ApprovalRequested")[0].approval_id)
    with pytest.raises(ResumeRefused) as caught:
        bench.fresh().run(agent, "t")
    assert caught.value.reason == "authority"


def test_the_same_principal_presented_anew_needs_no_approval(bench: Bench) -> None:
    agent = dying(lambda t, turn: turn.now())
    started(bench, agent, principal={"id": "ann", "expires_at": ago(1)})
    outcome = bench.fresh().run(agent, "t", principal={"id": "ann", "expires_at": ago(-3600)})
    assert outcome.status == "completed"
    assert bench.bodies("AuthorityEnded")[0].because == "presented anew"
    assert bench.bodies("ApprovalRequested") == []


@pytest.mark.parametrize(("answer", "status"), [("in_force", "completed"), ("withdrawn", "parked"), (None, "parked")])
def test_a_principal_bound_to_a_session_needs_the_session(bench: Bench, answer: str | None, status: str) -> None:
    agent = dying(lambda t, turn: turn.now())
    started(bench, agent, principal={"id": "ann", "session": "session:7"})
    journal = bench.fresh()
    if answer is not None:
        journal.resolver("session:", lambda ref: answer)
    assert journal.run(agent, "t").status == status


def test_spending_part_of_a_budget_crosses_nothing_unless_the_policy_always_asks(bench: Bench) -> None:
    for name, policy, status in (("a", Policy(), "completed"), ("b", Policy(resume_authority="always"), "parked")):
        agent = dying(lambda t, turn: turn.now())
        with pytest.raises(Died):
            bench.fresh(policy=policy).run(agent, name, task=1, budget={"turns": 9})
        assert bench.fresh(policy=policy).run(agent, name).status == status


class Changing(Policy):
    """Answers what the test says now."""

    answer: Any = Allow()

    def __call__(self, call: Any, state: Any) -> Any:
        return self.answer


def test_the_policy_in_force_now_decides_about_calls_that_were_not_sent(bench: Bench) -> None:
    ran: list[int] = []

    def opened(answer: Any) -> Any:
        journal = bench.fresh(policy=Changing(answer=answer))

        @journal.tool(effect="external")
        def pay() -> int:
            ran.append(1)
            return 1

        return journal

    class Cut(BaseException):
        pass

    def agent(t: Any) -> Any:
        t.context.user("x")
        for turn in t.turns():
            reply = turn.model()
            if len(lives) == 1:
                raise Cut
            results.extend(turn.tools(reply.calls))
            if not reply.calls:
                t.finish(reply.text)

    for answer, status in ((Deny("not any more"), "completed"), (Ask(), "parked")):
        lives, results = [1], []
        name = status
        with pytest.raises(Cut):
            opened(Allow()).run(agent, name, task=1, model=one_call("pay"))
        lives.append(1)
        outcome = opened(answer).run(agent, name, model=one_call("pay"))
        assert outcome.status == status
        if status == "completed":
            assert results[0].status == "refused"
    assert ran == []


def test_an_expired_unused_approval_is_asked_anew(bench: Bench) -> None:
    def opened() -> Any:
        journal = bench.fresh(policy=Changing(answer=Ask(expires_s=0.05)))

        @journal.tool(effect="external")
        def pay() -> int:
            return 1

        return journal

    agent = plain_agent()
    assert opened().run(agent, "t", task=1, model=one_call("pay")).status == "parked"
    import time

    time.sleep(0.1)
    assert opened().run(agent, "t", model=one_call("pay")).status == "parked"
    assert len(bench.bodies("ApprovalRequested")) == 2


def test_arguments_of_a_doubtful_intent_that_would_mean_something_else_refuse_the_resume(bench: Bench) -> None:
    def opened(new: bool) -> Any:
        journal = bench.fresh()
        if new:

            @journal.tool(effect="idempotent", settle_attempts=1, name="put")
            def other(cents: int, currency: str = "EUR") -> str:
                raise AssertionError("never sent again")

        else:

            @journal.tool(effect="idempotent", settle_attempts=1, name="put")
            def put(cents: int) -> str:
                raise ConnectionError

        return journal

    model = one_call("put", {"cents": 5})
    assert opened(False).run(plain_agent(), "t", task=1, model=model).status == "parked"
    with pytest.raises(ResumeRefused) as caught:
        opened(True).run(plain_agent(), "t", model=model)
    assert caught.value.reason == "tool_schema"
    (drift,) = bench.bodies("DriftDetected")
    assert (drift.what, drift.component, drift.choice) == ("tool_schema", "put", "refuse")
    action = bench.bodies("ToolIntent")[0].action_id
    opened(True).settle("t", action, executed=True, because="seen")
    assert opened(True).run(plain_agent(), "t", model=model).status == "completed"


def test_a_pinned_model_sees_the_tools_it_was_shown_while_the_code_goes_on(bench: Bench) -> None:
    """The new code documents `put` otherwise, gives it an argument with a default, and brings a tool of its own."""
    dies = True
    shown: list[Any] = []

    class Watched:
        name, version, format = "m", "1", "openai.chat/1"

        def request(self, context: Any, tools: Any) -> bytes:
            shown.append([(tool.name, tool.description, sorted(tool.schema["properties"])) for tool in tools])
            return scripted([[("put", {"cents": 5})], "done"]).request(context, tools)

        def send(self, request: bytes, on_delta: Any = None) -> bytes:
            return scripted([[("put", {"cents": 5})], "done"]).send(request, on_delta)

    def opened(new: bool, choice: str) -> Any:
        journal = bench.fresh(policy=Policy(on_drift={"tool_schema": choice}))
        if not new:

            @journal.tool(effect="read")
            def put(cents: int) -> str:
                """Put money away."""
                return f"old {cents}"

        else:

            @journal.tool(effect="read", name="put")
            def grown(cents: int, currency: str = "EUR") -> str:
                """Put money elsewhere."""
                return f"new {cents} {currency}"

            @journal.tool(effect="read")
            def get() -> str:
                return ""

        return journal

    def agent(t: Any) -> None:
        t.context.user("go")
        for turn in t.turns():
            reply = turn.model()
            t.vars["last"] = [one.output for one in turn.tools(reply.calls)] or t.vars["last"]
            if dies:
                raise Died
            if not reply.calls:
                t.finish(t.vars["last"])

    with pytest.raises(Died):
        opened(False, "pin").run(agent, "t", task=1, model=Watched())
    dies = False
    journal = opened(True, "pin")
    assert journal.run(agent, "t", model=Watched()).result == ["old 5"]
    assert shown == [[("put", "Put money away.", ["cents"])]] * 2
    drift = {one.component: (one.choice, one.system_no) for one in bench.bodies("DriftDetected")}
    assert drift == {"tools": ("pin", 0), "put": ("pin", 0)}
    report = replay(agent, bench.events(), journal=journal, cold=True)
    assert "currency" in report.text(), "the model's context is the same, what the new code makes of its call is not"
    assert replay(agent, bench.events(), journal=opened(False, "pin"), cold=True).same


@pytest.mark.parametrize(
    ("now", "then", "fits"),
    [
        ({"properties": {"a": {"type": "integer"}}}, {"properties": {"a": {"type": "integer"}}}, True),
        ({"properties": {"a": {"type": "string"}}}, {"properties": {"a": {"type": "integer"}}}, False),
        ({"properties": {"a": {}, "b": {}}, "required": ["b"]}, {"properties": {"a": {}}}, False),
        ({"properties": {"a": {}, "b": {}}}, {"properties": {"a": {}}, "required": ["a"]}, True),
        ({"properties": {}, "additionalProperties": False}, {"properties": {"a": {}}}, False),
        ({"properties": {"a": {}}, "additionalProperties": False}, {"properties": {"a": {}}}, False),
        ({"additionalProperties": {"type": "string"}}, {}, False),
        ({"additionalProperties": False}, {"additionalProperties": False}, True),
        ({"properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {}, False),
        ({"minProperties": 1, "description": "new"}, {"minProperties": 1}, True),
    ],
)
def test_a_tool_can_be_pinned_where_the_code_still_takes_every_such_call(now: Any, then: Any, fits: bool) -> None:
    assert still_takes(now, then) is fits


@pytest.mark.parametrize(
    ("said", "status"), [({}, "switch"), ({"model": "pin"}, "pin"), ({"model": "refuse"}, "refuse")]
)
def test_another_model_is_switched_to_pinned_or_refused(bench: Bench, said: dict[str, str], status: str) -> None:
    agent_calls: list[str] = []

    def agent(t: Any) -> None:
        t.context.user("x")
        for turn in t.turns():
            reply = turn.model()
            agent_calls.append(reply.text)
            if turn.number == 0 and len(agent_calls) == 1:
                raise Died
            if turn.number == 1:
                t.finish(reply.text)

    old = scripted(["old 0", "old 1", "old 2"], name="old", version="1")
    policy = Policy(on_drift=said, pinned_model=lambda name, version: old if name == "old" else None)
    started(bench, agent, model=old, policy=policy)
    new = scripted(["new 0", "new 1"], name="new", version="2")
    journal = bench.fresh(policy=policy)
    if status == "refuse":
        with pytest.raises(ResumeRefused) as caught:
            journal.run(agent, "t", model=new)
        assert caught.value.reason == "drift"
    else:
        result = journal.run(agent, "t", model=new).result
        assert result.startswith("old" if status == "pin" else "new")
    drift = [one for one in bench.bodies("DriftDetected") if one.component == "model"]
    assert [(one.choice, one.system_no) for one in drift] == [(status, 1 if status == "switch" else 0)]


def test_a_context_that_cannot_be_rebuilt_names_its_first_component(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(**said: Any) -> Any:
        journal = bench.fresh(policy=Policy(**said))

        @journal.tool(effect="read")
        def look() -> str:
            raise ValueError("no such thing")

        return journal

    def agent(t: Any) -> None:
        t.context.user("x")
        for turn in t.turns():
            reply = turn.model()
            turn.tools(reply.calls)
            if turn.number == 2:
                raise Died

    model = scripted([[("look", {})], "nothing", "done"])
    with pytest.raises(Died):
        opened().run(agent, "t", task=1, model=model)
    monkeypatch.setattr(texts, "error_text", lambda body: "worded anew")
    with pytest.raises(ResumeRefused) as caught:
        opened().run(agent, "t", model=model)
    assert caught.value.reason == "context"
    (drift,) = bench.bodies("DriftDetected")
    assert (drift.what, drift.choice) == ("context", "refuse")
    reply = next(event.sequence_number for event in bench.events() if event.type == "ModelReplied")
    assert drift.component == f"item 2: result of {reply}.0"


def test_a_principal_or_budget_offered_anew_is_drift_of_the_contract_and_the_recorded_one_stands(bench: Bench) -> None:
    agent = dying(lambda t, turn: turn.now())
    started(bench, agent, principal="ann", budget={"turns": 9})
    assert bench.fresh().run(agent, "t", principal="bob", budget={"turns": 99}).status == "completed"
    drift = {one.component: (one.what, one.old, one.new, one.choice) for one in bench.bodies("DriftDetected")}
    assert drift == {
        "principal": ("contract", "ann", "bob", "recorded"),
        "budget": ("contract", {"turns": "9"}, {"turns": "99"}, "recorded"),
    }
    assert canonical(bench.events()).conflicts == []


def test_aged_facts_are_named_to_the_agent_until_they_are_observed_again(bench: Bench) -> None:
    stale: list[list[str]] = []
    lives: list[int] = []

    def agent(t: Any) -> None:
        lives.append(1)
        for turn in t.turns():
            if turn.number == 0:
                t.observations.cache("stock", 7, half_life_s=0.01)
                continue
            turn.now()
            if len(lives) == 1:
                raise Died
            turn.uuid()
            stale.append(t.observations.stale)
            t.observations.cache("stock", 8, half_life_s=60)
            stale.append(t.observations.stale)
            t.finish()

    started(bench, agent)
    import time

    time.sleep(0.05)
    assert bench.fresh().run(agent, "t").status == "completed"
    assert stale == [["stock"], []]


def test_the_seam_records_what_the_first_call_reads_anew(bench: Bench) -> None:
    agent = dying(lambda t, turn: turn.model(scripted(["hello"])))
    started(bench, agent)
    bench.fresh().run(agent, "t")
    usage = bench.bodies("ModelReplied")[0].usage
    expected = None if usage is None or usage.input_total is None else usage.input_total + (usage.output or 0)
    assert bench.bodies("Resumed")[0].cold_prefill_tokens == expected
