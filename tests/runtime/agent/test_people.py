"""Approvals, policy, constraints, budget, cancel, steer, late results: where people and rules come in."""

from __future__ import annotations

import time
from typing import Any

import pytest

from trajlake.runtime import Allow, Ask, BudgetExhausted, Call, Deny
from trajlake.runtime.models import scripted

from .conftest import Bench, one_call, plain_agent


class Policy:
    """Asks about `pay`, denies `drop`, allows the rest."""

    version = "p/1"

    def __init__(self, expires_s: float | None = None) -> None:
        self.expires_s = expires_s

    def __call__(self, call: Call, state: Any) -> Any:
        if call.tool == "drop":
            return Deny("never drop")
        return Ask(self.expires_s, "really?") if call.tool == "pay" else Allow()


def paying(bench: Bench, ran: list[Any], policy: Any = None) -> Any:
    """A fresh journal with two tools, under the policy."""
    journal = bench.fresh(policy=policy or Policy())

    @journal.tool
    def pay(n: int) -> int:
        ran.append(n)
        return n

    @journal.tool(effect="read")
    def drop(n: int) -> int:
        ran.append(-n)
        return n

    return journal


def test_a_call_that_needs_approval_parks_and_runs_once_it_is_granted(bench: Bench) -> None:
    ran: list[Any] = []
    model = one_call("pay", {"n": 5})
    outcome = paying(bench, ran).run(plain_agent(), "t", task="go", model=model)
    assert outcome.status == "parked"
    assert outcome.waiting_for[0].kind == "approval"
    assert ran == []
    before = bench.types()
    assert paying(bench, ran).run(plain_agent(), "t", model=model).status == "parked"
    assert bench.types() == before, "asking again while nobody has answered writes nothing"
    paying(bench, ran).approve("t", outcome.waiting_for[0].approval_id, "fine", actor="anna")
    results: list[Any] = []
    assert paying(bench, ran).run(plain_agent(results), "t", model=model).status == "completed"
    assert ran == [5]
    assert results[0].output == 5
    assert bench.bodies("ToolIntent")[0].approval == outcome.waiting_for[0].approval_id
    assert bench.bodies("ApprovalResolved")[0].mail.actor == "anna"


def test_a_denied_call_is_refused_with_the_reason_and_never_runs(bench: Bench) -> None:
    ran: list[Any] = []
    model = one_call("pay", {"n": 5})
    outcome = paying(bench, ran).run(plain_agent(), "t", task="go", model=model)
    paying(bench, ran).deny("t", outcome.waiting_for[0].action_id, "too much")
    results: list[Any] = []
    assert paying(bench, ran).run(plain_agent(results), "t", model=model).status == "completed"
    assert ran == []
    assert results[0].status == "refused"
    assert "too much" in results[0].text


def test_an_expired_approval_is_asked_for_anew(bench: Bench) -> None:
    ran: list[Any] = []
    model = one_call("pay", {"n": 5})
    outcome = paying(bench, ran, Policy(0.2)).run(plain_agent(), "t", task="go", model=model)
    paying(bench, ran).approve("t", outcome.waiting_for[0].approval_id)
    time.sleep(0.4)
    again = paying(bench, ran, Policy(60)).run(plain_agent(), "t", model=model)
    assert again.status == "parked"
    assert ran == []
    assert again.waiting_for[0].approval_id != outcome.waiting_for[0].approval_id


def test_three_approvals_answered_in_reverse_each_reach_their_own_call(bench: Bench) -> None:
    ran: list[Any] = []
    model = scripted([[("pay", {"n": n}) for n in (1, 2, 3)], "done"])
    outcome = paying(bench, ran).run(plain_agent(), "t", task="go", model=model)
    assert [one.kind for one in outcome.waiting_for] == ["approval"] * 3
    journal = paying(bench, ran)
    third, second, first = reversed(outcome.waiting_for)
    journal.deny("t", third.approval_id)
    journal.approve("t", second.approval_id)
    journal.deny("t", second.approval_id, "too late to deny")
    journal.approve("t", first.approval_id)
    results: list[Any] = []
    assert paying(bench, ran).run(plain_agent(results), "t", model=model).status == "completed"
    assert [one.status for one in results] == ["ok", "ok", "refused"]
    assert sorted(ran) == [1, 2]
    assert len(bench.bodies("ApprovalResolved")) == 3


def test_siblings_of_a_call_that_waits_are_settled_before_the_park(bench: Bench) -> None:
    journal, ran = bench.fresh(), []

    @journal.tool
    def note(n: int) -> None:
        ran.append(n)

    @journal.tool(approve=True)
    def pay(n: int) -> None:
        ran.append(-n)

    model = scripted([[("pay", {"n": 1}), ("note", {"n": 2})], "done"])
    assert journal.run(plain_agent(), "t", task="go", model=model).status == "parked"
    assert ran == [2]
    assert bench.types()[-1] == "LeaseReleased"


def test_policy_denies_with_its_text_and_its_version_is_recorded(bench: Bench) -> None:
    ran: list[Any] = []
    results: list[Any] = []
    model = one_call("drop", {"n": 1})
    assert paying(bench, ran).run(plain_agent(results), "t", task="go", model=model).status == "completed"
    assert ran == []
    assert "never drop" in results[0].text
    assert bench.bodies("Authorized")[0].policy_version == "p/1"
    assert bench.bodies("Authorized")[0].decision == "deny"


def test_a_constraint_with_a_predicate_is_enforced_until_it_is_withdrawn(bench: Bench) -> None:
    journal, ran = bench.fresh(), []

    @journal.tool(effect="read")
    def drop(table: str) -> None:
        ran.append(table)

    def agent(t: Any) -> None:
        for turn in t.turns():
            t.constraints.accept("c1", "keep production", tool="dr*", arguments={"table": "prod.*"})
            first = turn.call("drop", {"table": "prod.users"})
            second = turn.call("drop", {"table": "test.users"})
            t.constraints.withdraw("c1", because="moved")
            third = turn.call("drop", {"table": "prod.users"})
            t.finish([first.status, second.status, third.status])

    assert journal.run(agent, "t", task=1).result == ["refused", "ok", "ok"]
    assert ran == ["test.users", "prod.users"]


def test_a_budget_denies_the_call_that_would_exceed_it_and_only_a_revision_raises_it(bench: Bench) -> None:
    journal, ran = bench.fresh(), []

    @journal.tool(effect="read")
    def look(n: int) -> int:
        ran.append(n)
        return n

    def agent(t: Any) -> None:
        for turn in t.turns():
            statuses = [turn.call("look", {"n": n}).status for n in (1, 2, 3)]
            left = dict(t.budget.left)
            t.budget.revise({"tool_calls": 3}, because="one more")
            statuses.append(turn.call("look", {"n": 4}).status)
            t.finish([statuses, left, t.budget.left])

    outcome = journal.run(agent, "t", task=1, budget={"tool_calls": 2})
    assert outcome.result == [["ok", "ok", "refused", "ok"], {"tool_calls": "0"}, {"tool_calls": "0"}]
    assert ran == [1, 2, 4]


def test_a_cost_is_reserved_at_the_intent_and_booked_at_the_result(bench: Bench) -> None:
    journal = bench.fresh()

    def cost(call: Call) -> dict[str, Any]:
        return {"usd": call.arguments["usd"]}

    cost.maximum = {"usd": "2"}  # type: ignore[attr-defined]

    @journal.tool(cost=cost)
    def buy(usd: str) -> None: ...

    def agent(t: Any) -> None:
        for turn in t.turns():
            statuses = [turn.call("buy", {"usd": usd}).status for usd in ("1.25", "0.5", "1")]
            t.finish([statuses, t.budget.left])

    outcome = journal.run(agent, "t", task=1, budget={"usd": "3.5"})
    assert outcome.result == [["ok", "ok", "refused"], {"usd": "1.75"}]
    assert [one.cost for one in bench.bodies("ToolResult")] == [{"usd": "1.25"}, {"usd": "0.5"}, {}]


def test_a_model_call_over_the_budget_is_not_made(bench: Bench) -> None:
    journal = bench.fresh()

    def agent(t: Any) -> None:
        t.context.user("hi")
        for turn in t.turns():
            turn.model()
            with pytest.raises(BudgetExhausted, match="model_calls"):
                turn.model()
            t.fail("out of budget")

    outcome = journal.run(agent, "t", task=1, model=scripted(["a", "b"]), budget={"model_calls": 1})
    assert (outcome.status, outcome.result) == ("failed", "out of budget")
    assert len(bench.bodies("ModelReplied")) == 1


def test_cancel_stops_at_the_next_operation_and_the_end_is_recorded(bench: Bench) -> None:
    journal = bench.fresh()

    @journal.tool(effect="read")
    def look(n: int) -> int:
        journal.cancel("t", "enough", actor="boss")
        return n

    outcome = journal.run(plain_agent(), "t", task="go", model=one_call("look", {"n": 1}))
    assert (outcome.status, outcome.result) == ("cancelled", "enough")
    assert bench.types()[-4:] == ["CancelRequested", "CheckpointSaved", "TaskEnded", "LeaseReleased"]


def test_a_steer_is_read_where_the_next_turn_begins_and_reaches_the_model(bench: Bench) -> None:
    journal = bench.fresh()
    shown: list[Any] = []

    @journal.tool(effect="read")
    def look() -> str:
        journal.steer("t", "try the other door")
        return "wall"

    def says(context: Any) -> Any:
        shown.append([item["content"] for item in context.items if item["role"] == "user"])
        return [("look", {})] if len(shown) == 1 else "done"

    assert journal.run(plain_agent(), "t", task="go", model=scripted(says)).status == "completed"
    assert shown == [["go"], ["go", "try the other door"]]
    steer = next(event for event in bench.events() if event.type == "MessageAdded" and event.body.origin == "steer")
    assert steer.turn == 1


def test_a_steer_of_an_interrupted_turn_is_in_its_context_when_it_is_entered_again(bench: Bench) -> None:
    seen: list[Any] = []

    def agent(t: Any) -> None:
        t.context.user("go")
        for turn in t.turns():
            seen.append((turn.number, [item["content"] for item in t.context.items]))
            if turn.number == 0:
                journal.steer("t", "other way")
                turn.now()
            elif len(seen) == 2:
                raise ZeroDivisionError
            else:
                t.finish()

    journal = bench.fresh()
    with pytest.raises(ZeroDivisionError):
        journal.run(agent, "t", task=1)
    journal = bench.fresh()
    assert journal.run(agent, "t").status == "completed"
    assert seen[1] == seen[2] == (1, ["go", "other way"])


def test_an_asynchronous_tool_waits_without_a_worker_and_its_mail_wakes_it(bench: Bench) -> None:
    def start() -> Any:
        journal = bench.fresh()

        @journal.tool(asynchronous=True, deadline_s=3600)
        def build(what: str) -> None: ...

        return journal

    model = one_call("build", {"what": "x"})
    outcome = start().run(plain_agent(), "t", task="go", model=model)
    assert outcome.status == "parked"
    assert outcome.waiting_for[0].kind == "job"
    start().deliver("t", outcome.waiting_for[0].action_id, {"artifact": 7})
    results: list[Any] = []
    assert start().run(plain_agent(results), "t", model=model).status == "completed"
    assert results[0].output == {"artifact": 7}
    assert len(bench.bodies("ToolIntent")) == 1


def test_an_asynchronous_job_past_its_deadline_is_in_doubt(bench: Bench) -> None:
    def start() -> Any:
        journal = bench.fresh()

        @journal.tool(asynchronous=True, deadline_s=0.2)
        def build() -> None: ...

        return journal

    model = one_call("build")
    start().run(plain_agent(), "t", task="go", model=model)
    time.sleep(0.4)
    assert start().run(plain_agent(), "t", model=model).waiting_for[0].kind == "doubt"


def test_a_result_that_comes_after_the_end_is_refused_and_never_reaches_a_model(bench: Bench) -> None:
    journal = bench.fresh()

    @journal.tool(effect="read")
    def look() -> int:
        return 1

    done = journal.run(plain_agent(), "t", task="go", model=one_call("look"))
    action = bench.bodies("ToolResult")[0].action_id
    journal.deliver("t", action, "late")
    journal.deliver("t", "999.0", "never asked for")
    assert journal.run(plain_agent(), "t") == done
    late = bench.bodies("LateResult")
    assert [one.decision for one in late] == ["refused", "refused"]
    assert bench.types()[-4:] == ["LeaseAcquired", "LateResult", "LateResult", "LeaseReleased"]
