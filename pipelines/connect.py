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

from .lakehouse.places import is_remote, store_errors
from .sql_text import identifier, literal, sql_files

if TYPE_CHECKING:
    import duckdb

    from .lakehouse.lake import DataFile, Lake
    from .lakehouse.snapshot import Snapshot

FILES_OF: Final = "trajlake_files_"
"""What a connection calls the files of a table in object storage: `trajlake_files_events`."""
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
    from .lakehouse.lake import Lake

    if tenant is not None:
        check_tenant(tenant)
    with store_errors(str(lake)):
        return _connect(Lake.open(lake), snapshot, tenant)


def _connect(opened: Lake, snapshot: int | None, tenant: str | None) -> duckdb.DuckDBPyConnection:
    import duckdb

    at = opened.newest() if snapshot is None else opened.snapshot(snapshot)
    connection = duckdb.connect()
    connection.execute("set TimeZone = 'UTC'")
    statements = (
        remote_statements(connection, opened, at, tenant)
        if is_remote(opened.url)
        else table_statements(opened, at, tenant)
    )
    for name, statement in statements:
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


def remote_statements(
    connection: duckdb.DuckDBPyConnection, lake: Lake, at: Snapshot, tenant: str | None
) -> list[tuple[str, str]]:
    """Return (table, the select that reads it) for every table of a lake in object storage.

    Each reads a dataset that the connection holds from here on; DuckDB pushes columns and filters down to it.
    """
    from .lakehouse.arrow_dataset import dataset_of
    from .lakehouse.lake import each

    def files(table: Table) -> list[DataFile]:
        return lake.ledger_data_files(table.name) if table.ledger else lake.files(at, table.name)

    found = []
    for table, listed in zip(TABLES.values(), each(lake, files, TABLES.values()), strict=True):
        kept = [file for file in listed if tenant is None or file.partition.get("tenant", tenant) == tenant]
        held = f"{FILES_OF}{table.name}"
        connection.register(held, dataset_of(table, lake.path(table.name), kept))
        columns = ", ".join(identifier(column.name) for column in table.columns)
        found.append((table.name, f"select {columns} from {identifier(held)}{_only(table, tenant)}"))
    return found


def _only(table: Table, tenant: str | None) -> str:
    has_one = any(column.name == "tenant" for column in table.columns)
    return f" where tenant = {literal(tenant)}" if tenant is not None and has_one else ""


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
    listed = ", ".join(map(literal, paths))
    return f"select {columns} from read_parquet([{listed}], {', '.join(options)}){_only(table, tenant)}"


def _columns_in(paths: list[str]) -> set[str]:
    import polars as pl

    return {name for path in paths for name in pl.read_parquet_schema(path)}
