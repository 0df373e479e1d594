"""The main bar: 10,000 events of 1 KB from 64 concurrent trajectories; whatever was acknowledged is read back.

Once after SIGKILL of a real process, once in memory with every unsynced byte dropped.
"""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.crash.writing_process import SIZE_BYTES, TRAJECTORIES
from tests.support.bare_writer import plain
from tests.support.events import event_of, info_of
from tests.support.faulty_env import FaultyEnv
from trajlake.runtime.env import Env
from trajlake.runtime.root import Root
from trajlake.runtime.wal.journal_errors import SegmentCorrupt
from trajlake.runtime.wal.reader import iter_events
from trajlake.runtime.wal.writer import Writer

EVENTS_EACH = 157
EVENTS = EVENTS_EACH * TRAJECTORIES
Acknowledged = set[tuple[int, int]]


def check_read_back(env: Env, root: Root, acknowledged: Acknowledged, place: str) -> None:
    """A new process claims every writer (which recovers it), and all that was acknowledged is there, unchanged."""
    found: dict[str, list[int]] = {}
    with root.claim_writer():
        for writer_id in root.writers():
            for event in iter_events(env, root.writer_folder(writer_id)):
                found.setdefault(event.trajectory_id, []).append(event.sequence_number)
                as_written = event_of(event.trajectory_id, event.sequence_number, size=SIZE_BYTES)
                assert plain([event]) == plain([as_written]), place
    for trajectory_id, numbers in found.items():
        assert numbers == list(range(len(numbers))), f"{place}: {trajectory_id} has a gap or a copy"
    missing = [(t, n) for t, n in acknowledged if n >= len(found.get(f"t{t}", ()))]
    assert not missing, f"{place}: {len(missing)} acknowledged events lost, such as {sorted(missing)[:3]}"


def killed_once(tmp_path: Path, seed: int) -> None:
    """Kill a writing process after a random number of acknowledgements, the last lines still in the pipe."""
    pick = random.Random(seed)
    world = pick.choice(["threads", "asyncio"])
    kill_after = pick.randrange(1, EVENTS)
    place = f"seed {seed}: {world}, killed after {kill_after} lines"
    command = [sys.executable, "-m", "tests.crash.writing_process", str(tmp_path), world, str(EVENTS_EACH)]
    lines: list[bytes] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as child:
        assert child.stdout is not None
        for line in child.stdout:
            lines.append(line)
            if len(lines) == kill_after:
                child.send_signal(signal.SIGKILL)
    assert len(lines) >= kill_after, f"{place}: the process ended after {len(lines)} lines"
    acknowledged = {(int(t), int(n)) for t, n in (line.split() for line in lines if line.endswith(b"\n"))}
    root = Root.open(tmp_path, create=False)
    check_read_back(root.env, root, acknowledged, place)


@pytest.mark.parametrize("seed", range(20))
def test_what_a_killed_process_acknowledged_is_read_back(tmp_path: Path, seed: int) -> None:
    killed_once(tmp_path, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1180))
def test_what_a_killed_process_acknowledged_is_read_back_200_times(tmp_path: Path, seed: int) -> None:
    killed_once(tmp_path, seed)


class InMemory:
    """64 trajectories on a machine in memory; at one random call the power goes, on a copy."""

    def __init__(self, seed: int, *, sync_works: bool = True) -> None:
        self.pick = random.Random(seed)
        self.env = FaultyEnv(seed, sync_works=sync_works)
        self.acknowledged: list[tuple[int, int]] = []
        self.image: FaultyEnv | None = None
        self.acknowledged_then: Acknowledged = set()
        # 64 callers make some 160 to 600 barriers; a moment that never comes is taken at the end.
        self.moment = self.pick.randrange(20, 260)

    def look(self, _operation: str, _path: str) -> None:
        if self.image is None and self.env.calls >= self.moment:
            self.take()

    def take(self) -> None:
        # First the list, then the image: what was acknowledged by now must be in what is durable now.
        self.acknowledged_then = set(self.acknowledged)
        self.image = self.env.crash_image(None)

    def run(self) -> None:
        self.env.before = self.look
        writer = Root.open("/journal", self.env).claim_writer()
        if self.pick.random() < 0.5:
            asyncio.run(self.tasks(writer))
        else:
            threads = [threading.Thread(target=self.thread, args=(writer, t)) for t in range(TRAJECTORIES)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if self.image is None:
            self.take()
        writer.close()

    def thread(self, writer: Writer, trajectory: int) -> None:
        for number in range(EVENTS_EACH):
            event = event_of(f"t{trajectory}", number, size=SIZE_BYTES)
            writer.append([event], info_of(f"t{trajectory}")).wait()
            self.acknowledged.append((trajectory, number))

    async def tasks(self, writer: Writer) -> None:
        await asyncio.gather(*(self.task(writer, trajectory) for trajectory in range(TRAJECTORIES)))

    async def task(self, writer: Writer, trajectory: int) -> None:
        info = info_of(f"t{trajectory}")
        for number in range(EVENTS_EACH):
            await writer.append([event_of(f"t{trajectory}", number, size=SIZE_BYTES)], info)
            self.acknowledged.append((trajectory, number))


def power_lost_once(seed: int, *, sync_works: bool = True) -> None:
    machine = InMemory(seed, sync_works=sync_works)
    machine.run()
    assert machine.image is not None
    root = Root.open("/journal", machine.image)
    check_read_back(machine.image, root, machine.acknowledged_then, f"seed {seed}, call {machine.moment}")


@pytest.mark.parametrize("seed", range(20))
def test_what_was_acknowledged_survives_the_loss_of_every_unsynced_byte(seed: int) -> None:
    power_lost_once(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1180))
def test_what_was_acknowledged_survives_the_loss_of_every_unsynced_byte_200_times(seed: int) -> None:
    power_lost_once(seed)


@pytest.mark.parametrize("seed", range(2))
def test_without_the_barrier_what_was_acknowledged_is_lost(seed: int) -> None:
    with pytest.raises((AssertionError, SegmentCorrupt)):
        power_lost_once(seed, sync_works=False)
