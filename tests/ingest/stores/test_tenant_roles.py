"""A database role of one tenant: its agents lease, post and replicate; another tenant does not exist for it."""

from __future__ import annotations

import pytest

from tests.support.events import event_of, info_of
from trajlake.ingest.stores.postgres_database import Database
from trajlake.ingest.stores.postgres_lease import PostgresLeaseStore
from trajlake.ingest.stores.postgres_mail import PostgresArbiter, PostgresMailStore
from trajlake.ingest.stores.postgres_replica import PostgresReplica
from trajlake.ingest.stores.store_errors import StoreRefused
from trajlake.runtime.leases.lease import Claim
from trajlake.runtime.mailbox.mail import MailItem
from trajlake.runtime.replicas.replica import frames_of

pytestmark = pytest.mark.postgres


@pytest.fixture
def agents(warm):
    """The database as the role of tenant acme sees it, allowed to write."""
    Database(warm.url).run(lambda c: None)
    role = "agents_" + warm.value("select current_schema()")
    warm._connection.execute(f"create role {role}")
    warm.value(f"select add_tenant_role('{role}', 'acme', true)")
    database = Database(f"{warm.url}%20-crole%3D{role}")
    yield database
    database.close()
    warm._connection.execute(f"drop owned by {role}; drop role {role}")


def claim(tenant: str) -> Claim:
    return Claim(tenant=tenant, trajectory_id="t", worker="w", writer="w0", host="h")


def frames(tenant: str):
    return frames_of([event_of("t", number, tenant=tenant) for number in range(3)], range(3), info_of("t", tenant))


def test_its_own_tenant_is_served_in_full(agents):
    store = PostgresLeaseStore(agents)
    lease = store.extend(store.acquire(claim("acme"), 1, expected=None))
    store.release(lease)
    item = MailItem(id="m", tenant="acme", trajectory_id="t", kind="cancel")
    assert PostgresMailStore(agents).post(item)
    assert PostgresMailStore(agents).waiting("acme", "t") == [item]
    PostgresMailStore(agents).delete(item)
    assert PostgresArbiter(agents).create("ab" * 16, 0, b"{}")
    replica = PostgresReplica(agents)
    assert replica.append("ab" * 16, frames("acme")) == 2
    assert replica.append("ab" * 16, frames("acme")) == 2
    assert len(replica.read("acme", "t")) == 3


def test_another_tenant_is_refused_whatever_is_asked(agents, warm):
    other = Database(warm.url)
    PostgresReplica(other).append("cd" * 16, frames("umbra"))
    PostgresLeaseStore(other).acquire(claim("umbra"), 1, expected=None)
    assert PostgresLeaseStore(agents).read("umbra", "t") is None
    assert list(PostgresLeaseStore(agents).records()) == []
    assert PostgresReplica(agents).read("umbra", "t") == []
    for use in (
        lambda: PostgresLeaseStore(agents).acquire(claim("umbra2"), 1, expected=None),
        lambda: PostgresMailStore(agents).post(MailItem(id="m", tenant="umbra", trajectory_id="t", kind="cancel")),
        lambda: PostgresReplica(agents).append("ab" * 16, frames("umbra2")),
    ):
        with pytest.raises(StoreRefused, match="row-level security"):
            use()
