"""Which trajectories of a bucket the lake knows already, and what it says of them."""

from __future__ import annotations

import polars as pl

from trajlake.pipelines.canonicalize import KEY
from trajlake.pipelines.explode import bucket
from trajlake.pipelines.lake import DataFile, Lake
from trajlake.pipelines.run_plan import Plan
from trajlake.pipelines.snapshot import Snapshot
from trajlake.pipelines.table_files import may_hold
from trajlake.schemas.ids import trajectory_key

KNOWN_SCHEMA = {"tenant": pl.String(), "trajectory_id": pl.String(), "status": pl.String(), "openings": pl.String()}


def known_trajectories(
    plan: Plan, lake: Lake, snapshot: Snapshot, new: pl.DataFrame, number: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the ids this bucket is about, and those among them that the lake holds, with status and openings.

    Without `plan.rebuild` the ids are those of the new rows; with it, every trajectory of the bucket as well.
    """
    ids = new.select(KEY).unique() if len(new) else pl.DataFrame(schema=dict.fromkeys(KEY, pl.String))
    if plan.rebuild:
        ids = pl.concat([ids, _whole_bucket(plan, lake, snapshot, number)]).unique()
    if "trajectories" in snapshot.stale:
        held = _ids_in(may_hold(lake.files(snapshot, "events"), ids)).join(ids, on=KEY, how="semi")
        nothing = pl.lit(None, pl.String)
        return ids, held.with_columns(nothing.alias("status"), nothing.alias("openings"))
    parts = []
    for file in may_hold(lake.files(snapshot, "trajectories"), ids):
        rows = _scan(file).select("trajectory_id", "status", "openings").collect()
        parts.append(rows.with_columns(pl.lit(file.partition["tenant"]).alias("tenant")).select(*KNOWN_SCHEMA))
    known = pl.concat(parts) if parts else pl.DataFrame(schema=KNOWN_SCHEMA)
    return ids, known.join(ids, on=KEY, how="semi")


def _whole_bucket(plan: Plan, lake: Lake, snapshot: Snapshot, number: int) -> pl.DataFrame:
    ids = _ids_in(lake.files(snapshot, "events"))
    mine = [bucket(trajectory_key(*key), plan.buckets) == number for key in ids.select(KEY).iter_rows()]
    return ids.filter(pl.Series(mine, dtype=pl.Boolean))


def _ids_in(files: list[DataFile]) -> pl.DataFrame:
    parts = [
        _scan(file)
        .select("trajectory_id")
        .unique()
        .collect()
        .select(pl.lit(file.partition["tenant"]).alias("tenant"), "trajectory_id")
        for file in files
    ]
    return pl.concat(parts).unique() if parts else pl.DataFrame(schema=dict.fromkeys(KEY, pl.String))


def _scan(file: DataFile) -> pl.LazyFrame:
    return pl.scan_parquet(file.path, hive_partitioning=False, glob=False)
