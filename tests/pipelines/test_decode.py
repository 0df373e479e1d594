"""A sealed segment as columns holds exactly its events, and a damaged one gives none."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.pipelines.segments import Story, interleaved, land
from trajlake.pipelines.compaction.decode import event_columns, open_sealed
from trajlake.runtime.wal.journal_errors import SegmentCorrupt
from trajlake.schemas.chain import commitment
from trajlake.schemas.events import InputRead, MessageAdded

WRITER = bytes(range(16))


def stories() -> list[Story]:
    made = [Story(f"trajectory {n} é/..", model="a/b", version="ü").start() for n in range(7)]
    for story in made:
        story.add(InputRead(kind="k"))  # a payload of 12 bytes stands inside its Arrow view
        story.add(InputRead(kind="kk"))
        story.add(MessageAdded(role="user", wire={"text": "ünïcode 🦀 " * 40}, item_hash="0" * 64))
        story.say("x" * 500, 3).end()
    return made


def test_columns_equal_the_events_that_were_written(tmp_path: Path) -> None:
    landed = interleaved(stories(), random.Random(4))
    path = land(tmp_path, WRITER, 11, landed)
    frame = event_columns(open_sealed(str(path)), str(path))
    assert len(frame) == len(landed)
    for n, row in enumerate(frame.iter_rows(named=True)):
        event, info = landed[n]
        assert event.payload is not None
        assert event.salt is not None
        assert row["payload"] == event.payload.decode()
        assert row["salt"] == event.salt.hex()
        assert row["commitment"] == commitment(event.salt, event.payload).hex()
        assert row["cryptographic_hash"] == event.hash.hex()
        assert (row["tenant"], row["trajectory_id"]) == (event.tenant, event.trajectory_id)
        assert row["event_type"] == event.type
        assert row["lsn"] == 11 + n
        assert row["writer"] == WRITER.hex()
        assert (row["sequence_number"], row["fencing_token"], row["turn"]) == (
            event.sequence_number, event.fencing_token, event.turn,
        )  # fmt: skip
        assert row["started_on"].isoformat() == info.started_on
        assert row["model"] == "a/b@ü"


def test_any_flipped_byte_before_the_seal_is_found(tmp_path: Path) -> None:
    path = land(tmp_path, WRITER, 0, interleaved(stories(), random.Random(4)))
    whole = path.read_bytes()
    end = open_sealed(str(path)).data_size
    rng = random.Random(9)
    for place in [0, 9, 100, 4096, end - 1, *(rng.randrange(end) for _ in range(60))]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(SegmentCorrupt):
            event_columns(open_sealed(str(path)), str(path))


@pytest.mark.parametrize("keep", [0, 100, 4096, -1, -64])
def test_a_segment_cut_short_is_corrupt_and_never_read_in_part(tmp_path: Path, keep: int) -> None:
    path = land(tmp_path, WRITER, 0, interleaved(stories(), random.Random(4)))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(SegmentCorrupt):
        open_sealed(str(path))
