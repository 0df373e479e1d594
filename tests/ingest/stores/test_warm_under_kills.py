"""The shipper and the database are killed at random while agents write: the warm tier ends up as the journals say."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg
import pytest

from tests.ingest.stores.histories import History, info
from tests.support.postgres import KillableServer
from trajlake.ingest.stores.postgres_database import Database
from trajlake.ingest.stores.postgres_warm import PostgresWarmTier
from trajlake.ingest.warm import WarmShipper
from trajlake.runtime.root import Root
from trajlake.runtime.wal.reader import iter_events
from trajlake.schemas.history import canonical

pytestmark = pytest.mark.postgres


class Agents(threading.Thread):
    """Writes trajectories until told to stop: some are taken over, by a worker in another writer."""

    def __init__(self, root: Root, seed: int) -> None:
        super().__init__()
        self.root, self.chance, self.stop = root, random.Random(seed), threading.Event()

    def run(self) -> None:
        writers = [self.root.claim_writer() for _ in range(2)]
        lives = [History(f"t{number}") for number in range(6)]
        for history in lives:
            history.start()
            writers[0].append(history.events, info(history.info.trajectory_id))
        places = [0] * len(lives)
        while not self.stop.is_set():
            at = self.chance.randrange(len(lives))
            history = lives[at]
            if self.chance.random() < 0.03:
                # The old worker may be behind what it wrote last: the successor goes on from an earlier event.
                after = history.events[-self.chance.randrange(1, min(4, len(history.events) + 1))]
                history = lives[at] = history.then(history.token + 1, after)
                places[at] ^= 1
                new = history.events
            else:
                new = history.say(self.chance.randrange(1, 4))
            ticket = writers[places[at]].append(new, info(history.info.trajectory_id))
            if self.chance.random() < 0.3:
                ticket.wait()
            time.sleep(self.chance.random() * 0.004)
        for writer in writers:
            writer.close()


def fight(folder: Path, seed: int, kills: int) -> None:
    chance = random.Random(seed)
    root = Root.open(str(folder / "journal"))
    server = KillableServer()
    agents = Agents(root, seed)
    agents.start()

    def ship() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "trajlake.runtime", "ship", root.path, "--warm", server.url, "--follow"]
        return subprocess.Popen(command, cwd=folder, env=dict(os.environ), stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)  # fmt: skip

    shipper = ship()
    try:
        for _ in range(kills):
            time.sleep(0.3 + chance.random() * 1.2)
            if chance.random() < 0.5:
                shipper.kill()
                shipper.wait()
                shipper = ship()
            else:
                server.restart()
        assert shipper.poll() is None, f"seed {seed}: the shipper gave up"
    finally:
        agents.stop.set()
        agents.join()
        shipper.kill()
        shipper.wait()
    try:
        WarmShipper(root, PostgresWarmTier(Database(server.url, patience_s=30))).run()
        compare(root, server.url, seed)
    finally:
        server.close()


def compare(root: Root, url: str, seed: int) -> None:
    events = [event for one in root.writers() for event in iter_events(root.env, root.writer_folder(one))]
    assert len(events) > 100, f"seed {seed}: hardly anything was written"
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "select trajectory_id, sequence_number, fencing_token, cryptographic_hash, writer, lsn"
            " from trajectory_events"
        ).fetchall()
        shown = connection.execute("select trajectory_id, sequence_number, cryptographic_hash from events").fetchall()
        counts = connection.execute("select trajectory_id, superseded, held_back from trajectories").fetchall()
    assert sorted(rows) == sorted(
        (event.trajectory_id, event.sequence_number, event.fencing_token, event.hash, event.writer, event.lsn)
        for event in events
    ), f"seed {seed}"
    for name, superseded, held_back in counts:
        expected = canonical(event for event in events if event.trajectory_id == name)
        got = sorted(row[1:] for row in shown if row[0] == name)
        assert got == [(event.sequence_number, event.hash.hex()) for event in expected.events], f"seed {seed}: {name}"
        assert (superseded, held_back) == (len(expected.superseded), len(expected.held_back)), f"seed {seed}: {name}"


@pytest.mark.long
def test_nothing_is_lost_or_doubled_by_a_few_kills(tmp_path):
    fight(tmp_path, seed=random.randrange(2**30), kills=3)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_the_same_for_ten_kills_each(tmp_path, seed):
    fight(tmp_path, seed, kills=10)
