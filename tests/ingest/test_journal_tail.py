"""The tail of a journal: everything durable, in order, once; nothing that a power loss could still take back."""

from __future__ import annotations

import contextlib
import errno
import random

import pytest

from tests.support.bare_writer import FOLDER, SMALL, BareWriter
from tests.support.events import event_of
from tests.support.faulty_env import Fault, FaultyEnv
from trajlake.ingest import journal_tail
from trajlake.ingest.journal_tail import JournalTail
from trajlake.runtime.env import REAL_ENV
from trajlake.runtime.root import Root
from trajlake.runtime.wal.journal_errors import JournalFailed, SegmentCorrupt
from trajlake.runtime.wal.reader import segment_numbers
from trajlake.runtime.wal.writer_options import WriterOptions


class Watched:
    """A writer on a faulty disk, and a tail that looks at every moment at which something could still be lost."""

    def __init__(self, seed: int) -> None:
        self.env, self.seed = FaultyEnv(seed), seed
        self.writer = BareWriter(self.env)
        self.tail = JournalTail(self.env, FOLDER, 0)
        self.taken: list = []
        self.looks = 0
        self._inside = False
        self.env.before = self.look

    def look(self, operation: str = "", path: str = "") -> None:
        if self._inside:
            return
        self._inside = True
        try:
            self.taken += self.tail.read(1_000)
        finally:
            self._inside = False
        self.looks += 1
        survived = BareWriter(self.env.crash_image(None)).events()
        kept = {(event.lsn, event.hash) for event in survived}
        assert all((frame.header.lsn, frame.header.hash) in kept for frame in self.taken), (
            f"seed {self.seed}: shipped what a power loss before {operation} {path} takes back"
        )


@pytest.mark.parametrize("quiet_s", [1e9, 0.0], ids=["the writer's barriers only", "its own sync at once"])
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_handed_out_that_a_power_loss_could_take_back(monkeypatch, seed, quiet_s):
    monkeypatch.setattr(journal_tail, "QUIET_S", quiet_s)
    watched, chance, number = Watched(seed), random.Random(seed), 0
    for _ in range(60):
        events = [
            event_of("t", number + place, size=chance.randrange(50, 900)) for place in range(chance.randrange(1, 5))
        ]
        number += len(events)
        watched.writer.write(*events)
        watched.look()
    watched.writer.close()
    for _ in range(5):
        watched.look()
    assert watched.looks > 200
    assert [frame.header.lsn for frame in watched.taken] == list(range(number)), f"seed {seed}"
    assert [frame.header.sequence_number for frame in watched.taken] == list(range(number)), f"seed {seed}"


def test_the_last_barrier_waits_for_a_later_one_or_for_a_sync_that_worked(monkeypatch):
    monkeypatch.setattr(journal_tail, "QUIET_S", 1e9)
    env = FaultyEnv(1)
    writer, tail = BareWriter(env), JournalTail(env, FOLDER, 0)
    writer.write(event_of("t", 0))
    assert tail.read(10) == tail.read(10) == []
    writer.write(event_of("t", 1))
    assert [frame.header.lsn for frame in tail.read(10)] == [0]
    monkeypatch.setattr(journal_tail, "QUIET_S", 0.0)
    assert [frame.header.lsn for frame in tail.read(10)] == [1]


def test_a_sync_that_failed_is_never_tried_again(monkeypatch):
    monkeypatch.setattr(journal_tail, "QUIET_S", 0.0)
    env = FaultyEnv(1)
    writer, tail = BareWriter(env), JournalTail(env, FOLDER, 0)
    writer.write(event_of("t", 0))
    assert tail.read(10) == []  # new frames are first left alone for a while
    before = env.calls
    env.faults[before + 1] = Fault(errno.EIO)
    for _ in range(4):
        assert tail.read(10) == []
    assert [operation for operation, _ in env.trace[before:]] == ["fdatasync"]
    writer.write(event_of("t", 1))
    assert [frame.header.lsn for frame in tail.read(10)] == [0]


def test_frames_that_a_fail_over_wrote_again_are_handed_out_once(monkeypatch):
    monkeypatch.setattr(journal_tail, "QUIET_S", 0.0)
    for call in range(60):
        env = FaultyEnv(call)
        writer, tail = BareWriter(env), JournalTail(env, FOLDER, 0)
        env.faults[env.calls + call] = Fault(errno.EIO)
        taken = []
        for number in range(20):
            writer.write(event_of("t", number))
            taken += tail.read(10)
        with contextlib.suppress(JournalFailed):  # the fault may hit the SEAL: recovery sees to it
            writer.close()
        for _ in range(4):
            taken += tail.read(100)
        assert [frame.header.sequence_number for frame in taken] == list(range(20)), f"fault at call {call}"


def test_a_writer_that_died_is_read_to_its_end_and_through_its_recovery(monkeypatch):
    monkeypatch.setattr(journal_tail, "QUIET_S", 0.0)
    env = FaultyEnv(3)
    writer, tail = BareWriter(env), JournalTail(env, FOLDER, 0)
    writer.write(event_of("t", 0), event_of("t", 1))
    writer.write(event_of("t", 2))
    taken = [*tail.read(10), *tail.read(10)]
    assert [frame.header.lsn for frame in taken] == [0, 1, 2]
    again = BareWriter(env.process_death())
    again.write(event_of("t", 3))
    again.close()
    later = JournalTail(again.env, FOLDER, tail.next_lsn)
    assert [frame.header.lsn for frame in later.read(10)] == [3]
    anew = JournalTail(again.env, FOLDER, 0)
    assert [frame.header.lsn for _ in range(4) for frame in anew.read(10)] == [0, 1, 2, 3]


@pytest.mark.parametrize("count_max", [1, 7, 128, 10_000])
def test_sealed_segments_are_handed_out_piece_by_piece_and_whole(monkeypatch, count_max):
    monkeypatch.setattr(journal_tail, "_AT_ONCE", 3)
    env = FaultyEnv(5)
    writer = BareWriter(env)
    written = [event_of("t" if number % 3 else "u", number, size=200) for number in range(150)]
    for event in written:
        writer.write(event)
    writer.close()
    assert len(segment_numbers(env, FOLDER)) > 2
    tail = JournalTail(env, FOLDER, 0)
    taken = []
    while more := tail.read(count_max):
        assert len(more) <= count_max
        taken += more
    assert [(f.header.lsn, f.header.hash, f.payload, f.info.trajectory_id) for f in taken] == [
        (lsn, event.hash, event.payload, event.trajectory_id) for lsn, event in enumerate(written)
    ]
    tail.go_to(61)
    assert [frame.header.lsn for frame in tail.read(2)] == [61, 62]


def test_segments_that_left_the_root_too_early_are_named_and_not_passed_over(tmp_path):
    root = Root.open(str(tmp_path / "journal"))
    writer = root.claim(bytes(16).hex(), WriterOptions(segment_size_min_bytes=8192, segment_size_max_bytes=8192))
    from tests.support.events import info_of

    for number in range(40):
        writer.append([event_of("t", number, size=500)], info_of("t")).wait()
    writer.close()
    folder = root.writer_folder(writer.writer_id)
    numbers = segment_numbers(REAL_ENV, folder)
    assert len(numbers) > 3
    REAL_ENV.unlink(f"{folder}/{numbers[0]:020d}.seg")
    with pytest.raises(SegmentCorrupt, match="bring the segments back"):
        JournalTail(REAL_ENV, folder, 0).read(10)


def test_damage_in_an_active_segment_is_told_after_everything_before_it(monkeypatch):
    monkeypatch.setattr(journal_tail, "QUIET_S", 0.0)
    env = FaultyEnv(2)
    writer = BareWriter(env, options=SMALL)
    for number in range(6):
        writer.write(event_of("t", number, size=100))
    path = f"{FOLDER}/{segment_numbers(env, FOLDER)[-1]:020d}.seg"
    data = env.file(path).data
    at = bytes(data).index(event_of("t", 3, size=100).payload)
    data[at + 5] ^= 1
    tail = JournalTail(env, FOLDER, 0)
    taken = [frame for _ in range(2) for frame in tail.read(10)]
    with pytest.raises(SegmentCorrupt, match="damaged"):
        tail.read(10)
    assert [frame.header.lsn for frame in taken] == [0, 1, 2]
