"""What each mail item becomes, and when it becomes nothing (cases T2, T34, T35 among them)."""

from __future__ import annotations

import pytest

from trajlake.runtime.mailbox.mail import MailItem
from trajlake.runtime.mailbox.mail_events import Drop, event_of
from trajlake.schemas.chain import genesis, make_event
from trajlake.schemas.context import item_hash
from trajlake.schemas.events import (
    ApprovalRequested,
    ApprovalResolved,
    Authorized,
    CancelRequested,
    LateResult,
    MessageAdded,
    ModelReplied,
    Payload,
    ProposedCall,
    TaskEnded,
    TaskStarted,
    ToolIntent,
    ToolResult,
    ToolSettled,
)
from trajlake.schemas.state import State, fold, initial

H1, H2 = "11" * 32, "22" * 32


def state_after(*payloads: Payload) -> State:
    """Fold events numbered from 0, each after the one before."""
    events, prev = [], genesis("default", "t")
    for number, payload in enumerate(payloads):
        event = make_event(
            payload, tenant="default", trajectory_id="t", sequence_number=number, fencing_token=1, turn=0,
            recorded_at=number, salt=bytes(16), prev=prev,
        )  # fmt: skip
        events.append(event)
        prev = event.hash
    return fold(initial("default", "t"), events)


def item(
    kind: str, subject: str = "", mail_id: str = "m1", posted_at: int = 50, actor: str = "ada", **body
) -> MailItem:
    return MailItem(
        id=mail_id, tenant="default", trajectory_id="t", kind=kind, subject=subject, body=body, actor=actor,
        actor_known_by="os user", posted_at=posted_at,
    )  # fmt: skip


START = TaskStarted(task={}, principal="ada")
REPLY = ModelReplied(
    calls=(
        ProposedCall(tool="pay", provider_id="call_1"),
        ProposedCall(tool="pay", provider_id="call_1"),
        ProposedCall(tool="mail", provider_id="call_9"),
    )
)


def intent(action_id: str, provider_id: str = "", **more) -> ToolIntent:
    return ToolIntent(
        action_id=action_id, tool="pay", arguments_hash=H1, key="k" + action_id, effect="external",
        provider_id=provider_id, **more,
    )  # fmt: skip


def asked(number: int, arguments_hash: str = H1, expires_at: int | None = 100) -> ApprovalRequested:
    return ApprovalRequested(
        approval_id=f"ask-{number}", action_id=f"1.{number}", tool="pay", arguments_hash=arguments_hash,
        requester="agent", expires_at=expires_at,
    )  # fmt: skip


def dropped(outcome: Payload | Drop) -> str:
    assert isinstance(outcome, Drop), outcome
    return outcome.reason


# -- any kind --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["approval", "cancel", "result", "settle", "steer"])
def test_an_id_already_in_the_log_becomes_nothing(kind):
    seen = event_of(item("steer", text="hi"), state_after(START))
    again = event_of(item(kind, "1.0"), state_after(START, REPLY, seen))
    assert "in the log already" in dropped(again)


@pytest.mark.parametrize("kind", ["approval", "cancel", "result", "settle", "steer"])
@pytest.mark.parametrize("body", [{}, {"decision": 7}, {"verdict": [], "status": {}}, {"text": 4, "wire": "x"}])
def test_a_strange_body_never_raises(kind, body):
    for state in (initial("default", "t"), state_after(START, REPLY, intent("1.0"))):
        assert isinstance(event_of(item(kind, "1.0", **body), state), Drop | Payload)


def test_a_body_nested_too_deeply_to_record_becomes_nothing():
    deep: list = []
    for _ in range(400):
        deep = [deep]
    state = state_after(START, REPLY, intent("1.0"))
    assert "cannot be recorded" in dropped(event_of(item("result", "1.0", output=deep), state))


def test_a_misplaced_item_becomes_nothing():
    stray = MailItem(id="x", tenant="default", trajectory_id="other", kind="cancel")
    assert "other" in dropped(event_of(stray, state_after(START)))


def test_what_a_stranger_wrote_cannot_make_the_event_impossible_to_write():
    odd = item("steer", actor="a\x00b", text="nul \x00 here")
    message = event_of(odd, state_after(START))
    state_after(START, message)
    assert "\x00" not in message.mail.actor


# -- approvals -------------------------------------------------------------------------------------------------------


def test_three_parallel_questions_answered_in_reverse_reach_their_own_actions_and_a_second_answer_none():
    events: list[Payload] = [START, REPLY, asked(0), asked(1, H2), asked(2)]
    for number in (2, 1, 0):
        answer = event_of(
            item("approval", f"ask-{number}", mail_id=f"m{number}", decision="granted"), state_after(*events)
        )
        assert isinstance(answer, ApprovalResolved)
        assert (answer.approval_id, answer.action_id) == (f"ask-{number}", f"1.{number}")
        assert answer.arguments_hash == (H2 if number == 1 else H1)
        events.append(answer)
    again = event_of(item("approval", "ask-1", mail_id="m9", decision="denied"), state_after(*events))
    assert "answered before" in dropped(again)


def test_an_approval_carries_who_answered_and_how_they_are_known():
    answer = event_of(
        item("approval", "ask-0", decision="denied", because="too much"), state_after(START, REPLY, asked(0))
    )
    assert (answer.decision, answer.approver, answer.approver_known_by) == ("denied", "ada", "os user")
    assert (answer.because, answer.mail.mail_id, answer.mail.posted_at) == ("too much", "m1", 50)


def test_an_action_names_its_question_if_it_has_exactly_one_open():
    state = state_after(START, REPLY, asked(0))
    assert event_of(item("approval", "1.0", decision="granted"), state).approval_id == "ask-0"
    twice = ApprovalRequested(approval_id="later", action_id="1.0", tool="pay", arguments_hash=H2)
    assert "nobody asked" in dropped(
        event_of(item("approval", "1.0", decision="granted"), state_after(START, REPLY, asked(0), twice))
    )


@pytest.mark.parametrize(
    ("subject", "body", "posted_at", "reason"),
    [
        ("ask-7", {"decision": "granted"}, 50, "nobody asked"),
        ("1.1", {"decision": "granted"}, 50, "nobody asked"),
        ("ask-0", {"decision": "maybe"}, 50, "without a decision"),
        ("ask-0", {"decision": "granted", "arguments_hash": H2}, 50, "other arguments"),
        ("ask-0", {"decision": "granted", "action_id": "1.1"}, 50, "another action"),
        ("ask-0", {"decision": "granted"}, 101, "expired"),
    ],
)
def test_an_approval_that_does_not_fit_its_question_is_refused(subject, body, posted_at, reason):
    outcome = event_of(item("approval", subject, posted_at=posted_at, **body), state_after(START, REPLY, asked(0)))
    assert reason in dropped(outcome)


def test_an_approval_posted_in_time_counts_however_late_it_is_read():
    assert isinstance(
        event_of(item("approval", "ask-0", posted_at=100, decision="granted"), state_after(START, REPLY, asked(0))),
        ApprovalResolved,
    )


def test_where_the_policy_says_so_the_principal_may_deny_but_not_grant():
    state = state_after(START, REPLY, asked(0))
    for actor in ("ada", "agent"):
        outcome = event_of(
            item("approval", "ask-0", actor=actor, decision="granted"), state, approver_may_be_principal=False
        )
        assert "somebody else" in dropped(outcome)
    denial = event_of(item("approval", "ask-0", decision="denied"), state, approver_may_be_principal=False)
    assert denial.decision == "denied"
    other = event_of(item("approval", "ask-0", actor="bob", decision="granted"), state, approver_may_be_principal=False)
    assert other.approver == "bob"


# -- results ---------------------------------------------------------------------------------------------------------


def test_a_result_closes_the_open_action_it_names():
    state = state_after(START, REPLY, intent("1.0", asynchronous=True, attempt=2))
    result = event_of(item("result", "1.0", status="ok", output={"paid": True}), state)
    assert isinstance(result, ToolResult)
    assert (result.action_id, result.status, result.attempt, result.output) == ("1.0", "ok", 2, {"paid": True})
    failed = event_of(item("result", "1.0", status="error", error="card refused"), state)
    assert (failed.status, failed.error) == ("error", "card refused")


def test_a_providers_id_finds_the_one_open_action_that_carries_it():
    one = state_after(START, REPLY, intent("1.0", "call_1"))
    assert event_of(item("result", "call_1", output=1), one).action_id == "1.0"
    two = state_after(START, REPLY, intent("1.0", "call_1"), intent("1.1", "call_1"))
    refused = event_of(item("result", "call_1", output=1), two)
    assert (refused.decision, refused.action_id) == ("refused", "")
    assert "name the action" in refused.reason
    first_done = state_after(
        START, REPLY, intent("1.0", "call_1"), ToolResult(action_id="1.0", status="ok"), intent("1.1")
    )
    assert event_of(item("result", "call_1", output=1), first_done).action_id == "1.1"


@pytest.mark.parametrize(
    ("events", "subject", "reason"),
    [
        ([REPLY], "7.0", "unknown action"),
        ([REPLY], "nonsense \x00", "unknown action"),
        ([REPLY], "", "unknown action"),
        ([REPLY], "1.0", "nothing was sent"),
        ([REPLY, intent("1.0"), ToolResult(action_id="1.0", status="ok")], "1.0", "decided before"),
        ([REPLY, intent("1.0"), ToolSettled(action_id="1.0", how="person", verdict="not_executed")], "1.0", "decided"),
        ([REPLY, intent("1.0"), CancelRequested(), TaskEnded(status="cancelled")], "1.0", "cancelled"),
    ],
)
def test_a_result_nobody_waits_for_is_kept_as_refused_with_its_output(events, subject, reason):
    late = event_of(item("result", subject, output="paid"), state_after(START, *events))
    assert isinstance(late, LateResult)
    assert (late.decision, late.output) == ("refused", "paid")
    assert reason in late.reason
    state_after(START, *events, late)  # it can be written and folded


def test_a_late_result_of_a_cancelled_trajectory_settles_the_action():
    events = [START, REPLY, intent("1.0"), CancelRequested(), TaskEnded(status="cancelled")]
    late = event_of(item("result", "1.0", output="paid"), state_after(*events))
    assert state_after(*events, late).execution.actions["1.0"].outcome is not None


# -- settlements, cancel, steer --------------------------------------------------------------------------------------


def test_a_person_settles_a_sent_action():
    state = state_after(START, REPLY, intent("1.0"))
    done = event_of(item("settle", "1.0", verdict="executed", because="bank says so", output="ok"), state)
    assert (done.how, done.verdict, done.has_output, done.output) == ("person", "executed", True, "ok")
    assert done.because == "bank says so"
    lost = event_of(item("settle", "1.0", verdict="executed", because="x"), state)
    assert (lost.has_output, lost.output) == (False, None)


@pytest.mark.parametrize(
    ("events", "subject", "reason"),
    [
        ([REPLY], "1.0", "nothing was sent"),
        ([REPLY], "9.0", "unknown action"),
        ([REPLY, intent("1.0"), ToolResult(action_id="1.0", status="ok")], "1.0", "the action was decided"),
    ],
)
def test_a_settlement_of_what_is_not_open_is_kept_as_refused_for_auditors(events, subject, reason):
    refused = event_of(item("settle", subject, verdict="executed", because="x"), state_after(START, *events))
    assert isinstance(refused, LateResult)
    assert (refused.decision, refused.action_id) == ("refused", subject)
    assert f"settlement executed: {reason}" in refused.reason
    state_after(START, *events, refused)


@pytest.mark.parametrize(
    ("body", "reason"),
    [({"verdict": "perhaps"}, "without a verdict"), ({"verdict": "not_executed", "output": 1}, "gives an output")],
)
def test_a_settlement_that_says_nothing_clear_becomes_nothing(body, reason):
    assert reason in dropped(event_of(item("settle", "1.0", **body), state_after(START, REPLY, intent("1.0"))))


def test_a_result_after_a_cancellation_settles_its_action_and_never_reaches_a_model():
    events = [START, REPLY, intent("1.0"), CancelRequested()]
    late = event_of(item("result", "1.0", output="paid"), state_after(*events))
    assert (late.decision, late.output, late.reason) == ("refused", "paid", "the trajectory was cancelled")
    assert state_after(*events, late).execution.actions["1.0"].outcome is not None


def test_after_a_loss_was_accepted_an_authorized_call_without_intent_can_be_settled():
    from trajlake.schemas.events import Resumed

    allowed = Authorized(action_id="1.0", tool="pay", decision="allow", arguments_hash=H1)
    events = [START, REPLY, allowed]
    settle = item("settle", "1.0", verdict="not_executed", because="asked the bank")
    assert isinstance(event_of(settle, state_after(*events)), LateResult)
    lossy = state_after(*events, Resumed(last_sequence=2, log_complete=False, accept_loss=True))
    assert isinstance(event_of(settle, lossy), ToolSettled)


def test_an_ended_trajectory_can_still_be_settled_but_neither_cancelled_steered_nor_approved():
    state = state_after(START, REPLY, asked(1), intent("1.0"), TaskEnded(status="failed"))
    assert isinstance(event_of(item("settle", "1.0", verdict="executed", because="x"), state), ToolSettled)
    for late in (item("cancel"), item("steer", text="hi"), item("approval", "ask-1", decision="granted")):
        assert "ended" in dropped(event_of(late, state))


def test_a_second_cancellation_becomes_nothing():
    first = event_of(item("cancel", because="enough"), state_after(START))
    assert (first.because, first.mail.actor) == ("enough", "ada")
    assert "before" in dropped(event_of(item("cancel", mail_id="m2"), state_after(START, first)))


def test_a_steer_becomes_a_message_of_the_user_or_of_the_given_wire_form():
    plain = event_of(item("steer", text="slow down"), state_after(START))
    assert isinstance(plain, MessageAdded)
    assert (plain.role, plain.origin, plain.wire) == ("user", "steer", {"role": "user", "content": "slow down"})
    assert plain.item_hash == item_hash(plain.wire)
    wired = event_of(item("steer", wire={"role": "system", "content": [1]}), state_after(START))
    assert wired.role == "system"
    assert "without a text" in dropped(event_of(item("steer", wire={"content": "x"}), state_after(START)))
