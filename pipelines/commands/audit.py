"""`trajlake audit`: run the controls over a lake, say pass, findings or not applicable, and hand the evidence on."""

from __future__ import annotations

import datetime as dt
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from trajlake.pipelines.commands.progress import Bar
from trajlake.runtime.cli_errors import EXIT_DONE, EXIT_FINDINGS, UserError
from trajlake.runtime.settings import load

if TYPE_CHECKING:
    from ..audit.audit import Report
    from ..audit.audit_session import Retention

SLA_MINUTES_MAX: Final = 100 * 366 * 24 * 60
"""A hundred years; far above it, DuckDB's intervals end."""


def audit(
    lake: Annotated[str | None, typer.Option("--lake", help="The lake: a folder or a URL.")] = None,
    control: Annotated[list[str] | None, typer.Option("--control", help="Only this control; may be repeated.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant's trajectories.")] = None,
    first: Annotated[str | None, typer.Option("--from", help="Only trajectories started on this day or later.")] = None,
    last: Annotated[str | None, typer.Option("--to", help="Only trajectories started on this day or earlier.")] = None,
    snapshot: Annotated[int | None, typer.Option("--snapshot", help="Audit this snapshot, not the newest.")] = None,
    out: Annotated[str | None, typer.Option("--out", help="Write an evidence bundle to this new folder.")] = None,
    anchor: Annotated[
        list[str] | None, typer.Option("--anchor", help="An anchor kept outside; may be repeated.")
    ] = None,
    public_key: Annotated[
        str | None, typer.Option("--public-key", help="The key those anchors must be signed by.")
    ] = None,
    retention: Annotated[str | None, typer.Option("--retention", help="TOML file: how long what is kept.")] = None,
    sla_minutes: Annotated[
        int, typer.Option("--sla-minutes", min=0, max=SLA_MINUTES_MAX, help="How long an effect may be in doubt.")
    ] = 60,
    as_of: Annotated[
        str | None, typer.Option("--as-of", help="Judge ages at this time, not at the snapshot's.")
    ] = None,
    actor: Annotated[str, typer.Option("--actor", help="Opaque key of who audits; goes into the record.")] = "",
    no_ledger: Annotated[bool, typer.Option("--no-ledger", help="Do not record this access in the lake.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> int:
    """Run the controls over a lake. Exit 1 with findings, 3 when nothing could be reported."""
    from ..audit.anchor_read import outside_anchors
    from ..audit.audit import Request, run_audit
    from ..audit.audit_bundle import check_target, describe, write_bundle

    if out is not None:
        check_target(out)
    if tenant is not None:
        from trajlake.schemas.ids import check_tenant

        check_tenant(tenant)
    request = Request(
        lake=load(lake=lake).lake,
        controls=tuple(control or ()),
        tenant=tenant,
        first=_day(first, "--from"),
        last=_day(last, "--to"),
        snapshot=snapshot,
        as_of=_moment(as_of),
        sla_minutes=sla_minutes,
        retention=_retention(retention),
        anchors=outside_anchors(anchor or (), public_key),
        actor=actor,
        record=not no_ledger,
    )
    report = run_audit(request, bar := Bar())
    bar.clear()
    if out is not None:
        write_bundle(report, out)
    if as_json:
        whole = describe(report) | {"findings": [finding._asdict() for finding in report.findings]}
        sys.stdout.write(msgspec.json.encode(whole).decode() + "\n")
    else:
        _print(report, out)
    return EXIT_FINDINGS if report.found else EXIT_DONE


def _print(report: Report, out: str | None) -> None:
    for result in report.results:
        shown = _counted(result.found) if result.found else result.verdict
        note = f"  ({result.note})" if result.note else ""
        sys.stdout.write(f"{result.control.id:<5} {shown:<16} {result.control.title}{note}\n")
        of_it = [finding for finding in report.findings if finding.control == result.control.id]
        for one in of_it[:10]:
            at = "" if one.sequence_number is None else f" at {one.sequence_number}"
            where = "the lake" if one.trajectory_id is None else f"{one.tenant} {ascii(one.trajectory_id)}{at}"
            sys.stdout.write(f"        {where}: {ascii(one.detail)[1:-1]}\n")
        if len(of_it) > 10:
            sys.stdout.write(f"        … {len(of_it) - 10} more; --out DIR or --json give all\n")
    if not report.trajectories:
        sys.stdout.write("nothing in scope: no trajectory of that tenant and those days, so a pass here says nothing\n")
    sys.stdout.write(f"positive control: fired ({report.positive.expected} known violations found, no other)\n")
    sys.stdout.write(f"{report.attestation.text}\n")
    if out is not None:
        sys.stdout.write(f"evidence bundle: {out}\n")


def _counted(found: int) -> str:
    return "1 finding" if found == 1 else f"{found} findings"


def _day(text: str | None, option: str) -> dt.date | None:
    try:
        return None if text is None else dt.date.fromisoformat(text)
    except ValueError:
        raise UserError(f"audit: {option} {ascii(text)}: no day; write it as 2026-11-30") from None


def _moment(text: str | None) -> dt.datetime | None:
    try:
        found = None if text is None else dt.datetime.fromisoformat(text)
    except ValueError:
        raise UserError(f"audit: --as-of {ascii(text)}: no time; write it as 2026-11-30T18:00:00Z") from None
    return found.replace(tzinfo=dt.UTC) if found is not None and found.tzinfo is None else found


def _retention(path: str | None) -> tuple[Retention, ...]:
    """Read `[[keep]]` tables: tenant ("*" for all), what (blobs | payloads), minimum_days, maximum_days."""
    from ..audit.audit_session import Retention

    if path is None:
        return ()
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8")).get("keep", [])
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: no TOML: {str(error).splitlines()[0]}") from None
    rows = []
    for place, entry in enumerate(tables if isinstance(tables, list) else []):
        known = isinstance(entry, dict) and entry.get("what") in ("blobs", "payloads")
        days: list[Any] = [entry.get(name) for name in ("minimum_days", "maximum_days")] if known else ["?"]
        if not known or any(isinstance(n, bool) or not isinstance(n, int | None) or (n or 0) < 0 for n in days):
            raise UserError(
                f"{path}: [[keep]] number {place + 1}: give what = 'blobs' or 'payloads', and whole days as "
                "minimum_days, maximum_days"
            )
        rows.append(Retention(str(entry.get("tenant", "*")), entry["what"], days[0], days[1]))
    if not rows:
        raise UserError(f"{path}: holds no [[keep]] table; each says tenant, what, minimum_days, maximum_days")
    return tuple(rows)
