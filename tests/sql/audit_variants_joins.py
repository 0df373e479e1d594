"""Variants that each stand against one way to write a join or a default wrong."""

from __future__ import annotations

from tests.sql.audit_story import Story, digest, minute
from tests.sql.audit_variants import Found, attempt, own, said, variant, when, without
from tests.sql.audit_variants_contexts import export, gone
from tests.sql.audit_variants_intents import act, rule
from tests.sql.audit_variants_tables import hold, kept, read, secret
from tests.sql.audit_variants_tenures import checkpoint
from trajlake.schemas.events import (
    Compacted,
    ConstraintAccepted,
    GoalRevised,
    LateResult,
    ModelReplied,
    ObligationOpened,
    PlanCommitted,
    ProposedCall,
    Resumed,
    RolledBack,
    TaskEnded,
    ToolIntent,
    ToolSettled,
    VarSet,
)


@variant(budget={"usd": "5"})
def q12_verdict_unknown(s: Story, bad: bool) -> Found:
    attempt(s, "1.0", reserved={"usd": "6" if bad else "5"})
    number = s.add(ToolSettled(action_id="1.0", how="key", verdict="not_executed"))
    without(s, number, "verdict")
    return when(bad, "Q12", number)


@variant(budget={"usd": "5"})
def q12_reserved_by_its_own_intent(s: Story, bad: bool) -> Found:
    attempt(s, "1.0", reserved={"usd": "6" if bad else "4"})
    attempt(s, "2.0", reserved={"usd": "1" if bad else "6"})
    number = s.add(ToolSettled(action_id="1.0", how="key", verdict="executed"))
    s.add(ToolSettled(action_id="2.0", how="key", verdict="not_executed"))
    return when(bad, "Q12", number)


@variant(budget={"turns": "1"}, turn=-1)
def q12_prologue_is_no_turn(s: Story, bad: bool) -> Found:
    said(s)
    s.turn = 0
    said(s)
    s.turn = 1 if bad else 0
    return when(bad, "Q12", said(s))


@variant(budget={"turns": "2"})
def q12_turn_of_a_roll_back(s: Story, bad: bool) -> Found:
    saved = checkpoint(s)
    s.turn = 7
    s.add(RolledBack(to=saved, from_=saved))
    s.turn = 0
    said(s)
    s.turn = 1 if bad else 0
    return when(bad, "Q12", said(s))


@variant(budget={"turns": "1"})
def q12_own_roll_backs_only(s: Story, bad: bool) -> Found:
    saved = checkpoint(s)
    if bad:
        s.add(RolledBack(to=saved, from_=saved))
    else:
        said(s)
    return when(bad, "Q12", said(s))


@variant()
def q13_place_of_the_item(s: Story, bad: bool) -> Found:
    first = s.add(VarSet(name="n"))
    number = read(s)
    s.unshow(number)
    s.show(*((first, number) if bad else (number, first)))
    s.think()
    s.add(Compacted(summary="s", keep=1))
    s.show(number)
    s.think(keep=0 if bad else 2)
    secret(s, number)
    return when(bad, "Q13", number)


@variant()
def q13_other_outputs(s: Story, bad: bool) -> Found:
    attempt(s)
    settled = s.add(ToolSettled(action_id="1.0", how="probe", verdict="executed"))
    late = s.add(LateResult(action_id="1.0", decision="refused"))
    s.add(Compacted(summary="s", turns=(0, 0) if bad else (4, 5)))
    secret(s, settled)
    secret(s, late)
    return [("Q13", settled), ("Q13", late)] if bad else []


@variant()
def q15_twice_and_missing(s: Story, bad: bool) -> Found:
    for value in range(3):
        s.add(VarSet(name="n", value=value))
    if bad:
        s.copies.add(1)
        s.drops.add(2)
    return [("Q15", 1), ("Q15", 3)] if bad else []


@variant()
def q15_status_unknown(s: Story, bad: bool) -> Found:
    s.stated = {"status": None, "last_sequence": 9 if bad else 0}
    return when(bad, "Q15", 0)


@variant()
def q16a_hash_missing(s: Story, bad: bool) -> Found:
    number = s.add(VarSet(name="n"))
    if bad:
        s.edits.append((number, {"cryptographic_hash": None}))
    return when(bad, "Q16a", number)


@variant()
def q17_nothing_before(s: Story, bad: bool) -> Found:
    s.add(VarSet(name="n"))
    number = s.add(Resumed(last_sequence=1))
    s.drops.add(0 if bad else 1)
    return [("Q15", 1), ("Q17", number)] if bad else [("Q15", number)]


@variant()
def q17_own_checkpoints_only(s: Story, bad: bool) -> Found:
    if bad:
        s.add(VarSet(name="n"))
    else:
        s.schema_version = 3
        checkpoint(s)
        s.schema_version = 1
    return when(bad, "Q17", s.add(Resumed(last_sequence=1, schema_version=3)))


@variant()
def q18_rule_in_words_only(s: Story, bad: bool) -> Found:
    if bad:
        rule(s)
    else:
        s.add(ConstraintAccepted(constraint_id="c", text="be careful"))
    return when(bad, "Q18", act(s))


@variant()
def q18_accepted_twice(s: Story, bad: bool) -> Found:
    rule(s)
    if bad:
        rule(s)
    number = act(s, "deploy" if bad else "pay")
    return [("Q18", number)] * 2 if bad else []


@variant()
def q18_arguments_of_two_calls(s: Story, bad: bool) -> Found:
    said(s)
    calls = tuple(ProposedCall(tool="deploy", arguments=text) for text in ('{"a": "1"}', '{"a": "2"}'))
    number = s.add(ModelReplied(raw="{}", context=s.context(), served_model="m1", calls=calls))
    rule(s, arguments={"a": "1"})
    return when(bad, "Q18", act(s, action=f"{number}.{0 if bad else 1}"))


@variant()
def q19_without_context(s: Story, bad: bool) -> Found:
    first = s.add(ModelReplied(raw="{}", served_model="m1"))
    second = s.add(ModelReplied(raw="{}", served_model="m2" if bad else "m1"))
    return [("Q22", first), ("Q22", second), *when(bad, "Q19", second)]


@variant()
def q19_model_unknown_then_known(s: Story, bad: bool) -> Found:
    said(s)
    s.think(model="" if bad else "m1")
    first = s.next - 1
    s.think(model="m1")
    return [("Q19", first), ("Q19", s.next - 1)] if bad else []


@variant()
def q20_refused_erasure(s: Story, bad: bool) -> Found:
    erasure = {"erasure_id": own(s, "e"), "epoch": 1, "state": "refused" if bad else "complete"}
    s.ledger.append(("erasures", {**erasure, "trajectory_id": s.trajectory_id}))
    return when(bad, "Q20", kept(s, 5, there=False))


@variant()
def q20_age_unknown(s: Story, bad: bool) -> Found:
    number = kept(s, 150, there=not bad)
    s.edits.append((number, {"recorded_at": None}))
    return [("Q16a", number), *when(bad, "Q20", number)]


@variant()
def q20_subjects_unknown(s: Story, bad: bool) -> Found:
    hold(s, "place", trajectory_id=None, subject=own(s, "s"))
    number = kept(s, 150, there=False)
    s.stated = None
    if bad:
        s.ledger.append(("holds", {"hold_id": own(s, "h2"), "action": "place", "trajectory_id": s.trajectory_id}))
    return [("Q15", number), *when(bad, "Q20", number)]


@variant()
def q21_opened_twice(s: Story, bad: bool) -> Found:
    numbers = [s.add(ObligationOpened(obligation_id="o", text="x")) for _ in range(2)] if bad else []
    s.add(TaskEnded(status="completed"))
    return [("Q21", number) for number in numbers]


@variant()
def q22_ancestors_beside_a_gap(s: Story, bad: bool) -> Found:
    s.add(VarSet(name="n"))
    said(s)
    s.show((1, 99))  # type: ignore[arg-type]
    s.show(1 if bad else 2)
    s.think()
    s.drops.add(1)
    return [("Q15", 2), *when(bad, "Q22", s.next - 1)]


@variant()
def q22_base_of_its_own(s: Story, bad: bool) -> Found:
    said(s, "one")
    said(s, "two")
    first = s.context()
    gone(s)
    second = s.context(keep=1, base=first)
    third = s.context(keep=2, base=second if bad else first)
    s.think(context=third)
    return when(bad, "Q22", s.next - 1)


@variant()
def q23_own_goals_only(s: Story, bad: bool) -> Found:
    s.add(GoalRevised(goal="one") if bad else VarSet(name="n"))
    return when(bad, "Q23", act(s, action="2.0"))


@variant()
def q23_own_goals_behind_a_roll_back(s: Story, bad: bool) -> Found:
    s.add(GoalRevised(goal="one") if bad else VarSet(name="n"))
    saved = checkpoint(s)
    s.add(RolledBack(to=saved, from_=saved))
    number = act(s, action="4.0")
    s.add(GoalRevised(goal="two"))
    return when(bad, "Q23", number)


@variant()
def q24_subjects_unknown(s: Story, bad: bool) -> Found:
    s.stated = None
    erasure = {"erasure_id": own(s, "e"), "epoch": 1, "state": "complete", "at": minute(60)}
    concerned = {"trajectory_id": s.trajectory_id} if bad else {"subject": own(s, "s")}
    s.ledger.append(("erasures", {**erasure, **concerned}))
    export(s, "x", 50, [s.trajectory_id])
    return [("Q15", 0), *when(bad, "Q24", -1)]


@variant()
def x01_held_back_is_not_off_the_line(s: Story, bad: bool) -> Found:
    number = s.add(VarSet(name="n"))
    payload = ToolIntent(action_id="1.0", tool="pay", arguments_hash=digest("a"), key=digest("k"), effect="external")
    s.stray(payload, token=1, after=number, ahead=1)
    if bad:
        s.edits_aside.append((number + 2, {"reason": "conflict"}))
    return [("Q15", number + 2), *when(bad, "X01", number + 2)]


@variant()
def x01_inside_effect(s: Story, bad: bool) -> Found:
    number = s.add(VarSet(name="n"))
    effect = "external" if bad else "local"
    payload = ToolIntent(action_id="1.0", tool="pay", arguments_hash=digest("a"), key=digest("k"), effect=effect)  # type: ignore[arg-type]
    s.stray(payload, token=1, after=number, ahead=1)
    s.edits_aside.append((number + 2, {"reason": "conflict"}))
    return [("Q15", number + 2), *when(bad, "X01", number + 2)]


@variant()
def x04_ancestors_action(s: Story, bad: bool) -> Found:
    s.add(PlanCommitted(plan=["pay"]))
    s.add(Resumed(last_sequence=1))
    number = act(s, "wipe" if bad else "pay", "^1:1.0")
    return when(bad, "X04", number)


@variant()
def x04_plan_replaced_too_late(s: Story, bad: bool) -> Found:
    plan = s.add(PlanCommitted(plan=["pay"]))
    s.add(Resumed(last_sequence=1))
    number = act(s, "wipe" if bad else "pay", "3.0")
    s.add(PlanCommitted(plan=["wipe"], replaces=plan))
    return when(bad, "X04", number)


@variant()
def x04_plan_rolled_back(s: Story, bad: bool) -> Found:
    s.add(PlanCommitted(plan=["wipe"]))
    saved = checkpoint(s)
    s.add(PlanCommitted(plan=["pay"]))
    s.add(RolledBack(to=saved, from_=s.next - 1))
    s.add(Resumed(last_sequence=4))
    return when(bad, "X04", act(s, "pay" if bad else "wipe", "6.0"))


@variant()
def x05_other_exports(s: Story, bad: bool) -> Found:
    export(s, "e", 50, [], kind="evidence" if bad else "sft", actor=None)
    return when(bad, "X05", -1)


@variant()
def q22_base_named_by_a_later_event(s: Story, bad: bool) -> Found:
    said(s, "one")
    lost = gone(s)
    if not bad:
        s.unshow(lost)
    s.context()
    if bad:
        s.add(VarSet(name="n"))
    else:
        s.context(keep=1)
    s.think(context=s.context(keep=2 if bad else 1, base=4))
    return when(bad, "Q22", s.next - 1)


@variant()
def q22_own_bases_only(s: Story, bad: bool) -> Found:
    first = said(s, "one")
    lost = gone(s)
    if not bad:
        s.unshow(lost)
        s.show(first)
    base = s.context()
    s.think(context=s.context(keep=2, base=base))
    number = s.next - 1
    gone(s)
    s.context(keep=0)
    return when(bad, "Q22", number)
