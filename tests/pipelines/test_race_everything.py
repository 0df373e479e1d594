"""Two processes at once, killed between any two steps: compaction, maintenance, erasure, holds, pins, over one lake."""

from __future__ import annotations

import itertools
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.forgetting import bytes_anywhere
from tests.pipelines.lakes import everything, rows
from tests.pipelines.racing import Job, at_once
from tests.pipelines.segments import Landed, Story, land
from trajlake.pipelines.compaction.compact import compact
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.pins import all_pins
from trajlake.pipelines.lakehouse.standing import read_standing
from trajlake.pipelines.upkeep.holds import list_holds, place
from trajlake.schemas.tables import SNAPSHOT_TABLES

ACTS = ("compact", "compact", "maintain", "erase", "refused", "hold", "pin")
ROUNDS = 3
COMMIT = (
    "planned", "segments read", "buckets written", "files written", "data files synced", "run file put",
    *(f"{table} committed" for table in SNAPSHOT_TABLES), "logs synced", "snapshot put",
)  # fmt: skip
STEPS = {
    "compact": COMMIT,
    "erase": ("erasure requested", "snapshot read", *COMMIT[3:], "erasure pending", "writers looked at",
              "landing cleared", "snapshot expired", "old file removed", "old files removed"),
    "maintain": ("snapshot read", "events merged", *COMMIT[3:], "events checkpointed", "snapshot expired",
                 "pins listed", "file removed", "logs cleaned"),
}  # fmt: skip
DEATHS = [(act, step) for act, steps in STEPS.items() for step in steps]
"""One process of each round dies after one of these, in turn: twenty seeds do each of them about once."""


def parts_of(seed: int) -> list[tuple[bytes, int, list[Landed]]]:
    """Segments of two writers; t0 is to be erased, t1 is held, t2 nobody asks about; take-overs supersede tails."""
    rng = random.Random(seed)
    first = [Story(f"t{n}", tenant=f"x{n % 2}").start().say(f"text of t{n}", 5) for n in range(3)]
    second = [story.takeover(3 + n, 2).say(f"text of t{n} later", 3).end() for n, story in enumerate(first)]
    early = [item for story in first for item in story.landed]
    late = [item for n, story in enumerate(second) for item in story.landed[rng.randrange(2, 4 + n) :]]
    parts = []
    for writer, items in ((b"a" * 16, early), (b"b" * 16, late)):
        cuts = sorted({0, len(items), *rng.sample(range(1, len(items)), 2)})
        parts += [(writer, a, items[a:b]) for a, b in itertools.pairwise(cuts)]
    return parts


def race(home: Path, seed: int) -> int:
    """Run until everything has landed and every act was begun; return how many processes were killed."""
    rng, parts = random.Random(seed), parts_of(seed)
    for part in parts:
        land(home / "quiet-landing", *part)
    compact(str(home / "quiet-landing"), str(home / "quiet"))
    landing, lake = home / "landing", home / "lake"
    rng.shuffle(parts)
    land(landing, *parts.pop())
    compact(str(landing), str(lake))
    place(str(lake), tenant="x1", trajectory_id="t1", because="case 12", hold_id="h")
    kills = 0
    for number in range(ROUNDS):
        if parts:
            land(landing, *parts.pop())
        act, step = DEATHS[(seed * ROUNDS + number) % len(DEATHS)]
        jobs = (
            Job(str(landing), str(lake), rng.random(), step, (act, rng.choice(ACTS))),
            Job(str(landing), str(lake), rng.random(), rng.choice([0, rng.randint(1, 40)]), tuple(rng.sample(ACTS, 2))),
        )
        codes = at_once(*jobs)
        assert set(codes) <= {0, -signal.SIGKILL}, (seed, jobs, codes)
        kills += codes.count(-signal.SIGKILL)
    for part in parts:
        land(landing, *part)
    last = Job(str(landing), str(lake), 0.5, 0, ("compact", "refused", "erase", "compact", "maintain", "maintain"))
    assert at_once(last) == [0], seed
    return kills


def plain(rows_of: list[dict[str, Any]], *without: str) -> list[str]:
    strip = ("writer", "lsn", *without)
    return sorted(str({k: v for k, v in row.items() if k not in strip}) for row in rows_of)


def check(home: Path, seed: int) -> None:
    wanted, found = everything(home / "quiet"), everything(home / "lake")
    erased = ("payload", "salt")
    for table in SNAPSHOT_TABLES:
        mine = [row for row in found[table] if row.get("trajectory_id") != "t0"]
        assert plain(mine) == plain([r for r in wanted[table] if r.get("trajectory_id") != "t0"]), (seed, table)
        gone = [row for row in found[table] if row.get("trajectory_id") == "t0"]
        if table in ("events", "quarantine"):
            assert plain(gone, *erased) == plain([r for r in wanted[table] if r["trajectory_id"] == "t0"], *erased), (
                seed
            )
            assert {row[name] for row in gone for name in erased} <= {None}
    lake = Lake.open(home / "lake")
    states = {one.trajectory_id: one.state for one in read_standing(lake).erasures}
    assert states == {"t0": "complete", "t1": "refused"}, seed
    assert [hold.status for hold in list_holds(lake.url)] == ["confirmed"]
    assert bytes_anywhere(home / "lake", "text of t0") == [], seed
    assert bytes_anywhere(home / "landing", "text of t0") == [], seed
    named = {f"{t}/{f.relative}" for n in lake.snapshot_numbers() for t in SNAPSHOT_TABLES
             for f in lake.files(lake.snapshot(n), t)}  # fmt: skip
    pinned = {path for pin in all_pins(lake) for paths in pin.files.values() for path in paths}
    disk = {str(p.relative_to(lake.url)) for t in SNAPSHOT_TABLES for p in Path(lake.url, t).rglob("*.parquet")
            if "_delta_log" not in str(p)}  # fmt: skip
    assert disk == named | pinned, seed
    for number in lake.snapshot_numbers():
        events = rows(home / "lake", "events", number)
        counted = dict(rows(home / "lake", "trajectories", number).select("trajectory_id", "events").iter_rows())
        assert counted == dict(events.group_by("trajectory_id").len().iter_rows()), (seed, number)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", range(20))
def test_racing_and_dying_processes_lose_nothing_and_keep_nothing_erased(tmp_path: Path, seed: int) -> None:
    print("seed", seed, "kills", race(tmp_path, seed))
    check(tmp_path, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 300))
def test_two_hundred_more_races(tmp_path: Path, seed: int) -> None:
    print("seed", seed, "kills", race(tmp_path, seed))
    check(tmp_path, seed)
