"""The second fixture: for every control, stories that break it and their near misses, told under the same ids.

Each variant writes one trajectory, broken or as it should be, and returns what must be found in it. They are laid out
(`laid_out`) so that a statement which forgets tenant, trajectory, day or order mixes the two up: the broken and the
good telling of one variant share their id in two tenants, stand beside each other in one tenant, and once more on a
day that is out of scope.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.sql.audit_story import Story, digest, micros, minute
from trajlake.schemas.events import (
    LateResult,
    MessageAdded,
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


__all__ = ["NOW", "STARTS", "VARIANTS", "minute"]
