"""`trajlake retain --lake URL --policy FILE`: what is past its time goes, and what happened stays."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from trajlake.pipelines.cli_progress import Bar
from trajlake.runtime.cli_errors import EXIT_DONE
from trajlake.runtime.settings import load


def retain(
    policy: Annotated[str, typer.Option("--policy", help="TOML file of [[keep]] and [[expire]] tables")],
    lake: Annotated[str | None, typer.Option("--lake", help="the lake")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="count what is due; write nothing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the report as JSON")] = False,
) -> int:
    """Expire blobs, then payloads, then whole trajectories, as the policy says; open and held ones stay whole.

    Ids, order, hashes, status and authorization rows stay until the whole trajectory is due; of that its row in
    `trajectories` stays. The bytes go with the next `trajlake maintain` after the snapshots that name them.
    """
    from trajlake.pipelines.retain import retain as run
    from trajlake.pipelines.retention_policy import read_policy

    bar = Bar()
    report = run(load(lake=lake).lake, read_policy(policy), dry_run=dry_run, progress=bar)
    bar.clear()
    if as_json:
        print(msgspec.json.encode(report).decode())
        return EXIT_DONE
    lines = [
        ("outcome", report.outcome.replace("_", " ")),
        ("snapshot", report.snapshot),
        ("blobs", f"{report.blobs_expired:,}"),
        ("payloads", f"{report.payloads_expired:,}"),
        ("trajectories", f"{report.trajectories_expired:,}"),
        ("due but held", f"{len(report.held):,}"),
    ]
    print("\n".join(f"{name:<14} {value}" for name, value in lines))
    return EXIT_DONE
