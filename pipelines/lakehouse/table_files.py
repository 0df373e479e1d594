"""Data files of a table: written with statistics and partition paths, read back with both. Plain functions."""

from __future__ import annotations

import datetime as dt
import json
import os
import secrets
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import polars as pl

from trajlake.pipelines.lakehouse.arrow_schema import partition_columns, polars_schema, stats_columns
from trajlake.pipelines.lakehouse.parquet_files import scan_parquet, write_parquet
from trajlake.pipelines.lakehouse.partitions import partition_path
from trajlake.pipelines.lakehouse.places import is_remote
from trajlake.pipelines.lakehouse.snapshot import FileAdd
from trajlake.schemas.columns import Table

if TYPE_CHECKING:
    from trajlake.pipelines.lakehouse.lake import DataFile


def threads() -> int:
    """Return how many threads work on files at once: one per core that this process may use, at most 8."""
    return min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def write_files(
    frame: pl.DataFrame, table: Table, directory: str, run: str, partition_by: Sequence[str], part: str
) -> list[FileAdd]:
    """Write the rows of `frame` as new files below `directory`, one per partition, and return their Adds.

    `frame` has the columns of `table`; it is sorted here as the table says unless it comes so. File names carry the
    run's name (so its number) and are never used twice. The files are not synced.
    """
    if not len(frame):
        return []
    columns = partition_columns(table, partition_by)
    typed = frame.select(pl.col(name).cast(kind) for name, kind in polars_schema(table).items())
    if not columns:
        return [_write(typed, table, directory, "", {}, run, partition_by, part)]

    def write(place: tuple[tuple[Any, ...], pl.DataFrame]) -> FileAdd:
        key, rows = place
        values = {name: partition_text(value) for name, value in zip(columns, key, strict=True)}
        relative = partition_path(columns, values)
        if not is_remote(directory):
            os.makedirs(os.path.join(directory, relative), mode=0o700, exist_ok=True)
        return _write(rows, table, directory, relative, values, run, partition_by, part)

    parts = list(typed.partition_by(columns, as_dict=True, maintain_order=True).items())
    if len(parts) == 1:
        return [write(parts[0])]
    # One small file keeps one core busy (its largest column decides), so several are written at once.
    with ThreadPoolExecutor(threads(), thread_name_prefix="trajlake-write") as pool:
        return list(pool.map(write, parts))


def _write(
    rows: pl.DataFrame, table: Table, directory: str, relative: str, values: dict[str, str], run: str,
    partition_by: Sequence[str], part: str,
) -> FileAdd:  # fmt: skip
    name = f"{run}-{part}-{secrets.token_hex(4)}.parquet"
    relative = f"{relative}/{name}" if relative else name
    path = os.path.join(directory, relative)
    inside = rows.drop(values)
    size = write_parquet(inside, path)
    stats = statistics_of(inside, stats_columns(table, partition_by))
    return FileAdd(path=relative, size=size, partition=values, rows=len(rows), stats=stats)


def statistics_of(rows: pl.DataFrame, columns: Sequence[str]) -> str:
    """Return what the log says of rows: their number, and bounds and nulls of `columns`, as JSON text."""
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    for name in columns:
        try:
            low, high = rows[name].min(), rows[name].max()
        except (OverflowError, ValueError):
            continue  # a time that no calendar date stands for: the column goes without bounds
        if low is not None and high is not None:
            lowest[name], highest[name] = _json(low), _json(high)
    nulls = {name: rows[name].null_count() for name in columns}
    return json.dumps({"numRecords": len(rows), "minValues": lowest, "maxValues": highest, "nullCount": nulls})


def _json(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, dt.date) else value


def partition_text(value: Any) -> str:
    """Return a partition value as the log and paths have it."""
    return value.isoformat() if isinstance(value, dt.date) else str(value)


def read_rows(files: Iterable[DataFile], table: Table, among: pl.DataFrame | None = None) -> pl.DataFrame:
    """Return the rows of `files` with every column of `table`, only of the trajectories in `among` if it is given.

    `among` has the columns tenant and trajectory_id. Columns that an older file lacks are null.
    """
    wanted = polars_schema(table)
    parts = []
    for file in files:
        scan = scan_parquet(file.path, low_memory=True)
        if among is not None:
            inside = among.filter(pl.col("tenant") == file.partition["tenant"])["trajectory_id"]
            if not len(inside):
                continue
            scan = scan.filter(pl.col("trajectory_id").is_in(inside.implode()))
        rows = scan.collect()
        if not len(rows):
            continue
        present = [_literal(value, wanted[name]).alias(name) for name, value in file.partition.items()]
        rows = rows.with_columns(*present)
        absent = [pl.lit(None, kind).alias(name) for name, kind in wanted.items() if name not in rows.columns]
        parts.append(rows.with_columns(*absent).select(pl.col(n).cast(k) for n, k in wanted.items()))
    return pl.concat(parts, rechunk=False) if parts else pl.DataFrame(schema=wanted)


def read_columns(files: Iterable[DataFile], table: Table, names: Sequence[str]) -> pl.DataFrame:
    """Return some columns of all rows of `files`, reading nothing else. Columns that an older file lacks are null."""
    kinds = {name: polars_schema(table)[name] for name in names}
    parts = []
    for file in files:
        scan = scan_parquet(file.path)
        inside = set(scan.collect_schema().names())
        columns = [
            pl.col(name) if name in inside
            else (_literal(file.partition[name], kind) if name in file.partition else pl.lit(None, kind)).alias(name)
            for name, kind in kinds.items()
        ]  # fmt: skip
        present = [name for name in names if name in inside]
        rows = (scan.select(present) if present else scan.select(pl.first())).with_columns(columns)
        parts.append(rows.select(names).collect())
    return pl.concat(parts) if parts else pl.DataFrame(schema=kinds)


def _literal(value: str, kind: pl.DataType) -> pl.Expr:
    return pl.lit(dt.date.fromisoformat(value), kind) if kind == pl.Date else pl.lit(value).cast(kind)


def may_hold(files: Iterable[DataFile], among: pl.DataFrame) -> list[DataFile]:
    """Return the files whose partition and statistics allow a row of one of the trajectories in `among`."""
    if not len(among):
        return []
    ids = {
        tenant: sorted(rows["trajectory_id"]) for (tenant,), rows in among.partition_by("tenant", as_dict=True).items()
    }
    return [file for file in files if _overlaps(file, ids.get(file.partition.get("tenant", ""), []))]


def _overlaps(file: DataFile, ids: list[str]) -> bool:
    from bisect import bisect_left

    low, high = file.minimum.get("trajectory_id"), file.maximum.get("trajectory_id")
    if not ids:
        return False
    if low is None or high is None:
        return True
    place = bisect_left(ids, low)
    return place < len(ids) and ids[place] <= high
