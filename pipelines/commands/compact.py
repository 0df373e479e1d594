"""`trajlake compact --landing URL --lake URL`: what has landed becomes rows, and one snapshot."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from trajlake.pipelines.commands.progress import Bar, seconds_of
from trajlake.runtime.cli_errors import EXIT_DONE, EXIT_FINDINGS, UserError, one_line
from trajlake.runtime.settings import load

if TYPE_CHECKING:
    from trajlake.pipelines.lakehouse.landing import DeclaredLost
    from trajlake.pipelines.lakehouse.run_report import RunReport

IN_PROCESS: Final = "none"
_LOST: Final = re.compile(r"([0-9a-f]{32}):(\d{1,19})-(\d{1,19})")


def compact(
    beam_options: Annotated[
        list[str] | None, typer.Argument(metavar="[-- BEAM OPTIONS]", help="flags for the Beam runner, after --")
    ] = None,
    landing: Annotated[str | None, typer.Option("--landing", help="where segments land: a folder")] = None,
    lake: Annotated[str | None, typer.Option("--lake", help="the lake; made where there is none")] = None,
    runner: Annotated[str, typer.Option("--runner", help="a Beam runner, or 'none' for this process")] = "FnApiRunner",
    settle_after: Annotated[
        str | None, typer.Option("--settle-after", help="leave trajectories that ended less than this ago (7d, 12h)")
    ] = None,
    partition_by: Annotated[
        str | None, typer.Option("--partition-by", help="partition columns of a new lake, with commas")
    ] = None,
    declare_lost: Annotated[
        list[str] | None, typer.Option("--declare-lost", metavar="WRITER:FIRST-LAST", help="give up on lsns")
    ] = None,
    because: Annotated[str, typer.Option("--because", help="why they are given up")] = "",
    events_only: Annotated[bool, typer.Option("--events-only", help="leave derived tables to a later run")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be read; write nothing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the run report as JSON")] = False,
) -> int:
    """Take landed segments into the lake: events, derived tables, content store, and a snapshot that holds them all.

    May be killed and run again at any time, and run twice at once. Segments that wait (a gap, a missing blob) and
    segments that are corrupt are listed; then the exit code is 1 and everything else was taken all the same.
    """
    settings = load(landing=landing, lake=lake)
    lost = tuple(_lost(text, because) for text in declare_lost or ())
    from trajlake.pipelines.compaction.compact import compact as run
    from trajlake.pipelines.lakehouse.run_report import CompactOptions

    columns = tuple(name.strip() for name in partition_by.split(",")) if partition_by else None
    options = CompactOptions(
        derive=not events_only,
        settle_after_s=None if settle_after is None else seconds_of(settle_after, "--settle-after"),
        dry_run=dry_run,
        declare_lost=lost,
        partition_by=columns,
        runner=None if runner == IN_PROCESS else runner,
        beam_options=tuple(beam_options or ()),
    )
    bar = Bar()
    report = run(settings.landing, settings.lake, options, bar)
    bar.clear()
    if as_json:
        print(msgspec.json.encode(report).decode())
    else:
        _show(report)
    found = report.segments_waiting or report.segments_corrupt or report.staging_left
    return EXIT_FINDINGS if found else EXIT_DONE


def _show(report: RunReport) -> None:
    print("\n".join(f"{name:<22} {value}" for name, value in _lines(report)))
    for kind, names in (("waits", report.segments_waiting), ("corrupt", report.segments_corrupt)):
        for name, why in names:
            print(f"trajlake: {kind}: {one_line(f'{name}: {why}')}", file=sys.stderr)
    for line in report.staging_left:
        print(f"trajlake: still there: {one_line(line)}", file=sys.stderr)
    for name in report.strangers:
        print(f"trajlake: no segment, passed over: {one_line(name)}", file=sys.stderr)


def _lines(report: RunReport) -> list[tuple[str, Any]]:
    shown: list[tuple[str, Any]] = [("outcome", report.outcome.replace("_", " ")), ("snapshot", report.snapshot)]
    for name in (
        "segments_taken", "tails_read", "events_added", "events_removed", "duplicates", "superseded", "held_back",
        "conflicts", "trajectories_touched", "blobs_stored", "imports_added", "expired",
    ):  # fmt: skip
        value = getattr(report, name)
        if value or name in ("segments_taken", "events_added"):
            shown.append((name.replace("_", " "), f"{value:,}"))
    shown.append(("seconds", f"{report.seconds:.2f}"))
    return shown


def _lost(text: str, because: str) -> DeclaredLost:
    match = _LOST.fullmatch(text)
    if match is None or int(match[2]) > int(match[3]):
        raise UserError(f"--declare-lost {text!r}: give WRITER:FIRST-LAST, the writer as 32 hex digits")
    if not because.strip():
        raise UserError("--declare-lost needs --because TEXT: the reason stays in the lake")
    from trajlake.pipelines.lakehouse.landing import DeclaredLost

    return DeclaredLost(match[1], int(match[2]), int(match[3]), because.strip())
