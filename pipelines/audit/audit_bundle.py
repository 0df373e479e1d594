"""The evidence bundle of an audit: findings, the SQL that found them, and what it ran on, in one folder to hand on.

    manifest.json     what was asked, of what, by whom; each verdict; hash and size of every other file
    findings.csv      for a spreadsheet: a cell that would start a formula is led by an apostrophe
    findings.parquet  the same rows exactly
    sql/              every statement as it ran, and the facts they read
    report.html       for people: one page, nothing fetched

Written whole or not at all: into a folder beside it first, renamed at the end.
"""

from __future__ import annotations

import csv
import os
import secrets
import shutil
from hashlib import sha256
from io import StringIO
from typing import Any, Final

import msgspec

from trajlake.runtime.cli_errors import UserError

from .audit import Report, texts
from .audit_report import report_page
from .audit_run import Finding

FORMAT: Final = "trajlake audit bundle 1"
MANIFEST: Final = "manifest.json"
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r", "\n")


def check_target(folder: str) -> None:
    """Raise `UserError` unless a bundle can be made at `folder`: it is absent or an empty folder."""
    if os.path.exists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
        raise UserError(f"{folder}: not empty; a bundle is written whole, name a new folder with --out")


def write_bundle(report: Report, folder: str) -> None:
    """Write the bundle of a report to `folder`."""
    check_target(folder)
    target = os.path.abspath(folder)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    staging = f"{target}.{secrets.token_hex(4)}.part"
    os.makedirs(os.path.join(staging, "sql", "facts"), mode=0o700)
    try:
        _fill(report, staging)
        if os.path.isdir(target):
            os.rmdir(target)
        os.rename(staging, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _fill(report: Report, folder: str) -> None:
    files: dict[str, bytes] = {f"sql/{name}": text.encode() for name, text in texts(_selected(report)).items()}
    files["findings.csv"] = findings_csv(report.findings).encode()
    files["report.html"] = report_page(report).encode()
    for name, data in files.items():
        _write(os.path.join(folder, name), data)
    parquet = os.path.join(folder, "findings.parquet")
    findings_frame(report.findings).write_parquet(parquet)
    with open(parquet, "rb") as file:
        files["findings.parquet"] = file.read()
    manifest = describe(report)
    manifest["files"] = {
        name: {"sha256": sha256(data).hexdigest(), "bytes": len(data)} for name, data in sorted(files.items())
    }
    _write(os.path.join(folder, MANIFEST), msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")


def describe(report: Report) -> dict[str, Any]:
    """Return the report as plain data, without its findings: what the manifest and --json print."""
    return {
        "format": FORMAT,
        "run": report.run,
        "at": report.at,
        "actor": report.actor,
        "lake": report.lake,
        "snapshot": {"number": report.snapshot, "run": report.snapshot_run, "table_versions": report.tables},
        "scope": report.scope._asdict() | {"anchors": [anchor.anchor_id for anchor in report.scope.anchors]},
        "attestation": {"self_attested": not report.attestation.is_outside, "text": report.attestation.text},
        "positive_control": report.positive._asdict(),
        "recorded_in_ledger": report.recorded,
        "versions": report.versions,
        "trajectories_in_scope": report.trajectories,
        "rows_in_scope": report.rows,
        "files_read": {entry.table: [entry.read, entry.total] for entry in report.files},
        "found": report.found,
        "controls": [
            {
                "id": result.control.id,
                "title": result.control.title,
                "verdict": result.verdict,
                "found": result.found,
                "trajectories": result.trajectories,
                "not_judged": result.not_judged,
                "note": result.note,
                "severity": result.control.severity,
                "clauses": result.control.clauses,
                "sql": f"sql/{result.control.name}.sql",
                "sha256": result.control.sha256,
                "seconds": result.seconds,
            }
            for result in report.results
        ],
    }


def findings_csv(found: list[Finding]) -> str:
    """Return the findings as CSV (RFC 4180) that no spreadsheet runs as formulas."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(Finding._fields)
    for finding in found:
        values = [*finding[:6], " ".join(map(str, finding.related)), finding.detail]
        writer.writerow([_cell(value) for value in values])
    return out.getvalue().encode("utf-8", "backslashreplace").decode()


def _cell(value: object) -> object:
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return f"'{value}"
    return "" if value is None else value


def findings_frame(found: list[Finding]) -> Any:
    """Return the findings as a Polars frame."""
    import polars as pl

    types: dict[str, Any] = dict.fromkeys(Finding._fields, pl.String)
    types |= {"sequence_number": pl.Int64, "related": pl.List(pl.Int64)}
    columns = {name: [getattr(one, name) for one in found] for name in types}
    columns["related"] = [list(one.related) for one in found]
    return pl.DataFrame(columns, schema=types)


def _selected(report: Report) -> list[Any]:
    return [result.control for result in report.results]


def _write(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
