"""The second fixture: for every control, stories that break it and their near misses, told under the same ids.

Each variant writes one trajectory, broken or as it should be, and returns what must be found in it. They are laid out
(`laid_out`) so that a statement which forgets tenant, trajectory, day or order mixes the two up: the broken and the
good telling of one variant share their id in two tenants, stand beside each other in one tenant, and once more on a
day that is out of scope.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.sql.audit_story import Story, blob, digest, micros, minute
from trajlake.schemas.events import (
    BudgetRevised,
    CheckpointSaved,
    ConstraintAccepted,
    ConstraintWithdrawn,
    DriftDetected,
    GoalRevised,
    LateResult,
    LeaseAcquired,
    MailStamp,
    MessageAdded,
    ObligationDischarged,
    ObligationOpened,
    PlanCommitted,
    Predicate,
    Resumed,
    RolledBack,
    TaskEnded,
    ToolIntent,
    ToolResult,
    ToolSettled,
)

Found = list[tuple[str, int]]
Variant = Callable[[Story, bool], Found]
VARIANTS: dict[str, Variant] = {}
STARTS: dict[str, dict[str, Any]] = {}
NOW = 1000
DAY_MINUTES = 1440


def variant(**start: Any) -> Callable[[Variant], Variant]:
    """Register a variant under its name; `start` goes into TaskStarted."""

    def register(function: Variant) -> Variant:
        VARIANTS[function.__name__] = function
        STARTS[function.__name__] = start
        return function

    return register


def own(s: Story, name: str) -> str:
    """A name that no other story uses."""
    return f"{s.tenant} {s.trajectory_id} {name}"


def when(bad: bool, control: str, number: int) -> Found:
    return [(control, number)] if bad else []


def said(s: Story, text: Any = "hello") -> int:
    number = s.add(MessageAdded(role="user", wire={"role": "user", "content": text}, item_hash=digest(str(text))))
    s.show(number)
    return number


def without(s: Story, number: int, field: str) -> None:
    """Take a field out of an event's payload, as no writer of ours would."""
    s.strip.append((number, field))


# -- authorization ---------------------------------------------------------------------------------------------------


@variant()
def q01_decision_missing(s: Story, bad: bool) -> Found:
    if not bad:
        s.allow("1.0")
    number = s.intend("1.0")
    s.result("1.0")
    return when(bad, "Q01", number)


@variant()
def q01_latest_decision_denies(s: Story, bad: bool) -> Found:
    for decision in ("allow", "deny") if bad else ("deny", "allow"):
        s.allow("1.0", decision=decision)
    number = s.intend("1.0")
    s.result("1.0")
    return when(bad, "Q01", number)


@variant()
def q01_allowed_too_late(s: Story, bad: bool) -> Found:
    if not bad:
        s.allow("1.0")
    number = s.intend("1.0")
    s.allow("1.0")
    s.result("1.0")
    return when(bad, "Q01", number)


@variant()
def q01_another_action_allowed(s: Story, bad: bool) -> Found:
    s.allow("1.1" if bad else "1.0")
    number = s.intend("1.0", effect="idempotent")
    s.result("1.0")
    return when(bad, "Q01", number)


@variant()
def q01_effect_unknown(s: Story, bad: bool) -> Found:
    number = s.intend("1.0", effect="local")
    if bad:
        without(s, number, "effect")
    s.result("1.0")
    return when(bad, "Q01", number)


@variant()
def q02_hash_of_a_later_allow(s: Story, bad: bool) -> Found:
    s.allow("1.0", "a")
    if not bad:
        s.allow("1.0", "b")
    number = s.intend("1.0", "b")
    s.allow("1.0", "b")
    s.result("1.0")
    return when(bad, "Q02", number)


@variant()
def q02_hash_of_a_denial(s: Story, bad: bool) -> Found:
    s.allow("1.0", "b", decision="deny" if bad else "allow")
    s.allow("1.0", "a")
    number = s.intend("1.0", "b")
    s.result("1.0")
    return when(bad, "Q02", number)


@variant()
def q02_hash_of_another_action(s: Story, bad: bool) -> Found:
    s.allow("1.0", "a")
    s.allow("1.1" if bad else "1.0", "b")
    number = s.intend("1.0", "b")
    s.result("1.0")
    return when(bad, "Q02", number)


@variant()
def q02_hash_missing(s: Story, bad: bool) -> Found:
    s.allow("1.0", "a")
    number = s.intend("1.0", "a")
    s.result("1.0")
    if bad:
        without(s, number, "arguments_hash")
        return [("Q02", number), ("Q06", number)]
    return []


# -- effects ---------------------------------------------------------------------------------------------------------


@variant()
def q03_no_intent(s: Story, bad: bool) -> Found:
    if not bad:
        s.intend("1.0", effect="read")
    number = s.result("1.0", "error")
    return when(bad, "Q03", number)


@variant()
def q03_intent_later(s: Story, bad: bool) -> Found:
    if not bad:
        s.intend("1.0", effect="read")
    number = s.result("1.0")
    s.intend("1.0", effect="read", attempt=2)
    return when(bad, "Q03", number)


@variant()
def q03_nothing_dispatched(s: Story, bad: bool) -> Found:
    first = s.result("1.0", "ok" if bad else "refused")
    second = s.result("2.0", "not_executed" if bad else "replayed")
    third = s.result("3.0" if bad else "^1:3.0", "ok")
    return [("Q03", first), ("Q03", second), ("Q03", third)] if bad else []


@variant()
def q03_status_and_action_missing(s: Story, bad: bool) -> Found:
    number = s.result("1.0", "refused")
    other = s.result("2.0", "ok") if bad else s.result("2.0", "refused")
    if bad:
        without(s, number, "status")
        without(s, other, "action_id")
    return [("Q03", number), ("Q03", other)] if bad else []


@variant()
def q03_intent_of_another_action(s: Story, bad: bool) -> Found:
    s.intend("1.1" if bad else "1.0", effect="read")
    return when(bad, "Q03", s.result("1.0"))


def attempt(s: Story, action: str = "1.0", **more: Any) -> int:
    s.allow(action)
    return s.intend(action, **more)


@variant()
def q04_no_outcome(s: Story, bad: bool) -> Found:
    number = attempt(s)
    if not bad:
        s.result("1.0", "error")
    return when(bad, "Q04", number)


@variant()
def q04_outcome_of_an_earlier_attempt(s: Story, bad: bool) -> Found:
    attempt(s)
    s.result("1.0", "not_executed")
    number = s.intend("1.0", attempt=2)
    if not bad:
        s.add(LateResult(action_id="1.0", decision="refused"))
    return when(bad, "Q04", number)


@variant()
def q04_age(s: Story, bad: bool) -> Found:
    return when(bad, "Q04", attempt(s, at=NOW - 60 if bad else NOW - 59))


@variant()
def q04_job_past_its_deadline(s: Story, bad: bool) -> Found:
    return when(bad, "Q04", attempt(s, asynchronous=True, deadline_at=micros(NOW if bad else NOW + 1)))


@variant()
def q04_deadline_of_no_job(s: Story, bad: bool) -> Found:
    return when(bad, "Q04", attempt(s, asynchronous=not bad, deadline_at=micros(NOW + 5)))


@variant()
def q04_job_without_deadline(s: Story, bad: bool) -> Found:
    return when(bad, "Q04", attempt(s, asynchronous=True, effect="external" if bad else "read"))


@variant()
def q04_outcome_of_another_action(s: Story, bad: bool) -> Found:
    number = attempt(s)
    s.add(ToolSettled(action_id="1.1" if bad else "1.0", how="probe", verdict="not_executed"))
    return when(bad, "Q04", number)


@variant()
def q05_two_attempts(s: Story, bad: bool) -> Found:
    attempt(s)
    s.result("1.0", "ok" if bad else "error")
    s.intend("1.0", attempt=2)
    number = s.result("1.0", "ok", attempt=2)
    return when(bad, "Q05", number)


@variant()
def q05_two_actions_with_one_key(s: Story, bad: bool) -> Found:
    attempt(s, key=digest("k"))
    s.result("1.0")
    attempt(s, "2.0", key=digest("k" if bad else "l"))
    number = s.result("2.0")
    return when(bad, "Q05", number)


@variant()
def q05_replayed(s: Story, bad: bool) -> Found:
    attempt(s)
    s.result("1.0")
    s.intend("1.0", attempt=2)
    number = s.result("1.0", "ok" if bad else "replayed", attempt=2)
    return when(bad, "Q05", number)


@variant()
def q05_settled_and_done_again(s: Story, bad: bool) -> Found:
    attempt(s)
    verdict: Any = "executed" if bad else "not_executed"
    s.add(ToolSettled(action_id="1.0", how="probe", verdict=verdict, evidence="x"))
    s.intend("1.0", attempt=2)
    number = s.result("1.0", attempt=2)
    return when(bad, "Q05", number)


@variant()
def q05_read_again_after_a_roll_back(s: Story, bad: bool) -> Found:
    effect = "external" if bad else "local"
    attempt(s, effect=effect, key=digest("k"))
    s.result("1.0")
    attempt(s, "4.0", effect=effect, key=digest("k"))
    number = s.result("4.0")
    return when(bad, "Q05", number)


@variant()
def q05_one_attempt_told_twice(s: Story, bad: bool) -> Found:
    attempt(s)
    s.result("1.0")
    if bad:
        s.intend("1.0", attempt=2)
    number = s.add(ToolSettled(action_id="1.0", how="key", verdict="executed", attempt=2 if bad else 1, evidence="x"))
    s.add(LateResult(action_id="1.0", decision="refused"))
    return when(bad, "Q05", number)


@variant()
def q06_other_arguments(s: Story, bad: bool) -> Found:
    attempt(s, key=digest("k"))
    s.result("1.0")
    s.allow("2.0", "b")
    number = s.intend("2.0", "b", key=digest("k" if bad else "l"))
    s.result("2.0", "error")
    return when(bad, "Q06", number)


@variant()
def q06_key_missing(s: Story, bad: bool) -> Found:
    number = attempt(s, key="" if bad else digest("k"))
    s.result("1.0")
    return when(bad, "Q06", number)


def repeated(
    s: Story, answer: str, *, arguments: str = "b", repeats: str = "1.0", late: bool = False, used: str = "p"
) -> int:
    """An action, then another one under its key with other arguments, under an approval that names the first."""
    attempt(s, key=digest("k"))
    s.result("1.0")
    s.ask("p", "2.0", arguments, repeats=repeats)
    if not late:
        s.answer("p", "2.0", answer)
    s.allow("2.0", "b", approval="p")
    number = s.intend("2.0", "b", key=digest("k"), approval=used)
    if late:
        s.answer("p", "2.0", answer)
    s.result("2.0", "error")
    return number


@variant()
def q06_repeat_denied(s: Story, bad: bool) -> Found:
    number = repeated(s, "denied" if bad else "granted")
    return [("Q06", number), ("Q10", number)] if bad else []


@variant()
def q06_repeat_granted_too_late(s: Story, bad: bool) -> Found:
    number = repeated(s, "granted", late=bad)
    return [("Q06", number), ("Q10", number)] if bad else []


@variant()
def q06_repeat_of_other_arguments_granted(s: Story, bad: bool) -> Found:
    return when(bad, "Q06", repeated(s, "granted", arguments="c" if bad else "b"))


@variant()
def q06_grant_that_names_no_repeat(s: Story, bad: bool) -> Found:
    return when(bad, "Q06", repeated(s, "granted", repeats="" if bad else "1.0"))


@variant()
def q06_grant_not_used(s: Story, bad: bool) -> Found:
    return when(bad, "Q06", repeated(s, "granted", used="" if bad else "p"))


# -- approvals -------------------------------------------------------------------------------------------------------


def approved(s: Story, *, at: float = 11, used: str = "p", **request: Any) -> int:
    s.ask("p", "1.0", **request)
    s.answer("p", "1.0")
    s.allow("1.0", approval=used)
    number = s.intend("1.0", approval=used, at=at)
    s.result("1.0")
    return number


@variant()
def q07_expiry(s: Story, bad: bool) -> Found:
    return when(bad, "Q07", approved(s, at=11, expires_at=micros(10 if bad else 11)))


@variant()
def q07_never_requested(s: Story, bad: bool) -> Found:
    if not bad:
        s.ask("p", "1.0")
    else:
        s.ask("q", "1.0", requester="agent-7")
    number = s.answer("p", "1.0")
    s.allow("1.0", approval="p")
    used = s.intend("1.0", approval="p")
    s.result("1.0")
    return [("Q07", used), ("Q08", number)] if bad else []


@variant()
def q07_no_approval_at_all(s: Story, bad: bool) -> Found:
    number = approved(s, used="p" if bad else "", expires_at=micros(10))
    return when(bad, "Q07", number)


@variant()
def q08_requester(s: Story, bad: bool) -> Found:
    s.ask("p", "1.0", requester="u-boss" if bad else "u-other")
    return when(bad, "Q08", s.answer("p", "1.0", approver="u-boss"))


@variant()
def q08_principal(s: Story, bad: bool) -> Found:
    s.ask("p", "1.0")
    return when(bad, "Q08", s.answer("p", "1.0", approver="u-owner" if bad else "u-boss"))


@variant()
def q08_denied_by_the_requester(s: Story, bad: bool) -> Found:
    s.ask("p", "1.0", requester="u-boss")
    return when(bad, "Q08", s.answer("p", "1.0", "granted" if bad else "denied"))


@variant()
def q08_nobody_is_named(s: Story, bad: bool) -> Found:
    s.ask("p", "1.0", requester=None if bad else "agent-7")
    first = s.answer("p", "1.0")
    s.ask("q", "2.0")
    second = s.answer("q", "2.0", approver="" if bad else "u-boss")
    s.ask("r", "3.0", requester="u-boss" if bad else "agent-7")
    third = s.answer("r", "3.0")
    if bad:
        without(s, third, "decision")
    return [("Q08", first), ("Q08", second), ("Q08", third)] if bad else []


@variant()
def q08_requested_later(s: Story, bad: bool) -> Found:
    if not bad:
        s.ask("p", "1.0")
    number = s.answer("p", "1.0")
    s.ask("p", "1.0")
    return when(bad, "Q08", number)


@variant()
def q09_two_actions(s: Story, bad: bool) -> Found:
    approved(s, single_use=bad)
    s.allow("6.0")
    number = s.intend("6.0", approval="p")
    s.result("6.0")
    return when(bad, "Q09", number)


@variant()
def q09_two_attempts(s: Story, bad: bool) -> Found:
    s.ask("p", "1.0")
    s.answer("p", "1.0")
    s.allow("1.0")
    s.intend("1.0", approval="p")
    s.result("1.0", "not_executed")
    other = "1.0"
    if bad:
        other = s.new_action
        s.allow(other)
    number = s.intend(other, approval="p", attempt=2)
    s.result(other, attempt=2)
    return when(bad, "Q09", number)


@variant()
def q09_unknown_approval(s: Story, bad: bool) -> Found:
    if bad:
        answer = s.answer("p", "1.0")
    uses = []
    for action in ("2.0", "3.0"):
        s.allow(action)
        uses.append(s.intend(action, approval="p" if bad else ""))
        s.result(action)
    return [("Q09", uses[1]), ("Q08", answer), *(("Q07", number) for number in uses)] if bad else []


@variant()
def q10_last_answer(s: Story, bad: bool) -> Found:
    s.ask("p", "1.0")
    for answer in ("granted", "denied") if bad else ("denied", "granted"):
        s.answer("p", "1.0", answer)
    s.allow("1.0")
    number = s.intend("1.0", approval="p")
    s.result("1.0")
    return when(bad, "Q10", number)


@variant()
def q10_answered_too_late(s: Story, bad: bool) -> Found:
    s.ask("p", "1.0")
    s.ask("q", "1.0")
    s.answer("q" if bad else "p", "1.0")
    s.allow("1.0")
    number = s.intend("1.0", approval="p")
    s.answer("p", "1.0")
    s.result("1.0")
    return when(bad, "Q10", number)


# -- tenures and budget ----------------------------------------------------------------------------------------------


def take_over(s: Story, token: int = 2) -> int:
    before = s.events[-1]
    s.token = token
    return s.add(
        LeaseAcquired(
            token=token, after_token=before.fencing_token, after_sequence=s.next - 1, after_hash=before.hash.hex()
        )
    )


@variant()
def q11_superseded_intent(s: Story, bad: bool) -> Found:
    last = s.allow("1.0")
    take_over(s)
    payload = ToolIntent(
        action_id="1.0", tool="pay", arguments_hash=digest("a"), key=digest("k"), effect="idempotent" if bad else "read"
    )
    number = s.stray(payload, token=1, after=last)
    return [("Q11", number), *when(bad, "X01", number)]


@variant()
def q11_superseded_result(s: Story, bad: bool) -> Found:
    number = attempt(s)
    take_over(s)
    if bad:
        s.stray(ToolResult(action_id="1.0", status="ok"), token=1, after=number)
    else:
        s.stray(TaskEnded(status="completed"), token=1, after=number)
    s.result("1.0")
    return when(bad, "Q11", number + 1)


@variant()
def q11_token_of_a_canonical_row(s: Story, bad: bool) -> Found:
    take_over(s)
    number = attempt(s)
    result = s.result("1.0")
    if bad:
        s.edits.append((number, {"fencing_token": 1}))
        s.edits.append((result, {"fencing_token": None}))
    return [("Q11", number), ("Q11", result), ("Q16a", number), ("Q16a", result)] if bad else []


@variant(budget={"usd": "10", "input_tokens": "100", "model_calls": "3", "tool_calls": "1", "turns": "2"})
def q12_each_unit(s: Story, bad: bool) -> Found:
    from trajlake.schemas.events import Usage

    said(s)
    s.think(cost={"usd": "4", "eur": "99"}, usage=Usage(input_total=100, output=7))
    attempt(s)
    s.result("1.0", "not_executed", cost={"usd": "6"})
    s.intend("1.0", attempt=2)
    s.result("1.0")
    found = []
    if bad:
        s.think(cost={"usd": "0.000001"}, usage=Usage(input_total=1))
        found += [("Q12", s.next - 1)] * 2
        s.turn = 1
        said(s)
        s.turn = 2
        found.append(("Q12", said(s)))
        number = attempt(s, "20.0")
        found.append(("Q12", number))
        s.result("20.0")
        s.think()
        s.think()
        found.append(("Q12", s.next - 1))
    else:
        s.turn = 1
        s.think()
    return found


@variant(budget={"usd": "10"})
def q12_limit_in_force(s: Story, bad: bool) -> Found:
    said(s)
    if not bad:
        s.add(BudgetRevised(limits={"usd": "20"}))
    s.think(cost={"usd": "11"})
    number = s.next - 1
    s.add(BudgetRevised(limits={"usd": "20"}))
    s.add(BudgetRevised(limits={"eur": "1"}))
    s.think(cost={"usd": "9"})
    return when(bad, "Q12", number)


@variant(budget={"usd": "5"})
def q12_reserved_spend(s: Story, bad: bool) -> Found:
    attempt(s, reserved={"usd": "6"})
    number = s.add(ToolSettled(action_id="1.0", how="probe", verdict="executed" if bad else "not_executed"))
    late = s.add(LateResult(action_id="1.0", decision="refused"))
    assert late
    return when(bad, "Q12", number)


@variant(budget={"usd": "5"})
def q12_late_result_spends(s: Story, bad: bool) -> Found:
    attempt(s, reserved={"usd": "6" if bad else "5"})
    number = s.add(LateResult(action_id="1.0", decision="accepted"))
    return when(bad, "Q12", number)


@variant(budget={"usd": "5"})
def q12_amount_that_is_none(s: Story, bad: bool) -> Found:
    said(s)
    s.think(cost={"usd": "much" if bad else "5"})
    return when(bad, "Q12", s.next - 1)


@variant(budget={"usd": "some"})
def q12_limit_that_is_none(s: Story, bad: bool) -> Found:
    said(s)
    s.think(cost={"usd": "1" if bad else "0"})
    return when(bad, "Q12", s.next - 1)


@variant(budget={"turns": "1"})
def q12_turn_again(s: Story, bad: bool) -> Found:
    said(s)
    saved = s.add(CheckpointSaved(covers=1, state_hash=digest("s"), root=digest("r"), cause="interval"))
    said(s)
    s.add(RolledBack(to=saved, from_=s.next - 1))
    if bad:
        return [("Q12", said(s))]
    return []


# -- resumes, intent state, drift ------------------------------------------------------------------------------------


def checkpoint(s: Story) -> int:
    return s.add(CheckpointSaved(covers=s.next - 1, state_hash=digest("s"), root=digest("r"), cause="interval"))


@variant()
def q17_version(s: Story, bad: bool) -> Found:
    checkpoint(s)
    number = s.add(Resumed(last_sequence=1, schema_version=3 if bad else 2))
    s.schema_version = 2
    checkpoint(s)
    s.add(Resumed(last_sequence=1, schema_version=2))
    return when(bad, "Q17", number)


@variant()
def q17_without_checkpoint(s: Story, bad: bool) -> Found:
    return when(bad, "Q17", s.add(Resumed(last_sequence=0, schema_version=3 if bad else 1)))


@variant()
def q17_version_of_a_later_checkpoint(s: Story, bad: bool) -> Found:
    number = s.add(Resumed(last_sequence=0, schema_version=4 if bad else 1))
    s.schema_version = 4
    checkpoint(s)
    return when(bad, "Q17", number)


def rule(s: Story, name: str = "c", **predicate: Any) -> int:
    predicate.setdefault("tool", "deploy")
    return s.add(ConstraintAccepted(constraint_id=name, text="no", predicate=Predicate(**predicate)))


def act(s: Story, tool: str = "deploy", action: str = "9.0", **more: Any) -> int:
    s.allow(action)
    number = s.intend(action, tool=tool, **more)
    s.result(action)
    return number


@variant()
def q18_accepted_before(s: Story, bad: bool) -> Found:
    if bad:
        rule(s)
    number = act(s)
    rule(s)
    return when(bad, "Q18", number)


@variant()
def q18_withdrawn_between(s: Story, bad: bool) -> Found:
    rule(s)
    s.add(ConstraintWithdrawn(constraint_id="d" if bad else "c"))
    number = act(s)
    s.add(ConstraintWithdrawn(constraint_id="c"))
    return when(bad, "Q18", number)


@variant()
def q18_accepted_again(s: Story, bad: bool) -> Found:
    rule(s)
    s.add(ConstraintWithdrawn(constraint_id="c"))
    if bad:
        rule(s)
    return when(bad, "Q18", act(s))


@variant()
def q18_tool(s: Story, bad: bool) -> Found:
    rule(s, tool="dep*")
    return when(bad, "Q18", act(s, "deploy" if bad else "undeploy"))


@variant()
def q18_arguments(s: Story, bad: bool) -> Found:
    rule(s, arguments={"env.name": "prod*", "n": "3", "flag": "true", "absent": ""})
    arguments = {"env": {"name": "prod-1" if bad else "test"}, "n": 3, "flag": True}
    return when(bad, "Q18", act(s, arguments=arguments))


@variant()
def q18_one_argument_differs(s: Story, bad: bool) -> Found:
    rule(s, arguments={"a": "1", "b": "None"})
    return when(bad, "Q18", act(s, arguments={"a": "1", "b": None if bad else "2"}))


@variant()
def q18_arguments_out_of_sight(s: Story, bad: bool) -> Found:
    s.at = NOW - 150 * DAY_MINUTES
    rule(s, arguments={"a": "1"})
    first = act(s, arguments={"a": blob(own(s, "a")) if bad else "2"})
    second = act(s, action="12.0", arguments=blob(own(s, "a")) if bad else {"a": "2"})
    third = act(s, action="15.0") if bad else -1
    return [("Q18", first), ("Q18", second), ("Q18", third)] if bad else []


@variant()
def q18_arguments_of_the_reply(s: Story, bad: bool) -> Found:
    from trajlake.schemas.events import ModelReplied, ProposedCall

    said(s)
    built = s.context()
    text = '{"a": "1"}' if bad else '{"a": "2"}'
    number = s.add(
        ModelReplied(raw="{}", context=built, served_model="m1", calls=(ProposedCall(tool="deploy", arguments=text),))
    )
    rule(s, arguments={"a": "1"})
    return when(bad, "Q18", act(s, action=f"{number}.0"))


@variant()
def q18_ask(s: Story, bad: bool) -> Found:
    rule(s, verdict="ask")
    s.ask("p", "9.0")
    s.answer("p", "9.0")
    return when(bad, "Q18", act(s, approval="" if bad else "p"))


@variant()
def q18_deny_is_not_ask(s: Story, bad: bool) -> Found:
    rule(s, verdict="deny" if bad else "ask")
    s.ask("p", "9.0")
    s.answer("p", "9.0")
    return when(bad, "Q18", act(s, approval="p"))


@variant()
def q18_rolled_back(s: Story, bad: bool) -> Found:
    saved = checkpoint(s)
    rule(s)
    before = act(s, effect="read") if bad else -1
    s.add(RolledBack(to=saved, from_=s.next - 1))
    act(s, action="12.0", effect="read")
    return when(bad, "Q18", before)


@variant()
def q18_withdrawal_rolled_back(s: Story, bad: bool) -> Found:
    rule(s)
    saved = checkpoint(s)
    s.add(ConstraintWithdrawn(constraint_id="c"))
    act(s, effect="read")
    if bad:
        s.add(RolledBack(to=saved, from_=s.next - 1))
        return [("Q18", act(s, action="12.0", effect="read"))]
    return []


@variant()
def q19_model(s: Story, bad: bool) -> Found:
    said(s)
    s.add(DriftDetected(what="model", choice="switch"))
    s.think(model="m1")
    if not bad:
        s.add(DriftDetected(what="model", choice="switch"))
    s.think(model="m2")
    number = s.next - 1
    s.think(model="m1", purpose="summarise")
    s.add(DriftDetected(what="model", choice="switch"))
    return when(bad, "Q19", number)


@variant()
def q19_failed_attempt(s: Story, bad: bool) -> Found:
    said(s)
    s.think(model="m1")
    s.think(model="", status="kept" if bad else "error")
    number = s.next - 1
    if bad:
        s.add(DriftDetected(what="model", choice="switch"))
    s.think(model="m1")
    return when(bad, "Q19", number)


@variant()
def q19_tools_and_policy(s: Story, bad: bool) -> Found:
    from trajlake.schemas.events import ContextHead

    said(s)
    s.think(context=s.context(head=ContextHead(tools=digest("a"))))
    s.think(context=s.context(head=ContextHead(tools=digest("b" if bad else "a"))))
    tools = s.next - 1
    s.allow("7.0")
    policy = s.allow("8.0", policy_version="p2" if bad else "p1")
    return [("Q19", tools), ("Q19", policy)] if bad else []


@variant()
def q21_discharged(s: Story, bad: bool) -> Found:
    number = s.add(ObligationOpened(obligation_id="o", text="x"))
    s.add(ObligationDischarged(obligation_id="p" if bad else "o"))
    s.add(TaskEnded(status="completed"))
    return when(bad, "Q21", number)


@variant()
def q21_opened_again(s: Story, bad: bool) -> Found:
    s.add(ObligationOpened(obligation_id="o", text="x"))
    s.add(ObligationDischarged(obligation_id="o"))
    found = [("Q21", s.add(ObligationOpened(obligation_id="o", text="x")))] if bad else []
    s.add(TaskEnded(status="completed"))
    return found


@variant()
def q21_not_ended(s: Story, bad: bool) -> Found:
    number = s.add(ObligationOpened(obligation_id="o", text="x"))
    if bad:
        s.add(TaskEnded(status="failed"))
    s.add(ObligationDischarged(obligation_id="o"))
    return when(bad, "Q21", number)


@variant()
def q21_rolled_back(s: Story, bad: bool) -> Found:
    opened = s.add(ObligationOpened(obligation_id="o", text="x")) if bad else -1
    saved = checkpoint(s)
    s.add(ObligationOpened(obligation_id="p", text="x"))
    s.add(ObligationDischarged(obligation_id="o"))
    s.add(RolledBack(to=saved, from_=s.next - 1))
    s.add(TaskEnded(status="completed"))
    s.add(ObligationOpened(obligation_id="late", text="x"))
    return when(bad, "Q21", opened)


@variant()
def q23_goal(s: Story, bad: bool) -> Found:
    act(s, action="1.0", goal=0)
    act(s, action="4.0")
    s.add(GoalRevised(goal="one"))
    second = s.add(GoalRevised(goal="two"))
    first_act = act(s, action="9.1", goal=second - 1 if bad else second)
    second_act = act(s, action="12.1", **({} if bad else {"goal": second}))
    s.add(GoalRevised(goal="three"))
    return [("Q23", first_act), ("Q23", second_act)] if bad else []


@variant()
def q23_rolled_back(s: Story, bad: bool) -> Found:
    first = s.add(GoalRevised(goal="one"))
    saved = checkpoint(s)
    second = s.add(GoalRevised(goal="two"))
    act(s, action="4.0", goal=second, effect="read")
    s.add(RolledBack(to=saved, from_=s.next - 1))
    return when(bad, "Q23", act(s, action="8.0", goal=second if bad else first))


@variant()
def q23_ancestor(s: Story, bad: bool) -> Found:
    from trajlake.schemas.events import Branched

    if not bad:
        s.add(
            Branched(parent_tenant="t", parent_trajectory_id="p", parent_sequence=3, parent_hash=digest("p"), at_turn=1)
        )
    return when(bad, "Q23", act(s, action="2.0", goal=(1, 3)))


# -- the five beyond -------------------------------------------------------------------------------------------------


@variant()
def x02_loss(s: Story, bad: bool) -> Found:
    first = s.add(Resumed(last_sequence=0, log_complete=not bad))
    second = s.add(Resumed(last_sequence=0, accept_loss=bad))
    return [("X02", first), ("X02", second)] if bad else []


@variant()
def x03_evidence(s: Story, bad: bool) -> Found:
    found = []
    for place, (evidence, clean) in enumerate(((None, "seen"), ("  ", {"a": 1}), ({}, ["x"]), ([], "ticket"))):
        attempt(s, f"{place}.7")
        mail = MailStamp(mail_id="m", actor="u-1", posted_at=1)
        number = s.add(
            ToolSettled(
                action_id=f"{place}.7", how="person", verdict="executed", evidence=evidence if bad else clean, mail=mail
            )
        )
        found.append(("X03", number))
    attempt(s, "9.7")
    number = s.add(ToolSettled(action_id="9.7", how="probe", verdict="executed"))
    if bad:
        without(s, number, "how")
        found.append(("X03", number))
    s.add(LateResult(action_id="9.7", decision="refused"))
    return found if bad else []


@variant()
def x04_plan(s: Story, bad: bool) -> Found:
    s.add(PlanCommitted(plan=["Pay", "then report"]))
    act(s, "wipe", "1.0")
    seam = s.add(Resumed(last_sequence=4))
    number = act(s, "wipe" if bad else "pay", f"{seam + 1}.0")
    act(s, "wipe", f"{seam + 4}.0")
    return when(bad, "X04", number)


@variant()
def x04_step_and_new_plan(s: Story, bad: bool) -> Found:
    plan = s.add(PlanCommitted(plan={"steps": ["pay"]}))
    s.add(Resumed(last_sequence=1))
    number = act(s, "wipe", "3.0", step="" if bad else "pay")
    s.add(Resumed(last_sequence=4))
    s.add(PlanCommitted(plan=["wipe"], **({} if bad else {"replaces": plan})))
    other = act(s, "wipe", "9.0")
    return [("X04", number), ("X04", other)] if bad else []


@variant()
def x04_settled_first(s: Story, bad: bool) -> Found:
    s.add(PlanCommitted(plan=["pay"]))
    s.allow("2.0")
    s.intend("2.0", tool="wipe")
    s.add(Resumed(last_sequence=3))
    s.intend("2.0", tool="wipe", attempt=2)
    s.result("2.0", attempt=2)
    return when(bad, "X04", act(s, "wipe" if bad else "pay", f"{s.next}.0"))


__all__ = ["NOW", "STARTS", "VARIANTS", "minute"]
