"""EIO, ENOSPC and short writes at every call: what is promised then, for each rule under *Failure* in the design."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time

import pytest

from tests.support.bare_writer import FOLDER, SMALL, BareWriter, group, plain
from tests.support.events import event_of, info_of
from tests.support.faulty_env import Fault, FaultyEnv
from tests.support.lost_seals import lost_seals
from trajlake.runtime.env import make_folder
from trajlake.runtime.root import Root
from trajlake.runtime.wal.journal_errors import JournalClosed, JournalError, JournalFailed, JournalFull, SegmentCorrupt
from trajlake.runtime.wal.reader import iter_events, list_segments, load_seal, read_segment, read_trajectory
from trajlake.runtime.wal.segment_format import FLAG_FAILOVER, seal_hash
from trajlake.runtime.wal.writer import Writer
from trajlake.runtime.wal.writer_options import WriterOptions
from trajlake.schemas.envelope import Event


def work(env: FaultyEnv, acknowledged: list[Event], offered: list[Event]) -> None:
    """Thirty barriers over several small segments; notes what was acknowledged before each error."""
    writer = BareWriter(env)
    for number in range(30):
        event = event_of(f"t{number % 3}", number, size=600)
        offered.append(event)
        writer.write(event)
        acknowledged.append(event)
    writer.close()


def test_a_segment_behind_one_that_could_not_be_sealed_says_so() -> None:
    """So that nobody takes the missing SEAL for damage, also where the failure came with no frame at hand."""
    env = FaultyEnv(3)
    make_folder(env, FOLDER)
    writer = BareWriter(env)
    writer.write(event_of("t", 0))
    env.faults[env.calls + 1] = Fault(errno.EIO)
    writer.chain.seal()
    for number in (1, 2):
        writer.write(event_of("t", number))
        assert [one.header.flags for one in list_segments(env, FOLDER)] == [0, FLAG_FAILOVER, 0][: number + 1]
        assert lost_seals(env, FOLDER) == []
        writer.chain.seal()


def calls_of_a_clean_run() -> int:
    env = FaultyEnv(3)
    make_folder(env, FOLDER)
    before = env.calls
    work(env, [], [])
    return env.calls - before


FAULTS = {
    "EIO once": Fault(errno.EIO),
    "EIO for good": Fault(errno.EIO, for_good=True),
    "ENOSPC once": Fault(errno.ENOSPC),
    "ENOSPC for good": Fault(errno.ENOSPC, for_good=True),
    "a short write": Fault(short=True),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_at_any_call_loses_nothing_that_was_acknowledged(name: str) -> None:
    for call in range(1, calls_of_a_clean_run() + 1):
        env = FaultyEnv(3)
        make_folder(env, FOLDER)
        env.faults[env.calls + call] = FAULTS[name]
        acknowledged: list[Event] = []
        offered: list[Event] = []
        with contextlib.suppress(JournalError, OSError):
            work(env, acknowledged, offered)
        for image in (env.crash_image(None), env.crash_image(call), env.process_death()):
            place = f"{name} at call {call} {env.trace[-1]}"
            assert lost_seals(image, FOLDER) == [], f"{place}: called the damage of a SEAL"
            found = BareWriter(image).events()
            assert len(found) >= len(acknowledged), place
            assert plain(found) == plain(offered[: len(found)]), place
            # What recovery found may stand so far only in the cache of pages whose sync once failed.
            again = BareWriter(image.crash_image(None)).events()
            assert plain(again) == plain(found), f"{place}: recovered, and lost at the next power loss"


def test_a_single_error_is_survived_by_one_fail_over_to_a_fresh_file() -> None:
    for operation in ("pwrite_durably", "rename", "truncate"):
        env = FaultyEnv(1)
        writer = BareWriter(env)
        first = [event_of("t", n, size=600) for n in range(3)]
        for event in first:
            writer.write(event)
        env.before = lambda now, _path, wanted=operation, env=env: fail_once(env, now, wanted)  # type: ignore[misc]
        rest = [event_of("t", n, size=600) for n in range(3, 20)]
        for event in rest:
            writer.write(event)
        assert writer.chain.failed_over is not None, operation
        assert plain(BareWriter(env.crash_image(None)).events()) == plain([*first, *rest]), operation


def fail_once(env: FaultyEnv, operation: str, wanted: str) -> None:
    if operation == wanted:
        env.faults[env.calls + 1] = Fault(errno.EIO)
        env.before = lambda _operation, _path: None


def test_no_file_is_written_or_synced_again_after_its_error() -> None:
    for call in range(1, calls_of_a_clean_run() + 1):
        env = FaultyEnv(3)
        make_folder(env, FOLDER)
        env.faults[env.calls + call] = Fault(errno.EIO)
        at = env.calls + call
        with contextlib.suppress(JournalError, OSError):
            work(env, [], [])
        operation, path = env.trace[at - 1]
        if operation in ("pwrite", "pwrite_durably", "fdatasync") and path.endswith(".seg"):
            again = [
                op for op, where in env.trace[at:] if where == path and op in ("pwrite", "pwrite_durably", "fdatasync")
            ]
            assert not again, f"call {call}: {operation} failed, then {again} on the same file"


def test_a_second_error_ends_the_writer_though_it_too_came_only_once() -> None:
    env = FaultyEnv(1)
    writer = BareWriter(env)
    writer.write(event_of("t", 0))
    env.faults[env.calls + 1] = Fault(errno.EIO)
    writer.write(event_of("t", 1))
    env.faults[env.calls + 1] = Fault(errno.EIO)
    with pytest.raises(JournalFailed):
        writer.write(event_of("t", 2))
    with pytest.raises(JournalFailed):
        writer.write(event_of("t", 3))
    assert plain(BareWriter(env.crash_image(None)).events()) == plain([event_of("t", 0), event_of("t", 1)])


def test_callers_in_threads_and_coroutines_are_told_when_the_disk_is_gone() -> None:
    env = FaultyEnv(1)
    writer = Root.open("/journal", env).claim_writer()
    first = writer.append([event_of("t", 0)], info_of("t"))
    first.wait(10)
    env.faults[env.calls + 1] = Fault(errno.EIO, for_good=True)
    second = writer.append([event_of("t", 1)], info_of("t"))
    with pytest.raises(JournalFailed, match="Acknowledged events are safe"):
        second.wait(10)

    async def awaiting() -> None:
        await second

    with pytest.raises(JournalFailed):
        asyncio.run(awaiting())
    with pytest.raises(JournalFailed):
        writer.append([event_of("t", 2)], info_of("t"))
    assert (first.done, second.done, writer.durable_lsn) == (True, False, 0)
    writer.close()
    with pytest.raises(JournalClosed):
        writer.append([event_of("t", 3)], info_of("t"))


def test_segments_that_are_sealed_for_their_age_do_not_grow() -> None:
    env = FaultyEnv(1)
    options = WriterOptions(segment_size_min_bytes=8192, segment_size_max_bytes=1 << 20)
    writer = BareWriter(env, options=options)
    for number in range(12):
        writer.write(event_of("t", number))
        writer.chain.seal()
    assert max(segment.header.size_bytes for segment in list_segments(env, FOLDER)) <= 2 * 8192


def test_after_the_second_error_every_call_says_so_and_nothing_is_written() -> None:
    env = FaultyEnv(1)
    writer = BareWriter(env)
    writer.write(event_of("t", 0))
    env.faults[env.calls + 1] = Fault(errno.EIO, for_good=True)
    with pytest.raises(JournalFailed, match="only read now"):
        writer.write(event_of("t", 1))
    calls = env.calls
    for _ in range(3):
        with pytest.raises(JournalFailed):
            writer.write(event_of("t", 2))
    assert env.calls == calls
    assert plain(writer.events())[:1] == plain([event_of("t", 0)])


def test_a_poisoned_segment_is_mended_at_the_next_open_and_not_shippable_before() -> None:
    env = FaultyEnv(1)
    writer = BareWriter(env)
    for n in range(3):
        writer.write(event_of("t", n))
    env.faults[env.calls + 1] = Fault(errno.EIO)
    writer.write(event_of("t", 3))
    writer.write(event_of("t", 4))
    poisoned, fresh = list_segments(env, FOLDER)
    assert not poisoned.is_sealed
    assert fresh.first_lsn == 3
    assert plain(writer.events()) == plain([event_of("t", n) for n in range(5)])
    writer.close()
    after = BareWriter(env)
    assert [segment.is_sealed for segment in list_segments(env, FOLDER)] == [True, True]
    assert [(s.first_lsn, s.last_lsn) for s in list_segments(env, FOLDER)] == [(0, 2), (3, 4)]
    assert plain(after.events()) == plain([event_of("t", n) for n in range(5)])


def test_frames_that_a_poisoned_segment_and_its_successor_both_hold_are_read_once() -> None:
    held_twice = 0
    for seed in range(12):
        env = FaultyEnv(seed)
        writer = BareWriter(env)
        writer.write(event_of("t", 0))
        env.faults[env.calls + 1] = Fault(errno.EIO)
        writer.write(event_of("t", 1))
        writer.write(event_of("t", 2))
        poisoned, fresh = list_segments(env, FOLDER)
        held_twice += read_segment(env, poisoned.path).last_lsn >= fresh.first_lsn
        assert [event.lsn for event in iter_events(env, FOLDER)] == [0, 1, 2]
        found, _ = read_trajectory(env, [(FOLDER, 0)], info_of("t").key)
        assert [event.lsn for event in found] == [0, 1, 2]
    assert held_twice, "no seed wrote the failed batch whole"


def test_a_poisoned_segment_that_lost_acknowledged_frames_is_corrupt_and_not_touched() -> None:
    env = FaultyEnv(1)
    writer = BareWriter(env)
    for n in range(3):
        writer.write(event_of("t", n))
    env.faults[env.calls + 1] = Fault(errno.EIO)
    writer.write(event_of("t", 3))
    poisoned, _ = list_segments(env, FOLDER)
    offset = read_segment(env, poisoned.path).offsets[2]
    data = env.file(poisoned.path).data
    data[offset + 140] ^= 1
    before = bytes(data)
    with pytest.raises(SegmentCorrupt):
        BareWriter(env)
    assert bytes(data) == before
    found = iter_events(env, FOLDER)
    assert [next(found).lsn, next(found).lsn] == [0, 1]
    with pytest.raises(SegmentCorrupt):
        next(found)


def test_the_header_after_a_fail_over_carries_the_hash_that_recovery_will_seal_with() -> None:
    env = FaultyEnv(1)
    writer = BareWriter(env)
    for n in range(3):
        writer.write(event_of(f"t{n}", n))
    env.faults[env.calls + 1] = Fault(errno.EIO)
    writer.write(event_of("new", 3))
    promised = list_segments(env, FOLDER)[1].header.previous_seal
    writer.close()
    assert BareWriter(env).recovered.previous_seal != promised
    assert seal_hash(load_seal(env, list_segments(env, FOLDER)[0])[1]) == promised


def test_a_full_disk_refuses_intents_while_a_spare_is_kept_and_takes_results_still() -> None:
    env = FaultyEnv(1)
    root = Root.open("/journal", env)
    with root.claim_writer(WriterOptions(segment_size_min_bytes=16_384, segment_size_max_bytes=16_384)) as writer:
        writer.append([event_of("t", 0)], info_of("t")).wait()
        writer.refuse_if_full()
        settle(env)
        env.capacity_bytes = env._used()
        number = 1
        while True:
            # Results go on; the moment the spare is in use and no other can be made, intents are refused.
            writer.append([event_of("t", number, size=600)], info_of("t")).wait()
            number += 1
            settle(env)
            if refused(writer):
                break
            assert number < 40, "no intent was ever refused"
        taken = number
        for number in range(taken, taken + 8):
            writer.append([event_of("t", number, size=600)], info_of("t")).wait()
        env.capacity_bytes = None
        for _ in range(200):
            if not refused(writer):
                break
            settle(env)
        writer.refuse_if_full()
        writer.append([event_of("t", number + 1)], info_of("t")).wait()
    assert [event.sequence_number for event in iter_events(env, writer.folder)] == list(range(number + 2))


def refused(writer: Writer) -> bool:
    try:
        writer.refuse_if_full()
    except JournalFull:
        return True
    return False


def settle(env: FaultyEnv) -> None:
    """Give the helper thread time to have tried for a spare."""
    calls = -1
    for _ in range(100):
        time.sleep(0.005)
        if env.calls == calls:
            return
        calls = env.calls


def test_a_segment_that_vanished_is_reported_after_all_events_before_it() -> None:
    env = FaultyEnv(1)
    writer = BareWriter(env)
    for n in range(60):
        writer.write(event_of("t", n, size=600))
    writer.close()
    first, second, *_ = list_segments(env, FOLDER)
    env.unlink(second.path)
    with pytest.raises(SegmentCorrupt, match="is missing"):
        BareWriter(env)
    reading = iter_events(env, FOLDER)
    found = [next(reading) for _ in range(second.first_lsn)]
    with pytest.raises(SegmentCorrupt, match="missing or damaged"):
        next(reading)
    assert [event.lsn for event in found] == list(range(first.header.first_lsn, second.first_lsn))


def test_a_group_larger_than_a_segment_gets_a_segment_of_its_own() -> None:
    env = FaultyEnv(1)
    writer = BareWriter(env, options=SMALL)
    events = [event_of("t", n, size=900) for n in range(100)]
    writer.chain.write_batch([group(events)])
    assert plain(BareWriter(env.crash_image(None)).events()) == plain(events)
