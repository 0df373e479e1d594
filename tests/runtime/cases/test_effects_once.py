"""Failures of other systems in which an effect came twice, got lost, or was another than the approved one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.golden import shapes
from tests.runtime.agent.conftest import Bench, one_call, plain_agent
from trajlake.runtime import Call, Diverged, Journal
from trajlake.runtime.models import scripted
from trajlake.runtime.root_view import RootView, status_row
from trajlake.schemas.errors import InvalidValue


def paying(bench: Bench, ran: list[Any], **options: Any) -> Journal:
    """A fresh journal whose tool `pay` notes what it paid, and for what."""
    journal = bench.fresh()

    @journal.tool(**options)
    def pay(amount: int, reason: str = "") -> str:
        ran.append((amount, reason))
        if reason == "breaks":
            raise OSError("the line broke after it was sent")
        return f"paid {amount}"

    return journal


def test_an_approval_is_good_for_one_call_and_a_later_turn_pays_nothing(bench: Bench) -> None:
    """T8."""
    ran: list[Any] = []
    model = scripted([[("pay", {"amount": 5})], "paid", [("pay", {"amount": 5})], "done"])

    def agent(t: Any) -> None:
        t.context.user("pay")
        for turn in t.turns(max=9):
            if turn.number == 1:
                t.context.user("thanks; how is the weather?")
            reply = turn.model()
            turn.tools(reply.calls)
            if reply.text == "done":
                t.finish()

    first = paying(bench, ran, approve=True).run(agent, "t", task=1, model=model)
    assert (first.status, ran) == ("parked", [])
    paying(bench, ran, approve=True).approve("t", first.waiting_for[0].approval_id)
    second = paying(bench, ran, approve=True).run(agent, "t", model=model)
    assert (second.status, second.waiting_for[0].kind) == ("parked", "approval"), "the second payment is asked about"
    assert second.waiting_for[0].approval_id != first.waiting_for[0].approval_id
    assert ran == [(5, "")]
    assert paying(bench, ran, approve=True).run(agent, "t", model=model).status == "parked"
    assert ran == [(5, "")]


def test_the_journals_key_is_sent_whatever_key_a_model_makes_up(bench: Bench) -> None:
    """T9: the same key at each attempt; the same order under another key of the model's is asked about."""
    journal, sent = bench.fresh(), []

    @journal.tool(effect="idempotent", same_as=("order",))
    def charge(order: str, idempotency_key: str, *, call: Call) -> str:
        sent.append(call.key)
        if len(sent) == 1:
            raise TimeoutError("no answer")
        return "charged"

    model = scripted([
        [("charge", {"order": "7", "idempotency_key": "unique-1"})],
        [("charge", {"order": "7", "idempotency_key": "unique-2"})], "done",
    ])  # fmt: skip
    outcome = journal.run(plain_agent(), "t", task=1, model=model)
    assert (outcome.status, outcome.waiting_for[0].kind) == ("parked", "approval")
    assert len(sent) == 2
    assert len(set(sent)) == 1
    assert "unique" not in sent[0]


def test_a_reworded_call_is_not_made_while_the_first_is_in_doubt_and_asked_about_after(bench: Bench) -> None:
    """T10."""
    ran: list[Any] = []
    model = scripted([
        [("pay", {"amount": 10, "reason": "breaks"})], [("pay", {"amount": 10, "reason": "reworded"})], "done",
    ])  # fmt: skip
    options = {"same_as": ("amount",)}
    outcome = paying(bench, ran, **options).run(plain_agent(), "t", task=1, model=model)
    assert [one.kind for one in outcome.waiting_for] == ["doubt"]
    closed = paying(bench, ran, **options).run(plain_agent(), "t", model=model, close_turn=True, because="on with it")
    assert [one.kind for one in closed.waiting_for] == ["doubt"], "a closed turn does not settle its doubt"
    first = outcome.waiting_for[0].action_id
    paying(bench, ran, **options).settle("t", first, executed=True, because="the bank shows it")
    after = paying(bench, ran, **options).run(plain_agent(), "t", model=model)
    assert [one.kind for one in after.waiting_for] == ["approval"]
    assert bench.bodies("ApprovalRequested")[-1].repeats == first
    assert ran == [(10, "breaks")]


def test_what_was_approved_is_what_runs(bench: Bench) -> None:
    """T35: a model that says something else on resume is not asked; code that does is stopped."""
    ran: list[Any] = []
    outcome = paying(bench, ran, approve=True).run(plain_agent(), "t", task=1, model=one_call("pay", {"amount": 5}))
    paying(bench, ran, approve=True).approve("t", outcome.waiting_for[0].approval_id)
    other = one_call("pay", {"amount": 6})
    assert paying(bench, ran, approve=True).run(plain_agent(), "t", model=other).status == "completed"
    assert ran == [(5, "")]

    def pays(amount: int) -> Any:
        def agent(t: Any) -> None:
            for turn in t.turns():
                t.finish(turn.call("pay", {"amount": amount}).output)

        return agent

    outcome = paying(bench, ran, approve=True).run(pays(5), "u", task=1)
    paying(bench, ran, approve=True).approve("u", outcome.waiting_for[0].approval_id)
    with pytest.raises(Diverged, match="pay"):
        paying(bench, ran, approve=True).run(pays(6), "u")
    assert ran == [(5, "")]


def test_a_cancelled_call_that_may_have_been_sent_stays_in_doubt_and_the_end_is_recorded(bench: Bench) -> None:
    """T33."""
    journal = bench.fresh()

    @journal.tool
    def pay() -> None:
        journal.cancel("t", "enough", actor="boss")
        raise OSError("the line broke after it was sent")

    journal.run(plain_agent(), "t", task=1, model=one_call("pay"))
    outcome = journal.run(plain_agent(), "t", model=one_call("pay"))
    assert (outcome.status, outcome.result) == ("cancelled", "enough")
    view = RootView(journal.root).trajectory("default", "t")
    assert view is not None
    row = status_row(view, journal.root.env.now_us())
    assert (row.status, row.stages) == ("cancelled", {"in_doubt": 1})
    assert bench.types()[-3:] == ["CheckpointSaved", "TaskEnded", "LeaseReleased"]


def test_a_log_that_ends_in_an_intent_loads_and_gives_a_list_that_every_provider_takes(bench: Bench) -> None:
    """T26: one result message for each call, whatever became of it."""
    ran: list[Any] = []
    shown: list[Any] = []

    def says(context: Any) -> Any:
        shown.append(list(context.items))
        both = [("pay", {"amount": 1, "reason": "breaks"}), ("pay", {"amount": 2})]
        return both if len(context.items) == 3 else "done"

    def agent(t: Any) -> None:
        t.context.system("be brief")
        t.context.user("pay")
        t.context.user("both")
        for turn in t.turns(max=5):
            reply = turn.model(scripted(says))
            turn.tools(reply.calls)
            if not reply.calls:
                t.finish(reply.text)

    outcome = paying(bench, ran).run(agent, "t", task=1)
    assert [one.kind for one in outcome.waiting_for] == ["doubt"]
    paying(bench, ran).settle("t", outcome.waiting_for[0].action_id, executed=True, because="the bank shows it")
    assert paying(bench, ran).run(agent, "t").status == "completed"
    calls = [call["id"] for item in shown[-1] for call in item.get("tool_calls") or ()]
    answers = [item["tool_call_id"] for item in shown[-1] if item["role"] == "tool"]
    assert len(calls) == 2
    assert sorted(answers) == sorted(calls)
    assert [item["role"] for item in shown[-1]] == ["system", "user", "user", "assistant", "tool", "tool"]
    assert all(item["content"] for item in shown[-1] if item["role"] == "tool")


def test_a_class_that_is_gone_refuses_the_resume_naming_path_and_type(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T19."""
    stops = [True]

    def agent(t: Any) -> None:
        for turn in t.turns(max=5):
            if turn.number == 0:
                t.vars["order"] = shapes.Order("A", 1)
            elif stops:
                raise RuntimeError("stops here")
            else:
                t.finish(t.vars["order"].cents)

    with pytest.raises(RuntimeError, match="stops here"):
        bench.fresh().run(agent, "t", task=1)
    stops.clear()
    with monkeypatch.context() as patched:
        patched.delattr(shapes, "Order")
        with pytest.raises(InvalidValue, match=r"t\.vars\[.order.\].*tests\.golden\.shapes:Order is not there"):
            bench.fresh().run(agent, "t")
    assert "TaskEnded" not in bench.types()


@pytest.mark.parametrize(
    "value",
    [2**80, -(2**63) - 1, "a\0b", "\ud83d", -0.0, float("inf"), b"\x00\xff", (1, [2]), {"$tuple": 1}, {1: "one"}],
    ids=repr,
)
def test_any_value_comes_back_equal_or_is_refused_before_the_effect(bench: Bench, value: Any) -> None:
    """T20, through a tool and back, and through variables after a resume."""
    journal, ran = bench.fresh(), []

    @journal.tool
    def echo(value: Any) -> Any:
        ran.append(value)
        return value

    def agent(t: Any) -> None:
        for turn in t.turns(max=3):
            if turn.number == 0:
                t.vars["kept"] = turn.call("echo", {"value": value}).output
            else:
                t.finish([t.vars["kept"]])

    outcome = journal.run(agent, "t", task=1)
    assert outcome.status == "completed"
    assert repr(outcome.result) == repr([value])
    assert repr(ran) == repr([value])


def test_what_cannot_be_recorded_is_refused_before_the_effect(bench: Bench) -> None:
    """T20."""
    journal, ran = bench.fresh(), []

    @journal.tool
    def echo(value: Any) -> Any:
        ran.append(value)

    def agent(t: Any) -> None:
        for turn in t.turns():
            turn.call("echo", {"value": object()})

    with pytest.raises(InvalidValue, match="object"):
        journal.run(agent, "t", task=1)
    assert ran == []
    assert "ToolIntent" not in bench.types()
