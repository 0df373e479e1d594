"""Verb `replay`: recorded trajectories through the harness as it is now."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from trajlake.runtime.cli_errors import UserError
from trajlake.runtime.commands.root import JOURNAL, JSON, TENANT, open_root, print_json, settings_of

if TYPE_CHECKING:
    from trajlake.runtime.replaying.many import Suite
    from trajlake.runtime.replaying.record import Source
    from trajlake.runtime.replaying.report import Report

LAKE = Annotated[str | None, typer.Option("--lake", metavar="URL", help="Read the records from a lake.")]
AGENT = Annotated[str, typer.Option("--agent", metavar="MODULE:FUNCTION", help="Default: the one each record names.")]
OBJECT = Annotated[str | None, typer.Option("--journal-object", metavar="NAME", help="Which Journal of the module.")]

SHOWN_MAX: Final = 50
"""Reports printed for people."""


def replay(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Trajectories; or --all.")] = None,
    agent: AGENT = "",
    journal: JOURNAL = None,
    lake: LAKE = None,
    tenant: TENANT = None,
    everything: Annotated[bool, typer.Option("--all", help="Every trajectory of the root or lake.")] = False,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Processes; default: the cores.")] = None,
    cold: Annotated[bool, typer.Option("--cold", help="Enter every turn afresh: finds carried locals.")] = False,
    intercept: Annotated[bool, typer.Option("--intercept", help="Serve clock, chance and listings too.")] = False,
    runner: Annotated[str | None, typer.Option("--runner", help="Run as a Beam pipeline on this runner.")] = None,
    out: Annotated[str | None, typer.Option("--out", metavar="PREFIX", help="With --runner: where reports go.")] = None,
    journal_object: OBJECT = None,
    as_json: JSON = False,
) -> int:
    """Run the harness on recorded replies and results. Nothing outside is touched.

    A branch is replayed from its fork on; an imported trajectory at the level it allows. Exit code 0 when all are the
    same, 1 when one differs, 2 when none does but one could not be replayed.
    """
    from trajlake.runtime.replaying.many import Summary, check_all

    if (runner is None) != (out is None):
        raise UserError("--runner and --out go together: the reports are written where every worker sees them")
    if bool(ids) == everything:
        raise UserError("name trajectories, or give --all")
    suite = suite_of(agent, journal, lake, tenant, journal_object, cold=cold, intercept=intercept)
    wanted = list(ids or source_of(suite).trajectory_ids())
    if not wanted:
        raise UserError(f"no trajectory of tenant {suite.tenant!r} in {suite.lake or suite.journal}")
    count = 1 if intercept else jobs or os.cpu_count() or 1
    summary, found, shown = Summary(), [], 0
    if runner is not None and out is not None:
        reports = on_beam(suite, wanted, out, runner)
    else:
        reports = check_all(suite, wanted, jobs=count, progress=_progress if sys.stderr.isatty() else None)
    for report in reports:
        summary.add(report)
        found.append(report)
        if not as_json and (not everything or not report.same):
            shown += 1
            if shown <= SHOWN_MAX:
                print(report.text())
            elif shown == SHOWN_MAX + 1:
                print(f"(more than {SHOWN_MAX} reports: the rest is in the summary; --json has all)")
    if as_json:
        found.sort(key=lambda report: report.trajectory_id)
        print_json({"summary": summary.as_json(), "reports": [report.as_json() for report in found]})
    elif everything or len(wanted) > 1:
        print(summary.text())
    if summary.counts["differs"]:
        return 1
    return 2 if summary.counts["refused"] else 0


def suite_of(
    agent: str, journal: str | None, lake: str | None, tenant: str | None, journal_object: str | None,
    **options: Any,
) -> Suite:  # fmt: skip
    """Return what is to be replayed, from flags and settings; a root that is not there is refused here."""
    from trajlake.runtime.replaying.many import Suite

    if journal is not None and lake is not None:
        raise UserError("--journal and --lake: give one")
    settings = settings_of(journal, tenant)
    root = None if lake is not None else open_root(settings.journal).path
    return Suite(
        agent=agent, journal=root, lake=lake, tenant=settings.tenant, journal_object=journal_object, **options
    )  # fmt: skip


def source_of(suite: Suite) -> Source:
    """Open where the records are."""
    from trajlake.runtime.replaying.sources import open_source

    return open_source(journal=suite.journal, lake=suite.lake, tenant=suite.tenant)


def on_beam(suite: Suite, ids: list[str], out: str, runner: str) -> Iterator[Report]:
    """The reports of a run on a Beam runner. `runtime` may not import `pipelines`, so it is found by name."""
    from importlib.metadata import entry_points

    from trajlake.runtime.replaying.many import report_from

    for point in entry_points(group="trajlake.stores"):
        if point.name == "beam_replay":
            return map(report_from, point.load()(suite, ids, out, runner))
    raise UserError("nothing installed can run a Beam pipeline: pip install 'trajlake[lake]'", exit_code=3)


def _progress(done: int, of: int) -> None:
    end = "\n" if done == of else "\r"
    sys.stderr.write(f"{done}/{of} replayed{end}")
    sys.stderr.flush()
