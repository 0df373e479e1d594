"""Variants that tell apart two approvals, two tenures, two trajectories of one name: near misses of the joins."""

from __future__ import annotations

from tests.sql.audit_story import Story, digest
from tests.sql.audit_variants import Found, attempt, said, variant, when
from tests.sql.audit_variants_intents import act, rule
from tests.sql.audit_variants_tenures import take_over
from trajlake.schemas.events import (
    BudgetRevised,
    ConstraintWithdrawn,
    DriftDetected,
    LateResult,
    ToolIntent,
    ToolSettled,
    VarSet,
)


@variant()
def q06_another_approval_granted(s: Story, bad: bool) -> Found:
    attempt(s, key=digest("k"))
    s.result("1.0")
    for approval, answer in (("p", "denied"), ("q", "granted")):
        s.ask(approval, "2.0", "b", repeats="1.0")
        s.answer(approval, "2.0", answer)
    s.allow("2.0", "b")
    used = "p" if bad else "q"
    number = s.intend("2.0", "b", key=digest("k"), approval=used)
    s.result("2.0", "error")
    return [("Q06", number), ("Q10", number)] if bad else []


@variant()
def q07_time_unknown(s: Story, bad: bool) -> Found:
    s.ask("p", "1.0", expires_at=None if not bad else 1_900_000_000_000_000)
    s.answer("p", "1.0")
    s.allow("1.0")
    number = s.intend("1.0", approval="p")
    s.result("1.0")
    s.edits.append((number, {"recorded_at": None}))
    return [("Q16a", number), *when(bad, "Q07", number)]


@variant()
def q07_expiry_of_another_approval(s: Story, bad: bool) -> Found:
    from tests.sql.audit_story import micros

    s.ask("p", "1.0", expires_at=micros(10))
    s.ask("q", "1.0", expires_at=micros(30))
    s.answer("p", "1.0")
    s.answer("q", "1.0")
    s.allow("1.0")
    number = s.intend("1.0", approval="p" if bad else "q", at=20)
    s.result("1.0")
    return when(bad, "Q07", number)


@variant(principal=None)
def q08_no_principal(s: Story, bad: bool) -> Found:
    s.ask("p", "1.0", requester="u-boss" if bad else "agent-7")
    s.ask("q", "1.0", requester="agent-7" if bad else "u-boss")
    return when(bad, "Q08", s.answer("p", "1.0"))


@variant()
def q09_another_approval_is_single_use(s: Story, bad: bool) -> Found:
    s.ask("p", "1.0", single_use=True)
    s.ask("q", "1.0", single_use=False)
    s.answer("p", "1.0")
    s.answer("q", "1.0")
    for action in ("2.1", "3.1"):
        s.allow(action)
        number = s.intend(action, approval="p" if bad else "q")
        s.result(action)
    return when(bad, "Q09", number)


def stale(s: Story) -> int:
    """An intent of a tenure that had been replaced."""
    last = s.allow("1.0")
    take_over(s)
    payload = ToolIntent(action_id="1.0", tool="pay", arguments_hash=digest("a"), key=digest("k"), effect="external")
    return s.stray(payload, token=1, after=last)


@variant()
def q11_import_is_not_judged(s: Story, bad: bool) -> Found:
    number = stale(s)
    if not bad:
        s.stated = {"kind": "imported"}
    return [("Q11", number), ("X01", number)] if bad else []


@variant()
def q11_no_tenure_known(s: Story, bad: bool) -> Found:
    said(s)
    first = attempt(s, "9.0")
    second = s.result("9.0")
    s.drops.add(0 if bad else 1)
    return [("Q15", 1), ("Q11", first), ("Q11", second)] if bad else [("Q15", 2)]


@variant()
def q11_own_tenures_only(s: Story, bad: bool) -> Found:
    if bad:
        take_over(s)
    else:
        s.add(VarSet(name="n"))
    number = attempt(s, "9.0", effect="read")
    if bad:
        s.edits.append((number, {"fencing_token": 1}))
    return [("Q11", number), ("Q16a", number)] if bad else []


@variant(budget={"usd": "5"})
def q12_reserved_by_another_action(s: Story, bad: bool) -> Found:
    attempt(s, "1.0", reserved={"usd": "9"})
    s.result("1.0", "not_executed")
    attempt(s, "2.0", reserved={"usd": "6" if bad else "4"})
    number = s.add(ToolSettled(action_id="2.0", how="key", verdict="executed"))
    s.intend("1.0", attempt=2)
    s.add(LateResult(action_id="1.0", decision="refused"))
    return when(bad, "Q12", number)


@variant(budget={"usd": "5", "tool_calls": "9"})
def q12_booked_again_after_a_retry(s: Story, bad: bool) -> Found:
    attempt(s, "1.0", reserved={"usd": "3"})
    s.result("1.0", "not_executed", cost={"usd": "2"})
    s.intend("1.0", attempt=2, reserved={"usd": "4" if bad else "3"})
    number = s.add(ToolSettled(action_id="1.0", how="key", verdict="executed", attempt=2))
    s.add(BudgetRevised(limits={"usd": "50"}))
    return when(bad, "Q12", number)


@variant()
def q12_limit_given_later(s: Story, bad: bool) -> Found:
    said(s)
    if bad:
        s.add(BudgetRevised(limits={"usd": "5"}))
    s.think(cost={"usd": "6"})
    number = s.next - 1
    s.add(BudgetRevised(limits={"usd": "6"}))
    return when(bad, "Q12", number)


@variant()
def q18_tool_of_an_unnamed_action(s: Story, bad: bool) -> Found:
    rule(s, tool="deploy")
    number = act(s, "deploy" if bad else "pay")
    if bad:
        s.strip.append((number, "tool"))
    return when(bad, "Q18", number)


@variant()
def q18_two_rules(s: Story, bad: bool) -> Found:
    rule(s, "c", tool="deploy", arguments={"a": "1"})
    rule(s, "d", tool="deploy", arguments={"a": "2"})
    first = act(s, arguments={"a": "1" if bad else "3"})
    s.add(ConstraintWithdrawn(constraint_id="c"))
    second = act(s, action="14.0", arguments={"a": "2" if bad else "1"})
    return [("Q18", first), ("Q18", second)] if bad else []


@variant()
def q19_earlier_drift_is_no_excuse(s: Story, bad: bool) -> Found:
    said(s)
    s.think(model="m1")
    s.add(DriftDetected(what="model", choice="switch"))
    s.think(model="m2")
    s.think(model="m3" if bad else "m2")
    return when(bad, "Q19", s.next - 1)


@variant()
def x01_import_is_not_judged(s: Story, bad: bool) -> Found:
    number = stale(s)
    if not bad:
        s.stated = {"kind": "judgement"}
    return [("Q11", number), ("X01", number)] if bad else []
