"""`trajlake ship ROOT --to URL`: sealed segments, the blobs they name, and import reports to a landing."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import msgspec
import typer

from trajlake.runtime.cli_errors import EXIT_DONE, EXIT_FINDINGS, one_line
from trajlake.runtime.root import Root
from trajlake.runtime.settings import load

from .landing_store import open_landing
from .shipper import Shipper, ShipReport


def ship(
    root: Annotated[str | None, typer.Argument(metavar="[ROOT]", help="root to ship (default: the setting)")] = None,
    to: Annotated[str | None, typer.Option("--to", help="landing: a folder or a URL")] = None,
    journal: Annotated[str | None, typer.Option("--journal", help="the root, as an option")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="keep shipping what is sealed")] = False,
    every_s: Annotated[float, typer.Option("--every", min=0.1, help="seconds between two looks with --follow")] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> int:
    """Copy sealed segments to the landing, each after the blobs it names, then the import reports.

    May be killed and run again at any time: what stands there is passed over. Exit 1 if a blob is missing.
    """
    settings = load(journal=root or journal, landing=to)
    opened = Root.open(settings.journal, create=False)
    shipper = Shipper(opened, open_landing(settings.landing, opened.env))
    while True:
        report = shipper.run()
        if not follow or report.segments_shipped or report.imports_put or report.missing:
            show(report, as_json)
        if not follow:
            return EXIT_FINDINGS if report.missing else EXIT_DONE
        time.sleep(every_s)


def show(report: ShipReport, as_json: bool) -> None:
    """Print one run's report."""
    if as_json:
        print(msgspec.json.encode(report).decode(), flush=True)
        return
    print(
        f"{report.landing}: {report.segments_shipped:,} segments, {report.blobs_put:,} blobs, "
        f"{report.imports_put:,} import reports put ({report.bytes_put:,} bytes); "
        f"{report.segments_there:,} segments were there, {report.waiting:,} not sealed yet",
        flush=True,
    )
    for line in report.missing:
        print(f"trajlake: {one_line(line)}", file=sys.stderr)
