"""Parquet files of a lake, wherever it stands: one reader's options, one way to write.

The paths hold percent signs and odd characters, and values of partitions are known from the log, so that neither globs
nor partition paths are ever interpreted here.
"""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Iterator, Sequence
from typing import Any, Final

import polars as pl
from polars.io.plugins import register_io_source

from trajlake.pipelines.lakehouse import object_places
from trajlake.pipelines.lakehouse.object_places import is_remote, tried
from trajlake.pipelines.lakehouse.places import put_if_absent

ZSTD_LEVEL: Final = 3
ROW_GROUP_ROWS: Final = 65_536


def scan_parquet(path: str, *, low_memory: bool = False) -> pl.LazyFrame:
    """Return the file's rows, read when they are collected."""
    if is_remote(path):
        return register_io_source(functools.partial(_batches, path), schema=tried(_remote(path).collect_schema, path))
    return pl.scan_parquet(path, hive_partitioning=False, glob=False, low_memory=low_memory)


def read_parquet(path: str, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Return the file's rows, of all columns or of some."""
    wanted = None if columns is None else list(columns)
    if is_remote(path):
        whole = _remote(path)
        return tried((whole if wanted is None else whole.select(wanted)).collect, path)
    return pl.read_parquet(path, columns=wanted, hive_partitioning=False, glob=False)


def columns_of(path: str) -> set[str]:
    """Return the names of the columns inside the file."""
    return set(scan_parquet(path).collect_schema().names() if is_remote(path) else pl.read_parquet_schema(path))


def write_parquet(
    rows: pl.DataFrame, path: str, *, level: int = ZSTD_LEVEL, row_group_rows: int = ROW_GROUP_ROWS
) -> int:
    """Write `rows` as a new file and return its size. A local one is not yet synced; its folder must exist."""
    options: dict[str, Any] = {
        "compression": "zstd", "compression_level": level, "row_group_size": row_group_rows, "statistics": True,
    }  # fmt: skip
    if not is_remote(path):
        rows.write_parquet(path, **options)
        os.chmod(path, 0o600)
        return os.path.getsize(path)
    packed = io.BytesIO()
    rows.write_parquet(packed, **options)
    put_if_absent(path, packed.getvalue())
    return len(packed.getvalue())


def _remote(path: str) -> pl.LazyFrame:
    return pl.scan_parquet(path, hive_partitioning=False, glob=False, **object_places.polars_options(path))


def _batches(
    path: str, columns: list[str] | None, predicate: pl.Expr | None, rows_max: int | None, _: int | None
) -> Iterator[pl.DataFrame]:
    """Yield what a query needs of a remote file: read as Polars reads it, and again where the way to it failed."""
    wanted = _remote(path)
    if predicate is not None:
        wanted = wanted.filter(predicate)
    if columns is not None:
        wanted = wanted.select(columns)
    if rows_max is not None:
        wanted = wanted.head(rows_max)
    yield tried(wanted.collect, path)
