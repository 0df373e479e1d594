"""Random lossy take-overs on one lease store: whatever lands in whatever order, nothing acknowledged is lost.

Workers write into queues of their own; a queue reaches the disk in its order, when chance will. A worker whose
lease has passed to another does not know it, and goes on writing. Failures name the seed.
"""

from __future__ import annotations

import random

import pytest

from tests.schemas.logs import TENANT, TRAJECTORY, event
from trajlake.schemas import events as e
from trajlake.schemas.chain import genesis, verify
from trajlake.schemas.envelope import Event
from trajlake.schemas.history import canonical

GENESIS = genesis(TENANT, TRAJECTORY)


class Worker:
    def __init__(self, name: int) -> None:
        self.name = name
        self.token = 0
        self.history: list[Event] = []
        self.queue: list[Event] = []

    def write(self, body: e.Payload) -> None:
        prev = self.history[-1].hash if self.history else GENESIS
        made = event(body, len(self.history), self.token, prev, 0)
        self.history.append(made)
        self.queue.append(made)


class World:
    """A lease store, a disk, and a few workers that may be paused at any point."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.workers = [Worker(name) for name in range(3)]
        self.tokens = 0
        self.holder: Worker | None = None
        self.disk: list[Event] = []
        self.acknowledged: list[list[Event]] = []
        self.paused: list[Worker] = []
        for _ in range(self.random.randint(20, 120)):
            self.step()

    def step(self) -> None:
        worker = self.random.choice(self.workers)
        if self.holder is not None and self.random.random() < 0.5:
            worker = self.holder
        chance = self.random.random()
        if chance < 0.08:
            self.holder = None  # the lease expires; nobody tells its holder
        elif chance < 0.35:
            self.acquire(worker)
        elif chance < 0.65:
            if worker.token:
                worker.write(e.InputRead(kind="now", value=[worker.name, self.random.random()]))
        elif chance < 0.8:
            self.flush(worker, self.random.randint(0, 3))
        elif chance < 0.85 and self.paused:
            self.flush(self.random.choice(self.paused), 2)
        else:
            self.acknowledge(worker)

    def acquire(self, worker: Worker) -> None:
        if self.holder is not None:
            return
        self.holder = worker
        self.tokens += 1
        # What waits in an earlier queue of the same worker still reaches the disk some day.
        left = Worker(-1)
        left.queue, worker.queue = worker.queue, []
        self.paused.append(left)
        worker.token, worker.history = self.tokens, list(canonical(self.disk).events)
        if not worker.history:
            worker.write(e.TaskStarted(task="x"))
            return
        last = worker.history[-1]
        worker.write(
            e.LeaseAcquired(
                token=worker.token,
                after_token=last.fencing_token,
                after_sequence=last.sequence_number,
                after_hash=last.hash.hex(),
            )
        )

    def flush(self, worker: Worker, count: int) -> None:
        self.disk += worker.queue[:count]
        del worker.queue[:count]

    def acknowledge(self, worker: Worker) -> None:
        """The barrier, and the lease check after it."""
        self.flush(worker, len(worker.queue))
        if worker is self.holder:
            self.acknowledged.append(list(worker.history))

    def drain(self) -> None:
        everybody = self.workers + self.paused
        for worker in self.random.sample(everybody, len(everybody)):
            self.flush(worker, len(worker.queue))


def check(seed: int) -> tuple[int, int]:
    world = World(seed)
    for drained in (False, True):
        if drained:
            world.drain()
        found = canonical(world.random.sample(world.disk, len(world.disk)))
        for history in world.acknowledged:
            assert found.events[: len(history)] == history, f"seed {seed}: acknowledged history lost"
        assert verify(found.events, GENESIS if found.events else None) == [], f"seed {seed}"
        assert found.conflicts == [], f"seed {seed}"
        in_all = len(found.events) + len(found.superseded) + len(found.held_back)
        assert in_all == len(world.disk), f"seed {seed}: an event is in no list, or in two"
    landings(world, seed)
    return len(world.acknowledged), len(canonical(world.disk).superseded)


def landings(world: World, seed: int) -> None:
    """Any subset, in any order, with copies: chain-valid, and the same answer for every order."""
    for _ in range(4):
        subset = [one for one in world.disk if world.random.random() < 0.8]
        shuffled = world.random.sample(subset, len(subset)) + world.random.sample(subset, len(subset) // 3)
        world.random.shuffle(shuffled)
        one, other = canonical(subset), canonical(shuffled)
        assert verify(one.events, GENESIS if one.events else None) == [], f"seed {seed}: partial landing"
        for name in ("events", "superseded", "held_back", "conflicts", "openings", "line"):
            assert getattr(one, name) == getattr(other, name), f"seed {seed}: {name} depends on the order"
        assert other.duplicates == len(shuffled) - len(subset), f"seed {seed}"
        split = world.random.randint(0, len(one.events))
        known = [opening for opening in one.line if opening.start < split]
        tail = [landed for landed in subset if landed.sequence_number >= split]
        resumed = canonical(tail, known, after=split - 1)
        assert not resumed.rewound, f"seed {seed}"
        assert one.events[:split] + resumed.events == one.events, f"seed {seed}: onto the first {split}"


def test_acknowledged_history_is_never_lost_under_random_lossy_take_overs():
    found = [check(seed) for seed in range(300)]
    assert sum(acknowledged for acknowledged, _ in found) > 300
    assert sum(superseded for _, superseded in found) > 300


@pytest.mark.long
def test_acknowledged_history_is_never_lost_in_many_more_take_overs():
    for seed in range(1_000, 9_000):
        check(seed)
