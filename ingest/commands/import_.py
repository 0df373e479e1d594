"""`trajlake import FORMAT PATH...`: sessions recorded elsewhere into a root, or straight into a lake."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import msgspec
import typer

from trajlake.runtime.cli_errors import EXIT_DONE, EXIT_FINDINGS, EXIT_REFUSED, UserError, one_line
from trajlake.runtime.root import Root
from trajlake.runtime.settings import load

from ..formats.registry import AUTO, names
from ..import_run import ImportOptions, Outcome, import_paths
from ..lake_side import reports_of
from ..loss_report import all_reports, as_text, total

FILES_SHOWN_MAX = 20
REWARDS = "rewards"
"""Not a format: results of evaluations, which become judgement trajectories."""


def import_(
    format_: Annotated[str, typer.Argument(metavar="FORMAT", help="a format's name, or 'auto'")] = "",
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="PATH...", help="files, directories, globs, '-' or URLs")
    ] = None,
    journal: Annotated[str | None, typer.Option("--journal", help="root to import into")] = None,
    lake: Annotated[str | None, typer.Option("--lake", help="import, ship and compact into this lake at once")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="tenant the trajectories belong to")] = None,
    as_format: Annotated[str | None, typer.Option("--as", help="read every file as this format")] = None,
    ended: Annotated[bool, typer.Option("--ended", help="sources will not grow: take unfinished replies too")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="keep watching and import what is added")] = False,
    report: Annotated[bool, typer.Option("--report", help="show the loss reports of what is imported already")] = False,
    verifier: Annotated[str, typer.Option("--verifier", help="rewards: who judged, where a file does not say")] = "",
    version: Annotated[str, typer.Option("--verifier-version", help="rewards: its version")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> int:
    """Import recorded sessions: every record is mapped, kept raw, or named in the loss report.

    Importing again adds nothing; a source that grew adds its tail. 'auto' tells the format from the content.
    FORMAT 'rewards' reads results of evaluations (rows, tau-bench, tau2-bench, swe-bench, inspect: --as) as judgements.
    """
    settings = load(journal=journal, lake=lake, tenant=tenant)
    if report:
        return show_reports(settings.journal, lake, as_json)
    if format_ == REWARDS:
        from .rewards import import_rewards

        return import_rewards(
            settings, paths or [], as_format or AUTO, verifier, version, into_lake=lake is not None, as_json=as_json
        )
    if not format_ or not paths:
        raise UserError(f"name a format and at least one path: trajlake import FORMAT PATH...; formats: {_formats()}")
    options = ImportOptions(format=as_format or format_, tenant=settings.tenant, ended=ended, following=follow)
    if follow:
        from ..watch import follow_paths

        return follow_paths(settings, paths, options, into_lake=lake is not None, show=_show_line)
    if lake is not None:
        from ..into_lake import import_into_lake

        outcomes, run = import_into_lake(lake, paths, options, _warn)
    else:
        outcomes, run = import_paths(Root.open(settings.journal), paths, options, _warn), None
    if as_json:
        print(msgspec.json.encode(as_data(outcomes, run)).decode())
    else:
        show(outcomes, run)
    return exit_code(outcomes)


def exit_code(outcomes: list[Outcome]) -> int:
    """Return 2 where a file was refused or damaged, 1 where a trajectory conflicts with the root, else 0."""
    if any(outcome.error or _problems(outcome) for outcome in outcomes):
        return EXIT_REFUSED
    return EXIT_FINDINGS if any(one.report and one.report.conflicts for one in outcomes) else EXIT_DONE


def as_data(outcomes: list[Outcome], run: Any) -> dict[str, Any]:
    """Return what `--json` prints: files with their reports, and the sums."""
    reports = [one.report for one in outcomes if one.report is not None]
    return {
        "files": [msgspec.to_builtins(one) for one in outcomes],
        "total": {
            "files": len(outcomes),
            "refused": sum(1 for one in outcomes if one.error),
            "unchanged": sum(1 for one in outcomes if one.unchanged),
            "trajectories": len({name for one in reports for name in one.trajectories}),
            "events_added": sum(one.events_added for one in outcomes),
            "events_known": sum(one.events_known for one in outcomes),
            **total(reports),
        },
        "lake": run,
    }


def show(outcomes: list[Outcome], run: Any) -> None:
    """Print what a person wants to know: files, then sums, then what was not mapped."""
    shown = [one for one in outcomes if not one.error]
    if len(shown) <= FILES_SHOWN_MAX:
        for outcome in shown:
            _show_line(outcome)
    sums = as_data(outcomes, None)["total"]
    print(
        f"{sums['files']:,} files ({sums['unchanged']:,} unchanged, {sums['refused']:,} refused), "
        f"{sums['trajectories']:,} trajectories, {sums['events_added']:,} events added"
    )
    for line in as_text(sums):
        print(line)
    if run is not None:
        print(f"lake: snapshot {run.get('snapshot')}, {run.get('outcome')}")


def show_reports(journal: str, lake: str | None, as_json: bool) -> int:
    """Print the loss reports that a root holds, or a lake."""
    found = all_reports(Root.open(journal, create=False)) if lake is None else reports_of(lake)
    if found is None:
        raise UserError(f"{lake}: no lake there; name another --lake, or import into this one first")
    reports = sorted(found, key=lambda one: (one.sha256, one.mapping_version, one.tenant))
    if as_json:
        print(msgspec.json.encode(reports).decode())
        return EXIT_DONE
    for report in reports:
        print(f"{report.name} ({report.format}, {report.sha256[:12]}): {len(report.trajectories):,} trajectories")
        for line in as_text(msgspec.to_builtins(report)):
            print(f"  {line}")
    if not reports:
        print(f"{lake or journal}: nothing was imported here yet")
    return EXIT_DONE


def _warn(outcome: Outcome) -> None:
    if outcome.error:
        print(f"trajlake: {one_line(outcome.error)}", file=sys.stderr)
    for problem in _problems(outcome):
        print(f"trajlake: {one_line(outcome.name)}: {one_line(problem)}", file=sys.stderr)
    for name, what in (outcome.report.conflicts if outcome.report else {}).items():
        print(f"trajlake: {one_line(outcome.name)}: {one_line(name)}: {what}", file=sys.stderr)


def _problems(outcome: Outcome) -> list[str]:
    return outcome.report.problems if outcome.report is not None else []


def _show_line(outcome: Outcome) -> None:
    if outcome.error:
        return
    if outcome.report is None:
        print(f"{outcome.name}: no known session format, left alone")
        return
    held = outcome.report.records.get("held_back", 0)
    state = "unchanged" if outcome.unchanged else f"{outcome.events_added:,} events added"
    print(
        f"{outcome.name}: {outcome.format}, {len(outcome.report.trajectories):,} trajectories, {state}"
        + (f", {held:,} records held back (unfinished reply; --ended imports it)" if held else "")
    )


def _formats() -> str:
    return ", ".join([AUTO, *names()])
