"""Take the rows of some trajectories out of a table: files that hold any are written anew without them, or removed.

The launcher does this once for all buckets, so that two buckets never rewrite one file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from trajlake.pipelines.lakehouse.arrow_schema import partition_columns
from trajlake.pipelines.lakehouse.lake import DataFile
from trajlake.pipelines.lakehouse.parquet_files import scan_parquet
from trajlake.pipelines.lakehouse.snapshot import FileAdd, FileRemove
from trajlake.pipelines.lakehouse.table_files import may_hold, read_rows, write_files
from trajlake.schemas.columns import Table


class Rewritten(NamedTuple):
    """`adds` hold what stays of the `removes`; `rows_dropped` went."""

    adds: list[FileAdd]
    removes: list[FileRemove]
    rows_dropped: int


def without(
    files: Sequence[DataFile], table: Table, directory: str, keys: pl.DataFrame, run: str, partition_by: Sequence[str],
    on: tuple[str, str] = ("tenant", "trajectory_id"),
) -> Rewritten:  # fmt: skip
    """Return the change that leaves out every row whose `on` columns stand in `keys`; writes the files that stay."""
    adds: list[FileAdd] = []
    removes: list[FileRemove] = []
    dropped = 0
    candidates = may_hold(files, keys) if on[1] == "trajectory_id" else list(files)
    for number, file in enumerate(candidates):
        inside = keys.filter(pl.col("tenant") == file.partition["tenant"])[on[1]]
        scan = scan_parquet(file.path).select(on[1])
        hits = scan.select(pl.col(on[1]).is_in(inside.implode()).sum()).collect().item()
        if not hits:
            continue
        if hits < file.rows:
            rows = read_rows([file], table).join(keys, on=on, how="anti", maintain_order="left")
            if len(rows) + hits != file.rows:
                raise AssertionError(f"{file.path}: {file.rows} rows, {hits} to leave out, {len(rows)} left")
            adds += write_files(rows, table, directory, run, partition_by, f"kept{number:04d}")
        removes.append(FileRemove(path=file.relative, size=file.size, partition=file.partition))
        dropped += hits
    assert all(set(add.partition) == set(partition_columns(table, partition_by)) for add in adds)
    return Rewritten(adds, removes, dropped)
