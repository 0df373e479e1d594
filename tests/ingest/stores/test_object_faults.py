"""Object storage on a bad day: errors, slowness, cut connections, lost answers, expired credentials."""

from __future__ import annotations

import contextlib
import random
import threading
import time

import pytest

from tests.support.events import event_of, info_of
from tests.support.faulty_proxy import FaultyProxy, faulty
from tests.support.object_store import CREDENTIALS, fresh_url, shared_endpoint
from trajlake.ingest.stores.object_client import ObjectClient
from trajlake.ingest.stores.object_lease import ObjectLeaseStore
from trajlake.ingest.stores.object_mail import ObjectArbiter, ObjectMailStore
from trajlake.ingest.stores.object_replica import ObjectReplica
from trajlake.ingest.stores.store_errors import StoreRefused, StoreUnreachable
from trajlake.runtime.leases.generations import take_generation
from trajlake.runtime.leases.lease import Claim, LeaseBusy, LeaseLost, take_lease
from trajlake.runtime.mailbox.mail import MailItem
from trajlake.runtime.replicas.replica import frames_of
from trajlake.schemas.ids import trajectory_key

pytestmark = pytest.mark.s3
PASSING = ("error500", "slow", "cut_upload", "cut_answer", "lost_answer")


@pytest.fixture(autouse=True)
def credentials(monkeypatch):
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


def claim(worker: str) -> Claim:
    return Claim(tenant="default", trajectory_id="t", worker=worker, writer=f"{worker}0", host="h")


@pytest.mark.parametrize("fault", PASSING)
def test_one_fault_on_the_way_changes_no_outcome(fault):
    """Each request that changes something meets the fault once, and is carried out exactly once for all that."""
    met: set[tuple[str, str]] = set()

    def once(method: str, path: str) -> str | None:
        place = (method, path.partition("?")[0])
        if method == "HEAD" or place in met or "probe/" in path:
            return None
        met.add(place)
        return fault

    with faulty(shared_endpoint(), once) as proxy:
        client = ObjectClient(fresh_url(proxy.endpoint))
        assert client.put_if_absent("a", b"mine") is not None
        assert client.put_if_absent("a", b"other") is None
        found = client.get("a")
        assert found is not None
        assert found.data == b"mine"
        assert client.put_if_match("a", b"next", found.etag) is not None
        assert client.put_if_match("a", b"late", found.etag) is None
        assert [one.key for one in client.list("")] == ["a"]
        client.delete("a")
        assert client.get("a") is None
        assert proxy.counts[fault] >= 3


@pytest.mark.long
def test_random_faults_do_not_give_a_lease_or_a_generation_to_two_workers():
    seed = random.randrange(2**30)
    chance = random.Random(seed)

    def often(method: str, path: str) -> str | None:
        return chance.choice(PASSING) if chance.random() < 0.15 and "probe/" not in path else None

    with faulty(shared_endpoint(), often) as proxy:
        proxy.slow_s = 0.05
        url = fresh_url(proxy.endpoint)
        tokens: list[int] = []
        generations: list[int] = []

        def work(name: str) -> None:
            client = ObjectClient(url)
            store, arbiter = ObjectLeaseStore(client), ObjectArbiter(client)
            for _ in range(3):
                generations.append(take_generation(arbiter, "cd" * 16, 0, b"{}\n"))
            taken = 0
            ends = time.monotonic() + 60
            while taken < 3 and time.monotonic() < ends:
                try:
                    lease, _ = take_lease(store, arbiter, claim(name), trajectory_key("default", "t").hex())
                except LeaseBusy:
                    time.sleep(0.01)
                    continue
                tokens.append(lease.token)
                lease = store.extend(lease, 30)
                with contextlib.suppress(LeaseLost):  # the answer got lost, the next worker was quicker
                    store.release(lease)
                taken += 1

        threads = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(tokens) == len(set(tokens)) == 12, f"seed {seed}: {sorted(tokens)}"
    assert tokens == sorted(tokens), f"seed {seed}"
    assert len(generations) == len(set(generations)), f"seed {seed}"


def test_a_server_that_ignores_conditions_is_refused_before_anything_is_written():
    with faulty(shared_endpoint(), lambda method, path: "unconditional" if method == "PUT" else None) as proxy:
        client = ObjectClient(fresh_url(proxy.endpoint))
        item = MailItem(id="m", tenant="default", trajectory_id="t", kind="cancel")
        for use in (
            lambda: ObjectLeaseStore(client).acquire(claim("a"), 1, expected=None),
            lambda: ObjectMailStore(client).post(item),
            lambda: ObjectArbiter(client).create("ab", 0, b"{}"),
        ):
            with pytest.raises(StoreRefused, match="conditional"):
                use()
        assert list(client.list("")) == []


def test_expired_credentials_are_named_at_once_and_fresh_ones_are_found():
    expired = threading.Event()
    expired.set()
    with faulty(shared_endpoint(), lambda *_: "expired" if expired.is_set() else None) as proxy:
        client = ObjectClient(fresh_url(proxy.endpoint))
        started = time.monotonic()
        with pytest.raises(StoreRefused, match="expired: renew"):
            client.put("a", b"1")
        assert time.monotonic() - started < 3
        expired.clear()
        client.put("a", b"1")


def test_a_server_that_stays_away_is_unknown_within_our_patience():
    proxy = FaultyProxy(shared_endpoint())
    url = fresh_url(proxy.endpoint)
    proxy.close()
    started = time.monotonic()
    with pytest.raises(StoreUnreachable):
        ObjectClient(url, patience_s=1.0).get("a")
    assert time.monotonic() - started < 5


def test_a_replica_whose_upload_is_cut_never_shows_half_a_tail():
    cuts = iter(["cut_upload"] * 2 + ["lost_answer"] * 2)

    def some(method: str, path: str) -> str | None:
        return next(cuts, None) if method == "PUT" else None

    frames = frames_of([event_of("t", number, size=20_000) for number in range(40)], range(40), info_of("t"))
    with faulty(shared_endpoint(), some) as proxy:
        replica = ObjectReplica(ObjectClient(fresh_url(proxy.endpoint)))
        assert replica.append("ab" * 16, frames) == 39
        assert proxy.counts == {"cut_upload": 2, "lost_answer": 2}
        assert [frame.payload for frame in replica.read("default", "t")] == [frame.payload for frame in frames]
