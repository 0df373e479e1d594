"""Readers: by lsn, by trajectory, as columns; beside a live writer; what is durable for certain."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import msgspec
import pytest

from tests.support.bare_writer import FOLDER, BareWriter, group, plain
from tests.support.events import event_of, info_of
from tests.support.faulty_env import FaultyEnv
from trajlake.runtime.env import REAL_ENV, read_file
from trajlake.runtime.root import Root
from trajlake.runtime.wal.columns import scan_columns
from trajlake.runtime.wal.frame import HEADER_FIELDS, HEADER_SIZE
from trajlake.runtime.wal.journal_errors import SegmentCorrupt
from trajlake.runtime.wal.point_read import read_lsn, read_sequence_number
from trajlake.runtime.wal.reader import (
    durable_prefix,
    iter_events,
    list_segments,
    load_seal,
    read_segment,
    read_trajectory,
    trajectory_keys,
)
from trajlake.runtime.wal.segment import Group
from trajlake.schemas.envelope import Event
from trajlake.schemas.errors import UnknownVersion


def journal(count: int = 120) -> tuple[FaultyEnv, list[Event], BareWriter]:
    """Several sealed segments and an open one, five trajectories mixed."""
    env = FaultyEnv(4)
    pick = random.Random(4)
    writer = BareWriter(env)
    events: list[Event] = []
    while len(events) < count:
        batch = [
            event_of(f"t{pick.randrange(5)}", len(events) + i, size=pick.choice([30, 300]))
            for i in range(pick.choice([1, 3]))
        ]
        events += batch
        writer.write(*batch)
    return env, events, writer


def test_every_lsn_is_found_in_sealed_and_open_segments() -> None:
    env, events, _ = journal()
    assert [segment.is_sealed for segment in list_segments(env, FOLDER)] == [True, True, False]
    for lsn, event in enumerate(events):
        found = read_lsn(env, FOLDER, lsn)
        assert found is not None
        assert found.lsn == lsn
        assert plain([found]) == plain([event])
    assert read_lsn(env, FOLDER, len(events)) is None
    assert read_lsn(env, FOLDER, -1) is None


def test_every_sequence_number_is_found_and_only_headers_of_its_trajectory_are_read() -> None:
    env, events, _ = journal(1200)
    sealed = [segment for segment in list_segments(env, FOLDER) if segment.is_sealed]
    reads: list[int] = []
    pread = env.pread
    env.pread = lambda fd, size, offset: (reads.append(size), pread(fd, size, offset))[1]  # type: ignore[method-assign]
    for event in events[:: len(events) // 50]:
        (found,) = read_sequence_number(env, [FOLDER], event.tenant, event.trajectory_id, event.sequence_number)
        assert plain([found]) == plain([event])
    assert read_sequence_number(env, [FOLDER], "default", events[0].trajectory_id, 10**6) == []
    assert read_sequence_number(env, [FOLDER], "default", "nobody", 0) == []
    reads.clear()
    first = events[0]
    assert read_sequence_number(env, [FOLDER], "default", first.trajectory_id, 0)
    whole = sum(segment.size_bytes for segment in sealed) + list_segments(env, FOLDER)[-1].size_bytes
    assert sum(reads) < whole / 2


def test_a_number_written_under_two_tokens_is_found_twice_lowest_token_first() -> None:
    env = FaultyEnv(4)
    writer = BareWriter(env)
    numbers = [0, 1, 2, 3, 2, 3, 4]
    for place, number in enumerate(numbers):
        event = event_of("t", number)
        mark = bytes([place]) * 32
        writer.write(msgspec.structs.replace(event, fencing_token=1 + (place > 3), hash=mark))
    writer.close()
    for number in range(5):
        tokens = [1 + (place > 3) for place, one in enumerate(numbers) if one == number]
        found = read_sequence_number(env, [FOLDER], "default", "t", number)
        assert [event.fencing_token for event in found] == tokens


def test_reading_from_an_lsn_skips_what_is_before_it() -> None:
    env, events, _ = journal()
    for start in (0, 1, 17, 60, len(events) - 1, len(events)):
        assert plain(list(iter_events(env, FOLDER, from_lsn=start))) == plain(events[start:])


def test_a_trajectory_is_read_from_all_segments_in_order_with_what_is_known_of_it() -> None:
    env, events, _ = journal()
    for name in ("t0", "t3"):
        found, info = read_trajectory(env, [(FOLDER, 0)], info_of(name).key)
        assert plain(found) == plain([event for event in events if event.trajectory_id == name])
        assert info == info_of(name)
    later, _ = read_trajectory(env, [(FOLDER, 50)], info_of("t1").key)
    assert plain(later) == plain([event for event in events[50:] if event.trajectory_id == "t1"])
    assert read_trajectory(env, [(FOLDER, 0)], info_of("never").key) == ([], None)


def test_a_segment_names_its_trajectories_in_order_of_appearance() -> None:
    env, _, _ = journal()
    for segment in list_segments(env, FOLDER):
        scan = read_segment(env, segment.path)
        names = dict.fromkeys(event.trajectory_id for event in scan.events())
        assert trajectory_keys(env, segment) == [info_of(name).key for name in names]


def test_the_index_of_a_seal_finds_each_trajectory_and_nothing_for_strangers() -> None:
    env, _, _ = journal()
    segment = next(s for s in list_segments(env, FOLDER) if s.is_sealed)
    seal, _ = load_seal(env, segment)
    scan = read_segment(env, segment.path)
    by_key: dict[bytes, list[int]] = {}
    for index in range(len(scan.offsets)):
        by_key.setdefault(scan.header_of(index).trajectory_key, []).append(index)
    for key, indices in by_key.items():
        assert seal.events_of(key) == indices
    # A key that only appears across two neighbours' bytes must not be found.
    straddling = seal.key(0)[8:] + seal.key(1)[:8]
    assert seal.events_of(straddling) == []


def test_what_a_later_barrier_proves_is_the_durable_prefix() -> None:
    env = FaultyEnv(1)
    writer = BareWriter(env)
    writer.write(event_of("t", 0), event_of("t", 1))
    [segment] = list_segments(env, FOLDER)
    assert len(durable_prefix(env, segment.path).offsets) == 0
    writer.write(event_of("t", 2))
    assert len(durable_prefix(env, segment.path).offsets) == 2
    assert len(read_segment(env, segment.path).offsets) == 3
    writer.close()
    assert len(durable_prefix(env, segment.path).offsets) == 3


def test_a_reader_beside_a_busy_writer_sees_a_gapless_prefix_and_never_damage(tmp_path: Path) -> None:
    root = Root.open(tmp_path)
    stop = threading.Event()
    with root.claim_writer() as writer:

        def write() -> None:
            number = 0
            while not stop.is_set():
                writer.append([event_of("t", number + i, size=300) for i in range(7)], info_of("t")).wait()
                number += 7

        thread = threading.Thread(target=write)
        thread.start()
        seen = 0
        deadline = time.monotonic() + 10
        while seen < 3000 and time.monotonic() < deadline:
            durable = writer.durable_lsn
            numbers = [event.sequence_number for event in iter_events(REAL_ENV, writer.folder)]
            assert numbers == list(range(len(numbers)))
            assert len(numbers) > durable
            seen = max(seen, len(numbers))
        stop.set()
        thread.join()
    assert seen >= 3000


def test_columns_hold_what_the_events_hold() -> None:
    numpy = pytest.importorskip("numpy")
    env, _, writer = journal()
    writer.close()
    dtype = numpy.dtype({
        "names": [name for name, _, _ in HEADER_FIELDS],
        "formats": [kind.replace("S", "V") for _, kind, _ in HEADER_FIELDS],
        "offsets": [offset for _, _, offset in HEADER_FIELDS],
        "itemsize": HEADER_SIZE,
    })  # fmt: skip
    for segment in list_segments(env, FOLDER):
        columns = scan_columns(read_file(env, segment.path), segment.path)
        words = numpy.frombuffer(columns.data[: columns.data_size], "<u8")
        starts = numpy.frombuffer(columns.offsets, "<u8").astype(numpy.int64)
        heads = words[(starts // 8)[:, None] + numpy.arange(HEADER_SIZE // 8)].view(dtype)[:, 0]
        events = list(read_segment(env, segment.path).events())
        assert columns.event_count == len(events)
        assert heads["lsn"].tolist() == [event.lsn for event in events]
        for field in ("sequence_number", "fencing_token", "recorded_at", "turn", "schema_version", "type_code"):
            assert heads[field].tolist() == [getattr(event, field) for event in events]
        for row, event in enumerate(events):
            start = columns.offsets[row] + HEADER_SIZE
            assert bytes(columns.data[start : start + heads["payload_length"][row]]) == event.payload
            assert heads["salt"][row].tobytes() == event.salt
            assert heads["hash"][row].tobytes() == event.hash
            assert columns.trajectories[columns.ordinals[row]].trajectory_id == event.trajectory_id


def test_columns_of_a_damaged_or_open_segment_are_refused() -> None:
    env, _, _ = journal()
    sealed, *_, still_open = list_segments(env, FOLDER)
    data = read_file(env, sealed.path)
    scan_columns(data)
    with pytest.raises(SegmentCorrupt, match="not a whole sealed segment"):
        scan_columns(read_file(env, still_open.path))
    for at in range(0, len(data), 97):
        damaged = bytearray(data)
        damaged[at] ^= 1
        with pytest.raises(SegmentCorrupt):
            scan_columns(bytes(damaged))


def test_an_event_type_of_a_newer_trajlake_is_named_when_it_is_read() -> None:
    env = FaultyEnv()
    writer = BareWriter(env)
    odd = group([event_of("t", 0)])
    frame = odd.frames[0]
    newer = ((999).to_bytes(2, "little") + frame[0][2:], *frame[1:])
    writer.chain.write_batch([Group([newer], odd.info)])
    with pytest.raises(UnknownVersion, match="event type 999 is newer"):
        writer.events()
