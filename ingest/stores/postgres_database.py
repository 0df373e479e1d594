"""Connections to one PostgreSQL, and transactions on them that are tried again when the server goes away."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import psycopg
from psycopg import errors

from trajlake.runtime.store_urls import without_secrets

from .sql_text import ddl, statement
from .store_errors import StoreRefused, StoreUnreachable

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]

VERSION: Final = 3
OBJECTS: Final = (
    "warm_version", "tenant_roles", "journal_cursors", "trajectory_events", "trajectory_events_partitions",
    "trajectory_events_recorded_at", "trajectory_events_paths", "trajectory_tokens", "trajectory_spans",
    "trajectory_heads", "trajectory_heads_recorded_at", "trajectory_open_items", "trajectory_open_items_recorded_at",
    "trajectory_erased", "trajectory_left", "trajectory_blobs", "trajectory_blob_refs", "trajectory_leases",
    "trajectory_mail", "trajectory_generations", "visible_tenants", "tenant_policies", "events", "uncounted_events",
    "tool_events", "trajectories", "is_in_doubt", "doubts", "approvals_waiting", "status", "erase_trajectory",
    "leave_to_lake", "add_tenant_role",
)  # fmt: skip
"""Everything under sql/warm, in the order in which it is made."""

PATIENCE_S: Final = 5.0
"""How long a call goes on trying. A lease check that takes longer is worth nothing to its caller."""
CONNECT_TIMEOUT_S: Final = 5
_FIRST_PAUSE_S: Final = 0.02
_GONE: Final = (psycopg.OperationalError, psycopg.InterfaceError)
_REFUSED: Final = (
    errors.InvalidPassword, errors.InvalidAuthorizationSpecification, errors.InvalidCatalogName,
    errors.InsufficientPrivilege, errors.UndefinedTable, errors.InvalidSchemaName,
)  # fmt: skip


class Database:
    """One PostgreSQL by URL. Any thread may call; a forked child opens connections of its own.

    Objects live in the first schema of the search path and are made at the first use if they are missing.
    """

    def __init__(self, url: str, *, patience_s: float = PATIENCE_S) -> None:
        self._url = url
        self.shown = without_secrets(url)
        self.patience_s = patience_s
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._installed = False

    def run(
        self, work: Callable[[Connection], T], *, again: Callable[[Connection], T] | None = None,
        patience_s: float | None = None,
    ) -> T:  # fmt: skip
        """Do `work` in one transaction and commit; on return it is as durable as the server promises.

        When the connection breaks or transactions collide, it is done again from the start, by `again` if that is
        given: the first try may have been committed, so work that is not the same twice looks first.
        Raises `StoreUnreachable` after `patience_s`, `StoreRefused` at once for what no waiting cures.
        """
        patience = self.patience_s if patience_s is None else patience_s
        deadline_s = time.monotonic() + patience
        pause_s = _FIRST_PAUSE_S
        todo = work
        while True:
            try:
                return self._once(todo)
            except _REFUSED as error:
                raise StoreRefused(f"{self.shown}: {_line(error)}") from None
            except (errors.DeadlockDetected, errors.SerializationFailure):
                pass
            except _GONE as error:
                if isinstance(error, _NEVER_BETTER) or time.monotonic() + pause_s > deadline_s:
                    raise StoreUnreachable(f"{self.shown}: no answer ({_line(error)})") from None
                todo = again or work
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 1.0)

    def close(self) -> None:
        """Close the idle connections; the next call opens new ones."""
        with self._lock:
            idle, self._idle = self._idle, []
        if self._pid == os.getpid():
            for connection in idle:
                connection.close()

    def _once(self, work: Callable[[Connection], T]) -> T:
        with self._borrowed() as connection, connection.transaction():
            return work(connection)

    @contextmanager
    def _borrowed(self) -> Iterator[Connection]:
        """A connection of our own for one transaction; it is kept only if that went well."""
        with self._lock:
            if self._pid != os.getpid():  # the parent's sockets: closing them would end its sessions
                self._abandoned, self._idle, self._pid = self._idle, [], os.getpid()
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = self._connect()
        try:
            yield connection
        except _GONE:
            connection.close()
            raise
        except BaseException:
            if not connection.closed and connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
                self._give_back(connection)
            else:
                connection.close()
            raise
        self._give_back(connection)

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            self._idle.append(connection)

    def _connect(self) -> Connection:
        connection = psycopg.connect(
            self._url, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S, fallback_application_name="trajlake",
            keepalives_idle=10, keepalives_interval=5, keepalives_count=3, tcp_user_timeout=20_000,
        )  # fmt: skip
        try:
            if not self._installed:
                self._install(connection)
                self._installed = True
        except BaseException:
            connection.close()
            raise
        return connection

    def _install(self, connection: Connection) -> None:
        if self._is_installed(connection):
            return
        with connection.transaction():
            connection.execute(statement("install_lock"))
            if self._is_installed(connection):  # by whoever held the lock before us
                return
            for name in OBJECTS:
                connection.execute(ddl(name))
            connection.execute(statement("version_write"), {"version": VERSION})

    def _is_installed(self, connection: Connection) -> bool:
        if connection.execute(statement("installed")).fetchone() != (True,):
            return False
        found = connection.execute(statement("version_read")).fetchone()
        if found is not None and found[0] > VERSION:
            raise StoreRefused(f"{self.shown}: tables of version {found[0]}, this trajlake knows {VERSION}")
        return found is not None and found[0] == VERSION


_NEVER_BETTER: Final = (errors.UndefinedFile, errors.DiskFull)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
