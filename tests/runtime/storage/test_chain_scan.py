"""Hash chains checked in place agree with `schemas.chain`, and recovery reports a break."""

from __future__ import annotations

import random

import msgspec

from tests.support.bare_writer import FOLDER, WRITER_ID, BareWriter
from tests.support.events import info_of
from tests.support.faulty_env import FaultyEnv
from trajlake.runtime.wal.chain_scan import chain_breaks
from trajlake.runtime.wal.reader import list_segments, read_segment
from trajlake.runtime.wal.recovery import recover_writer
from trajlake.schemas.chain import genesis, make_event, verify
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import VarSet


def chained(name: str, count: int, pick: random.Random) -> list[Event]:
    prev, events = genesis("default", name), []
    for number in range(count):
        event = make_event(
            VarSet(name="x", value="\u00e9" * number), tenant="default", trajectory_id=name, sequence_number=number,
            fencing_token=7, turn=number // 3, recorded_at=1_800_000_000_000_000 + number, salt=pick.randbytes(16),
            prev=prev,
        )  # fmt: skip
        events.append(event)
        prev = event.hash
    return events


def written(change: dict[tuple[str, int], Event] | None = None) -> tuple[FaultyEnv, list[Event]]:
    pick = random.Random(11)
    stories = {name: chained(name, 6, pick) for name in ("a", "b")}
    env = FaultyEnv(3)
    writer = BareWriter(env)
    events = []
    for number in range(6):
        for name in stories:
            event = (change or {}).get((name, number), stories[name][number])
            events.append(event)
            writer.write(event)
    writer.chain._active.abandon()  # type: ignore[union-attr]
    return env, events


def test_whole_chains_have_no_break_and_schemas_agrees() -> None:
    env, events = written()
    (segment,) = list_segments(env, FOLDER)
    assert list(chain_breaks(read_segment(env, segment.path))) == []
    assert verify([event for event in events if event.trajectory_id == "a"]) == []
    assert info_of("a").trajectory_id == "a"


def test_every_changed_field_breaks_the_chain_and_recovery_reports_it() -> None:
    _, events = written()
    victim = next(event for event in events if (event.trajectory_id, event.sequence_number) == ("b", 3))
    for field, value in {
        "turn": 9, "recorded_at": 5, "payload": b'{"name":"y"}', "salt": bytes(16), "schema_version": 2,
        "hash": bytes(32),
    }.items():  # fmt: skip
        bad = msgspec.structs.replace(victim, **{field: value})
        env, _ = written({("b", 3): bad})
        (segment,) = list_segments(env, FOLDER)
        breaks = list(chain_breaks(read_segment(env, segment.path)))
        assert breaks == ([7] if field != "hash" else [7, 9]), field
        reports = recover_writer(env, FOLDER, WRITER_ID, check_chain=True).reports
        assert any("lsn 7: its hash does not follow" in line for line in reports)


def test_an_event_whose_predecessor_is_elsewhere_is_passed_over() -> None:
    env = FaultyEnv(3)
    writer = BareWriter(env)
    events = chained("a", 6, random.Random(1))
    for event in events[2:4] + events[5:]:
        writer.write(event)
    (segment,) = list_segments(env, FOLDER)
    assert list(chain_breaks(read_segment(env, segment.path))) == []
