"""The object store is killed while agents lease and replicate: what it acknowledged is there when it comes back.

Kills come by progress, not by the clock: each once both workers have got on since the last, however slow the machine.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.events import event_of, info_of
from tests.support.object_store import BUCKET, CREDENTIALS, START_MAX_S, ObjectStore
from trajlake.ingest.stores.object_client import ObjectClient
from trajlake.ingest.stores.object_lease import ObjectLeaseStore
from trajlake.ingest.stores.object_mail import ObjectArbiter
from trajlake.ingest.stores.object_replica import ObjectReplica
from trajlake.runtime.leases.lease import Claim, take_lease
from trajlake.runtime.replicas.replica import frames_of
from trajlake.schemas.ids import trajectory_key

pytestmark = pytest.mark.s3

PATIENCE_S = START_MAX_S + 60
"""Longer than a server may take to come back: workers wait for it, and a test that hangs still ends."""


class Workers:
    """One takes and releases a lease over and over, one appends frames; both note what was acknowledged."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.tokens: list[int] = []
        self.acknowledged = 0
        self.errors: list[BaseException] = []
        self._stop = threading.Event()
        works = (self._lease, self._replicate)
        self._threads = [threading.Thread(target=self._run, args=(work,), daemon=True) for work in works]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def get_on(self) -> None:
        """Return once both have been acknowledged twice more."""
        tokens, frames = len(self.tokens) + 2, self.acknowledged + 6
        ends_s = time.monotonic() + PATIENCE_S
        while len(self.tokens) < tokens or self.acknowledged < frames:
            assert not self.errors, self.errors
            assert time.monotonic() < ends_s, (len(self.tokens), self.acknowledged)
            time.sleep(0.02)

    def _run(self, work: Callable[[ObjectClient], None]) -> None:
        try:
            client = ObjectClient(self.url, patience_s=PATIENCE_S)
            while not self._stop.is_set():
                work(client)
        except BaseException as error:
            self.errors.append(error)

    def _lease(self, client: ObjectClient) -> None:
        store, arbiter = ObjectLeaseStore(client), ObjectArbiter(client)
        claim = Claim(tenant="default", trajectory_id="t", worker="w", writer="w0", host="h")
        taken, _ = take_lease(store, arbiter, claim, trajectory_key("default", "t").hex())
        self.tokens.append(taken.token)
        store.release(taken)

    def _replicate(self, client: ObjectClient) -> None:
        first = self.acknowledged
        events = [event_of("r", first + place) for place in range(3)]
        ObjectReplica(client).append("ab" * 16, frames_of(events, range(first, first + 3), info_of("r")))
        self.acknowledged = first + 3


def check(folder: Path, seed: int, kills: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    server = ObjectStore(folder)
    server.start()
    workers = Workers(f"s3://{BUCKET}/kills?endpoint_url={server.endpoint}")
    try:
        workers.start()
        for _ in range(kills):
            workers.get_on()
            time.sleep(chance.random() * 0.3)
            server.kill()
            server.start()
        workers.get_on()
        workers.stop()
        assert not workers.errors
        client = ObjectClient(workers.url)
        held = {frame.header.sequence_number for frame in ObjectReplica(client).read("default", "r")}
        assert set(range(workers.acknowledged)) <= held
        record = ObjectLeaseStore(client).read("default", "t")
        assert record is not None
        assert len(workers.tokens) == len(set(workers.tokens))
        assert set(workers.tokens) <= {tenure.token for tenure in record.tenures}
    finally:
        # Where the test failed, a worker may still wait for the server, which is gone: it is not waited for.
        workers._stop.set()
        server.kill()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_acknowledged_frames_and_tokens_outlive_a_killed_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    check(tmp_path, seed=1, kills=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_acknowledged_frames_and_tokens_outlive_a_server_killed_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    check(tmp_path, seed, kills=4)
