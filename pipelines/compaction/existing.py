"""Which trajectories of a bucket the lake knows already, and what it says of them."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from trajlake.pipelines.compaction.explode import bucket
from trajlake.pipelines.compaction.run_plan import Plan
from trajlake.pipelines.derived.canonicalize import KEY
from trajlake.pipelines.lakehouse.lake import DataFile, Lake
from trajlake.pipelines.lakehouse.parquet_files import scan_parquet
from trajlake.pipelines.lakehouse.snapshot import Snapshot
from trajlake.pipelines.lakehouse.table_files import may_hold
from trajlake.schemas.ids import trajectory_key

KNOWN_SCHEMA = {
    "tenant": pl.String(), "trajectory_id": pl.String(), "status": pl.String(), "openings": pl.String(),
    "subjects": pl.String(),
}  # fmt: skip


class Known(NamedTuple):
    """`ids`: trajectories that a bucket is about; `held`: those the lake holds, with status and openings.

    `event_files` are the files of `events` that may hold rows of `held`.
    """

    ids: pl.DataFrame
    held: pl.DataFrame
    event_files: list[DataFile]


def known_trajectories(plan: Plan, lake: Lake, snapshot: Snapshot, new: pl.DataFrame, number: int) -> Known:
    """Return what the lake knows of the trajectories in `new`; with `plan.rebuild` also of every other of the bucket.

    A trajectory's events and its row in `trajectories` stand under the same partition values, so only files there
    are looked at.
    """
    ids = new.select(KEY).unique() if len(new) else pl.DataFrame(schema=dict.fromkeys(KEY, pl.String))
    if plan.rebuild:
        ids = pl.concat([ids, _whole_bucket(plan, lake, snapshot, number)]).unique()
    parts, places = [], []
    for file in may_hold(lake.files(snapshot, "trajectories"), ids):
        rows = _scan(file).select("trajectory_id", "status", "openings", "subjects").collect()
        rows = rows.with_columns(pl.lit(file.partition["tenant"]).alias("tenant")).select(*KNOWN_SCHEMA)
        mine = rows.join(ids, on=KEY, how="semi")
        if len(mine):
            parts.append(mine)
            places.append(file.partition)
    held = pl.concat(parts) if parts else pl.DataFrame(schema=KNOWN_SCHEMA)
    if "trajectories" in snapshot.stale:
        # Rows there may lag or be missing; what they say of erased and expired trajectories stands all the same.
        files = may_hold(lake.files(snapshot, "events"), ids)
        found = _ids_in(files).join(ids, on=KEY, how="semi").join(held, on=KEY, how="anti")
        absent = [pl.lit(None, kind).alias(name) for name, kind in KNOWN_SCHEMA.items() if name not in KEY]
        return Known(ids, pl.concat([held, found.with_columns(absent).select(*KNOWN_SCHEMA)]), files)
    files = [file for file in lake.files(snapshot, "events") if file.partition in places]
    return Known(ids, held, may_hold(files, held))


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
    return scan_parquet(file.path)
