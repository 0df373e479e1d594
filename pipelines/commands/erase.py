"""`trajlake erase`: the texts of a trajectory, or of everything that names a subject, leave every known place."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from trajlake.pipelines.commands.progress import Bar
from trajlake.runtime.cli_errors import EXIT_DONE, EXIT_FINDINGS, EXIT_REFUSED, UserError, one_line
from trajlake.runtime.settings import load

if TYPE_CHECKING:
    from trajlake.pipelines.upkeep.erase import EraseReport


def erase(
    trajectory: Annotated[str | None, typer.Argument(metavar="[ID]", help="the trajectory")] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="an opaque subject key")] = None,
    pending: Annotated[bool, typer.Option("--pending", help="go on with every erasure that is pending")] = False,
    because: Annotated[str, typer.Option("--because", help="why; it stays in the lake")] = "",
    actor: Annotated[str, typer.Option("--actor", help="opaque key of who asks")] = "",
    journal: Annotated[list[str] | None, typer.Option("--journal", help="a root to look at; repeat it")] = None,
    landing: Annotated[list[str] | None, typer.Option("--landing", help="a landing to clear; repeat it")] = None,
    warm: Annotated[list[str] | None, typer.Option("--warm", help="a warm tier to clear (URL); repeat it")] = None,
    gone: Annotated[
        list[str] | None,
        typer.Option("--gone", metavar="NAME", help="a writer or staging whose disk is no more, or all"),
    ] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="whose trajectories")] = None,
    lake: Annotated[str | None, typer.Option("--lake", help="the lake")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what it would cover; write nothing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the report as JSON, one erasure a line")] = False,
) -> int:
    """Erase texts: payloads, salts, erasable columns, blobs. Rows, order and hashes stay, so the chain still verifies.

    Later copies and later trajectories of the subject lose their text in the run that meets them. The exit code is 0
    once it is complete; 1 while a place that is named still holds the text: mend it, then `trajlake erase --pending`;
    2 where a hold stands against it.
    """
    if sum((trajectory is not None, subject is not None, pending)) != 1:
        raise UserError("erase: give a trajectory, --subject KEY, or --pending")
    if not pending and not dry_run and not because.strip():
        raise UserError("erase: give --because TEXT; the reason stays in the lake")
    settings = load(lake=lake, tenant=tenant)
    from trajlake.pipelines.forgetting.erase_places import Places, check_places
    from trajlake.pipelines.upkeep import erase as run

    places = Places(
        roots=tuple(journal or ()), landings=tuple(landing or ()), warm=tuple(warm or ()), gone=frozenset(gone or ())
    )
    check_places(places)
    bar = Bar()
    if pending:
        reports = run.continue_erasures(settings.lake, places, bar)
    else:
        wanted = run.Wanted(
            tenant=settings.tenant, trajectory_id=trajectory, subject=subject, because=because, actor=actor
        )
        reports = [run.what_would_go(settings.lake, wanted) if dry_run else run.erase(
            settings.lake, wanted, places, bar)]  # fmt: skip
    bar.clear()
    for report in reports:
        _show(report, as_json=as_json)
    if any(report.state == "refused" or (dry_run and report.held) for report in reports):
        return EXIT_REFUSED
    return EXIT_FINDINGS if any(report.state == "pending" for report in reports) else EXIT_DONE


def _show(report: EraseReport, *, as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode(report).decode())
        return
    print(f"{report.erasure_id or 'erasure'}: {report.state.replace('_', ' ')}, "
          f"{len(report.trajectories):,} trajectories, epoch {report.epoch}")  # fmt: skip
    notes = [("held", f"{name} of tenant {tenant}") for tenant, name in report.held]
    notes += [("still there", line) for line in report.left]
    notes += [("cut again", name) for name in report.recut]
    notes += [("not erased with it", f"{name} of tenant {tenant}") for tenant, name in report.related]
    for kind, text in notes:
        print(f"trajlake: {kind}: {one_line(text)}", file=sys.stderr)
