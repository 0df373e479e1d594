"""What the pipeline tests read back: rows of a lake as plain data, in an order of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.table_files import read_rows
from trajlake.schemas.tables import SNAPSHOT_TABLES


def rows(lake: Path | str, table: str, snapshot: int | None = None) -> pl.DataFrame:
    """Return a table's rows at a snapshot (default newest), sorted by every column."""
    opened = Lake.open(str(lake))
    at = opened.newest() if snapshot is None else opened.snapshot(snapshot)
    frame = read_rows(opened.files(at, table), SNAPSHOT_TABLES[table])
    return frame.sort(frame.columns, nulls_last=True)


def events_of(lake: Path) -> list[tuple[str, str, int, int, str]]:
    """Return (tenant, id, number, token, hash) of every row in `events`, sorted."""
    columns = ["tenant", "trajectory_id", "sequence_number", "fencing_token", "cryptographic_hash"]
    return sorted(rows(lake, "events").select(columns).iter_rows())


def everything(lake: Path | str) -> dict[str, list[dict[str, Any]]]:
    """Return all rows of all snapshot tables, without the columns that name the run or hang on what it did at once."""
    run_columns = {"blobs": ["run", "path", "stored_bytes"]}
    return {table: rows(lake, table).drop(run_columns.get(table, [])).to_dicts() for table in SNAPSHOT_TABLES}
