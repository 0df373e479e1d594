"""Arbitrary bytes under a segment's name: events that were written, or a named error; bounded time and memory."""

from __future__ import annotations

import contextlib
import random
import time
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.golden.segment_files import golden_segments
from tests.support.bare_writer import BareWriter, plain
from tests.support.events import event_of
from tests.support.faulty_env import FaultyEnv
from trajlake.runtime.wal.columns import scan_columns
from trajlake.runtime.wal.frame import header_at, payload_at
from trajlake.runtime.wal.journal_errors import SegmentCorrupt
from trajlake.runtime.wal.segment_format import BLOCK_SIZE
from trajlake.runtime.wal.segment_scan import scan_segment
from trajlake.schemas.errors import UnknownVersion

GOLDEN = golden_segments()


def written() -> tuple[bytes, list[tuple[str, int, bytes | None, bytes]]]:
    env = FaultyEnv(5)
    writer = BareWriter(env)
    events = [event_of(f"t{n % 3}", n, size=40 + n * 7) for n in range(20)]
    for event in events:
        writer.write(event)
    writer.close()
    path = writer.folder + "/" + env.listdir(writer.folder)[0]
    return bytes(env.file(path).data), plain(events)


DATA, EVENTS = written()


def read_all(data: bytes) -> int:
    """Read by every door; return how many events came out. Only named errors may be raised."""
    with contextlib.suppress(SegmentCorrupt):
        scan_columns(data)
    try:
        scan = scan_segment(data)
    except SegmentCorrupt:
        return 0
    with contextlib.suppress(SegmentCorrupt, UnknownVersion):
        for event in scan.events():
            assert event.payload
    return len(scan.offsets)


@given(st.binary(max_size=600), st.sampled_from(sorted(GOLDEN)), st.integers(0, 6000))
@example(b"", "sealed.seg", 0)
def test_bytes_written_over_a_segment_anywhere_give_events_or_a_named_error(junk: bytes, name: str, at: int) -> None:
    data = GOLDEN[name]
    read_all(data[:at] + junk + data[at + len(junk) :])
    read_all(data[:at] + junk)
    read_all(junk)


@given(st.data())
@settings(max_examples=150)
def test_a_damaged_segment_never_gives_an_event_that_was_not_written(data: st.DataObject) -> None:
    damaged = bytearray(DATA)
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(["flip", "zero", "copy", "cut"]))
        at = data.draw(st.integers(BLOCK_SIZE, len(DATA) - 1))
        size = data.draw(st.integers(1, 700))
        if kind == "flip":
            damaged[min(at, len(damaged) - 1)] ^= 1 << size % 8
        elif kind == "zero":
            damaged[at : at + size] = bytes(len(damaged[at : at + size]))
        elif kind == "copy":
            source = data.draw(st.integers(BLOCK_SIZE, len(DATA) - size))
            damaged[at : at + size] = DATA[source : source + len(damaged[at : at + size])]
        else:
            del damaged[max(at, BLOCK_SIZE + 1) :]
    scan = scan_segment(bytes(damaged))
    found = plain(list(scan.events()))
    assert found == EVENTS[: len(found)]


def test_a_length_that_lies_is_not_believed_and_nothing_is_allocated_for_it() -> None:
    data = bytearray(GOLDEN["open.seg"])
    data[BLOCK_SIZE + 4 : BLOCK_SIZE + 8] = (0xFFFFFFF0).to_bytes(4, "little")
    tracemalloc.start()
    scan_segment(bytes(data))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 500_000


def test_a_frame_of_another_epoch_is_not_valid_here() -> None:
    scan = scan_segment(DATA)
    offset = scan.offsets[3]
    header = header_at(DATA, offset, scan.header.epoch)
    assert header is not None
    assert payload_at(DATA, offset, header) is not None
    assert header_at(DATA, offset, scan.header.epoch ^ 1) is None


def test_a_segment_full_of_its_own_epoch_is_judged_in_bounded_time() -> None:
    """The worst case for the search behind a damaged place: a candidate at every eighth byte."""
    epoch = scan_segment(DATA).header.epoch.to_bytes(4, "little")
    data = DATA[:BLOCK_SIZE] + epoch * (1 << 18)
    started = time.monotonic()
    assert scan_segment(data).end == "torn"
    assert time.monotonic() - started < 5


@pytest.mark.soak
def test_a_million_random_damages_give_events_or_a_named_error() -> None:
    seed = time.time_ns()
    pick = random.Random(seed)
    for _ in range(1_000_000):
        damaged = bytearray(DATA)
        for _ in range(pick.randint(1, 5)):
            damaged[pick.randrange(len(damaged))] = pick.randrange(256)
        assert read_all(bytes(damaged)) <= len(EVENTS), f"seed {seed}"
