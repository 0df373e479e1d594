"""`trajlake scan`: look for secrets in every payload and blob of a lake, once per version of the scanner."""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
import typer

from trajlake.runtime.cli_errors import EXIT_DONE, EXIT_FINDINGS
from trajlake.runtime.settings import load


def scan(
    lake: Annotated[str | None, typer.Option("--lake", help="The lake: a folder or a URL.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> int:
    """Fill the ledger `secrets`: plain, base64, JSON-escaped and PEM. Exit 1 where this scan found something new.

    What a scan has read it does not read again; the secret never enters the ledger, only its kind and a hash.
    """
    from ..curate.scan import scan as scan_lake
    from ..lakehouse.lake import Lake

    opened = Lake.open(load(lake=lake).lake)
    report = scan_lake(opened, opened.newest())
    if as_json:
        sys.stdout.write(msgspec.json.encode(report._asdict()).decode() + "\n")
    else:
        sys.stdout.write(
            f"scanner {report.scanner_version}, snapshot {report.snapshot}: {report.payloads:,} payloads of "
            f"{report.trajectories:,} trajectories and {report.blobs:,} blobs read, {report.found:,} new findings\n"
        )
    return EXIT_FINDINGS if report.found else EXIT_DONE
