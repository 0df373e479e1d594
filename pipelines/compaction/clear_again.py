"""Erased trajectories that land again: what a compaction must know of them, and what it removes afterwards."""

from __future__ import annotations

import polars as pl

from trajlake.pipelines.forgetting.decide import say
from trajlake.pipelines.forgetting.erase_places import Target, clear_landing
from trajlake.pipelines.lakehouse.commit import Step, no_step
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.run_report import RunReport
from trajlake.pipelines.lakehouse.snapshot import Snapshot
from trajlake.pipelines.lakehouse.standing import Standing, TrajectoryKey, read_standing, subjects_of
from trajlake.pipelines.lakehouse.table_files import read_columns
from trajlake.schemas.tables import SNAPSHOT_TABLES

_FACTS = ("tenant", "trajectory_id", "status", "subjects", "erasure_epoch")


def silent_trajectories(lake: Lake, snapshot: Snapshot, standing: Standing) -> tuple[TrajectoryKey, ...]:
    """Return the trajectories whose texts and blobs do not enter the lake again: erased, asked to be, or expired."""
    found = {
        (one.tenant, one.trajectory_id)
        for one in standing.erasures
        if one.trajectory_id is not None and one.state != "refused"
    }
    rows = read_columns(lake.files(snapshot, "trajectories"), SNAPSHOT_TABLES["trajectories"], _FACTS)
    gone = rows.filter(pl.col("erasure_epoch").is_not_null() | (pl.col("status") == "expired"))
    return tuple(sorted(found | set(gone.select("tenant", "trajectory_id").iter_rows())))


def clear_again(lake: Lake, landing: str, report: RunReport, step: Step = no_step) -> list[str]:
    """Remove from landing what the run has met of erased trajectories; return what must stay for now.

    An erasure that was complete and is not any more says so in the ledger, so that `trajlake erase --pending` goes on.
    """
    newest = lake.newest()
    rows = read_columns(lake.files(newest, "trajectories"), SNAPSHOT_TABLES["trajectories"], _FACTS)
    statuses = {(t, i): status for t, i, status in rows.select(_FACTS[:3]).iter_rows()}
    subjects = {
        (t, i): subjects_of(text) for t, i, text in rows.select("tenant", "trajectory_id", "subjects").iter_rows()
    }
    standing = read_standing(lake)
    mine = [key for key in report.forgotten if statuses.get(key) != "expired"]
    left = clear_landing(
        Target(keys=frozenset(mine), blobs=frozenset(report.forgotten_blobs)), landing, newest.cursors, statuses
    )
    step("landing cleared")
    if left:
        for erasure in standing.erasures:
            if erasure.state == "complete" and any(
                erasure.covers(*key, subjects.get(key, frozenset())) for key in mine
            ):
                detail = {**erasure.detail, "left": left, "at": newest.number}
                say(lake, erasure, "pending", newest.number, detail)
    return left
