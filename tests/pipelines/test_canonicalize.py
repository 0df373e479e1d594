"""The columnar canonical history equals `schemas.history.canonical`, row for row, on random lossy take-overs."""

from __future__ import annotations

import random
from typing import Any

import polars as pl
import pytest

from tests.pipelines.segments import Landed, Story
from trajlake.pipelines.derived.canonicalize import CANONICAL, CONFLICT, HELD_BACK, SUPERSEDED, canonicalize
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import MessageAdded
from trajlake.schemas.history import canonical


def frame(landed: list[tuple[Event, int]]) -> pl.DataFrame:
    rows: list[dict[str, Any]] = [
        {
            "tenant": e.tenant, "trajectory_id": e.trajectory_id, "sequence_number": e.sequence_number,
            "event_type": e.type, "fencing_token": e.fencing_token, "cryptographic_hash": e.hash.hex(),
            "payload": (e.payload or b"").decode(), "origin": origin, "writer": "w", "lsn": n,
        }
        for n, (e, origin) in enumerate(landed)
    ]  # fmt: skip
    return pl.DataFrame(rows, schema_overrides={"origin": pl.UInt8})


def history(rng: random.Random, trajectory_id: str) -> list[Event]:
    """Return the events of several tenures, some lost, some copied, some in conflict."""
    tenures = [Story(trajectory_id).start().say("a", rng.randrange(1, 8))]
    for token in range(2, rng.randrange(2, 5)):
        base = rng.choice(tenures)
        other = base.takeover(rng.randrange(len(base.landed)), token).say(f"b{token}", rng.randrange(0, 5))
        tenures.append(other)
    if rng.random() < 0.3:
        story = rng.choice(tenures)
        place = rng.randrange(len(story.landed))
        event = story.landed[place].event
        twin = Story(trajectory_id, seed=9)
        twin.token = event.fencing_token
        story.landed.append(Landed(twin.add(MessageAdded(role="user", wire="other", item_hash=""),
                                            number=event.sequence_number), story.info))  # fmt: skip
    events = {(e.sequence_number, e.fencing_token, e.hash): e for s in tenures for e, _ in s.landed}
    kept = [event for event in events.values() if rng.random() > 0.1]
    return kept + rng.sample(kept, len(kept) // 4)


@pytest.mark.parametrize("seed", range(40))
def test_columnar_and_single_history_agree(seed: int) -> None:
    rng = random.Random(seed)
    many = {f"t{n}": history(rng, f"t{n}") for n in range(12)}
    mixed = [(event, rng.randrange(3)) for events in many.values() for event in events]
    rng.shuffle(mixed)
    judged = canonicalize(frame(mixed))
    found: dict[str, dict[int, set[tuple[int, int, str]]]] = {}
    for tid, verdict, *key in judged.rows.select(
        "trajectory_id", "verdict", "sequence_number", "fencing_token", "cryptographic_hash"
    ).iter_rows():
        found.setdefault(tid, {}).setdefault(verdict, set()).add(tuple(key))
    duplicates = 0
    lines = dict(zip(judged.trajectories["trajectory_id"], judged.lines, strict=True))
    for tid, events in many.items():
        want = canonical(events)
        duplicates += want.duplicates
        for verdict, expected in (
            (CANONICAL, want.events), (SUPERSEDED, want.superseded), (HELD_BACK, want.held_back),
            (CONFLICT, want.conflicts),
        ):  # fmt: skip
            keys = {(e.sequence_number, e.fencing_token, e.hash.hex()) for e in expected}
            assert found.get(tid, {}).get(verdict, set()) == keys, (seed, tid, verdict)
        if events:
            assert lines[tid] == want.line, (seed, tid)
    assert judged.duplicates == duplicates


def test_of_two_copies_the_erased_one_stays_then_the_one_the_lake_has() -> None:
    story = Story("t").start()
    event = story.landed[0].event
    rows = frame([(event, 2), (event, 0), (event, 1)])
    assert canonicalize(rows).rows["origin"].to_list() == [0]
    erased = rows.with_columns(pl.when(pl.col("origin") == 2).then(None).otherwise("payload").alias("payload"))
    assert canonicalize(erased).rows["payload"].to_list() == [None]
