"""The warm tier in PostgreSQL: a journal's frames, and its cursor, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trajlake.runtime.replicas.replica import Frame

from ..warm import CursorMoved
from .postgres_database import Connection, Database
from .postgres_events import Rows, insert_frames, rows_of
from .sql_text import statement


class PostgresWarmTier:
    """A `WarmTier`. One shipper per writer at a time gets anywhere: the cursor's lock orders them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.url = database.shown

    def cursor(self, writer: str) -> int:
        row = self._database.run(lambda c: c.execute(statement("cursor_read"), {"writer": writer}).fetchone())
        return 0 if row is None else int(row[0])

    def prepare(self, writer: str, frames: Sequence[Frame], give_way: Callable[[], None]) -> Rows:
        return rows_of(writer, frames, give_way)

    def insert(self, writer: str, frames: Sequence[Frame], *, from_lsn: int, prepared: Rows | None = None) -> int:
        """Insert frames that begin at the cursor `from_lsn` and move it behind them; return how many were there.

        Raises `CursorMoved` when it stands elsewhere, also when an earlier try was committed and its answer lost.
        """

        def insert(connection: Connection) -> int:
            row = connection.execute(statement("cursor_lock"), {"writer": writer}).fetchone()
            if row is None:
                connection.execute(statement("cursor_create"), {"writer": writer})
                row = connection.execute(statement("cursor_lock"), {"writer": writer}).fetchone()
            assert row is not None
            if row[0] != from_lsn:
                raise CursorMoved(writer, int(row[0]))
            duplicates = insert_frames(connection, writer, frames, rows=prepared)
            connection.execute(statement("cursor_move"), {"writer": writer, "next_lsn": frames[-1].header.lsn + 1})
            return duplicates

        return self._database.run(insert)

    def close(self) -> None:
        self._database.close()
