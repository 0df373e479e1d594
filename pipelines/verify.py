"""Checks the hash chain of a lake in SQL: the rules of `sql/verify`, one statement each, over one snapshot.

`truncated` (rows missing at the end) needs a head that stands outside the lake: not applicable until the ledger
`anchors` has a row.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from .sql_text import sql_files

if TYPE_CHECKING:
    import duckdb

Verdict = Literal["pass", "findings", "not applicable"]


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
    lake: str | Path, *, snapshot: int | None = None, tenant: str | None = None, shown_max: int = 100
) -> list[RuleResult]:
    """Run every rule over `lake`. Raises `LakeError` when there is no such lake or snapshot."""
    from .connect import connect

    connection = connect(lake, snapshot, tenant=tenant)
    try:
        return verify_connection(connection, shown_max=shown_max)
    finally:
        connection.close()


def verify_connection(connection: duckdb.DuckDBPyConnection, *, shown_max: int = 100) -> list[RuleResult]:
    """Run every rule over the views of an open connection."""
    results = [_run(connection, rule, text, shown_max) for rule, text in sql_files("verify").items()]
    note = "a cut at the end shows only against an anchor kept outside this lake, and none was given"
    return [*results, RuleResult("truncated", "not applicable", 0, [], note)]


def _run(connection: duckdb.DuckDBPyConnection, rule: str, text: str, shown_max: int) -> RuleResult:
    connection.execute(f"create or replace temp table found as {text}")
    (count,) = connection.execute("select count(*) from found").fetchall()[0]
    rows = connection.execute(
        "select tenant, trajectory_id, sequence_number, detail from found order by all limit ?", [shown_max]
    ).fetchall()
    connection.execute("drop table found")
    return RuleResult(rule, "findings" if count else "pass", count, [Violation(*row) for row in rows])
