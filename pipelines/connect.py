"""A DuckDB connection over one snapshot of a lake: every table and every view of `sql/views`, offline.

How it fails: no lake or no snapshot raises `LakeError` with one line; a file that a snapshot names and that is gone
is reported by DuckDB at the query that needs it. The connection is in memory and belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trajlake.schemas.ids import check_tenant
from trajlake.schemas.tables import TABLES, ColumnType, Table

from .sql_text import identifier, literal, sql_files

if TYPE_CHECKING:
    import duckdb

    from .lake import Lake
    from .snapshot import Snapshot

DUCKDB_TYPES: Final[dict[ColumnType, str]] = {
    "string": "varchar",
    "int64": "bigint",
    "int32": "integer",
    "float64": "double",
    "bool": "boolean",
    "date": "date",
    "timestamp": "timestamptz",
}


def connect(lake: str | Path, snapshot: int | None = None, *, tenant: str | None = None) -> duckdb.DuckDBPyConnection:
    """Return a connection with every table and view of `lake` at `snapshot` (the newest when None).

    `tenant` filters every table; it is a convenience, not a boundary: tenants that must not see each other get
    lakes of their own. Ledgers are read at their newest version. Times show in UTC. Imports no Beam.
    """
    import duckdb

    from .lake import Lake

    if tenant is not None:
        check_tenant(tenant)
    opened = Lake.open(lake)
    at = opened.newest() if snapshot is None else opened.snapshot(snapshot)
    connection = duckdb.connect()
    connection.execute("set TimeZone = 'UTC'")
    for name, statement in table_statements(opened, at, tenant):
        connection.execute(f"create view {identifier(name)} as {statement}")
    for name, text in sql_files("views").items():
        connection.execute(f"create view {identifier(name)} as {text}")
    return connection


def table_statements(lake: Lake, at: Snapshot, tenant: str | None) -> Iterator[tuple[str, str]]:
    """Yield (table, the select that reads it) for every table of the lake."""
    for name, table in TABLES.items():
        if table.ledger:
            yield name, select_files(table, lake.ledger_files(name), (), tenant)
        else:
            partitions = at.partition_by if table.partition_by is None else table.partition_by
            paths = [file.path for file in lake.files(at, name)]
            yield name, select_files(table, paths, tuple(partitions), tenant, is_mixed=name in at.evolved)


def select_files(
    table: Table, paths: list[str], partitions: tuple[str, ...], tenant: str | None, *, is_mixed: bool = False
) -> str:
    """Return the select over `paths`: columns in the table's order and types, partition columns from the paths.

    Columns that older files lack are null. `is_mixed`: some files may have columns that others lack.
    """
    types = {column.name: DUCKDB_TYPES[column.type] for column in table.columns}
    if not paths:
        columns = ", ".join(f"cast(null as {sql_type}) as {identifier(name)}" for name, sql_type in types.items())
        return f"select {columns} where false"
    present = _columns_in(paths if is_mixed else paths[:1]) | set(partitions)
    columns = ", ".join(
        identifier(name) if name in present else f"cast(null as {sql_type}) as {identifier(name)}"
        for name, sql_type in types.items()
    )
    options = [
        f"union_by_name = {'true' if is_mixed else 'false'}",
        f"hive_partitioning = {'true' if partitions else 'false'}",
    ]
    if partitions:
        hive = ", ".join(f"{literal(name)}: {types[name]}" for name in partitions)
        options.append(f"hive_types = {{{hive}}}")
    where = f" where tenant = {literal(tenant)}" if tenant is not None and "tenant" in types else ""
    listed = ", ".join(map(literal, paths))
    return f"select {columns} from read_parquet([{listed}], {', '.join(options)}){where}"


def _columns_in(paths: list[str]) -> set[str]:
    import polars as pl

    return {name for path in paths for name in pl.read_parquet_schema(path)}
