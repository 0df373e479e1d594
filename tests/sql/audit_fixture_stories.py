"""The fixture of the audits: eighteen trajectories, what each control must find in them, and what it must leave alone.

`LABELS` of a built fixture say where each named thing stands, so that the expected findings are written by name. Run
`python -m tests.sql.audit_fixture_stories` to write `sql/fixtures` anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from tests.sql.audit_story import Row, Story, blob, blob_hash, digest, micros, minute, tables_of
from trajlake.pipelines.audit.audit_fixture import FixtureParameters, write_fixture
from trajlake.schemas.events import (
    BudgetRevised,
    CheckpointSaved,
    Compacted,
    ConstraintAccepted,
    ConstraintWithdrawn,
    DriftDetected,
    GoalRevised,
    LeaseAcquired,
    LeaseReleased,
    MessageAdded,
    ObligationDischarged,
    ObligationOpened,
    ObservationCached,
    PlanCommitted,
    Predicate,
    Resumed,
    TaskEnded,
    ToolIntent,
    ToolSettled,
    VarSet,
)

NOW = 100
DAY_MINUTES = 1440
BLOBS = ("o0", "o1", "o3", "s1", "s2", "lost")


class Fixture:
    """Stories, what else the tables hold, and expected findings by control."""

    def __init__(self) -> None:
        self.stories: dict[str, Story] = {}
        self.expected: list[Row] = []
        self.more: dict[str, list[Row]] = {}

    def story(self, name: str, **start: Any) -> Story:
        self.stories[name] = Story(name, **start)
        return self.stories[name]

    def expect(self, control: str, story: Story | None, number: int | None, label: str, says: str = "") -> None:
        self.expected.append(
            {
                **({"says": says} if says else {}),
                "control": control,
                "tenant": story.tenant if story else "acme",
                "trajectory_id": story.trajectory_id if story else None,
                "sequence_number": number,
                "label": label,
            }
        )

    def rows(self, table: str, *rows: Row) -> None:
        self.more.setdefault(table, []).extend({"tenant": "acme", **row} for row in rows)


def message(story: Story, text: Any = "hello") -> int:
    number = story.add(MessageAdded(role="user", wire={"role": "user", "content": text}, item_hash=digest(str(text))))
    story.show(number)
    return number


def clean_and_erased(f: Fixture) -> None:
    s = f.story("T01", subjects=("u1",))
    message(s)
    (call,) = s.think("pay")
    s.allow(call)
    s.intend(call)
    s.show(s.result(call))
    s.think()
    s.add(CheckpointSaved(covers=s.next - 1, state_hash=digest("s"), root=digest("r"), cause="end"))
    s.add(TaskEnded(status="completed"))
    s.add(LeaseReleased(token=1))


def authorization(f: Fixture) -> None:
    s = f.story("T02")
    message(s)
    c2 = s.new_action
    f.expect("Q01", s, s.intend(c2), "c2")
    s.allow(c2)
    s.result(c2)
    c3 = s.new_action
    s.allow(c3, "a")
    f.expect("Q02", s, s.intend(c3, "aX"), "c3")
    s.result(c3)
    c4 = s.new_action
    s.intend(c4, effect="read")
    s.result(c4)

    s = f.story("T03")
    f.expect("Q03", s, s.result(s.new_action), "c5")
    s.done()
    c7 = s.new_action
    f.expect("Q03", s, s.result(c7), "c7")
    s.intend(c7, effect="read")


def doubts(f: Fixture) -> None:
    s = f.story("T04")
    c8 = s.new_action
    s.allow(c8)
    f.expect("Q04", s, s.intend(c8, at=10), "c8")
    c9 = s.new_action
    s.allow(c9)
    s.intend(c9)
    s.add(ToolSettled(action_id=c9, how="probe", verdict="not_executed"))
    s.intend(s.new_action, effect="read")
    for evidence, label in ((None, "c12"), ("ticket 7", "c13")):
        action = s.new_action
        s.allow(action)
        s.intend(action)
        number = s.add(ToolSettled(action_id=action, how="person", verdict="executed", evidence=evidence))
        if label == "c12":
            f.expect("X03", s, number, label)
    c11 = s.new_action
    s.allow(c11)
    s.intend(c11, at=50)


def keys(f: Fixture) -> None:
    s = f.story("T05")
    k5 = s.new_action
    s.allow(k5)
    for attempt in (1, 2):
        s.intend(k5, key=digest("k5"), attempt=attempt)
        second = s.result(k5, attempt=attempt)
    f.expect("Q05", s, second, "k5", "executed 2 times")
    k6 = s.new_action
    s.allow(k6)
    for attempt, status in ((1, "error"), (2, "ok")):
        s.intend(k6, key=digest("k6"), attempt=attempt)
        s.result(k6, status, attempt=attempt)
    s.done(key=digest("k7"))
    again = s.new_action
    s.allow(again)
    s.result(again, "replayed", replays=s.next - 2)
    s.done("a", key=digest("k8"))
    other = s.new_action
    s.allow(other, "b")
    f.expect("Q06", s, s.intend(other, "b", key=digest("k8")), "k8")
    s.result(other, "error")


def approvals(f: Fixture) -> None:
    s = f.story("T06")

    def used(approval: str, action: str, at: float) -> int:
        s.allow(action, approval=approval)
        number = s.intend(action, approval=approval, at=at)
        s.result(action)
        return number

    e1 = s.new_action
    s.ask("p1", e1, expires_at=micros(10))
    s.answer("p1", e1, at=8)
    f.expect("Q07", s, used("p1", e1, 11), "e1")
    e2 = s.new_action
    s.ask("p2", e2, expires_at=micros(60))
    s.answer("p2", e2, at=13)
    used("p2", e2, 14)
    f.expect("Q09", s, used("p2", s.new_action, 15), "p2", "used by 2")
    e_eve = s.new_action
    s.ask("p3", e_eve, requester="u-eve")
    f.expect("Q08", s, s.answer("p3", e_eve, approver="u-eve"), "p3")
    e4 = s.new_action
    s.ask("p4", e4)
    s.answer("p4", e4, "denied", at=20)
    f.expect("Q10", s, used("p4", e4, 21), "e4")
    e5 = s.new_action
    s.ask("p5", e5)
    f.expect("Q10", s, used("p5", e5, 23), "e5")
    s.answer("p5", e5, at=25)


def fencing_and_budget(f: Fixture) -> None:
    s = f.story("T07")
    s.done()
    f2 = s.new_action
    last = s.allow(f2)
    s.token = 2
    s.add(LeaseAcquired(token=2, after_token=1, after_sequence=last, after_hash=s.events[last].hash.hex()))
    stale = ToolIntent(action_id=f2, tool="pay", arguments_hash=digest("a"), key=digest("f2"), effect="external")
    number = s.stray(stale, token=1, after=last)
    f.expect("Q11", s, number, "f2")
    f.expect("X01", s, number, "f2")
    s.done()

    s = f.story("T08", budget={"usd": "10"})
    message(s)
    s.think(cost={"usd": "6"})
    s.think(cost={"usd": "5"})
    f.expect("Q12", s, s.next - 1, "spent 11", "spent 11")
    s.add(BudgetRevised(limits={"usd": "20"}))
    s.think(cost={"usd": "5"})


def secrets(f: Fixture) -> None:
    s = f.story("T09")
    message(s)
    (first,) = s.think("cat")
    s.intend(first, effect="read", tool="cat")
    s.at = NOW - 400 * DAY_MINUTES
    o1 = s.result(first, output=blob("o1"))
    s.show(o1)
    s.at = 20
    s.think()
    s.add(Compacted(summary="short", keep=1, turns=(0, 0)))
    s.turn = 1
    s.think(keep=1)
    s2 = s.add(Compacted(summary=blob("s2"), keep=1))
    s.turn = 2
    second = s.new_action
    s.intend(second, effect="read", tool="cat")
    o3 = s.result(second, output=blob("o3"))
    found = (("aws_key", "o1"), ("github_pat", "s2"), ("jwt", "o3"))
    f.rows(
        "secrets",
        *(
            {"sha256": blob_hash(name), "kind": kind, "offset_hash": digest(kind), "scanner_version": "1"}
            for kind, name in found
        ),
    )
    f.rows("runs", {"kind": "scan", "snapshot": 1, "outcome": "committed", "run": "scan"})
    f.rows(
        "blobs",
        *(
            {"sha256": blob_hash(name), "bytes": 32_000, "stored_bytes": 9, "path": f"cas/{name}", "run": 1}
            for name in ("o0", "o1", "s2")
        ),
    )
    f.expect("Q13", s, o1, "aws_key")
    f.expect("Q14", s, s2, "github_pat")
    f.expect("Q20", s, o1, "o1", "kept_too_long")
    f.expect("Q20", s, o3, "o3", "destroyed_early")


def tampering(f: Fixture) -> None:
    for name in ("T10", "T11", "T12"):
        s = f.story(name)
        for number in range(5):
            s.add(VarSet(name="n", value=number))
    f.expect("Q15", f.stories["T10"], 4, "after 2", "follows 2")
    f.expect("Q16a", f.stories["T11"], 2, "altered body")
    s = f.stories["T12"]
    f.expect("Q16b", s, 5, "truncated")
    f.rows(
        "anchors",
        {
            "anchor_id": "acme-1", "day": minute(0).date(), "root": digest("root"), "trajectories": 1, "snapshot": 1,
            "detail": {"heads": [["T12", 5, s.events[5].hash.hex(), minute(0).date().isoformat()]]},
        },
    )  # fmt: skip


def versions(f: Fixture) -> None:
    s = f.story("T13")
    s.add(ObservationCached(observation_id="o", value=blob("s1")))
    f.expect("Q20", s, s.next - 1, "s1", "destroyed_under_hold")
    s.add(CheckpointSaved(covers=1, state_hash=digest("s"), root=digest("r"), cause="interval"))
    f.expect("Q17", s, s.add(Resumed(last_sequence=2, schema_version=2)), "resumed with 2")
    s.schema_version = 2
    s.add(CheckpointSaved(covers=3, state_hash=digest("s"), root=digest("r"), cause="interval"))
    s.add(Resumed(last_sequence=4, schema_version=3))
    f.rows("holds", {"hold_id": "h1", "action": "place", "trajectory_id": "T13", "at": minute(1)})


def intent_state(f: Fixture) -> None:
    s = f.story("T14")
    s.done(tool="deploy")
    s.add(ConstraintAccepted(constraint_id="no-deploy", text="no deploys", predicate=Predicate(tool="deploy")))
    h2 = s.new_action
    s.allow(h2)
    f.expect("Q18", s, s.intend(h2, tool="deploy"), "h2")
    s.result(h2)
    s.add(ConstraintWithdrawn(constraint_id="no-deploy"))
    s.done(tool="deploy")

    s = f.story("T15")
    message(s)
    s.think(model="m1")
    s.think(model="m2")
    f.expect("Q19", s, s.next - 1, "m1 -> m2")
    s.add(DriftDetected(what="model", old="m2", new="m3", choice="switch", system_no=1))
    s.think(model="m3")

    s = f.story("T17")
    f.expect("Q21", s, s.add(ObligationOpened(obligation_id="ob1", text="tell the customer")), "ob1")
    s.add(ObligationOpened(obligation_id="ob2", text="clean up"))
    s.add(ObligationDischarged(obligation_id="ob2", how="done"))
    f.expect("X02", s, s.add(Resumed(last_sequence=3, log_complete=False, accept_loss=True)), "loss accepted")
    s.add(TaskEnded(status="completed"))


def contexts_and_goals(f: Fixture) -> None:
    s = f.story("T18")
    said = message(s, "first")
    s.think()
    s.think(context=said)
    f.expect("Q22", s, s.next - 1, "unknown context")
    s.at = NOW - 200 * DAY_MINUTES
    message(s, blob("lost"))
    s.at = 30
    s.think(keep=0)
    f.expect("Q22", s, s.next - 1, "item gone")

    s = f.story("T19")
    g1 = s.add(GoalRevised(goal="g1"))
    s.done(goal=g1)
    s.add(PlanCommitted(plan={"steps": ["pay", "report"]}))
    g2 = s.add(GoalRevised(goal="g2", replaces=g1))
    i2 = s.new_action
    s.allow(i2)
    f.expect("Q23", s, s.intend(i2, goal=g1), "i2")
    s.result(i2)
    s.add(Resumed(last_sequence=s.next - 1))
    s.done(goal=g2)
    s.add(Resumed(last_sequence=s.next - 1))
    left = s.new_action
    s.allow(left)
    f.expect("X04", s, s.intend(left, goal=g2, tool="wipe"), "left the plan")
    s.result(left)


def ledgers(f: Fixture) -> None:
    s = f.stories["T01"]
    f.rows("erasures", {"erasure_id": "er1", "epoch": 1, "state": "complete", "subject": "u1", "at": minute(60)})
    for name, at, members in (("x1", 50, ["T01", "T02"]), ("x2", 70, ["T01"]), ("x3", 80, ["T02"])):
        detail = {"trajectories": [["acme", member] for member in members]}
        f.rows(
            "exports",
            {
                "export_id": name,
                "kind": "sft",
                "erasure_epoch": 0,
                "snapshot": 1,
                "detail": detail,
                "actor": "u-ml",
                "at": minute(at),
            },
        )
    f.expect("Q24", s, None, "x1", "must_recut")
    f.expect("Q24", s, None, "x2", "violation")
    f.rows(
        "audit_findings",
        {"audit_run": "a1", "control": "access", "detail": {"actor": "u-audit"}, "at": minute(2)},
        {"audit_run": "a1", "control": "Q01", "trajectory_id": "T02", "at": minute(2)},
        {"audit_run": "a2", "control": "Q01", "trajectory_id": "T02", "at": minute(3)},
    )
    f.expect("X05", None, None, "a2")


PARTS = (
    clean_and_erased, authorization, doubts, keys, approvals, fencing_and_budget, secrets, tampering, versions,
    intent_state, contexts_and_goals, ledgers,
)  # fmt: skip


def edited(tables: dict[str, list[Row]], f: Fixture) -> dict[str, list[Row]]:
    """What no writer can do to a lake: rows taken out and changed behind its back, a payload erased."""

    def keep(row: Row) -> bool:
        return (row["trajectory_id"], row["sequence_number"]) not in {("T10", 3), ("T12", 3), ("T12", 4), ("T12", 5)}

    tables["events"] = [row for row in tables["events"] if keep(row)]
    for row in tables["events"]:
        if row["trajectory_id"] == "T11" and row["sequence_number"] == 2:
            row["payload"] = row["payload"].replace('"value":1', '"value":9')
        if row["trajectory_id"] == "T01":
            row["payload"] = row["salt"] = None
    for row in tables["trajectories"]:
        if row["trajectory_id"] == "T12":
            row.update(last_sequence=2, events=3, head_hash=f.stories["T12"].events[2].hash.hex())
    return tables


def told() -> Fixture:
    """Return the stories as they were written, before anything was done to a lake."""
    f = Fixture()
    for part in PARTS:
        part(f)
    return f


def build() -> tuple[dict[str, list[Row]], list[Row], FixtureParameters]:
    """Return the tables of the fixture, the expected findings, and what the session is told."""
    f = told()
    tables = edited(tables_of(list(f.stories.values())), f)
    for name, rows in f.more.items():
        for place, row in enumerate(rows):
            if "detail" in row:
                row["detail"] = msgspec.json.encode(row["detail"]).decode()
            if name not in ("blobs",):
                row.setdefault("row_id", digest(f"{name} {place}")[:32])
                row.setdefault("at", minute(0))
        tables.setdefault(name, []).extend(rows)
    parameters = FixtureParameters(
        now=minute(NOW), sla_minutes=60, scan=True, retention=(("*", "blobs", 180, 365),), compatible=((2, 3),)
    )
    return (
        tables,
        sorted(f.expected, key=lambda row: (row["control"], row["trajectory_id"] or "", row["label"])),
        parameters,
    )


def main() -> None:
    folder = Path(__file__).resolve().parents[2] / "sql" / "fixtures"
    write_fixture(str(folder), *build())


__all__ = ["BLOBS", "PARTS", "Fixture", "build", "edited", "main", "told"]

if __name__ == "__main__":
    main()
