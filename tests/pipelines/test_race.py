"""Two launchers, killed at random, over a landing that grows: every snapshot agrees with itself and nothing doubles."""

from __future__ import annotations

import itertools
import random
import signal
from pathlib import Path

import pytest

from tests.pipelines.lakes import everything, rows
from tests.pipelines.racing import Job, at_once
from tests.pipelines.segments import Landed, Story, land
from trajlake.pipelines.compaction.compact import compact
from trajlake.pipelines.lakehouse.commit import transaction_of
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.snapshot import read_run
from trajlake.schemas.tables import SNAPSHOT_TABLES


def parts_of(seed: int) -> list[tuple[bytes, int, list[Landed]]]:
    """Return segments of two writers: take-overs that supersede a tail, copies, trajectories over both."""
    rng = random.Random(seed)
    first = [Story(f"t{n}", tenant=f"x{n % 2}").start().say("a", 8) for n in range(3)]
    second = [story.takeover(3 + n, 2).say("b", 5).end() for n, story in enumerate(first)]
    early = [item for story in first for item in story.landed]
    late = [item for n, story in enumerate(second) for item in story.landed[rng.randrange(2, 5 + n) :]]
    parts = []
    for writer, items in ((b"a" * 16, early), (b"b" * 16, late)):
        cuts = sorted({0, len(items), *rng.sample(range(1, len(items)), 3)})
        parts += [(writer, a, items[a:b]) for a, b in itertools.pairwise(cuts)]
    return parts


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", range(3))
def test_racing_and_dying_launchers_end_with_the_rows_of_one_quiet_run(tmp_path: Path, seed: int) -> None:
    rng, parts = random.Random(seed), parts_of(seed)
    for part in parts:
        land(tmp_path / "quiet-landing", *part)
    compact(str(tmp_path / "quiet-landing"), str(tmp_path / "quiet"))
    landing, lake = tmp_path / "landing", tmp_path / "lake"
    rng.shuffle(parts)
    kills = 0
    while parts:
        for _ in range(rng.randint(1, 3)):
            if parts:
                land(landing, *parts.pop())
        jobs = [
            Job(str(landing), str(lake), rng.random(), rng.choice([0, rng.randint(1, 30)]), ("compact", "compact"))
            for _ in range(2)
        ]
        codes = at_once(*jobs)
        assert set(codes) <= {0, -signal.SIGKILL}, (seed, codes)
        kills += codes.count(-signal.SIGKILL)
    compact(str(landing), str(lake))
    print("seed", seed, "kills", kills)
    wanted = everything(tmp_path / "quiet")
    found = everything(lake)
    for table in SNAPSHOT_TABLES:
        # which of two copies came first is the one thing that the order of landing decides
        strip = ("writer", "lsn")
        mine = [{k: v for k, v in row.items() if k not in strip} for row in found[table]]
        assert sorted(map(str, mine)) == sorted(
            str({k: v for k, v in row.items() if k not in strip}) for row in wanted[table]
        ), (seed, table)
    opened = Lake.open(lake)
    numbers = opened.snapshot_numbers()
    assert numbers == list(range(len(numbers)))
    for number in numbers[1:]:
        snapshot = opened.snapshot(number)
        assert read_run(opened.url, snapshot.run).number == number
        assert {transaction_of(opened.handle(n, v)) for n, v in snapshot.tables.items()} == {number}
        events = rows(lake, "events", number)
        key = ["tenant", "trajectory_id", "sequence_number"]
        assert len(events.select(key).unique()) == len(events)
        counted = dict(rows(lake, "trajectories", number).select("trajectory_id", "events").iter_rows())
        assert counted == dict(events.group_by("trajectory_id").len().iter_rows())
