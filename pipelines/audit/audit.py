"""One audit of a lake: positive control, controls, record of the access, evidence bundle.

How it fails: `AuditImpossible` (exit 3) when nothing may be reported: the positive control does not fire, or derived
tables lag behind the events. No lake, no snapshot, a bad option: one line, exit 2.
"""

from __future__ import annotations

import datetime as dt
import os
import secrets
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final, NamedTuple

import msgspec

from trajlake.pipelines.progress import Progress, no_progress
from trajlake.runtime.cli_errors import UserError
from trajlake.schemas.versions import CURRENT_SCHEMA_VERSION, RESUMABLE

from .audit_controls import Control, chosen, facts_for
from .audit_fixture import PositiveControl, positive_control
from .audit_run import ControlResult, Finding, findings, run_controls
from .audit_session import AnchorFile, FilesRead, Retention, Scope, Session, open_lake

FINDINGS_RECORDED_MAX: Final = 100_000
"""Rows of one run in the ledger; the run's access row states the exact number."""

TENANTS_NAMED_MAX: Final = 10


class AuditImpossible(UserError):
    """Nothing can be reported."""

    def __init__(self, message: str) -> None:
        super().__init__(message, exit_code=3)


class Request(NamedTuple):
    """What to audit. `as_of` None: when the snapshot was made, so that one snapshot gives one report."""

    lake: str
    controls: tuple[str, ...] = ()
    tenant: str | None = None
    first: dt.date | None = None
    last: dt.date | None = None
    snapshot: int | None = None
    as_of: dt.datetime | None = None
    sla_minutes: int = 60
    retention: tuple[Retention, ...] = ()
    anchors: tuple[AnchorFile, ...] = ()
    actor: str = ""
    record: bool = True


class Attestation(NamedTuple):
    """Who vouches for the log: heads kept outside the lake, or nobody but its owner."""

    is_outside: bool
    text: str


class Report(NamedTuple):
    """What an audit says. `findings` are all of them, in order."""

    run: str
    at: dt.datetime
    actor: str
    lake: str
    snapshot: int
    snapshot_run: str
    tables: dict[str, int]
    scope: Scope
    positive: PositiveControl
    results: list[ControlResult]
    findings: list[Finding]
    rows: dict[str, int]
    files: list[FilesRead]
    attestation: Attestation
    recorded: bool
    versions: dict[str, str]
    trajectories: int
    """How many are in scope. 0: a pass says nothing."""

    @property
    def found(self) -> int:
        return sum(result.found for result in self.results)


def run_audit(request: Request, progress: Progress = no_progress) -> Report:
    """Audit a lake and return the report; the access and its findings are then in the ledger `audit_findings`."""
    from ..lakehouse.lake import Lake

    selected = chosen(request.controls)
    positive = positive_control(selected)
    if not positive.fired:
        wrong = [
            *(f"not found: {line}" for line in positive.missing),
            *(f"found: {line}" for line in positive.unexpected),
        ]
        raise AuditImpossible(
            f"audit: the positive control did not fire ({'; '.join(wrong[:3])}): the SQL is not what was tested, so "
            "nothing is reported; reinstall trajlake"
        )
    progress("positive control fired", positive.expected, positive.expected)
    lake = Lake.open(request.lake)
    at = lake.newest() if request.snapshot is None else lake.snapshot(request.snapshot)
    if at.stale:
        raise AuditImpossible(
            f"audit: {', '.join(at.stale)} lag behind the events of snapshot {at.number}; run 'trajlake compact' first"
        )
    if request.tenant is not None:
        _check_known(lake, at, request.tenant)
    scope = _scope(request, dt.datetime.fromisoformat(at.created_at))
    with open_lake(scope, lake, at, selected, progress) as session:
        results = run_controls(session, selected, scanned=_scanned(lake, at.number, scope), progress=progress)
        report = Report(
            run=secrets.token_hex(8),
            at=dt.datetime.now(dt.UTC),
            actor=request.actor or f"uid-{os.getuid()}",
            lake=lake.url,
            snapshot=at.number,
            snapshot_run=at.run,
            tables=dict(at.tables),
            scope=scope,
            positive=positive,
            results=results,
            findings=findings(session),
            rows=_rows(session),
            files=session.files,
            attestation=attestation(scope.anchors),
            recorded=request.record,
            versions={name: version(name) for name in ("trajlake", "duckdb")},
            trajectories=session.count("audited"),
        )
    if request.record:
        record(lake, report)
    return report


def _check_known(lake: Any, at: Any, tenant: str) -> None:
    """Refuse a tenant of whom the lake holds nothing, not even an erasure: it is a slip of the pen."""
    from ..lakehouse.parquet_files import read_parquet

    tenants: set[str] = set()
    for file in [*lake.files(at, "trajectories"), *lake.files(at, "events"), *lake.ledger_data_files("erasures")]:
        if "tenant" in file.partition:
            tenants.add(file.partition["tenant"])
        else:
            tenants.update(one for one in read_parquet(file.path, ["tenant"])["tenant"] if one is not None)
    if tenant not in tenants:
        there = ", ".join(map(ascii, sorted(tenants)[:TENANTS_NAMED_MAX])) or "none"
        more = f" and {len(tenants) - TENANTS_NAMED_MAX:,} more" if len(tenants) > TENANTS_NAMED_MAX else ""
        raise UserError(f"audit: no tenant {ascii(tenant)} in this lake; there are: {there}{more}")


def _scope(request: Request, made_at: dt.datetime) -> Scope:
    from .audit_session import FIRST_DAY, LAST_DAY

    return Scope(
        now=request.as_of or made_at,
        tenant=request.tenant,
        first=request.first or FIRST_DAY,
        last=request.last or LAST_DAY,
        sla_minutes=request.sla_minutes,
        retention=request.retention,
        compatible=tuple((found, CURRENT_SCHEMA_VERSION) for found in RESUMABLE if found != CURRENT_SCHEMA_VERSION),
        anchors=request.anchors,
    )


def _scanned(lake: Any, snapshot: int, scope: Scope) -> bool:
    """Whether a finished scan of this snapshot or a later one, of this tenant or of all, is in the ledger `runs`."""
    import polars as pl

    from ..lakehouse.parquet_files import read_parquet

    paths = lake.ledger_files("runs")
    if not paths:
        return False
    rows = pl.concat([read_parquet(path) for path in paths], how="diagonal")
    scans = rows.filter(
        (pl.col("kind") == "scan") & (pl.col("outcome") == "committed") & (pl.col("snapshot") >= snapshot)
    )
    for text in scans["report"]:
        told = msgspec.json.decode(text) if text else {}
        of = told.get("tenant") if isinstance(told, dict) else None
        if of is None or of == scope.tenant:
            return True
    return False


def _rows(session: Session) -> dict[str, int]:
    return {entry.table: session.count(entry.table) for entry in session.files}


def attestation(anchors: Sequence[AnchorFile]) -> Attestation:
    """Say who vouches: an anchor from outside whose key was pinned, or nobody."""
    if not anchors:
        return Attestation(
            False,
            "self-attested: no anchor from outside this lake was given, so whoever owns it could have rewritten it",
        )
    names = ", ".join(anchor.anchor_id for anchor in anchors)
    return Attestation(True, f"compared with anchors kept outside this lake: {names}")


def record(lake: Any, report: Report) -> None:
    """Append the access and the findings to the ledger `audit_findings`, in one commit."""
    from ..lakehouse.ledger import append_ledger

    tenant = report.scope.tenant or "*"
    shas = {result.control.id: result.control.sha256 for result in report.results}
    base = {"audit_run": report.run, "snapshot": report.snapshot, "at": report.at}
    access = {
        "actor": report.actor,
        "access": "audit",
        "controls": {result.control.id: [result.verdict, result.found] for result in report.results},
        "first_day": report.scope.first.isoformat(),
        "last_day": report.scope.last.isoformat(),
    }
    rows = [{**base, "tenant": tenant, "control": "access", "detail": msgspec.json.encode(access).decode()}]
    for finding in report.findings[:FINDINGS_RECORDED_MAX]:
        detail = {"object": finding.object, "related": finding.related, "text": finding.detail}
        rows.append(
            {
                **base,
                "control": finding.control,
                "control_version": report.versions["trajlake"],
                "query_sha256": shas[finding.control],
                "tenant": finding.tenant or tenant,
                "trajectory_id": finding.trajectory_id,
                "sequence_number": finding.sequence_number,
                "action_id": finding.action_id,
                "detail": msgspec.json.encode(detail).decode(),
            }
        )
    append_ledger(lake, "audit_findings", rows)


def texts(selected: Sequence[Control]) -> dict[str, str]:
    """Return file name -> SQL of the controls and of the facts they read."""
    named = {f"{control.name}.sql": control.sql for control in selected}
    return named | {f"facts/{fact.name}.sql": fact.sql for fact in facts_for(selected)}
