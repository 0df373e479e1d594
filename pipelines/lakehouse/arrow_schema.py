"""`schemas.tables` as Arrow and Delta schemas. Strings are plain `string` (never string_view), timestamps µs UTC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from trajlake.schemas.columns import ColumnType, Table

if TYPE_CHECKING:
    import polars as pl

ARROW_TYPES: Final[dict[ColumnType, pa.DataType]] = {
    "string": pa.string(),
    "int64": pa.int64(),
    "int32": pa.int32(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}

STATS_TYPES: Final = frozenset({"int64", "int32", "date", "timestamp"})
"""Types whose minimum and maximum are always kept; strings only where a table sorts by them."""


def partition_columns(table: Table, lake_partition_by: Sequence[str]) -> tuple[str, ...]:
    """Return the partition columns of `table` in a lake partitioned by `lake_partition_by`; none for a ledger."""
    if table.ledger:
        return ()
    return tuple(lake_partition_by) if table.partition_by is None else table.partition_by


def arrow_schema(table: Table) -> pa.Schema:
    """Return the schema of the whole table, partition columns included."""
    return pa.schema(
        [pa.field(column.name, ARROW_TYPES[column.type], nullable=column.nullable) for column in table.columns]
    )


def file_schema(table: Table, lake_partition_by: Sequence[str]) -> pa.Schema:
    """Return the schema inside a data file: partition columns stand in its path and in the log, not in the file."""
    outside = set(partition_columns(table, lake_partition_by))
    return pa.schema([field for field in arrow_schema(table) if field.name not in outside])


def stats_columns(table: Table, lake_partition_by: Sequence[str]) -> tuple[str, ...]:
    """Return the columns whose minimum, maximum and null count stand in the log: keys and short typed columns."""
    outside = set(partition_columns(table, lake_partition_by))
    names = [column.name for column in table.columns if column.type in STATS_TYPES or column.name in table.sort_by]
    return tuple(name for name in names if name not in outside)


def polars_schema(table: Table) -> dict[str, pl.DataType]:
    """Return column names and Polars types of the whole table, for frames that may be empty."""
    import polars as pl

    types: dict[ColumnType, pl.DataType] = {
        "string": pl.String(),
        "int64": pl.Int64(),
        "int32": pl.Int32(),
        "float64": pl.Float64(),
        "bool": pl.Boolean(),
        "date": pl.Date(),
        "timestamp": pl.Datetime("us", "UTC"),
    }
    return {column.name: types[column.type] for column in table.columns}
