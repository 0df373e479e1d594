"""Lays the variants out as one fixture, in three scopes, so that a forgotten predicate shows."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import msgspec

import tests.sql.audit_variants_contexts  # these register their variants
import tests.sql.audit_variants_facts
import tests.sql.audit_variants_intents
import tests.sql.audit_variants_joins
import tests.sql.audit_variants_more
import tests.sql.audit_variants_tables
import tests.sql.audit_variants_tenures  # noqa: F401
from tests.sql.audit_story import START, Row, Story, digest, minute, tables_of
from tests.sql.audit_variants import NOW, STARTS, VARIANTS
from trajlake.pipelines.audit.audit_controls import Control
from trajlake.pipelines.audit.audit_fixture import load_rows
from trajlake.pipelines.audit.audit_run import findings, run_controls
from trajlake.pipelines.audit.audit_session import AnchorFile, Retention, Scope, Session

DAY = START.date()
EARLIER = DAY - dt.timedelta(days=40)
IN_SCOPE, BESIDE = "beta", "gamma"
Place = tuple[str, str, str, int]
"""Control, tenant, trajectory (or what stands for it), event (-1 for none)."""


class Laid(NamedTuple):
    """Rows by table; anchor files; what must be found everywhere; what must be found for tenant beta on the day."""

    tables: dict[str, list[Row]]
    anchors: list[AnchorFile]
    everywhere: Counter[Place]
    in_scope: Counter[Place]


@cache
def laid_out() -> Laid:
    """Return the fixture. Tellings of a variant: beta bad beside gamma good, the reverse, and beta bad long before."""
    stories: list[Story] = []
    everywhere: Counter[Place] = Counter()
    in_scope: Counter[Place] = Counter()
    for name, told in VARIANTS.items():
        for suffix, tenant, bad, day in (
            ("x", IN_SCOPE, True, DAY),
            ("x", BESIDE, False, DAY),
            ("y", IN_SCOPE, False, DAY),
            ("y", BESIDE, True, DAY),
            ("z", IN_SCOPE, True, EARLIER),
        ):
            story = Story(f"{name} {suffix}", tenant=tenant, **STARTS[name])
            story.started_on = day
            places = [_place(control, story, number) for control, number in told(story, bad)]
            everywhere.update(places)
            if tenant == IN_SCOPE and day == DAY:
                in_scope.update(places)
            stories.append(story)
    tables = tables_of(stories)
    for story in stories:
        _edit(tables, story)
    _ledgers(tables, stories)
    anchors = [
        AnchorFile(story.tenant, name, msgspec.json.encode(document).decode())
        for story in stories
        for name, document in story.outside
    ]
    return Laid(tables, anchors, everywhere, in_scope)


def _place(control: str, story: Story, number: int) -> Place:
    if number == -2:
        return control, story.tenant, "the lake", -1
    if number == -1 and control != "Q15":
        return control, story.tenant, story.trajectory_id, -1
    return control, story.tenant, story.trajectory_id, number


def _edit(tables: dict[str, list[Row]], story: Story) -> None:
    key = (story.tenant, story.trajectory_id)
    if story.edits or story.drops or story.copies:
        kept = []
        for row in tables["events"]:
            if (row["tenant"], row["trajectory_id"]) != key:
                kept.append(row)
                continue
            for number, values in story.edits:
                if number == row["sequence_number"]:
                    row.update(values)
            if row["sequence_number"] not in story.drops:
                kept += [row, dict(row)] if row["sequence_number"] in story.copies else [row]
        tables["events"] = kept
    for number, values in story.edits_aside:
        for row in tables["quarantine"]:
            if (row["tenant"], row["trajectory_id"], row["sequence_number"]) == (*key, number):
                row.update(values)
    if story.stated is None:
        tables["trajectories"] = [r for r in tables["trajectories"] if (r["tenant"], r["trajectory_id"]) != key]
    elif story.stated:
        for row in tables["trajectories"]:
            if (row["tenant"], row["trajectory_id"]) == key:
                row.update(story.stated)


def _ledgers(tables: dict[str, list[Row]], stories: Iterable[Story]) -> None:
    for story in stories:
        for place, (table, row) in enumerate(story.ledger):
            whole: dict[str, Any] = {"tenant": story.tenant, **row}
            if isinstance(whole.get("detail"), dict):
                whole["detail"] = msgspec.json.encode(whole["detail"]).decode()
            if table != "blobs":
                whole.setdefault("row_id", digest(f"{story.tenant} {story.trajectory_id} {place}")[:32])
                shift = story.started_on - DAY if whole.pop("moved", False) else dt.timedelta()
                whole["at"] = whole.get("at", minute(0)) + shift
            tables.setdefault(table, []).append(whole)


SCOPE_ALL = Scope(
    now=minute(NOW),
    retention=(
        Retention("*", "blobs", 100, 200),
        Retention("*", "payloads", None, 300),
        Retention("beta", "payloads", 0, None),
    ),
    compatible=((1, 2), (2, 4)),
)
SCOPE_NARROW = SCOPE_ALL._replace(tenant=IN_SCOPE, first=DAY, last=DAY)


def found_by(session: Session, selected: list[Control]) -> Counter[Place]:
    """Run controls in an open session and return where they found something."""
    session.connection.execute("drop table if exists found")
    run_controls(session, selected, scanned=True)
    return Counter(
        (
            one.control,
            str(one.tenant),
            one.trajectory_id or "the lake",
            -1 if one.sequence_number is None else one.sequence_number,
        )
        for one in findings(session)
    )


def narrow(session: Session, scope: Scope) -> None:
    """Change what a session's controls may see; its facts stay as they were built."""
    session.set_variable("audit_tenant", scope.tenant)
    session.set_variable("audit_from", scope.first)
    session.set_variable("audit_to", scope.last)


def open_session(scope: Scope, selected: list[Control]) -> Session:
    session = Session(scope, memory_limit="1GiB")
    load(session, laid_out())
    session.build_facts(selected)
    return session


def load(session: Session, laid: Laid) -> None:
    """Make every table of the fixture in `session`, and hand its anchor files in."""
    load_rows(session, laid.tables)
    session.connection.executemany("insert into anchor_files values ($1, $2, $3)", [list(one) for one in laid.anchors])
