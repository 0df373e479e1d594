"""Leases, mail and the replica while the database is killed: answers are lost, promises are not."""

from __future__ import annotations

import random
import threading
import time

import pytest

from tests.support.events import event_of, info_of
from tests.support.postgres import KillableServer
from trajlake.ingest.stores.postgres_database import Database
from trajlake.ingest.stores.postgres_lease import PostgresLeaseStore
from trajlake.ingest.stores.postgres_mail import PostgresArbiter, PostgresMailStore
from trajlake.ingest.stores.postgres_replica import PostgresReplica
from trajlake.ingest.stores.store_errors import StoreUnreachable
from trajlake.runtime.leases.lease import Claim, LeaseBusy, LeaseLost, take_lease
from trajlake.runtime.mailbox.mail import MailItem
from trajlake.runtime.replicas.replica import frames_of
from trajlake.schemas.ids import trajectory_key

pytestmark = pytest.mark.postgres


class Workers:
    """Threads that take leases, post mail and replicate until told to stop, and note what they were promised."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.stop = threading.Event()
        self.tokens: list[int] = []
        self.posted: list[str] = []
        self.acknowledged: dict[int, int] = {}
        targets = [*(lambda n=n: self.lease(n) for n in range(3)), self.post, lambda: self.replicate(0)]
        self.threads = [threading.Thread(target=one) for one in targets]

    def work_on(self, seed: int) -> None:
        """Wait until each of them has had some answers since now."""
        tokens, posted, frames = len(self.tokens), len(self.posted), self.acknowledged.get(0, 0)
        ends = time.monotonic() + 60
        while len(self.tokens) < tokens + 3 or len(self.posted) < posted + 3 or self.acknowledged.get(0, 0) <= frames:
            assert time.monotonic() < ends, f"seed {seed}: somebody got no answer any more"
            time.sleep(0.05)

    def lease(self, number: int) -> None:
        database = Database(self.url, patience_s=20)
        store, arbiter = PostgresLeaseStore(database), PostgresArbiter(database)
        claim = Claim(tenant="default", trajectory_id="t", worker=f"w{number}", writer=f"{number}", host="h")
        while not self.stop.is_set():
            try:
                lease, _ = take_lease(store, arbiter, claim, trajectory_key("default", "t").hex(), duration_s=1.0)
                self.tokens.append(lease.token)
                store.release(store.extend(lease, 1.0))
            except (LeaseBusy, LeaseLost, StoreUnreachable):
                time.sleep(0.005)

    def post(self) -> None:
        mail, number = PostgresMailStore(Database(self.url, patience_s=20)), 0
        while not self.stop.is_set():
            number += 1
            mail.post(MailItem(id=f"m{number}", tenant="default", trajectory_id="t", kind="cancel"))
            self.posted.append(f"m{number}")

    def replicate(self, number: int) -> None:
        replica, first = PostgresReplica(Database(self.url, patience_s=20)), 0
        while not self.stop.is_set():
            events = [event_of(f"r{number}", first + place) for place in range(3)]
            replica.append("ab" * 16, frames_of(events, range(first, first + 3), info_of(f"r{number}")))
            first += 3
            self.acknowledged[number] = first


def fight(seed: int, kills: int) -> None:
    chance = random.Random(seed)
    server = KillableServer()
    try:
        workers = Workers(server.url)
        for thread in workers.threads:
            thread.start()
        for _ in range(kills):
            workers.work_on(seed)
            time.sleep(chance.random())
            server.restart()
        workers.work_on(seed)
        workers.stop.set()
        for thread in workers.threads:
            thread.join()
        database = Database(server.url, patience_s=20)
        assert len(workers.tokens) == len(set(workers.tokens)), f"seed {seed}: a token was given twice"
        record = PostgresLeaseStore(database).read("default", "t")
        assert record is not None
        assert set(workers.tokens) <= {tenure.token for tenure in record.tenures}, f"seed {seed}"
        waiting = {item.id for item in PostgresMailStore(database).waiting("default", "t")}
        assert set(workers.posted) <= waiting, f"seed {seed}: acknowledged mail is gone"
        held = {frame.header.sequence_number for frame in PostgresReplica(database).read("default", "r0")}
        assert set(range(workers.acknowledged[0])) <= held, f"seed {seed}: an acknowledged frame is gone"
    finally:
        server.close()


@pytest.mark.long
def test_a_few_kills_break_no_promise():
    fight(random.randrange(2**30), kills=2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_ten_kills_break_none_either(seed):
    fight(seed, kills=10)
