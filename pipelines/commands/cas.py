"""`trajlake cas get|verify|gc`: the content store of a lake."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import msgspec
import typer

from trajlake.pipelines.commands.progress import Bar, seconds_of
from trajlake.runtime.cli_errors import EXIT_DONE, EXIT_FINDINGS, UserError, one_line
from trajlake.runtime.settings import load


def get(
    sha256: Annotated[str, typer.Argument(metavar="SHA256", help="hash of the blob, or its first digits")],
    out: Annotated[str, typer.Option("--out", help="a new file to write; '-' is standard output")] = "-",
    snapshot: Annotated[int | None, typer.Option("--snapshot", help="as this snapshot has it")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="whose blob")] = None,
    lake: Annotated[str | None, typer.Option("--lake", help="the lake")] = None,
) -> int:
    """Write the bytes of a blob, verified against its hash."""
    settings = load(lake=lake, tenant=tenant)
    from trajlake.pipelines.lakehouse.content_objects import find_object, read_object

    data = read_object(settings.lake, find_object(settings.lake, settings.tenant, sha256, snapshot))
    if out == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return EXIT_DONE
    try:
        descriptor = os.open(out, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        raise UserError(f"--out {out}: exists already; name a new file") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    return EXIT_DONE


def verify(
    snapshot: Annotated[int | None, typer.Option("--snapshot", help="as this snapshot has it")] = None,
    lake: Annotated[str | None, typer.Option("--lake", help="the lake")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON")] = False,
) -> int:
    """Read every object that the table `blobs` names and compare its hash and sizes; exit code 1 on any difference."""
    from trajlake.pipelines.lakehouse.content_objects import verify_objects

    bar = Bar()
    result = verify_objects(load(lake=lake).lake, snapshot, bar)
    bar.clear()
    if as_json:
        print(msgspec.json.encode(result).decode())
    else:
        print(f"{result.objects:,} objects, {result.bytes:,} bytes, {len(result.problems):,} problems")
        for line in result.problems:
            print(f"trajlake: {one_line(line)}", file=sys.stderr)
    return EXIT_FINDINGS if result.problems else EXIT_DONE


def gc(
    keep: Annotated[str, typer.Option("--keep", help="how long a snapshot may be read (7d, 12h)")] = "7d",
    lake: Annotated[str | None, typer.Option("--lake", help="the lake")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="count what would go; write nothing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON")] = False,
) -> int:
    """Remove the objects that no kept snapshot, no pin and no run under way names."""
    kept_s = seconds_of(keep, "--keep")
    from trajlake.pipelines.lakehouse.lake import Lake
    from trajlake.pipelines.upkeep.vacuum import vacuum

    report = vacuum(Lake.open(load(lake=lake).lake), kept_s=kept_s, dry_run=dry_run, only_objects=True)
    if as_json:
        print(msgspec.json.encode(report).decode())
    else:
        print(f"{report.objects:,} objects{' would go' if dry_run else ' removed'}, {report.bytes:,} bytes")
    return EXIT_DONE
