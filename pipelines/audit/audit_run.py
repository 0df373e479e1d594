"""Runs controls and says what each found: pass, findings, or not applicable with the reason.

A run is worth nothing if the SQL finds nothing by mistake: `positive_control` runs the same text on the built-in
fixture first, and every finding there must come, no other. Source: design notes in `sql/audits/README.md`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple

from trajlake.pipelines.progress import Progress, no_progress

from .audit_controls import Control
from .audit_session import Session

Verdict = Literal["pass", "findings", "not applicable"]
COLUMNS: Final = ("tenant", "trajectory_id", "sequence_number", "action_id", "object", "related", "detail")
NO_LIVE: Final = "no trajectory in scope that a harness of ours wrote"
SELF_ATTESTED: Final = "self-attested: compared with the lake's own anchors only"
FOUND_DDL: Final = """
create table found (
    control varchar, tenant varchar, trajectory_id varchar, sequence_number bigint, action_id varchar, object varchar,
    related bigint[], detail varchar
)
"""


class Finding(NamedTuple):
    """One violation: an exact event where there is one, what else it concerns, and which events belong to it."""

    control: str
    tenant: str | None
    trajectory_id: str | None
    sequence_number: int | None
    action_id: str | None
    object: str | None
    related: tuple[int, ...]
    detail: str


class ControlResult(NamedTuple):
    """What one control said. `trajectories` it could judge; `not_judged` in scope that it could not, by reason."""

    control: Control
    verdict: Verdict
    found: int
    trajectories: int
    not_judged: dict[str, int]
    note: str
    seconds: float


def run_controls(
    session: Session, selected: Sequence[Control], *, scanned: bool, progress: Progress = no_progress
) -> list[ControlResult]:
    """Run every control of `selected`; their violations are in the session's table `found` afterwards.

    `scanned`: a scan for secrets covers what is audited.
    """
    session.connection.execute(FOUND_DDL)
    population = _population(session)
    results = []
    for place, control in enumerate(selected, start=1):
        results.append(_run(session, control, population, scanned))
        progress("controls run", place, len(selected))
    return results


def _run(session: Session, control: Control, population: dict[str, int], scanned: bool) -> ControlResult:
    begun = time.monotonic()
    judged, not_judged = _judged(control, population)
    missing = NEEDS[control.needs](session, scanned) if control.needs else ""
    if missing or (not judged and (control.applies == "live" or not control.needs)):
        why = missing or ("no trajectory in scope" if control.applies == "all" else NO_LIVE)
        return ControlResult(control, "not applicable", 0, 0, not_judged, why, 0.0)
    before = session.count("found")
    columns = ", ".join(COLUMNS)
    session.connection.execute(
        f"insert into found select $1, {columns} from ({control.sql}\n) as violations", [control.id]
    )
    found = session.count("found") - before
    verdict: Verdict = "findings" if found else "pass"
    note = SELF_ATTESTED if control.needs == "anchor" and not session.scope.anchors else ""
    return ControlResult(control, verdict, found, judged, not_judged, note, round(time.monotonic() - begun, 3))


def _population(session: Session) -> dict[str, int]:
    rows = session.connection.execute(
        """
        select
            case
                when is_live then 'live'
                when is_erased then 'erased'
                when is_expired then 'expired'
                else kind
            end as sort, count(*)
        from audited
        group by sort
        """
    ).fetchall()
    return {str(sort): int(count) for sort, count in rows}


def _judged(control: Control, population: dict[str, int]) -> tuple[int, dict[str, int]]:
    if control.applies == "all":
        return sum(population.values()), {}
    return population.get("live", 0), {sort: n for sort, n in sorted(population.items()) if sort != "live"}


def _needs_scan(_: Session, scanned: bool) -> str:
    return "" if scanned else "no 'trajlake scan' covers this snapshot"


def _needs_anchor(session: Session, _: bool) -> str:
    return "" if session.count("anchored_heads") else "no anchor names a head in scope; make one with 'trajlake anchor'"


def _needs_retention(session: Session, _: bool) -> str:
    return "" if session.count("retention_policy") else "no retention policy given (--retention FILE)"


def _needs_exports(session: Session, _: bool) -> str:
    (row,) = session.connection.execute("select count(*) from exports where kind <> 'evidence'").fetchall()
    return "" if row[0] else "no data set was ever cut from this lake"


def _needs_access(session: Session, _: bool) -> str:
    seen = session.count("audit_findings") + session.count("exports")
    return "" if seen else "nobody has read the audit tables yet"


NEEDS: Final[dict[str, Callable[[Session, bool], str]]] = {
    "scan": _needs_scan,
    "anchor": _needs_anchor,
    "retention": _needs_retention,
    "exports": _needs_exports,
    "access": _needs_access,
}


def findings(session: Session, limit: int | None = None) -> list[Finding]:
    """Return what was found, ordered by control and event."""
    rows: list[tuple[Any, ...]] = session.connection.execute(
        "select * from found order by control, tenant, trajectory_id, sequence_number, object, detail limit $1",
        [limit if limit is not None else 1 << 62],
    ).fetchall()
    return [Finding._make((*row[:6], tuple(row[6] or ()), row[7])) for row in rows]
