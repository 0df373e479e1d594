"""Launcher, worker, database and object store, killed at random moments of ship, compact, maintain and erase.

After each kill the verb is run again, and lake, landing and warm tier hold what an undisturbed run leaves.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psutil
import psycopg
import pytest

from tests.pipelines.killed_verbs import REFUSED, VERBS, Order, Where, do, forks, obey
from tests.pipelines.lakes import everything
from tests.pipelines.s3_lakes import Bucket
from tests.pipelines.segments import Story
from tests.support.object_store import CREDENTIALS, ObjectStore
from tests.support.postgres import KillableServer, schema_url
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.standing import read_standing
from trajlake.runtime.root import Root
from trajlake.schemas.events import MessageAdded
from trajlake.schemas.tables import SNAPSHOT_TABLES

pytestmark = [pytest.mark.s3, pytest.mark.postgres]

VICTIMS: Final = {
    "ship": ("launcher", "database", "store"),
    "compact": ("launcher", "worker", "store"),
    "maintain": ("launcher", "store"),
    "erase": ("launcher", "database", "store"),
}
"""What each verb has that can die: only a compaction has workers; maintenance and compaction meet no database."""

NIGHTS: Final = 3


class World:
    """A root, and what is made of it twice: on servers that are killed, and on a disk and a server that are not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, home: Path, seed: int, quiet_warm: str) -> None:
        self.home, self.chance = home, random.Random(seed)
        (home / "store").mkdir()
        self.store, self.database = ObjectStore(home / "store"), KillableServer()
        self.store.start()
        self.bucket = Bucket(monkeypatch, home / "staging", self.store.endpoint)
        reached = {"AWS_ENDPOINT_URL": self.store.endpoint, "TRAJLAKE_STAGING": str(home / "staging"), **CREDENTIALS}
        self.root = Root.open(str(home / "journal"))
        self.struck = Where(
            self.root.path, self.bucket.landing, self.bucket.lake, self.database.url, tuple(reached.items())
        )
        self.quiet = Where(self.root.path, str(home / "landing"), str(home / "lake"), quiet_warm)
        self.long = Story("long").start()
        self.written = 0

    def close(self) -> None:
        self.store.kill()
        self.database.close()

    def write(self, night: int) -> None:
        """One trajectory that is to be erased, one that stays, more of one that goes on; two of them show a picture."""
        asked, kept = (Story(f"n{night}-{name}").start().say(f"night {night}", 4) for name in ("asked", "kept"))
        self.long.say(f"night {night}", 3)
        for story in (asked, kept):
            data = f"{story.info.trajectory_id} looks like this".encode() * 3000
            shown = {"$blob": self.root.blobs.put("t", data), "bytes": len(data), "kind": "bytes"}
            story.add(MessageAdded(role="user", wire={"role": "user", "content": shown}, item_hash="0" * 64))
        news = [asked.end().landed, kept.end().landed, self.long.landed[self.written :]]
        self.written = len(self.long.landed)
        for landed in news:
            writer = self.root.claim_writer()
            writer.append([event for event, _ in landed], landed[0].info).wait(60)
            writer.close()

    def kill_once(self, verb: str, victim: str, night: int) -> int:
        """Do the verb undisturbed, then with a kill and once more; return how the process ended that met the kill."""
        erased = f"n{night}-asked"
        steps: list[str] = []
        do(Order(verb, self.quiet, erased), lambda *_: steps.append(""))
        mark, waits = str(self.home / "mark"), self.chance.random() < 0.5
        halts_at = 0 if victim == "worker" else self.chance.randint(1, len(steps))
        pid = forks().start(obey, Order(verb, self.struck, erased, halts_at, mark, waits, victim == "worker"))
        self._strike(victim, pid, mark)
        ended = forks().wait(pid)
        assert ended in (0, REFUSED, -signal.SIGKILL), ended
        again = [forks().wait(forks().start(obey, Order(verb, self.struck, erased)))]
        while again[-1] == REFUSED and len(again) < 5:
            again.append(forks().wait(forks().start(obey, Order(verb, self.struck, erased))))
        assert again[-1] == 0, again
        return ended

    def _strike(self, victim: str, pid: int, mark: str) -> None:
        if victim == "worker":
            self._strike_worker(pid)
            return
        while not os.path.exists(mark) and is_running(pid):
            time.sleep(0.002)
        time.sleep(self.chance.random() * 0.03)
        if victim == "launcher":
            os.kill(pid, signal.SIGKILL)
        elif victim == "database":
            self.database.restart()
        else:
            self.store.kill()
        Path(mark).unlink(missing_ok=True)
        if victim == "store":
            self.store.start()

    def _strike_worker(self, pid: int) -> None:
        """Kill one worker a moment after it is there."""
        workers: list[psutil.Process] = []
        while is_running(pid) and not workers:
            time.sleep(0.01)
            workers = [one for one in psutil.Process(pid).children(recursive=True) if one.name().startswith("python")]
        time.sleep(self.chance.random() * 3)
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):
            self.chance.choice(workers).kill()

    def compare(self, what: object) -> None:
        """What was struck holds the rows, the landed objects and the warm rows of what was not."""
        if os.path.exists(self.quiet.lake):
            assert rows_of(self.struck.lake) == rows_of(self.quiet.lake), what
        assert warm_rows(self.struck.warm) == warm_rows(self.quiet.warm), what
        landed = {path.relative_to(self.quiet.landing).as_posix() for path in Path(self.quiet.landing).rglob("*")
                  if path.is_file()}  # fmt: skip
        assert {key for key in self.bucket.keys("landing") if "probe" not in key} == landed, what

    def check_end(self) -> None:
        """Every erasure is complete, and the store holds no data file that no snapshot names."""
        for _ in range(2):
            assert forks().wait(forks().start(obey, Order("maintain", self.struck, ""))) == 0
        lake = Lake.open(self.struck.lake)
        states = {one.trajectory_id: one.state for one in read_standing(lake).erasures}
        assert states == {f"n{night}-asked": "complete" for night in range(NIGHTS)}
        named = {f"{table}/{file.relative}" for number in lake.snapshot_numbers() for table in SNAPSHOT_TABLES
                 for file in lake.files(lake.snapshot(number), table)}  # fmt: skip
        stored = {key for key in self.bucket.keys("lake") if key.endswith(".parquet") and "_delta_log" not in key}
        assert {key for key in stored if key.split("/")[0] in SNAPSHOT_TABLES} == named


def is_running(pid: int) -> bool:
    return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def rows_of(lake: str) -> dict[str, list[dict[str, Any]]]:
    """Every row; of an erasure's number only that there is one, for a process that died may have asked twice."""
    found = everything(lake)
    for row in found["trajectories"]:
        row["erasure_epoch"] = row["erasure_epoch"] and 1
    return found


def warm_rows(url: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        held = connection.execute("select * from trajectory_events order by writer, lsn").fetchall()
        shown = connection.execute(
            "select trajectory_id, sequence_number, cryptographic_hash, payload from events order by 1, 2"
        )
        return [held, shown.fetchall()]


def victims_of(chance: random.Random) -> Iterator[tuple[int, str, str]]:
    """Yield (night, verb, victim): over the nights every verb meets every victim that it has."""
    turns = {}
    for verb, victims in VICTIMS.items():
        more = [chance.choice(victims) for _ in range(NIGHTS - len(victims))]
        turns[verb] = chance.sample([*victims, *more], NIGHTS)
    for night in range(NIGHTS):
        for verb in VERBS:
            yield night, verb, turns[verb][night]


def fight(monkeypatch: pytest.MonkeyPatch, home: Path, seed: int) -> None:
    with schema_url() as quiet_warm:
        world = World(monkeypatch, home, seed, quiet_warm)
        try:
            for night, verb, victim in victims_of(world.chance):
                if verb == "ship":
                    world.write(night)
                began = time.monotonic()
                ended = world.kill_once(verb, victim, night)
                took = f"{time.monotonic() - began:.1f} s"
                print(f"seed {seed}, night {night}: {verb}, {victim} killed, ended {ended}, {took}")
                world.compare((seed, night, verb, victim))
            world.check_end()
        finally:
            world.close()


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(2))
def test_two_dozen_kills_leave_what_undisturbed_runs_leave(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    fight(monkeypatch, tmp_path, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 117))
def test_two_hundred_kills_leave_what_undisturbed_runs_leave(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    fight(monkeypatch, tmp_path, seed)
