"""`trajlake retain --lake URL --policy FILE`: what is past its time goes, and what happened stays."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from trajlake.pipelines.commands.progress import Bar, seconds_of
from trajlake.runtime.cli_errors import EXIT_DONE, UserError
from trajlake.runtime.settings import load

if TYPE_CHECKING:
    from trajlake.pipelines.upkeep.retain import RetainReport
    from trajlake.pipelines.upkeep.retain_warm import WarmReport


def retain(
    policy: Annotated[str | None, typer.Option("--policy", help="TOML file of [[keep]] and [[expire]] tables")] = None,
    warm: Annotated[list[str] | None, typer.Option("--warm", help="a warm tier to thin out (URL); repeat it")] = None,
    keep_warm: Annotated[str, typer.Option("--keep-warm", help="how long what has ended stays there (7d, 12h)")] = "7d",
    lake: Annotated[str | None, typer.Option("--lake", help="the lake")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="count what is due; write nothing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the report as JSON")] = False,
) -> int:
    """Expire blobs, then payloads, then whole trajectories, as the policy says; open and held ones stay whole.

    Ids, order, hashes, status and authorization rows stay until the whole trajectory is due; of that its row in
    `trajectories` stays. The bytes go with the next `trajlake maintain` after the snapshots that name them.

    With --warm, rows of trajectories that ended longer than --keep-warm ago leave PostgreSQL once the lake holds every
    one of them; `status` still lists them.
    """
    if policy is None and not warm:
        raise UserError("retain: give a --policy, a --warm tier, or both")
    from trajlake.ingest.stores.opener import check_warm

    before_s = time.time() - seconds_of(keep_warm, "--keep-warm")
    for url in warm or ():
        check_warm(url)
    where = load(lake=lake).lake
    tree: dict[str, Any] = {}
    lines: list[tuple[str, object]] = []
    if policy is not None:
        taken = _by_policy(where, policy, dry_run)
        tree |= msgspec.to_builtins(taken)
        lines += _policy_lines(taken)
    for url in warm or ():
        from trajlake.pipelines.upkeep.retain_warm import retain_warm

        left = retain_warm(where, url, before_s=before_s, dry_run=dry_run)
        tree.setdefault("warm", []).append(msgspec.to_builtins(left))
        lines += _warm_lines(left)
    print(msgspec.json.encode(tree).decode() if as_json else "\n".join(f"{name:<14} {value}" for name, value in lines))
    return EXIT_DONE


def _by_policy(lake: str, policy: str, dry_run: bool) -> RetainReport:
    from trajlake.pipelines.upkeep.retain import retain as run
    from trajlake.pipelines.upkeep.retention_policy import read_policy

    bar = Bar()
    report = run(lake, read_policy(policy), dry_run=dry_run, progress=bar)
    bar.clear()
    return report


def _policy_lines(report: RetainReport) -> list[tuple[str, object]]:
    return [
        ("outcome", report.outcome.replace("_", " ")),
        ("snapshot", report.snapshot),
        ("blobs", f"{report.blobs_expired:,}"),
        ("payloads", f"{report.payloads_expired:,}"),
        ("trajectories", f"{report.trajectories_expired:,}"),
        ("due but held", f"{len(report.held):,}"),
    ]


def _warm_lines(report: WarmReport) -> list[tuple[str, object]]:
    return [
        ("warm tier", report.warm),
        ("left it", f"{report.trajectories:,} trajectories, {report.rows:,} rows"),
        ("not in lake", f"{len(report.waiting):,}"),
    ]
