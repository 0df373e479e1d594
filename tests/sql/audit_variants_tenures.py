"""Variants about tenures, budgets and resumes."""

from __future__ import annotations

from tests.sql.audit_story import Story, digest
from tests.sql.audit_variants import Found, attempt, said, variant, when
from trajlake.schemas.events import (
    BudgetRevised,
    CheckpointSaved,
    LateResult,
    LeaseAcquired,
    Resumed,
    RolledBack,
    TaskEnded,
    ToolIntent,
    ToolResult,
    ToolSettled,
)

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
