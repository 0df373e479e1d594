"""What a tool body raises, and what becomes of its call."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from trajlake.runtime import (
    NOT_EXECUTED,
    UNKNOWN,
    Call,
    Executed,
    Misuse,
    NotExecuted,
    Refuse,
    Retry,
    ToolError,
    replay,
)
from trajlake.runtime.blob_store import BlobStore
from trajlake.runtime.models import scripted
from trajlake.runtime.tools import InvalidArguments

from .conftest import Bench, one_call, plain_agent


def run(bench: Bench, journal: Any, model: Any, results: list[Any], **more: Any) -> Any:
    return journal.run(plain_agent(results), "t", task="go", model=model, **more)


def test_a_tool_without_a_class_is_external(bench: Bench) -> None:
    journal = bench.fresh()

    @journal.tool
    def send(to: str) -> str:
        return to

    assert send.effect == "external"
    assert send("a") == "a"


@pytest.mark.parametrize("effect", ["read", "local", "idempotent", "external"])
def test_what_a_tool_raises_by_itself_is_told_to_the_model(bench: Bench, effect: str) -> None:
    journal, results = bench.fresh(), []

    @journal.tool(effect=effect)
    def act(how: str) -> str:
        raise ToolError("no such order") if how == "error" else NotExecuted("service down")

    model = scripted([[("act", {"how": "error"}), ("act", {"how": "down"})], "done"])
    assert run(bench, journal, model, results, workspace=bench.work).status == "completed"
    assert [(one.status, one.error) for one in results] == [
        ("error", "no such order"),
        ("not_executed", "service down"),
    ]
    assert not results[0].ok
    with pytest.raises(ToolError, match="no such order"):
        results[0].value()


@pytest.mark.parametrize("effect", ["read", "local"])
def test_any_other_exception_of_a_read_or_local_tool_is_an_error(bench: Bench, effect: str) -> None:
    journal, results = bench.fresh(), []

    @journal.tool(effect=effect)
    def act() -> str:
        raise KeyError("x")

    assert run(bench, journal, one_call("act"), results, workspace=bench.work).status == "completed"
    assert [(one.status, one.error) for one in results] == [("error", "KeyError: 'x'")]


def test_any_other_exception_of_an_external_tool_is_unknown_and_waits_for_a_person(bench: Bench) -> None:
    journal, sent = bench.fresh(), []

    @journal.tool
    def pay() -> str:
        sent.append(1)
        raise ConnectionResetError("gone")

    outcome = run(bench, journal, one_call("pay"), [])
    assert outcome.status == "parked"
    assert outcome.waiting_for[0].kind == "doubt"
    assert "trajlake settle t" in outcome.waiting_for[0].question
    assert "ToolResult" not in bench.types()
    assert len(sent) == 1


def test_a_timeout_of_an_idempotent_tool_is_settled_by_sending_the_same_key(bench: Bench) -> None:
    journal, keys, results = bench.fresh(), [], []

    @journal.tool(effect="idempotent", timeout_s=0.2)
    def put() -> str:
        keys.append(1)
        if len(keys) == 1:
            time.sleep(1)
        return "stored"

    assert run(bench, journal, one_call("put"), results).status == "completed"
    assert [(one.status, one.output) for one in results] == [("ok", "stored")]
    intents = bench.bodies("ToolIntent")
    assert len({intent.key for intent in intents}) == 1
    assert [intent.attempt for intent in intents] == [1, 2]
    assert bench.bodies("ToolSettled")[0].how == "key"


def test_bulk_that_was_just_stored_is_not_read_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, texts = bench.fresh(), ["text " * 50_000, {"rows": ["x" * 1000] * 300}]
    reads: list[str] = []
    get = BlobStore.get

    def counted(store: BlobStore, tenant: str, sha256: str) -> bytes:
        reads.append(sha256)
        return get(store, tenant, sha256)

    monkeypatch.setattr(BlobStore, "get", counted)

    @journal.tool(effect="read")
    def dump(which: int) -> Any:
        return texts[which]

    def agent(t: Any) -> None:
        for turn in t.turns(max=1):
            assert [turn.call("dump", {"which": one}).output for one in (0, 1)] == texts

    journal.run(agent, "t", task="go")
    assert not reads
    assert replay(agent, bench.events(), journal=journal).same
    assert reads


def test_a_probe_settles_in_the_living_worker(bench: Bench) -> None:
    journal, results = bench.fresh(), []

    def probe(call: Call) -> Any:
        return Executed({"n": 1}, evidence="ledger 7") if call.arguments["order"] == "a" else UNKNOWN

    @journal.tool(probe=probe)
    def pay(order: str) -> str:
        raise OSError("lost")

    assert run(bench, journal, one_call("pay", {"order": "a"}), results).status == "completed"
    assert [(one.status, one.output) for one in results] == [("ok", {"n": 1})]


def test_a_probe_that_says_not_executed_is_believed_only_after_the_bound(bench: Bench) -> None:
    journal, asked, results = bench.fresh(), [], []

    def probe(call: Call) -> Any:
        asked.append(time.monotonic())
        return NOT_EXECUTED

    @journal.tool(probe=probe, timeout_s=0.2, settle_after_s=0.3)
    def pay() -> str:
        raise OSError("lost")

    began = time.monotonic()
    assert run(bench, journal, one_call("pay"), results).status == "completed"
    assert results[0].status == "not_executed"
    assert asked[-1] - began >= 0.5
    assert len(asked) == 2


def test_not_executed_is_tried_again_under_the_same_key_as_retry_allows(bench: Bench) -> None:
    journal, attempts, results = bench.fresh(), [], []

    @journal.tool(retry=Retry(2))
    def pay(*, call: Call) -> int:
        attempts.append((call.attempt, call.key))
        if call.attempt < 3:
            raise NotExecuted
        return call.attempt

    assert run(bench, journal, one_call("pay"), results).status == "completed"
    assert [attempt for attempt, _ in attempts] == [1, 2, 3]
    assert len({key for _, key in attempts}) == 1
    assert results[0].output == 3
    assert [intent.attempt for intent in bench.bodies("ToolIntent")] == [1, 2, 3]


def test_arguments_that_are_no_json_or_do_not_fit_make_no_intent(bench: Bench) -> None:
    journal, results = bench.fresh(), []

    @journal.tool(effect="read")
    def look(n: int) -> int:
        return n

    calls = [("look", "{oops"), ("look", {"n": "x"}), ("look", {"n": 1, "m": 2}), ("nobody", {}), ("look", {"n": "4"})]
    assert run(bench, journal, scripted([calls, "done"]), results).status == "completed"
    assert [one.status for one in results] == ["refused"] * 4 + ["ok"]
    assert results[4].output == 4, "text that stands for a number is coerced"
    assert len(bench.bodies("ToolIntent")) == 1


def test_a_value_that_cannot_be_recorded_still_settles_with_its_repr(bench: Bench) -> None:
    journal, results = bench.fresh(), []

    @journal.tool
    def act() -> Any:
        return object()

    assert run(bench, journal, one_call("act"), results).status == "completed"
    assert results[0].status == "ok"
    assert "object object" in str(results[0].output)
    assert bench.bodies("ToolResult")[0].lossy


def test_two_equal_deliberate_calls_get_two_keys_and_two_effects(bench: Bench) -> None:
    journal, keys = bench.fresh(), []

    @journal.tool
    def send(text: str, *, call: Call) -> None:
        keys.append(call.key)

    model = scripted([[("send", {"text": "x"}), ("send", {"text": "x"})], [("send", {"text": "x"})], "done"])
    assert run(bench, journal, model, []).status == "completed"
    assert len(set(keys)) == 3


@pytest.mark.parametrize("same_as", ["amount", ("amount",), lambda call: call.arguments["amount"]])
def test_the_same_business_gets_the_recorded_result_and_other_arguments_are_asked_about(
    bench: Bench, same_as: Any
) -> None:
    journal, sent, results = bench.fresh(), [], []

    @journal.tool(same_as=same_as)
    def pay(amount: int, reason: str) -> str:
        sent.append(reason)
        return f"paid {amount}"

    model = scripted([
        [("pay", {"amount": 10, "reason": "a"})], [("pay", {"amount": 10, "reason": "a"})],
        [("pay", {"amount": 10, "reason": "b"})], "done",
    ])  # fmt: skip
    outcome = run(bench, journal, model, results)
    assert [one.status for one in results] == ["ok", "replayed"]
    assert results[1].output == "paid 10"
    assert outcome.status == "parked"
    assert outcome.waiting_for[0].kind == "approval"
    assert bench.bodies("ApprovalRequested")[0].repeats == bench.bodies("ToolIntent")[0].action_id
    assert sent == ["a"]


def test_a_precheck_refuses_before_the_effect(bench: Bench) -> None:
    journal, results, ran = bench.fresh(), [], []

    @journal.tool(precheck=lambda call: Refuse("sold out") if call.arguments["n"] > 1 else None)
    def buy(n: int) -> None:
        ran.append(n)

    model = scripted([[("buy", {"n": 1}), ("buy", {"n": 2})], "done"])
    assert run(bench, journal, model, results).status == "completed"
    assert [one.status for one in results] == ["ok", "refused"]
    assert "sold out" in results[1].text
    assert ran == [1]


def test_parallel_calls_share_one_barrier_and_results_come_in_call_order(bench: Bench) -> None:
    journal, results = bench.fresh(), []

    @journal.tool(effect="idempotent")
    def wait(n: int) -> int:
        meeting.wait(timeout=10)
        time.sleep(0.02 * n)
        return n

    meeting = threading.Barrier(3)
    model = scripted([[("wait", {"n": 3}), ("wait", {"n": 1}), ("wait", {"n": 2})], "done"])
    assert run(bench, journal, model, results).status == "completed"
    assert [one.output for one in results] == [3, 1, 2]
    types = bench.types()
    first = types.index("ToolResult")
    assert types[:first].count("ToolIntent") == 3, "all intents are durable before any effect"


def test_local_tools_run_one_at_a_time_in_call_order(bench: Bench) -> None:
    journal, order = bench.fresh(), []

    @journal.tool(effect="local")
    def edit(n: int) -> None:
        order.append(("in", n))
        time.sleep(0.02)
        order.append(("out", n))

    model = scripted([[("edit", {"n": n}) for n in (1, 2, 3)], "done"])
    assert run(bench, journal, model, [], workspace=bench.work).status == "completed"
    assert order == [(way, n) for n in (1, 2, 3) for way in ("in", "out")]


def test_a_local_tool_needs_a_workspace(bench: Bench) -> None:
    journal = bench.fresh()

    @journal.tool(effect="local")
    def edit() -> None: ...

    with pytest.raises(Misuse, match="workspace=PATH"):
        run(bench, journal, one_call("edit"), [])


def test_bulk_arguments_and_outputs_go_beside_the_segments_and_come_back(bench: Bench) -> None:
    journal, results = bench.fresh(), []

    @journal.tool
    def echo(text: str) -> str:
        return text.upper()

    big = "a" * 3_000_000
    assert run(bench, journal, one_call("echo", {"text": big}), results).status == "completed"
    assert results[0].output == big.upper()
    assert max(len(event.payload or b"") for event in bench.events()) < 10_000
    again: list[Any] = []
    journal = bench.fresh()
    assert run(bench, journal, one_call("echo", {"text": big}), again).status == "completed"


def test_a_harness_call_that_does_not_fit_its_tool_raises_at_once(bench: Bench) -> None:
    journal = bench.fresh()

    @journal.tool(effect="read")
    def look(n: int) -> int:
        return n

    def agent(t: Any) -> None:
        for turn in t.turns():
            with pytest.raises(InvalidArguments):
                turn.call("look", {"n": "x"})
            with pytest.raises(Misuse, match="no tool named"):
                turn.call("nobody")
            t.finish(turn.call("look", {"n": 3}, step="mine").output)

    assert journal.run(agent, "t", task=1).result == 3
