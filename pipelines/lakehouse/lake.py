"""A lake on disk: where things stand, which snapshot is the newest, which files a snapshot names."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import unquote

from deltalake import DeltaTable, Schema

from trajlake.pipelines.lakehouse import object_places
from trajlake.pipelines.lakehouse.arrow_schema import arrow_schema, partition_columns, stats_columns
from trajlake.pipelines.lakehouse.lake_errors import LakeDamaged, LakeError, LakeMissing, LakeUnreachable
from trajlake.pipelines.lakehouse.object_places import first_line, is_remote, tried
from trajlake.pipelines.lakehouse.places import make_directory, open_place, resolved, sync_all, walk
from trajlake.pipelines.lakehouse.snapshot import (
    STATE_DIRECTORY,
    Snapshot,
    expired_numbers,
    put_snapshot,
    read_expired,
    read_snapshot,
    snapshot_numbers,
)
from trajlake.schemas.columns import Table
from trajlake.schemas.tables import LEDGERS, PARTITION_BY, SNAPSHOT_TABLES, TABLES

Item = TypeVar("Item")
Result = TypeVar("Result")

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
AT_ONCE: Final = 8
"""Requests to object storage that one process waits for at once."""


class DataFile(NamedTuple):
    """A Parquet file that a snapshot names. `path` is absolute, `relative` below the table (percent-encoded values).

    `minimum` and `maximum` hold the columns with statistics; `rows` their count.
    """

    path: str
    relative: str
    size: int
    rows: int
    partition: dict[str, str]
    minimum: dict[str, Any]
    maximum: dict[str, Any]


class Lake:
    """One lake. Cheap to open; holds no handle. Methods may be called from any thread."""

    def __init__(self, path: str) -> None:
        self.url = path
        open_place(path)

    @classmethod
    def open(cls, url: str | Path, *, create: bool = False, partition_by: tuple[str, ...] | None = None) -> Lake:
        """Open the lake at `url` (a local path, file:// or s3://).

        `create` makes it with every table empty and snapshot 0, where there is none; `partition_by` is then its
        partition columns (default tenant, started_on, model). Raises `LakeMissing` where there is none.
        """
        lake = cls(resolved(url, "lake"))
        if not snapshot_numbers(lake.url):
            if not create:
                raise LakeMissing(f"{lake.url}: no lake there; name another --lake, or run 'trajlake compact' into it")
            _create(lake, partition_by or PARTITION_BY)
        return lake

    def path(self, *parts: str) -> str:
        return os.path.join(self.url, *parts)

    def snapshot_numbers(self) -> list[int]:
        """Return the numbers of the snapshots that may be read, ascending."""
        expired = set(expired_numbers(self.url))
        return [number for number in snapshot_numbers(self.url) if number not in expired]

    def all_snapshot_numbers(self) -> list[int]:
        """Return the numbers of all snapshots that were ever put: their runs are decided."""
        return snapshot_numbers(self.url)

    def snapshot(self, number: int) -> Snapshot:
        """Return snapshot `number`; `LakeMissing` if there is none of that number, or if it has expired."""
        numbers = self.snapshot_numbers()
        if number not in numbers:
            shown = f"{numbers[0]} to {numbers[-1]}" if numbers else "none"
            if number in expired_numbers(self.url):
                why = read_expired(self.url, number).why
                raise LakeMissing(f"{self.url}: snapshot {number} has expired: {why} (there are {shown})")
            raise LakeMissing(f"{self.url}: no snapshot {number} (there are {shown})")
        return read_snapshot(self.url, number)

    def any_snapshot(self, number: int) -> Snapshot:
        """Return what snapshot `number` says, expired or not; its files may be gone."""
        return read_snapshot(self.url, number)

    def newest(self) -> Snapshot:
        """Return the newest snapshot: never part of a run that is under way."""
        numbers = snapshot_numbers(self.url)
        if not numbers:
            raise LakeMissing(f"{self.url}: no snapshot there; run 'trajlake compact' into it")
        return read_snapshot(self.url, numbers[-1])

    def handle(self, table: str, version: int | None = None) -> DeltaTable:
        """Return a Delta handle of `table`, newest or at `version`; `LakeDamaged` if it cannot be loaded."""
        path = self.path(table)
        try:
            if is_remote(path):
                return tried(lambda: DeltaTable(path, version=version, storage_options=delta_options(path)), path)
            loaded = DeltaTable(path, version=version)
            _check_log(path)
            return loaded
        except (LakeUnreachable, LakeDamaged):
            raise
        except Exception as error:
            shown = "the newest version" if version is None else f"version {version}"
            raise LakeDamaged(f"{path}: cannot load {shown}: {first_line(error)}") from error

    def versions(self) -> dict[str, int]:
        """Return the newest version of every snapshot table."""
        return dict(each(self, lambda name: (name, self.handle(name).version()), SNAPSHOT_TABLES))

    def files(self, snapshot: Snapshot, table: str) -> list[DataFile]:
        """Return the files that `snapshot` names for a snapshot table, by path."""
        version = snapshot.tables.get(table)
        if version is None:
            if table in SNAPSHOT_TABLES:
                return []
            raise LakeError(f"{table}: no snapshot table; one of {', '.join(SNAPSHOT_TABLES)}")
        return files_of(self.handle(table, version), self.path(table))

    def ledger_files(self, name: str) -> list[str]:
        """Return the absolute paths of a ledger's files at its newest version."""
        return [file.path for file in self.ledger_data_files(name)]

    def ledger_data_files(self, name: str) -> list[DataFile]:
        """Return a ledger's files at its newest version."""
        return files_of(self.handle(name), self.path(name))


def _check_log(path: str) -> None:
    """Refuse a log entry without bytes, as a crash of a disk leaves them: Delta's reader goes without what it added."""
    with os.scandir(f"{path}/_delta_log") as entries:
        for entry in entries:
            if entry.name.endswith(".json") and not entry.stat().st_size:
                raise LakeDamaged(
                    f"{entry.path}: is empty; put it back from a copy, or compact the landing into a new lake"
                )


def files_of(handle: DeltaTable, directory: str) -> list[DataFile]:
    """Return the live files of a loaded handle, by path. Raises `LakeDamaged` for a path out of the table's folder."""
    rows = _action_rows(handle)
    files = []
    for row in rows:
        relative = unquote(row["path"])
        if relative.startswith("/") or ".." in relative.split("/"):
            raise LakeDamaged(
                f"{directory}: its log names {ascii(relative)}, which is outside the table; nothing is read"
            )
        files.append(
            DataFile(
                path=os.path.join(directory, relative),
                relative=relative,
                size=row["size_bytes"],
                rows=row["num_records"] or 0,
                partition={k[10:]: _partition_text(v) for k, v in row.items() if k.startswith("partition.")},
                minimum={k[4:]: v for k, v in row.items() if k.startswith("min.")},
                maximum={k[4:]: v for k, v in row.items() if k.startswith("max.")},
            )
        )
    return sorted(files, key=lambda file: file.relative)


def _action_rows(handle: DeltaTable) -> list[dict[str, Any]]:
    import pyarrow as pa

    # `pa.table`, and times as Python objects, would import pandas where it is installed: half a second, and 50 MB.
    actions = pa.RecordBatchReader.from_stream(handle.get_add_actions(flatten=True)).read_all()
    columns = {name: _values(actions[name]) for name in actions.schema.names}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _values(column: Any) -> list[Any]:
    import pyarrow as pa

    if not pa.types.is_timestamp(column.type):
        return list(column.to_pylist())
    moments = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    return [None if moment is None else _EPOCH + dt.timedelta(microseconds=moment) for moment in moments]


def _partition_text(value: Any) -> str:
    return value.isoformat() if isinstance(value, dt.date) else str(value)


def delta_options(path: str) -> dict[str, str] | None:
    """Return the storage options by which deltalake reaches `path`; None on a local disk."""
    return object_places.delta_options(path) if is_remote(path) else None


def _create(lake: Lake, partition_by: tuple[str, ...]) -> None:
    """Make every table, empty, and put snapshot 0. Two processes may do it at once; one snapshot 0 results."""
    unknown = set(partition_by) - set(TABLES["events"].column_names)
    if unknown or "tenant" not in partition_by:
        raise LakeError(f"partition columns {', '.join(partition_by)}: must be columns of events and include tenant")
    if _is_taken(lake):
        raise LakeError(f"{lake.url}: not empty and no lake; name an empty or missing directory")
    if is_remote(lake.url):
        object_places.require_conditional_puts(lake.path(STATE_DIRECTORY))
    for name in ("snapshots", "runs", "staging"):
        make_directory(lake.path(STATE_DIRECTORY, name))
    from trajlake.pipelines.lakehouse.commit import mend_torn_commits

    def create(table: Table) -> None:
        mend_torn_commits(lake.path(table.name), -1)
        create_table(lake, table, partition_by)

    each(lake, create, (*SNAPSHOT_TABLES.values(), *LEDGERS))
    sync_all([lake.path(name, "_delta_log", f"{0:020d}.json") for name in TABLES], lake.url)
    put_snapshot(
        lake.url,
        Snapshot(
            snapshot=0,
            run="0-init",
            kind="init",
            created_at=now_text(),
            partition_by=partition_by,
            tables=lake.versions(),
        ),
    )


def _is_taken(lake: Lake) -> bool:
    """Tell whether something that is no lake stands there."""
    if is_remote(lake.url):
        below = next(walk(lake.url), None)
        return below is not None and next(walk(lake.path(STATE_DIRECTORY)), None) is None
    return os.path.isdir(lake.url) and bool(os.listdir(lake.url)) and not os.path.isdir(lake.path(STATE_DIRECTORY))


def each(lake: Lake, do: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Return what `do` says of each item: one after the other on a disk, several at once where each one waits."""
    if not is_remote(lake.url):
        return [do(item) for item in items]
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="trajlake-lake") as pool:
        return list(pool.map(do, items))


def create_table(lake: Lake, table: Table, partition_by: tuple[str, ...]) -> None:
    """Make one empty table (reader 1, writer 2), not yet synced; nothing happens where it exists."""
    directory = lake.path(table.name)
    options = delta_options(directory)
    if not _is_table(directory):
        try:
            DeltaTable.create(
                directory,
                Schema.from_arrow(arrow_schema(table)),
                mode="ignore",
                partition_by=list(partition_columns(table, partition_by)),
                storage_options=options,
                configuration={"delta.dataSkippingStatsColumns": ",".join(stats_columns(table, partition_by))},
            )
        except Exception:
            if not _is_table(directory):
                raise
    if options is None:
        os.chmod(directory, 0o700)


def _is_table(directory: str) -> bool:
    if not is_remote(directory):
        return DeltaTable.is_deltatable(directory)
    return tried(lambda: DeltaTable.is_deltatable(directory, delta_options(directory)), directory)


def now_text() -> str:
    """Return the time as ISO 8601 text in UTC, to the second."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
