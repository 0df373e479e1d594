"""A segment cut short, or damaged, anywhere: what still loads, what is reported, and that appending goes on."""

from __future__ import annotations

import random
from zlib import crc32

import pytest

from tests.support.bare_writer import FOLDER, BareWriter, group, plain
from tests.support.events import event_of, info_of
from tests.support.faulty_env import FaultyEnv
from trajlake.runtime.env import make_folder, write_fully
from trajlake.runtime.wal.frame import CONTROL_TRAJECTORY, control_frame, frame_size, lay_out, prepare
from trajlake.runtime.wal.journal_errors import SegmentCorrupt
from trajlake.runtime.wal.segment import segment_path
from trajlake.runtime.wal.segment_format import BLOCK_SIZE
from trajlake.runtime.wal.segment_scan import SegmentScan, scan_segment
from trajlake.runtime.wal.writer_options import WriterOptions
from trajlake.schemas.envelope import Event
from trajlake.schemas.limits import FRAME_MAX

PATH = segment_path(FOLDER, 0)


def segment_of(
    size_bytes: int, *, sealed: bool, seed: int = 7, sizes: tuple[int, ...] = (20, 150, 700)
) -> tuple[bytes, list[Event], list[int]]:
    """A segment of random batches that fills `size_bytes`; its events, and how many stood before each barrier."""
    env = FaultyEnv(seed)
    pick = random.Random(seed)
    writer = BareWriter(
        env, options=WriterOptions(segment_size_min_bytes=size_bytes, segment_size_max_bytes=size_bytes)
    )
    events: list[Event] = []
    barriers: list[int] = []
    while True:
        batch = [
            event_of(f"t{pick.randrange(3)}", len(events) + i, size=pick.choice(sizes))
            for i in range(pick.choice([1, 1, 3]))
        ]
        needed = sum(frame_size(len(event.payload or b"")) + 300 for event in batch)
        active = writer.chain._active
        if active is not None and active.offset + needed + active.index.seal_size(4, 4) > size_bytes:
            break
        barriers.append(len(events))
        events += batch
        writer.write(*batch)
    if sealed:
        writer.close()
    assert env.listdir(FOLDER)[0] == PATH.rpartition("/")[2]
    return bytes(env.file(PATH).data), events, barriers


def machine_with(data: bytes) -> FaultyEnv:
    env = FaultyEnv(99)
    make_folder(env, FOLDER)
    fd = env.open(PATH, write=True, create=True)
    write_fully(env, fd, data)
    env.fdatasync(fd)
    env.fsync_dir(FOLDER)
    env.close(fd)
    return env


@pytest.mark.parametrize("sealed", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_segment_cut_at_every_frame_boundary_keeps_all_earlier_events(sealed: bool) -> None:
    data, events, _ = segment_of(16_384, sealed=sealed)
    whole = scan_segment(data)
    boundaries = [*whole.offsets, whole.end_offset]
    for cut in sorted({b + d for b in boundaries for d in range(-16, 17) if BLOCK_SIZE < b + d <= len(data)}):
        check_survivors(whole, events, data, cut)


@pytest.mark.parametrize(
    ("what", "epoch_change", "size", "position"),
    [
        ("another epoch", 1, 100, 0),
        ("no payload", 0, 0, 0),
        ("a payload over the limit", 0, FRAME_MAX + 8, 0),
        ("a place in its barrier that does not follow", 0, 100, 99),
    ],
)
def test_a_frame_that_is_whole_but_for_one_rule_ends_the_segment_before_it(
    what: str, epoch_change: int, size: int, position: int
) -> None:
    """Right lsn, right checksums, right place: only the rule itself can tell."""
    data, events, _ = segment_of(16_384, sealed=False)
    whole = scan_segment(data)
    payload = b"x" * size
    template = prepare(event_of(events[-1].trajectory_id, 10_000), info_of(events[-1].trajectory_id))
    parts: list[bytes] = []
    frame = (template[0], payload, crc32(payload), frame_size(size))
    lay_out([frame], whole.header.epoch + epoch_change & 0xFFFFFFFF, whole.last_lsn + 1, position, parts)
    forged = data[: whole.end_offset] + b"".join(parts) + bytes(4096)
    scan = scan_segment(forged)
    assert (len(scan.offsets), scan.end) == (len(events), "torn"), what
    assert scan.proved == whole.proved


def test_a_trajectory_frame_of_another_epoch_is_not_taken_in() -> None:
    data, events, _ = segment_of(16_384, sealed=False)
    whole = scan_segment(data)
    info = info_of("stale")
    frame = control_frame(CONTROL_TRAJECTORY, info.payload, whole.header.epoch + 1 & 0xFFFFFFFF, key=info.key)
    scan = scan_segment(data[: whole.end_offset] + frame + bytes(4096))
    assert (len(scan.offsets), scan.end) == (len(events), "torn")
    assert info.key not in scan.infos


def test_a_segment_cut_at_a_thousand_random_offsets_keeps_all_earlier_events() -> None:
    data, events, _ = segment_of(65_536, sealed=False)
    whole = scan_segment(data)
    pick = random.Random(11)
    for cut in sorted(pick.sample(range(BLOCK_SIZE, whole.end_offset + 64), 1000)):
        check_survivors(whole, events, data, cut)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("quarter", range(4))
def test_a_64_kib_segment_cut_at_every_byte_keeps_all_earlier_events(quarter: int) -> None:
    data, events, _ = segment_of(65_536, sealed=True, sizes=(150, 700, 2500))
    whole = scan_segment(data)
    for cut in range(BLOCK_SIZE + quarter, len(data) + 1, 4):
        check_survivors(whole, events, data, cut)


def check_survivors(whole: SegmentScan, events: list[Event], data: bytes, cut: int) -> None:
    ends = [offset + frame_size(whole.header_of(i).payload_length) for i, offset in enumerate(whole.offsets)]
    survivors = sum(end <= cut for end in ends)
    for rest in (b"", bytes(len(data) - cut)):
        image = data[:cut] + rest
        env = machine_with(image)
        scan = scan_segment(image)
        assert scan.end != "corrupt", f"cut at {cut}"
        writer = BareWriter(env)
        found = writer.events()
        # One more is whole if only zeros of its padding were cut off, and zeros are there again.
        assert survivors <= len(found) <= survivors + (rest != b""), f"cut at {cut}: {len(found)} of {survivors}"
        assert plain(found) == plain(events[: len(found)]), f"cut at {cut}"
        claimed = ends[len(found) - 1] if found else BLOCK_SIZE
        reported = any("torn tail" in line for line in writer.recovered.reports)
        if scan.end != "sealed" and any(image[claimed:]):
            assert reported or whole.offsets[len(found)] >= cut, f"cut at {cut}: nothing was reported"
        writer.write(event_of("after", 0))
        assert plain(writer.events()) == [*plain(found), *plain([event_of("after", 0)])], f"cut at {cut}"


def test_a_segment_cut_inside_its_header_is_reported_and_not_touched() -> None:
    data, _, _ = segment_of(16_384, sealed=True)
    for cut in (0, 1, 100, 160, BLOCK_SIZE - 1):
        env = machine_with(data[:cut])
        with pytest.raises(SegmentCorrupt, match="shorter than a segment header"):
            BareWriter(env)
        assert env.file(PATH).data == data[:cut]


def test_a_flip_in_a_barrier_that_a_later_one_followed_is_always_called_corrupt() -> None:
    data, events, barriers = segment_of(32_768, sealed=False)
    whole = scan_segment(data)
    last_barrier_at = whole.offsets[barriers[-1]]
    pick = random.Random(5)
    for _ in range(600):
        at = pick.randrange(BLOCK_SIZE, whole.offsets[barriers[-2]])
        damaged = bytearray(data)
        damaged[at] ^= 1 << pick.randrange(8)
        scan = scan_segment(bytes(damaged))
        assert scan.end == "corrupt", f"flip at {at} (last barrier at {last_barrier_at})"
        assert plain(list(scan.events())) == plain(events[: len(scan.offsets)])
        env = machine_with(bytes(damaged))
        with pytest.raises(SegmentCorrupt, match="acknowledged"):
            BareWriter(env)
        assert env.file(PATH).data == damaged, "a corrupt segment was changed"


def test_a_zeroed_range_in_the_middle_is_not_taken_for_the_end() -> None:
    data, _, barriers = segment_of(32_768, sealed=False)
    whole = scan_segment(data)
    for barrier in barriers[1:-2]:
        damaged = bytearray(data)
        start = whole.offsets[barrier]
        damaged[start : whole.offsets[barriers[-2]]] = bytes(whole.offsets[barriers[-2]] - start)
        scan = scan_segment(bytes(damaged))
        assert scan.end == "corrupt"
        assert scan.last_lsn < barriers[-2]


def test_a_hole_in_the_last_barrier_is_torn_though_whole_frames_follow_it() -> None:
    env = FaultyEnv(1)
    writer = BareWriter(env)
    events = [event_of("t", n, size=200) for n in range(8)]
    writer.chain.write_batch([group(events[:2])])
    writer.chain.write_batch([group(events[2:])])
    data = bytes(env.file(PATH).data)
    offsets = scan_segment(data).offsets
    for lost in range(2, 7):
        holed = data[: offsets[lost]] + bytes(offsets[lost + 1] - offsets[lost]) + data[offsets[lost + 1] :]
        scan = scan_segment(holed)
        assert scan.end == "torn"
        assert scan.last_lsn == lost - 1
        recovered = BareWriter(machine_with(holed))
        assert plain(recovered.events()) == plain(events[:lost])


def test_a_frame_that_was_spliced_out_is_missed_though_every_checksum_holds() -> None:
    data, events, barriers = segment_of(16_384, sealed=False)
    offsets = scan_segment(data).offsets
    for gone in range(1, barriers[-2]):
        spliced = data[: offsets[gone]] + data[offsets[gone + 1] :]
        scan = scan_segment(spliced)
        assert scan.end == "corrupt", f"lsn {gone}"
        assert plain(list(scan.events())) == plain(events[:gone])


def test_any_flip_in_the_frames_of_a_sealed_segment_is_called_corrupt() -> None:
    data, _, _ = segment_of(16_384, sealed=True)
    whole = scan_segment(data)
    for at in range(BLOCK_SIZE, whole.seal_offset, 7):
        damaged = bytearray(data)
        damaged[at] ^= 0x40
        assert scan_segment(bytes(damaged)).end == "corrupt", f"flip at {at}"


def test_a_flip_in_the_seal_loses_no_event() -> None:
    data, events, _ = segment_of(16_384, sealed=True)
    whole = scan_segment(data)
    for at in range(whole.seal_offset, len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x40
        scan = scan_segment(bytes(damaged))
        assert scan.end in ("torn", "open"), f"flip at {at}"
        assert plain(list(scan.events())) == plain(events)
