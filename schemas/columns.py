"""What a table description is made of. Pure data; the tables stand in `tables.py` and `ledgers.py`."""

from __future__ import annotations

from typing import Literal, NamedTuple

ColumnType = Literal["string", "int64", "int32", "float64", "bool", "date", "timestamp"]


class Column(NamedTuple):
    """One column. `unit` is "" for what has none; "json" means JSON text, "hex" lower-case hex text."""

    name: str
    type: ColumnType
    unit: str
    meaning: str
    erasable: bool = False
    nullable: bool = True


class Table(NamedTuple):
    """One table. `partition_by` None: the lake's partition columns. `sort_by` is the order of rows in a file.

    A ledger is append-only and read at its newest version; every other table is a snapshot table.
    """

    name: str
    meaning: str
    columns: tuple[Column, ...]
    sort_by: tuple[str, ...] = ()
    partition_by: tuple[str, ...] | None = None
    ledger: bool = False

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def erasable(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns if column.erasable)
