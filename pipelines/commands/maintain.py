"""`trajlake maintain --lake URL`: small files into large ones, old snapshots and what nothing names away."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from trajlake.pipelines.commands.progress import Bar, seconds_of
from trajlake.runtime.cli_errors import EXIT_DONE
from trajlake.runtime.settings import load


def maintain(
    lake: Annotated[str | None, typer.Option("--lake", help="the lake")] = None,
    keep: Annotated[str, typer.Option("--keep", help="how long a snapshot may be read (7d, 12h)")] = "7d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be done; write nothing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the report as JSON")] = False,
) -> int:
    """Merge small files, expire old snapshots, remove what no snapshot, pin or pending erasure names, tidy the logs.

    Rows stay the same; they are counted before and after. May be killed and run again, and run beside compactions and
    queries. Queries of a snapshot older than --keep fail afterwards: raise it, or pin what they need.
    """
    kept_s = seconds_of(keep, "--keep")
    from trajlake.pipelines.upkeep.maintain import MaintainOptions
    from trajlake.pipelines.upkeep.maintain import maintain as run

    bar = Bar()
    report = run(load(lake=lake).lake, MaintainOptions(kept_days=kept_s / 86_400, dry_run=dry_run), bar)
    bar.clear()
    if as_json:
        print(msgspec.json.encode(report).decode())
        return EXIT_DONE
    gone = report.vacuum
    lines = [
        ("outcome", report.outcome.replace("_", " ")),
        ("snapshot", report.snapshot),
        ("files merged", f"{report.files_before:,} into {report.files_after:,}"),
        ("bytes of these", f"{report.bytes_before:,} into {report.bytes_after:,}"),
        ("objects packed", f"{report.objects_packed:,}"),
        ("snapshots expired", len(gone.expired)),
        ("files removed", f"{gone.data_files + gone.objects + gone.run_files:,} ({gone.bytes:,} bytes)"),
        ("log files removed", f"{report.log_files:,}"),
        ("seconds", f"{report.seconds:.2f}"),
    ]
    print("\n".join(f"{name:<18} {value}" for name, value in lines))
    return EXIT_DONE
