"""`trajlake hold place|lift|list`: what must not be deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from trajlake.pipelines.commands.progress import Bar
from trajlake.runtime.cli_errors import EXIT_DONE, EXIT_FINDINGS, UserError
from trajlake.runtime.settings import load

if TYPE_CHECKING:
    from trajlake.pipelines.upkeep.holds import HoldReport


def place(
    trajectory: Annotated[str | None, typer.Argument(metavar="[ID]", help="a trajectory")] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="an opaque subject key")] = None,
    everything: Annotated[bool, typer.Option("--whole-tenant", help="all of the tenant")] = False,
    because: Annotated[str, typer.Option("--because", help="why; it stays in the lake")] = "",
    actor: Annotated[str, typer.Option("--actor", help="opaque key of who asks")] = "",
    tenant: Annotated[str | None, typer.Option("--tenant", help="whose trajectories")] = None,
    lake: Annotated[str | None, typer.Option("--lake", help="the lake")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the hold as JSON")] = False,
) -> int:
    """Forbid erasure and retention of a trajectory, a subject's trajectories, or a whole tenant.

    On return the hold is confirmed, or late: something under it is gone already (exit code 1, and it is named).
    """
    if sum((trajectory is not None, subject is not None, everything)) != 1:
        raise UserError("hold place: give a trajectory, --subject KEY, or --whole-tenant")
    if not because.strip():
        raise UserError("hold place: give --because TEXT; the reason stays in the lake")
    settings = load(lake=lake, tenant=tenant)
    from trajlake.pipelines.upkeep.holds import place as run

    bar = Bar()
    report = run(
        settings.lake, tenant=settings.tenant, trajectory_id=trajectory, subject=subject, because=because, actor=actor,
        progress=bar,
    )  # fmt: skip
    bar.clear()
    _show([report], as_json=as_json)
    return EXIT_FINDINGS if report.status == "late" else EXIT_DONE


def lift(
    hold_id: Annotated[str, typer.Argument(metavar="HOLD", help="id of the hold")],
    because: Annotated[str, typer.Option("--because", help="why")] = "",
    actor: Annotated[str, typer.Option("--actor", help="opaque key of who asks")] = "",
    lake: Annotated[str | None, typer.Option("--lake", help="the lake")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the hold as JSON")] = False,
) -> int:
    """Lift a hold. What was refused or spared under it is not taken by itself: ask again."""
    if not because.strip():
        raise UserError("hold lift: give --because TEXT; the reason stays in the lake")
    from trajlake.pipelines.upkeep.holds import lift as run

    _show([run(load(lake=lake).lake, hold_id, because=because, actor=actor)], as_json=as_json)
    return EXIT_DONE


def show(
    lake: Annotated[str | None, typer.Option("--lake", help="the lake")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the holds as JSON, one a line")] = False,
) -> int:
    """List every hold that was ever placed, with its status. One that a kill left unconfirmed is confirmed first."""
    settings = load(lake=lake)
    from trajlake.pipelines.upkeep.holds import confirm_all, list_holds

    confirm_all(settings.lake)
    _show(list_holds(settings.lake), as_json=as_json)
    return EXIT_DONE


def _show(reports: list[HoldReport], *, as_json: bool) -> None:
    for report in reports:
        if as_json:
            print(msgspec.json.encode(report).decode())
            continue
        what = report.trajectory_id or (f"subject {report.subject}" if report.subject else "everything")
        gone = f"; gone already: {', '.join(report.gone)}" if report.gone else ""
        print(f"{report.hold_id}  {report.status:<9}  {report.tenant}  {what}  {report.because}{gone}")
