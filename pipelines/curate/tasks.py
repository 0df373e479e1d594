"""Which rows of which files hold the trajectories that must be read, cut into tasks of bounded size.

An element of work is a path: the plan's document and a task's number. Events are read once each, in file order.
"""

from __future__ import annotations

import os
from typing import Any, Final

import msgspec
import polars as pl

from trajlake.pipelines.lakehouse.lake import DataFile, Lake
from trajlake.pipelines.lakehouse.parquet_files import scan_parquet
from trajlake.pipelines.lakehouse.snapshot import Snapshot

from .extract import ExtractKey

TASK_ROWS_MAX: Final = 120_000
"""Events of one task: its memory is a few times their payloads."""


class Slice(msgspec.Struct, frozen=True, array_like=True):
    """Rows [start, start + length) of one data file of `events`."""

    path: str
    tenant: str
    start: int
    length: int


class ExtractPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a worker needs; written once as JSON. `wanted` names an Arrow file of trajectories and heads."""

    lake: str
    snapshot: int
    folder: str
    kept: str
    wanted: str
    key: ExtractKey
    evaluations: dict[str, bytes]
    pin: str = ""
    tasks: list[list[Slice]]


def plan_tasks(files: list[DataFile], wanted: pl.DataFrame) -> list[list[Slice]]:
    """Return tasks that together hold every event of the trajectories in `wanted`, each trajectory in one task."""
    runs = _runs(files, wanted)
    if not len(runs):
        return []
    apart = pl.len().over("tenant", "trajectory_id") > 1
    tasks: list[list[Slice]] = []
    task: list[Slice] = []
    rows = 0
    for part in (runs.filter(~apart), runs.filter(apart).sort("tenant", "trajectory_id", "file", "start")):
        last = None
        for tenant, trajectory, file, start, length in part.iter_rows():
            if rows + length > TASK_ROWS_MAX and task and (tenant, trajectory) != last:
                tasks.append(task)
                task, rows = [], 0
            last = tenant, trajectory
            path = files[file].path
            if task and task[-1].path == path and task[-1].start + task[-1].length == start:
                task[-1] = Slice(path, tenant, task[-1].start, task[-1].length + length)
            else:
                task.append(Slice(path, tenant, start, length))
            rows += length
    return [*tasks, task] if task else tasks


def _runs(files: list[DataFile], wanted: pl.DataFrame) -> pl.DataFrame:
    """Return (tenant, trajectory_id, file, start, length) of every stretch of a wanted trajectory, in file order."""
    parts = []
    for number, file in enumerate(files):
        tenant = file.partition["tenant"]
        ids = wanted.filter(pl.col("tenant") == tenant)["trajectory_id"]
        if not len(ids):
            continue
        column = scan_parquet(file.path).select("trajectory_id").collect()
        runs = column["trajectory_id"].rle().struct.unnest()
        runs = runs.select(
            pl.lit(tenant).alias("tenant"),
            pl.col("value").alias("trajectory_id"),
            pl.lit(number, pl.Int64).alias("file"),
            (pl.col("len").cast(pl.Int64).cum_sum() - pl.col("len").cast(pl.Int64)).alias("start"),
            pl.col("len").cast(pl.Int64).alias("length"),
        ).filter(pl.col("trajectory_id").is_in(ids.implode()))
        if len(runs):
            parts.append(runs)
    if not parts:
        return pl.DataFrame()
    return pl.concat(parts)


def read_slices(slices: list[Slice], columns: list[str]) -> pl.DataFrame:
    """Return the events of a task's trajectories, whole and in order. Slices hold nothing else."""
    parts = []
    for one in slices:
        scan = scan_parquet(one.path).slice(one.start, one.length)
        scan = scan.select(*(name for name in columns if name != "tenant"))
        parts.append(scan.with_columns(pl.lit(one.tenant).alias("tenant")).collect())
    if len(parts) == 1:
        return parts[0]
    return pl.concat(parts, rechunk=False).sort("tenant", "trajectory_id", "sequence_number")


def read_table(lake: Lake, snapshot: Snapshot, table: str, columns: list[str] | None = None) -> pl.DataFrame:
    """Return the rows of a snapshot table (not `events`), all columns or the named ones."""
    from trajlake.pipelines.lakehouse.table_files import read_rows
    from trajlake.schemas.tables import SNAPSHOT_TABLES

    rows = read_rows(lake.files(snapshot, table), SNAPSHOT_TABLES[table])
    return rows if columns is None else rows.select(columns)


def write_plan(plan: ExtractPlan) -> str:
    """Write the plan's document and return its path."""
    path = os.path.join(plan.folder, "plan.json")
    with open(path, "wb") as file:
        file.write(msgspec.json.encode(plan))
    return path


def read_plan(path: str) -> ExtractPlan:
    with open(path, "rb") as file:
        return msgspec.json.decode(file.read(), type=ExtractPlan)


__all__: list[Any] = [
    "TASK_ROWS_MAX",
    "ExtractPlan",
    "Slice",
    "plan_tasks",
    "read_plan",
    "read_slices",
    "read_table",
    "write_plan",
]
