"""The object store is killed while agents lease and replicate: what it acknowledged is there when it comes back."""

from __future__ import annotations

import random
import threading
import time

import pytest

from tests.support.events import event_of, info_of
from tests.support.object_store import BUCKET, CREDENTIALS, ObjectStore
from trajlake.ingest.stores.object_client import ObjectClient
from trajlake.ingest.stores.object_lease import ObjectLeaseStore
from trajlake.ingest.stores.object_mail import ObjectArbiter
from trajlake.ingest.stores.object_replica import ObjectReplica
from trajlake.runtime.lease import Claim, take_lease
from trajlake.runtime.replica import frames_of
from trajlake.schemas.ids import trajectory_key

pytestmark = [pytest.mark.s3, pytest.mark.soak]


@pytest.mark.parametrize("seed", range(2))
def test_acknowledged_frames_and_tokens_outlive_a_killed_server(tmp_path, monkeypatch, seed):
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    chance = random.Random(seed)
    server = ObjectStore(tmp_path)
    server.start()
    url = f"s3://{BUCKET}/kills?endpoint_url={server.endpoint}"
    stop, tokens, acknowledged = threading.Event(), [], [0]

    def lease() -> None:
        client = ObjectClient(url, patience_s=90)
        store, arbiter = ObjectLeaseStore(client), ObjectArbiter(client)
        claim = Claim(tenant="default", trajectory_id="t", worker="w", writer="w0", host="h")
        while not stop.is_set():
            taken, _ = take_lease(store, arbiter, claim, trajectory_key("default", "t").hex())
            tokens.append(taken.token)
            store.release(taken)

    def replicate() -> None:
        replica = ObjectReplica(ObjectClient(url, patience_s=90))
        while not stop.is_set():
            first = acknowledged[0]
            events = [event_of("r", first + place) for place in range(3)]
            replica.append("ab" * 16, frames_of(events, range(first, first + 3), info_of("r")))
            acknowledged[0] = first + 3

    threads = [threading.Thread(target=work) for work in (lease, replicate)]
    try:
        for thread in threads:
            thread.start()
        for _ in range(3):
            time.sleep(1 + chance.random() * 2)
            server.kill()
            server.start()
        time.sleep(2)
        stop.set()
        for thread in threads:
            thread.join()
        client = ObjectClient(url)
        held = {frame.header.sequence_number for frame in ObjectReplica(client).read("default", "r")}
        assert set(range(acknowledged[0])) <= held, f"seed {seed}"
        record = ObjectLeaseStore(client).read("default", "t")
        assert len(tokens) == len(set(tokens)) > 5, f"seed {seed}"
        assert set(tokens) <= {tenure.token for tenure in record.tenures}, f"seed {seed}"
    finally:
        stop.set()
        server.kill()
