"""Variants about contexts, exports and the record of audits."""

from __future__ import annotations

from tests.sql.audit_story import Story, blob, digest, minute
from tests.sql.audit_variants import DAY_MINUTES, NOW, Found, attempt, own, said, variant, when
from tests.sql.audit_variants_tenures import take_over
from trajlake.schemas.events import ContextBuilt, ModelReplied, ToolResult, VarSet

# -- contexts ---------------------------------------------------------------------------------------------------------


@variant()
def q22_no_context(s: Story, bad: bool) -> Found:
    item = said(s)
    if not bad:
        s.context()
    number = s.add(ModelReplied(raw="{}", context=item if bad else s.next - 1, served_model="m1"))
    later = s.add(ModelReplied(raw="{}", context=s.next + 1 if bad else s.next - 2, served_model="m1"))
    s.context()
    none = s.add(ModelReplied(raw="{}", served_model="m1")) if bad else -1
    return [("Q22", number), ("Q22", later), ("Q22", none)] if bad else []


def gone(s: Story) -> int:
    """An item whose blob is nowhere, old enough to be gone by right."""
    at, s.at = s.at, NOW - 150 * DAY_MINUTES
    number = said(s, blob(own(s, "gone")))
    s.at = at
    return number


@variant()
def q22_item_gone(s: Story, bad: bool) -> Found:
    said(s)
    item = gone(s)
    if not bad:
        s.unshow(item)
    s.think()
    first = s.next - 1
    s.think(keep=2 if bad else 1)
    second = s.next - 1
    s.think(keep=1)
    return [("Q22", first), ("Q22", second)] if bad else []


@variant()
def q22_item_in_the_future(s: Story, bad: bool) -> Found:
    said(s)
    s.show(s.next if bad else s.next - 1)
    s.think()
    return when(bad, "Q22", s.next - 1)


@variant()
def q22_item_row_gone(s: Story, bad: bool) -> Found:
    s.add(VarSet(name="n"))
    item = said(s)
    s.think()
    s.drops.add(item if bad else 1)
    return [("Q15", item + 1), ("Q22", s.next - 1)] if bad else [("Q15", 2)]


@variant()
def q22_item_altered(s: Story, bad: bool) -> Found:
    item = said(s)
    other = s.add(VarSet(name="n"))
    s.think()
    number = item if bad else other
    s.edits.append((number, {"payload": "{}"}))
    return [("Q16a", number), *when(bad, "Q22", s.next - 1)]


@variant()
def q22_ancestors_and_head(s: Story, bad: bool) -> Found:
    said(s)
    head = {digest("system"): blob(own(s, "gone"))} if bad else {}
    at, s.at = s.at, NOW - 150 * DAY_MINUTES
    built = s.add(ContextBuilt(context_hash=digest("c"), append=((1, 99), 1), stored=head))
    s.at = at
    number = s.add(ModelReplied(raw="{}", context=built, served_model="m1"))
    return when(bad, "Q22", number)


# -- ledgers -----------------------------------------------------------------------------------------------------------


def export(s: Story, name: str, at: float, members: list[str], kind: str = "sft", actor: str | None = "u-ml") -> None:
    detail = {
        "trajectories": [[s.tenant, member] for member in members],
        "tenant": s.tenant,
        "trajectory_id": s.trajectory_id,
    }
    row = {
        "export_id": own(s, name),
        "kind": kind,
        "erasure_epoch": 0,
        "detail": detail,
        "actor": actor,
        "at": minute(at),
    }
    s.ledger.append(("exports", {**row, "moved": True}))


@variant()
def q24_members(s: Story, bad: bool) -> Found:
    state = "complete"
    s.ledger.append(
        (
            "erasures",
            {"erasure_id": own(s, "e"), "epoch": 1, "state": state, "trajectory_id": s.trajectory_id, "at": minute(60)},
        )
    )
    export(s, "x1", 50, [s.trajectory_id if bad else "another"])
    export(s, "x2", 60, [s.trajectory_id if bad else "another"])
    export(s, "x3", 50, [s.trajectory_id])
    export(s, "x3", 70, [])
    export(s, "x4", 50, [s.trajectory_id], kind="evidence")
    return [("Q24", -1), ("Q24", -1)] if bad else []


@variant()
def q24_refused(s: Story, bad: bool) -> Found:
    for place, state in enumerate(("requested", "complete" if bad else "refused")):
        row = {
            "erasure_id": own(s, "e"),
            "epoch": 1,
            "state": state,
            "trajectory_id": s.trajectory_id,
            "at": minute(60 + place),
        }
        s.ledger.append(("erasures", row))
    export(s, "x1", 50, [s.trajectory_id])
    return when(bad, "Q24", -1)


@variant()
def x05_evidence(s: Story, bad: bool) -> Found:
    export(s, "e", 50, [], kind="evidence", actor=None if bad else "u-1")
    export(s, "f", 50, [], kind="evidence", actor="" if bad else "u-1")
    return [("X05", -1), ("X05", -1)] if bad else []


@variant()
def x05_audits(s: Story, bad: bool) -> Found:
    def audit(run: str, control: str, actor: str | None) -> None:
        detail = {} if actor is None else {"actor": actor}
        s.ledger.append(
            ("audit_findings", {"audit_run": own(s, run), "control": control, "detail": detail, "moved": True})
        )

    audit("a", "access", "u-1")
    audit("a", "Q01", None)
    audit("b", "Q01" if bad else "access", "u-1")
    audit("c", "access", "" if bad else "u-2")
    audit("d", "access", None if bad else "u-2")
    return [("X05", -2), ("X05", -2), ("X05", -2)] if bad else []


@variant()
def x01_reason_and_type(s: Story, bad: bool) -> Found:
    number = attempt(s)
    s.result("1.0")
    if bad:
        payload = s.events[number].body
        s.stray(payload, token=1, after=number - 1)
        while s.astray[-1].hash < s.events[number].hash:
            s.astray.clear()
            s.stray(payload, token=1, after=number - 1)
        s.edits_aside.append((number, {"event_type": None}))
        return [("X01", number), ("Q15", number)]
    take_over(s)
    s.stray(ToolResult(action_id="1.0", status="refused"), token=1, after=s.next - 2)
    return [("Q11", s.next - 1)]
