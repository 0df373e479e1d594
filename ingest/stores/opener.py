"""Opens a store by its URL: what the entry-point group `trajlake.stores` names. Heavy packages are loaded here only."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from trajlake.runtime.cli_errors import UserError
from trajlake.runtime.leases.lease import Tenure
from trajlake.runtime.store_urls import without_secrets
from trajlake.runtime.wal.journal_errors import RootError


def check_warm(url: str) -> None:
    """Refuse what --warm cannot name, before anything is done for it."""
    if url.partition("://")[0] not in ("postgresql", "postgres"):
        raise UserError(f"--warm {without_secrets(url)}: the warm tier is a PostgreSQL; give postgresql://HOST/DB")


def open_postgres(kind: str, url: str, *, is_dead: Callable[[Tenure], bool] = lambda _: False) -> Any:
    """Return a store in PostgreSQL: lease, mail, arbiter, replica, source, warm or fleet. Nothing is asked yet.

    Password and certificates come from where libpq looks: PGPASSWORD, PGPASSFILE, ~/.pgpass, PGSSLROOTCERT, ...
    """
    from trajlake.runtime.replicas.recover_from import ReplicaSource

    from .postgres_fleet import PostgresFleet
    from .postgres_lease import PostgresLeaseStore
    from .postgres_mail import PostgresArbiter, PostgresMailStore
    from .postgres_replica import PostgresReplica
    from .postgres_warm import PostgresWarmTier

    database = _database(url)
    match kind:
        case "lease":
            return PostgresLeaseStore(database, is_dead=is_dead)
        case "mail":
            return PostgresMailStore(database)
        case "arbiter":
            return PostgresArbiter(database)
        case "replica":
            return PostgresReplica(database)
        case "source":
            return ReplicaSource(PostgresReplica(database))
        case "warm":
            return PostgresWarmTier(database)
        case "fleet":
            return PostgresFleet(database)
    raise RootError(f"{without_secrets(url)}: PostgreSQL keeps no {kind} store")


@functools.lru_cache(maxsize=16)
def _database(url: str) -> Any:
    """One pool of connections per URL and process."""
    from .postgres_database import Database

    return Database(url)


def open_object(kind: str, url: str, *, is_dead: Callable[[Tenure], bool] = lambda _: False) -> Any:
    """Return the store of `kind` (lease, mail, arbiter, replica or source) in object storage. Nothing is asked yet.

    A server that ignores conditional puts is refused by the first call that would rely on them.
    """
    from .object_lease import ObjectLeaseStore
    from .object_mail import ObjectArbiter, ObjectMailStore
    from .object_replica import ObjectReplica
    from .object_source import ObjectSource

    client = _client(url)
    match kind:
        case "lease":
            return ObjectLeaseStore(client, is_dead=is_dead)
        case "mail":
            return ObjectMailStore(client)
        case "arbiter":
            return ObjectArbiter(client)
        case "replica":
            return ObjectReplica(client)
        case "source":
            return ObjectSource(client)
    raise RootError(f"{without_secrets(url)}: object storage keeps no {kind} store")


@functools.lru_cache(maxsize=16)
def _client(url: str) -> Any:
    """One client per URL and process."""
    from .object_client import ObjectClient

    return ObjectClient(url)
