"""The writer as its callers see it: threads, asyncio, lazy events, interrupts, fork, close."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.bare_writer import plain
from tests.support.events import event_of, info_of
from tests.support.faulty_env import FaultyEnv
from trajlake.runtime.env import REAL_ENV, Env
from trajlake.runtime.root import Root
from trajlake.runtime.wal.flusher import FIRST_BARRIERS
from trajlake.runtime.wal.journal_errors import EventRefused, JournalClosed, OutcomeUnknown
from trajlake.runtime.wal.reader import iter_events, list_segments
from trajlake.runtime.wal.writer import Writer
from trajlake.runtime.wal.writer_options import WriterOptions
from trajlake.schemas.limits import FRAME_MAX

PROJECT = Path(__file__).parents[3]


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root.open(tmp_path / "journal")


@pytest.fixture
def writer(root: Root) -> Iterator[Writer]:
    with root.claim_writer() as claimed:
        yield claimed


class SlowDisk(FaultyEnv):
    """A barrier takes as long as the test holds `gate` shut."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def pwrite_durably(self, fd: int, data: bytes, offset: int) -> int:
        self.entered.set()
        assert self.gate.wait(30)
        return super().pwrite_durably(fd, data, offset)


def slow_writer(**options: float) -> tuple[SlowDisk, Writer]:
    env = SlowDisk()
    return env, Root.open("/journal", env).claim_writer(WriterOptions(**options))  # type: ignore[arg-type]


def test_a_waited_for_event_is_on_disk_when_wait_returns(writer: Writer) -> None:
    ticket = writer.append([event_of("t", 0), event_of("t", 1)], info_of("t"))
    ticket.wait(timeout=10)
    assert ticket.done
    assert list(ticket.lsns) == [0, 1]
    assert writer.durable_lsn == 1
    assert plain(list(iter_events(REAL_ENV, writer.folder))) == plain([event_of("t", 0), event_of("t", 1)])


def test_threads_and_coroutines_share_one_writer(writer: Writer) -> None:
    def in_thread(number: int) -> None:
        for i in range(50):
            writer.append([event_of(f"thread{number}", i)], info_of(f"thread{number}")).wait()

    async def in_task(number: int) -> None:
        for i in range(50):
            await writer.append([event_of(f"task{number}", i)], info_of(f"task{number}"))

    async def tasks() -> None:
        await asyncio.gather(*(in_task(n) for n in range(8)))

    threads = [threading.Thread(target=in_thread, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    asyncio.run(tasks())
    for thread in threads:
        thread.join()
    events = list(iter_events(REAL_ENV, writer.folder))
    assert len(events) == 12 * 50
    for name in [f"thread{n}" for n in range(4)] + [f"task{n}" for n in range(8)]:
        assert [e.sequence_number for e in events if e.trajectory_id == name] == list(range(50))


def test_one_batch_wakes_an_event_loop_once() -> None:
    env, writer = slow_writer()
    calls: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        original = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda call, *args: (calls.append(call.__module__), original(call, *args))[1]
        env.gate.clear()
        first = asyncio.ensure_future(waiting(writer, 0))
        await asyncio.to_thread(env.entered.wait, 10)
        rest = [asyncio.ensure_future(waiting(writer, n)) for n in range(1, 30)]
        await asyncio.sleep(0)
        calls.clear()
        env.gate.set()
        await asyncio.gather(first, *rest)

    asyncio.run(main())
    writer.close()
    assert calls.count("trajlake.runtime.wal.ticket") == 2, (
        "one wake-up for the batch of one, one for the 29 that arrived meanwhile"
    )


async def waiting(writer: Writer, number: int) -> None:
    await writer.append([event_of(f"t{number}", 0)], info_of(f"t{number}"))


def test_the_event_loop_runs_on_while_a_barrier_takes_its_time() -> None:
    env, writer = slow_writer()

    async def main() -> int:
        env.gate.clear()
        task = asyncio.ensure_future(waiting(writer, 0))
        turns = 0
        for _ in range(50):
            await asyncio.sleep(0.001)
            turns += 1
        env.gate.set()
        await task
        return turns

    assert asyncio.run(main()) == 50
    writer.close()


def test_events_that_nobody_waits_for_are_durable_within_the_lazy_delay(writer: Writer) -> None:
    writer.append([event_of("t", 0)], info_of("t")).wait()
    ticket = writer.append([event_of("t", 1)], info_of("t"), lazy=True)
    assert not ticket.done, "a lazy event causes no barrier of its own at once"
    started = time.monotonic()
    while not ticket.done and time.monotonic() - started < 5:
        time.sleep(0.002)
    assert ticket.done
    assert time.monotonic() - started < 1


def test_waiting_on_a_lazy_event_does_not_take_the_lazy_delay(root: Root) -> None:
    with root.claim_writer(WriterOptions(lazy_delay_max_ms=1000)) as writer:
        writer.append([event_of("t", 0)], info_of("t")).wait()
        started = time.monotonic()
        writer.append([event_of("t", 1)], info_of("t"), lazy=True).wait()
        assert time.monotonic() - started < 0.5


def test_a_full_queue_makes_threads_wait_and_counts_them() -> None:
    env, writer = slow_writer(queue_events_max=4)
    env.gate.clear()
    writer.append([event_of("t", 0)], info_of("t"))
    assert env.entered.wait(10)
    for number in range(1, 5):
        writer.append([event_of("t", number)], info_of("t"))
    blocked = threading.Thread(target=lambda: writer.append([event_of("t", 5)], info_of("t")).wait())
    blocked.start()
    blocked.join(0.1)
    assert blocked.is_alive()
    assert writer.next_lsn == 1
    env.gate.set()
    blocked.join(10)
    assert not blocked.is_alive()
    assert writer.queue_full_count >= 1
    writer.close()
    assert [event.sequence_number for event in iter_events(env, writer.folder)] == list(range(6))


def test_a_coroutine_waits_for_room_without_blocking_its_loop() -> None:
    env, writer = slow_writer(queue_events_max=2)

    async def main() -> None:
        await writer.room()
        env.gate.clear()
        tickets = [writer.append([event_of("t", 0)], info_of("t"))]
        await asyncio.to_thread(env.entered.wait, 10)
        tickets += [writer.append([event_of("t", n)], info_of("t")) for n in range(1, 4)]
        room = asyncio.ensure_future(writer.room())
        await asyncio.sleep(0.02)
        assert not room.done()
        env.gate.set()
        await asyncio.wait_for(room, 10)
        for ticket in tickets:
            await ticket

    asyncio.run(main())
    writer.close()


class EndsMeanwhile(list):
    """Waiters of an append that ends, and wakes who waits, just before the next one is noted."""

    def __init__(self, end: Callable[[], None]) -> None:
        super().__init__()
        self._end = end

    def append(self, waiter: object) -> None:
        self._end()
        super().append(waiter)


def test_who_begins_to_wait_at_the_moment_of_the_end_does_not_wait_for_ever() -> None:
    env, writer = slow_writer()
    env.gate.clear()
    ticket = writer.append([event_of("t", 0)], info_of("t"))
    assert env.entered.wait(10)

    def end() -> None:
        env.gate.set()
        writer.close()

    ticket.waiters = EndsMeanwhile(end)
    ticket.wait(timeout=10)
    assert ticket.done


def test_a_wait_that_times_out_leaves_the_outcome_unknown_and_the_event_queued() -> None:
    env, writer = slow_writer()
    env.gate.clear()
    ticket = writer.append([event_of("t", 0)], info_of("t"))
    with pytest.raises(OutcomeUnknown, match="may still become durable"):
        ticket.wait(timeout=0.02)
    env.gate.set()
    ticket.wait(timeout=10)
    writer.close()
    assert len(list(iter_events(env, writer.folder))) == 1


def test_a_cancelled_await_leaves_the_event_queued() -> None:
    env, writer = slow_writer()

    async def main() -> None:
        env.gate.clear()
        task = asyncio.ensure_future(waiting(writer, 0))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        env.gate.set()
        await writer.append([event_of("t0", 1)], info_of("t0"))

    asyncio.run(main())
    writer.close()
    assert [event.sequence_number for event in iter_events(env, writer.folder)] == [0, 1]


def test_a_barrier_that_is_too_slow_or_too_fast_is_told_of_once_from_the_first_fifty(tmp_path, caplog) -> None:
    class Stretched(Env):
        def pwrite_durably(self, fd: int, data: bytes, offset: int) -> int:
            time.sleep(0.002)
            return super().pwrite_durably(fd, data, offset)

    with Root.open(str(tmp_path / "slow"), Stretched()).claim_writer() as writer:
        for number in range(FIRST_BARRIERS + 20):
            writer.append([event_of("t", number)], info_of("t")).wait()
    slow = [record.message for record in caplog.records if "ms here" in record.message]
    assert len(slow) == 1
    assert str(tmp_path / "slow") in slow[0]


def test_a_storm_of_interrupts_in_the_main_thread_loses_nothing_and_stops_nobody(writer: Writer) -> None:
    stop = threading.Event()
    others: list[int] = []

    def other() -> None:
        while not stop.is_set():
            writer.append([event_of("other", len(others))], info_of("other")).wait(10)
            others.append(1)

    thread = threading.Thread(target=other)
    thread.start()
    attempts, interrupts = 0, 0
    deadline = time.monotonic() + 60
    while interrupts < 5 and time.monotonic() < deadline:
        timer = threading.Timer(0.0005, lambda: os.kill(os.getpid(), signal.SIGINT))
        try:
            timer.start()
            for _ in range(20):
                writer.append([event_of("main", attempts)], info_of("main")).wait()
                attempts += 1
            timer.join()
            time.sleep(0.001)
        except KeyboardInterrupt:
            interrupts += 1
            attempts += 1
    stop.set()
    thread.join(10)
    assert interrupts == 5
    assert not thread.is_alive()
    ticket = writer.append([event_of("last", 0)], info_of("last"))
    ticket.wait(10)
    assert [e.lsn for e in iter_events(REAL_ENV, writer.folder)] == list(range(ticket.lsns[0] + 1))


@pytest.mark.parametrize(
    "event",
    [
        event_of("t", 0, size=FRAME_MAX + 1),
        event_of("other", 0),
        event_of("t", 0, tenant="elsewhere"),
    ],
)
def test_an_event_that_no_frame_can_hold_is_refused_and_nothing_is_queued(writer: Writer, event: object) -> None:
    with pytest.raises(EventRefused):
        writer.append([event_of("t", 5), event], info_of("t"))  # type: ignore[list-item]
    writer.append([event_of("t", 6)], info_of("t")).wait()
    assert [e.sequence_number for e in iter_events(REAL_ENV, writer.folder)] == [6]


def test_a_payload_of_exactly_the_limit_is_stored(writer: Writer) -> None:
    event = event_of("t", 0, size=FRAME_MAX)
    assert len(event.payload or b"") == FRAME_MAX
    writer.append([event] * 3, info_of("t")).wait()
    assert plain(list(iter_events(REAL_ENV, writer.folder))) == plain([event] * 3)


def test_close_makes_queued_events_durable_seals_and_refuses_more(root: Root) -> None:
    writer = root.claim_writer()
    tickets = [writer.append([event_of("t", n)], info_of("t"), lazy=True) for n in range(10)]
    writer.close()
    writer.close()
    assert all(ticket.done for ticket in tickets)
    with pytest.raises(JournalClosed, match="open it again"):
        writer.append([event_of("t", 10)], info_of("t"))
    assert not root.is_alive(writer.writer_id)
    assert sorted(os.listdir(writer.folder)) == ["00000000000000000000.seg", "LOCK"]


def test_a_writer_that_never_wrote_leaves_no_segment_behind(root: Root) -> None:
    writer = root.claim_writer()
    writer.close()
    assert os.listdir(writer.folder) == ["LOCK"]


def test_a_process_that_just_ends_has_its_lazy_events_on_disk(tmp_path: Path) -> None:
    script = (
        "import sys; from tests.support.events import event_of, info_of; from trajlake.runtime.root import Root\n"
        "w = Root.open(sys.argv[1]).claim_writer()\n"
        "for n in range(5): w.append([event_of('t', n)], info_of('t'), lazy=True)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, cwd=PROJECT, timeout=30)
    root = Root.open(tmp_path)
    [writer_id] = root.writers()
    assert len(list(iter_events(REAL_ENV, root.writer_folder(writer_id)))) == 5


def in_forked_child(root: Root, writer: Writer, answers: object) -> None:
    try:
        writer.append([event_of("t", 1)], info_of("t")).wait(5)
        answer = "the parent's writer took an event in the child"
    except JournalClosed as error:
        with root.claim_writer() as own:
            own.append([event_of("child", 0)], info_of("child")).wait(5)
            answer = f"{error} {own.writer_id != writer.writer_id}"
    answers.send(answer)  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_fork_closes_the_journal_in_the_child_and_leaves_the_parent_alone(root: Root, writer: Writer) -> None:
    writer.append([event_of("t", 0)], info_of("t")).wait()
    receive, send = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=in_forked_child, args=(root, writer, send))
    child.start()
    assert receive.poll(20)
    answer = receive.recv()
    child.join(20)
    assert "'spawn'" in answer
    assert answer.endswith("True")
    writer.append([event_of("t", 1)], info_of("t")).wait()
    assert [event.sequence_number for event in iter_events(REAL_ENV, writer.folder)] == [0, 1]


def test_a_child_that_outlives_its_parent_does_not_hold_the_parents_writer(root: Root) -> None:
    writer = root.claim_writer()
    writer.append([event_of("t", 0)], info_of("t")).wait()
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(30,))
    child.start()
    try:
        time.sleep(0.1)
        writer.close()
        assert not root.is_alive(writer.writer_id)
    finally:
        child.kill()
        child.join()


def test_write_and_fdatasync_serve_where_the_one_call_barrier_is_switched_off(tmp_path: Path) -> None:
    env = Env(one_call_barrier=False)
    with Root.open(tmp_path, env).claim_writer() as writer:
        writer.append([event_of("t", 0)], info_of("t")).wait()
    assert len(list(iter_events(env, writer.folder))) == 1


def test_segments_double_and_every_one_but_the_last_is_sealed(tmp_path: Path) -> None:
    options = WriterOptions(segment_size_min_bytes=16_384, segment_size_max_bytes=65_536)
    root = Root.open(tmp_path)
    with root.claim_writer(options) as writer:
        for number in range(400):
            writer.append([event_of("t", number, size=900)], info_of("t")).wait()
        writer.append([event_of("t", 400)], info_of("t")).wait()
        sizes = [path.stat().st_size for path in sorted(Path(writer.folder).glob("*.seg"))]
        assert len(sizes) > 6
        assert all(segment.is_sealed for segment in list_segments(REAL_ENV, writer.folder)[:-1])
        assert sizes[0] <= 16_384 < sizes[1] <= 32_768 < sizes[2] <= 65_536
    assert [event.sequence_number for event in iter_events(REAL_ENV, writer.folder)] == list(range(401))


def test_an_old_enough_segment_is_sealed_though_it_is_not_full(tmp_path: Path) -> None:
    root = Root.open(tmp_path)
    with root.claim_writer(WriterOptions(segment_age_max_s=0.05)) as writer:
        writer.append([event_of("t", 0)], info_of("t")).wait()
        deadline = time.monotonic() + 5
        while os.stat(f"{writer.folder}/{0:020d}.seg").st_size > 16_384 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert os.stat(f"{writer.folder}/{0:020d}.seg").st_size < 16_384
        writer.append([event_of("t", 1)], info_of("t")).wait()
    assert [event.sequence_number for event in iter_events(REAL_ENV, writer.folder)] == [0, 1]


def test_a_segment_is_sealed_when_asked_though_appends_never_pause(tmp_path: Path) -> None:
    root = Root.open(tmp_path)
    stop = threading.Event()
    with root.claim_writer() as writer:

        def append(name: str) -> None:
            number = 0
            while not stop.is_set():
                writer.append([event_of(name, number)], info_of(name)).wait()
                number += 1

        threads = [threading.Thread(target=append, args=(f"t{n}",)) for n in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        writer.seal()
        deadline = time.monotonic() + 10
        while not any(s.is_sealed for s in list_segments(REAL_ENV, writer.folder)) and time.monotonic() < deadline:
            time.sleep(0.005)
        sealed = [segment for segment in list_segments(REAL_ENV, writer.folder) if segment.is_sealed]
        stop.set()
        for thread in threads:
            thread.join()
    assert sealed


@pytest.mark.parametrize(
    "wrong",
    [{"commit_delay_max_ms": -1}, {"batch_events_max": 0}, {"segment_size_min_bytes": 10}, {"segment_age_max_s": 0.0}],
)
def test_an_option_out_of_bounds_is_named(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        WriterOptions(**wrong)  # type: ignore[arg-type]


def test_a_close_that_ctrl_c_cut_short_may_be_done_again_and_frees_the_writer(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = root.claim_writer()
    with monkeypatch.context() as patch:

        def interrupted() -> None:
            raise KeyboardInterrupt

        patch.setattr(writer._flusher, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            writer.close()
    assert root.is_alive(writer.writer_id)
    writer.close()
    assert not root.is_alive(writer.writer_id)
