"""What a gateway remembers, in one SQLite file: the highest token per trajectory, and one row per key.

Every change is one transaction, durable when it returns (write-ahead log, synchronous FULL). Any thread may call;
several processes may share the file.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from .env import Env

State = Literal["started", "done", "not_executed"]

_SCHEMA: Final = """
create table if not exists fences (
    tenant text not null, trajectory_id text not null, token integer not null, primary key (tenant, trajectory_id)
) without rowid;
create table if not exists calls (
    tenant text not null, key text not null, trajectory_id text not null, arguments_hash text not null,
    token integer not null, state text not null, owner text not null, runs integer not null,
    started_at integer not null, changed_at integer not null, kind text not null, result blob not null,
    primary key (tenant, key)
);
"""
FORMAT: Final = 1
_BUSY_S: Final = 30.0


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One key. `owner` is the gateway process that runs or ran it; `kind` and `result` are set once it is done."""

    tenant: str
    key: str
    trajectory_id: str
    arguments_hash: str
    token: int
    state: State
    owner: str
    runs: int
    started_at: int
    changed_at: int
    kind: str
    result: bytes


class Rows:
    """The file at `path` (absolute). A connection is not carried over a fork: the child opens its own."""

    def __init__(self, path: str, env: Env) -> None:
        self._path = path
        self._env = env
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._pid = -1

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the only writing transaction of the file; commit at the end, durably, or roll back on an exception."""
        with self._lock:
            connection = self._connect()
            connection.execute("begin immediate")
            try:
                yield connection
            except BaseException:
                connection.execute("rollback")
                raise
            connection.execute("commit")

    def find(self, connection: sqlite3.Connection, tenant: str, key: str) -> Row | None:
        """Return the row of a key."""
        names = ", ".join(Row.__struct_fields__)
        found = connection.execute(f"select {names} from calls where tenant = ? and key = ?", (tenant, key)).fetchone()
        return None if found is None else Row(**dict(zip(Row.__struct_fields__, found, strict=True)))

    def put(self, connection: sqlite3.Connection, row: Row) -> None:
        """Insert a row, or replace that of its key."""
        names, marks = ", ".join(Row.__struct_fields__), ", ".join("?" * len(Row.__struct_fields__))
        connection.execute(f"insert or replace into calls ({names}) values ({marks})", msgspec.structs.astuple(row))

    def highest_token(self, connection: sqlite3.Connection, tenant: str, trajectory_id: str) -> int:
        """Return the highest token announced or seen, 0 for none."""
        found = connection.execute(
            "select token from fences where tenant = ? and trajectory_id = ?", (tenant, trajectory_id)
        ).fetchone()
        return 0 if found is None else int(found[0])

    def raise_token(self, connection: sqlite3.Connection, tenant: str, trajectory_id: str, token: int) -> None:
        """Remember a token as the highest."""
        connection.execute("insert or replace into fences values (?, ?, ?)", (tenant, trajectory_id, token))

    def prune(self, connection: sqlite3.Connection, changed_before_us: int) -> int:
        """Remove finished rows that were last changed before; rows that are started stay whatever their age."""
        done = connection.execute(
            "delete from calls where state = 'done' and changed_at < ?", (changed_before_us,)
        ).rowcount
        return int(done)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None and self._pid == self._env.pid():
                self._connection.close()
            self._connection = None

    def _connect(self) -> sqlite3.Connection:
        if self._connection is not None and self._pid == self._env.pid():
            return self._connection
        # Created here so that it is private to its owner; SQLite gives its side files the same mode.
        self._env.close(self._env.open(self._path, write=True, create=True))
        connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
        version = int(connection.execute("pragma user_version").fetchone()[0])
        if version > FORMAT:
            connection.close()
            raise ValueError(f"{self._path}: gateway file of format {version}, newer than {FORMAT}: upgrade trajlake")
        connection.executescript(_SCHEMA)
        connection.execute(f"pragma user_version = {FORMAT}")
        self._env.fsync_dir(self._path.rpartition("/")[0] or "/")
        self._connection, self._pid = connection, self._env.pid()
        return connection
