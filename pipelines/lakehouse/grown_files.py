"""Data files that grow by row groups: one open file for each partition of a table, closed with its statistics.

For writers that make rows batch by batch and hold no more than a batch. The files are those of `table_files`: the same
columns, types and statistics.
"""

from __future__ import annotations

import json
import os
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from trajlake.pipelines.lakehouse.arrow_schema import file_schema, partition_columns, polars_schema, stats_columns
from trajlake.pipelines.lakehouse.partitions import partition_path
from trajlake.pipelines.lakehouse.snapshot import FileAdd
from trajlake.pipelines.lakehouse.table_files import partition_text, statistics_of
from trajlake.schemas.columns import Table

LEVEL: Final = 3
"""As in other data files: level 6 would save a thirtieth of the bytes and cost a fifteenth of the time."""
PAGE_SIZE_BYTES: Final = 16 * 1024 * 1024
"""A row group's column is one page: what repeats within a batch is found."""
OPEN_MAX: Final = 32
"""Files of one table that stay open: the one not written for longest is closed, its partition gets another."""
_UNIQUE: Final = frozenset({"payload", "salt", "commitment", "cryptographic_hash", "report"})
"""Columns in which no value comes twice: a dictionary would only be tried and given up."""


_PART: Final = "-bulk-"


def is_grown(relative: str) -> bool:
    """Tell by a data file's name whether it grew here, by row groups as small as a batch."""
    return _PART in relative.rpartition("/")[2]


class GrownFiles:
    """The files of one table that one process writes. Local lakes only."""

    def __init__(self, table: Table, directory: str, run: str, partition_by: Sequence[str]) -> None:
        self._table = table
        self._directory = directory
        self._run = run
        self._columns = partition_columns(table, partition_by)
        self._schema = _viewed(file_schema(table, partition_by))
        self._bounded = stats_columns(table, partition_by)
        self._kinds = polars_schema(table)
        self._open: OrderedDict[str, _File] = OrderedDict()
        self._done: list[FileAdd] = []

    def add(self, rows: pl.DataFrame) -> None:
        """Write rows (sorted as the table says) as one row group of each partition they belong to."""
        if not len(rows):
            return
        typed = rows.select(pl.col(name).cast(kind) for name, kind in self._kinds.items())
        if not self._columns:
            self._write({}, typed)
            return
        for key, part in typed.partition_by(self._columns, as_dict=True, maintain_order=True).items():
            self._write({name: partition_text(value) for name, value in zip(self._columns, key, strict=True)}, part)

    def close(self) -> list[FileAdd]:
        """Close every file and return all that were written."""
        while self._open:
            self._close_oldest()
        return self._done

    def _write(self, values: dict[str, str], rows: pl.DataFrame) -> None:
        folder = partition_path(self._columns, values)
        file = self._open.pop(folder, None)
        if file is None:
            if len(self._open) >= OPEN_MAX:
                self._close_oldest()
            file = self._begin(folder, values)
        self._open[folder] = file
        inside = rows.select(self._schema.names)
        columns = inside.to_arrow(compat_level=pl.CompatLevel.newest()).columns
        file.writer.write_table(pa.Table.from_arrays(columns, schema=self._schema))
        file.rows += len(rows)
        file.stats = _merged(file.stats, json.loads(statistics_of(inside, self._bounded)))

    def _begin(self, folder: str, values: dict[str, str]) -> _File:
        name = f"{self._run}{_PART}{secrets.token_hex(4)}.parquet"
        relative = f"{folder}/{name}" if folder else name
        path = os.path.join(self._directory, relative)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        writer = pq.ParquetWriter(
            path,
            self._schema,
            compression="zstd",
            compression_level=LEVEL,
            data_page_size=PAGE_SIZE_BYTES,
            use_dictionary=[name for name in self._schema.names if name not in _UNIQUE],
            write_statistics=True,
            store_schema=False,
        )
        os.chmod(path, 0o600)
        return _File(writer, path, relative, values)

    def _close_oldest(self) -> None:
        _, file = self._open.popitem(last=False)
        file.writer.close()
        self._done.append(
            FileAdd(
                path=file.relative,
                size=os.path.getsize(file.path),
                partition=file.values,
                rows=file.rows,
                stats=json.dumps(file.stats),
            )
        )


def _viewed(schema: pa.Schema) -> pa.Schema:
    """Return a schema with texts as Polars has them. In a file they are the same: it keeps no Arrow schema."""
    return pa.schema([f.with_type(pa.string_view()) if f.type == pa.string() else f for f in schema])


class _File:
    """An open file and what its statistics will say."""

    def __init__(self, writer: Any, path: str, relative: str, values: dict[str, str]) -> None:
        self.writer = writer
        self.path = path
        self.relative = relative
        self.values = values
        self.rows = 0
        self.stats: dict[str, Any] = {}


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return the statistics of two row groups together. Times are ISO texts of one length: they compare as texts."""
    if not one:
        return other
    nulls = {name: count + other["nullCount"][name] for name, count in one["nullCount"].items()}
    merged: dict[str, Any] = {"numRecords": one["numRecords"] + other["numRecords"]}
    for key, choose in (("minValues", min), ("maxValues", max)):
        values: dict[str, Any] = {}
        for name in nulls:
            found = [part[key][name] for part in (one, other) if name in part[key]]
            if all(name in part[key] or part["nullCount"][name] == part["numRecords"] for part in (one, other)):
                values |= {name: choose(found)} if found else {}
        merged[key] = values
    return merged | {"nullCount": nulls}
