"""Worker processes that fight over a few trajectories while they are killed and stopped at random moments."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trajlake.runtime.leases.file_lease import FileLeaseStore

WORKER = """
import fcntl, os, random, sys
from trajlake.runtime.leases.file_arbiter import FileArbiter
from trajlake.runtime.leases.file_lease import FileLeaseStore
from trajlake.runtime.leases.lease import Claim, Head, LeaseBusy, LeaseError, LeaseLost, take_lease
from trajlake.schemas.ids import trajectory_key
root, writer, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.makedirs(f"{root}/writers/{writer}", exist_ok=True)
lock = os.open(f"{root}/writers/{writer}/LOCK", os.O_CREAT | os.O_RDWR)
fcntl.flock(lock, fcntl.LOCK_EX)
chance, store, arbiter = random.Random(seed), FileLeaseStore(root), FileArbiter(root)
log = os.open(f"{root}/log", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
while True:
    name = f"t{chance.randrange(3)}"
    claim = Claim(tenant="default", trajectory_id=name, worker=f"{writer}:{seed}", writer=writer, host="h")
    try:
        lease, _ = take_lease(store, arbiter, claim, trajectory_key("default", name).hex(), duration_s=0.5)
        os.write(log, f"{name} {lease.token}\\n".encode())
        for _ in range(chance.randrange(4)):
            lease = store.extend(lease, 0.5)
        if chance.random() < 0.7:
            store.release(lease, Head(0, "") if chance.random() < 0.5 else None)
    except (LeaseBusy, LeaseLost, LeaseError):
        pass
"""


def fight(root: Path, seed: int, seconds: float) -> None:
    """Run five workers, killing and stopping them; say the seed where a token was given twice."""
    chance = random.Random(seed)
    root.mkdir()

    def start(number: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", WORKER, str(root), f"{number:032x}", str(chance.randrange(2**30))]
        )

    workers = [start(number) for number in range(5)]
    stopped: set[int] = set()
    ends = time.monotonic() + seconds
    try:
        while time.monotonic() < ends:
            time.sleep(chance.random() * 0.2)
            number = chance.randrange(5)
            if chance.random() < 0.5:
                workers[number].kill()
                workers[number].wait()
                stopped.discard(number)
                workers[number] = start(number)
            else:
                os.kill(workers[number].pid, signal.SIGCONT if number in stopped else signal.SIGSTOP)
                stopped ^= {number}
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    lines = (root / "log").read_text().splitlines()
    assert len(lines) > 20, f"seed {seed}: the workers hardly worked"
    assert len(lines) == len(set(lines)), f"seed {seed}: a token was given twice"
    for record in FileLeaseStore(str(root)).records():
        tokens = [tenure.token for tenure in record.tenures]
        assert tokens == sorted(set(tokens)), f"seed {seed}"
        told = {int(line.split()[1]) for line in lines if line.startswith(f"{record.trajectory_id} ")}
        assert told <= set(tokens), f"seed {seed}: a lease that was told of is not in the record"
        assert record.free_in_s == 0, f"seed {seed}: a dead worker still holds {record.trajectory_id}"


def test_no_token_is_given_twice_and_no_lease_outlives_its_worker(tmp_path):
    fight(tmp_path / "root", seed=random.randrange(2**30), seconds=4)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_the_same_for_eight_fights(tmp_path, seed):
    fight(tmp_path / "root", seed=seed, seconds=15)
