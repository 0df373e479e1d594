"""Checks the hash chain of a lake in SQL: the rules of `sql/verify`, one statement each, over one snapshot.

`truncated` (rows missing at the end) needs a head that an anchor names: of the lake's own ledger, or better of anchors
that were kept outside. `blobs` reads every object of the content store and hashes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..sql_text import sql_files

if TYPE_CHECKING:
    import duckdb

    from ..lakehouse.lake import Lake
    from ..lakehouse.snapshot import Snapshot
    from .audit_session import AnchorFile

Verdict = Literal["pass", "findings", "not applicable"]
NO_ANCHOR = "a cut at the end shows only against an anchor kept outside this lake, and none was given"
SELF_ATTESTED = "self-attested: compared with the lake's own anchors only"


class Violation(NamedTuple):
    """One row that breaks a rule."""

    tenant: str
    trajectory_id: str
    sequence_number: int
    detail: str


class RuleResult(NamedTuple):
    """What one rule found. `found` is their exact number; `violations` holds the first of them, in order."""

    rule: str
    verdict: Verdict
    found: int
    violations: list[Violation]
    note: str = ""


def verify_lake(
    lake: str | Path,
    *,
    snapshot: int | None = None,
    tenant: str | None = None,
    shown_max: int = 100,
    anchors: Sequence[AnchorFile] = (),
    blobs: bool = False,
) -> list[RuleResult]:
    """Run every rule over `lake`; `blobs` adds the rule of that name. Raises `LakeError` when there is no such lake."""
    from ..connect import connect
    from ..lakehouse.damaged_files import naming_damage
    from ..lakehouse.lake import Lake

    opened = Lake.open(lake)
    at = opened.newest() if snapshot is None else opened.snapshot(snapshot)
    with naming_damage(opened, at), closing(connect(lake, at.number, tenant=tenant)) as connection:
        results = verify_connection(connection, shown_max=shown_max)[:-1]
        results.append(truncated(opened, at, anchors, tenant=tenant, shown_max=shown_max))
        if blobs:
            results.append(_blobs(opened, connection, shown_max))
    return results


def verify_connection(connection: duckdb.DuckDBPyConnection, *, shown_max: int = 100) -> list[RuleResult]:
    """Run every rule over the views of an open connection."""
    results = [_run(connection, rule, text, shown_max) for rule, text in sql_files("verify").items()]
    return [*results, RuleResult("truncated", "not applicable", 0, [], NO_ANCHOR)]


def _run(connection: duckdb.DuckDBPyConnection, rule: str, text: str, shown_max: int) -> RuleResult:
    connection.execute(f"create or replace temp table found as {text}")
    (count,) = connection.execute("select count(*) from found").fetchall()[0]
    rows = connection.execute(
        "select tenant, trajectory_id, sequence_number, detail from found order by all limit ?", [shown_max]
    ).fetchall()
    connection.execute("drop table found")
    return RuleResult(rule, "findings" if count else "pass", count, [Violation(*row) for row in rows])


def truncated(
    lake: Lake, at: Snapshot, anchors: Sequence[AnchorFile], *, tenant: str | None = None, shown_max: int = 100
) -> RuleResult:
    """Compare heads with anchors: control Q16b, over the lake's ledger and what was kept outside."""
    import datetime as dt

    from .audit_controls import chosen
    from .audit_run import findings, run_controls
    from .audit_session import Scope, open_lake

    selected = chosen(["Q16b"])
    scope = Scope(now=dt.datetime.fromisoformat(at.created_at), tenant=tenant, anchors=tuple(anchors))
    with open_lake(scope, lake, at, selected) as session:
        (result,) = run_controls(session, selected, scanned=False)
        found = findings(session, shown_max)
    if result.verdict == "not applicable":
        return RuleResult("truncated", "not applicable", 0, [], NO_ANCHOR)
    violations = [
        Violation(str(one.tenant), str(one.trajectory_id), one.sequence_number or 0, one.detail) for one in found
    ]
    return RuleResult("truncated", result.verdict, result.found, violations, "" if anchors else SELF_ATTESTED)


def _blobs(lake: Lake, connection: duckdb.DuckDBPyConnection, shown_max: int) -> RuleResult:
    """Every blob that an event names is in the content store, whole; what an erasure or expiry took may be gone."""
    from ..lakehouse.content_store import ContentStore
    from ..lakehouse.lake_errors import LakeError

    store = ContentStore(lake.url)
    named = connection.execute(_NAMED_BLOBS).fetchall()
    violations = []
    for tenant, trajectory_id, number, digest, path in named:
        if path is None:
            detail = f"blob {digest} is in no content store"
        else:
            try:
                store.get(tenant, digest, path)
                continue
            except LakeError as error:
                detail = str(error)
        violations.append(Violation(tenant, trajectory_id, number, detail))
    verdict: Verdict = "findings" if violations else "pass"
    return RuleResult("blobs", verdict, len(violations), violations[:shown_max], f"{len(named)} blobs read")


_NAMED_BLOBS = """
select
    ref.tenant,
    arg_min(ref.trajectory_id, (ref.trajectory_id, ref.sequence_number)) as trajectory_id,
    arg_min(ref.sequence_number, (ref.trajectory_id, ref.sequence_number)) as sequence_number,
    ref.sha256,
    any_value(blobs.path) as path
from blob_refs as ref
left join blobs
    on blobs.tenant = ref.tenant and blobs.sha256 = ref.sha256
inner join events as event
    on event.tenant = ref.tenant
        and event.trajectory_id = ref.trajectory_id
        and event.sequence_number = ref.sequence_number
        and event.payload is not null
group by ref.tenant, ref.sha256
order by ref.tenant, trajectory_id, sequence_number
"""
