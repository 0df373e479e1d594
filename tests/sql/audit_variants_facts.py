"""Variants that hold the facts: what they are read from, and which trajectories they are read for."""

from __future__ import annotations

from tests.sql.audit_story import Story, digest
from tests.sql.audit_variants import Found, own, said, variant, when
from tests.sql.audit_variants_intents import act
from tests.sql.audit_variants_tables import read, secret
from trajlake.schemas.events import BudgetRevised, Compacted, Resumed, VarSet


@variant(budget={"usd": "5"})
def q12_import_is_not_judged(s: Story, bad: bool) -> Found:
    said(s)
    s.think(cost={"usd": "6"})
    if not bad:
        s.stated = {"kind": "imported"}
    return when(bad, "Q12", s.next - 1)


@variant()
def q12_limits_that_no_budget_names(s: Story, bad: bool) -> Found:
    said(s)
    if bad:
        s.add(BudgetRevised(limits={"usd": "5"}))
    else:
        for field in ("limits", "budget"):
            s.put.append((s.add(VarSet(name="n")), field, {"usd": "5"}))
    s.think(cost={"usd": "6"})
    return when(bad, "Q12", s.next - 1)


@variant()
def q13_secret_beside_an_output(s: Story, bad: bool) -> Found:
    message = said(s)
    output = read(s)
    s.add(Compacted(summary="s"))
    secret(s, output if bad else message)
    return when(bad, "Q13", output)


@variant()
def q16b_anchor_file(s: Story, bad: bool) -> Found:
    number = s.add(VarSet(name="n"))
    digest_of_head = digest("other") if bad else s.events[number].hash.hex()
    head = [s.trajectory_id, number, digest_of_head, s.started_on.isoformat()]
    s.outside.append((own(s, "f"), {"heads": [head]}))
    return when(bad, "Q16b", number)


@variant()
def q17_version_of_the_resume_before(s: Story, bad: bool) -> Found:
    s.add(Resumed(last_sequence=0, schema_version=2))
    return when(bad, "Q17", s.add(Resumed(last_sequence=1, schema_version=3 if bad else 4)))


@variant()
def q13_expired_is_not_judged(s: Story, bad: bool) -> Found:
    output = read(s)
    s.add(Compacted(summary="s"))
    secret(s, output)
    if not bad:
        s.stated = {"status": "expired"}
    return when(bad, "Q13", output)


@variant()
def q16a_erased_without_a_row(s: Story, bad: bool) -> Found:
    s.edits.append((0, {"payload": None, "salt": None}))
    s.stated = None
    erasure = {"erasure_id": own(s, "e"), "epoch": 1, "state": "refused" if bad else "complete"}
    s.ledger.append(("erasures", {**erasure, "trajectory_id": s.trajectory_id}))
    return [("Q15", 0), *when(bad, "Q16a", 0)]


@variant()
def q19_policy_of_an_import(s: Story, bad: bool) -> Found:
    s.allow("7.0")
    if not bad:
        s.stated = {"kind": "imported"}
    return when(bad, "Q19", s.allow("8.0", policy_version="p2"))


@variant()
def q23_ancestor_without_a_row(s: Story, bad: bool) -> Found:
    s.stated = None
    number = act(s, action="1.0", **({"goal": (1, 3)} if bad else {}))
    return [("Q15", s.next - 1), *when(bad, "Q23", number)]
