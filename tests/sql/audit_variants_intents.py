"""Variants about constraints, drift, obligations, goals and plans, and the controls beyond."""

from __future__ import annotations

from typing import Any

from tests.sql.audit_story import Story, blob, digest
from tests.sql.audit_variants import DAY_MINUTES, NOW, Found, attempt, own, said, variant, when, without
from tests.sql.audit_variants_tenures import checkpoint
from trajlake.schemas.events import (
    ConstraintAccepted,
    ConstraintWithdrawn,
    DriftDetected,
    GoalRevised,
    LateResult,
    MailStamp,
    ObligationDischarged,
    ObligationOpened,
    PlanCommitted,
    Predicate,
    Resumed,
    RolledBack,
    TaskEnded,
    ToolSettled,
)


def rule(s: Story, name: str = "c", **predicate: Any) -> int:
    predicate.setdefault("tool", "deploy")
    return s.add(ConstraintAccepted(constraint_id=name, text="no", predicate=Predicate(**predicate)))


def act(s: Story, tool: str = "deploy", action: str = "9.0", **more: Any) -> int:
    s.allow(action)
    number = s.intend(action, tool=tool, **more)
    s.result(action)
    return number


@variant()
def q01_expired(s: Story, bad: bool) -> Found:
    """What was kept its time and cleared can no longer show who authorized what."""
    if not bad:
        s.stated = {"status": "expired"}
    number = s.intend("9.0")
    s.result("9.0")
    return when(bad, "Q01", number)


@variant()
def q01_payloads_expired(s: Story, bad: bool) -> Found:
    s.stated = {"payloads_expired": 0 if bad else 1}
    number = s.intend("9.0")
    s.result("9.0")
    return when(bad, "Q01", number)


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
def q18_accepted_after_roll_back(s: Story, bad: bool) -> Found:
    saved = checkpoint(s)
    act(s, effect="read")
    s.add(RolledBack(to=saved, from_=s.next - 1))
    if bad:
        rule(s)
    return when(bad, "Q18", act(s, action="12.0", effect="read"))


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
