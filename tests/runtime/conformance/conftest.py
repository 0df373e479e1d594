"""The backends that every lease and mail store test runs against. A new store adds itself here and nowhere else.

A `Backend` opens clients: each call stands for another process on the same data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from trajlake.runtime.leases.file_arbiter import FileArbiter
from trajlake.runtime.leases.file_lease import FileLeaseStore
from trajlake.runtime.leases.generations import Arbiter
from trajlake.runtime.leases.lease import LeaseStore
from trajlake.runtime.mailbox.file_mail import FileMailStore
from trajlake.runtime.mailbox.mail import MailStore
from trajlake.runtime.replicas.replica import Replica


@dataclass(frozen=True)
class Backend:
    leases: Callable[[], LeaseStore]
    mail: Callable[[], MailStore]
    arbiter: Callable[[], Arbiter]
    replica: Callable[[], Replica] | None = None
    clock_step_s: float = 0.0  # the store's clock may be coarse: a lease then lasts up to so much longer


def file_backend(folder: Path) -> Iterator[Backend]:
    root = str(folder)
    yield Backend(
        # Nobody is known to be dead: what a dead writer means is the file store's own test.
        leases=lambda: FileLeaseStore(root, writer_is_dead=lambda writer: False),
        mail=lambda: FileMailStore(root),
        arbiter=lambda: FileArbiter(root),
    )


def postgres_backend(folder: Path) -> Iterator[Backend]:
    from tests.support.postgres import schema_url
    from trajlake.ingest.stores.postgres_database import Database
    from trajlake.ingest.stores.postgres_lease import PostgresLeaseStore
    from trajlake.ingest.stores.postgres_mail import PostgresArbiter, PostgresMailStore
    from trajlake.ingest.stores.postgres_replica import PostgresReplica

    with schema_url() as url:
        clients: list[Database] = []

        def client() -> Database:
            clients.append(Database(url))
            return clients[-1]

        yield Backend(
            leases=lambda: PostgresLeaseStore(client()),
            mail=lambda: PostgresMailStore(client()),
            arbiter=lambda: PostgresArbiter(client()),
            replica=lambda: PostgresReplica(client()),
        )
        for one in clients:
            one.close()


def object_backend(folder: Path) -> Iterator[Backend]:
    from tests.support.object_store import CREDENTIALS, fresh_url
    from trajlake.ingest.stores.object_client import ObjectClient
    from trajlake.ingest.stores.object_lease import CLOCK_STEP_S, ObjectLeaseStore
    from trajlake.ingest.stores.object_mail import ObjectArbiter, ObjectMailStore
    from trajlake.ingest.stores.object_replica import ObjectReplica

    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        client = ObjectClient(fresh_url())
        yield Backend(
            leases=lambda: ObjectLeaseStore(client),
            mail=lambda: ObjectMailStore(client),
            arbiter=lambda: ObjectArbiter(client),
            replica=lambda: ObjectReplica(client),
            clock_step_s=CLOCK_STEP_S,
        )


BACKENDS: dict[str, Callable[[Path], Iterator[Backend]]] = {
    "file": file_backend,
    "postgres": postgres_backend,
    "s3": object_backend,
}
MARKS = {"postgres": [pytest.mark.postgres], "s3": [pytest.mark.s3]}


PARAMETERS = {name: pytest.param(name, marks=MARKS.get(name, [])) for name in sorted(BACKENDS)}


@pytest.fixture(params=PARAMETERS.values())
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    yield from BACKENDS[request.param](tmp_path)


@pytest.fixture(params=[PARAMETERS[name] for name in PARAMETERS if name != "file"])
def keeper(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """A backend that can be a replica: files in the root are no second place."""
    yield from BACKENDS[request.param](tmp_path)
