"""A thread that waits by itself writes itself; one at a time writes, and what came meanwhile is written next."""

from __future__ import annotations

import atexit
import errno
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.events import event_of, info_of
from tests.support.faulty_env import FaultyEnv
from trajlake.runtime.root import Root
from trajlake.runtime.wal.journal_errors import JournalError, JournalFailed
from trajlake.runtime.wal.reader import iter_events, list_segments
from trajlake.runtime.wal.ticket import Ticket
from trajlake.runtime.wal.writer import Writer
from trajlake.runtime.wal.writer_options import WriterOptions

pytestmark = pytest.mark.timeout(60)

SOON_S = 20
NEVER_S = 3600.0
"""A lazy delay that no test sees the end of, longer than options allow: the flusher looks when told, or not at all."""


class WatchedDisk(FaultyEnv):
    """Notes the thread of each barrier, and how many were at once; takes as long as the test holds `gate` shut."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.threads: list[str] = []
        self.inside = self.most_inside = 0
        self.raises: BaseException | None = None

    def pwrite_durably(self, fd: int, data: bytes, offset: int) -> int:
        self.threads.append(threading.current_thread().name)
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        self.entered.set()
        try:
            assert self.gate.wait(SOON_S)
            if self.raises is not None:
                raise self.raises
            return super().pwrite_durably(fd, data, offset)
        finally:
            self.inside -= 1


@pytest.fixture
def env() -> WatchedDisk:
    return WatchedDisk()


@pytest.fixture
def writer(env: WatchedDisk) -> Iterator[Writer]:
    writer = claimed(env)
    yield writer
    env.gate.set()
    finish(writer)


def claimed(env: WatchedDisk, lazy_delay_s: float = NEVER_S, **options: Any) -> Writer:
    """A writer at rest, the first segment of which is begun: what follows it are barriers."""
    writer = Root.open("/journal", env).claim_writer(WriterOptions(**options))
    writer._commit.lazy_delay = lazy_delay_s
    atexit.unregister(writer.close)  # one that would wait for ever fails its test, and does not keep the process
    writer.append([event_of("first", 0)], info_of("first")).wait()
    leads_by_now(writer)
    env.threads.clear()
    env.entered.clear()
    return writer


def finish(writer: Writer) -> None:
    closing = in_thread(writer.close)
    closing.join(SOON_S)
    assert not closing.is_alive()


def rest(writer: Writer) -> None:
    until(lambda: writer._flusher._asleep)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def leads_by_now(writer: Writer) -> None:
    """Have the alarm set, so that a lazy event rings nobody: who waits for it next finds the flusher asleep."""
    lazily(writer, 0, "before").wait()
    rest(writer)


def lazily(writer: Writer, number: int, name: str = "t") -> Ticket:
    return writer.append([event_of(name, number)], info_of(name), lazy=True)


def in_thread(call: Callable[[], object], name: str = "agent") -> threading.Thread:
    thread = threading.Thread(target=call, name=name, daemon=True)
    thread.start()
    return thread


def test_a_thread_that_waits_alone_writes_itself_and_the_main_thread_never(env: WatchedDisk, writer: Writer) -> None:
    def agent() -> None:
        for number in range(20):
            lazily(writer, number).wait()

    in_thread(agent).join()
    assert env.threads.count("agent") > 10, "but where the flusher was up to look for lazy events"
    rest(writer)
    env.threads.clear()
    for number in range(20, 30):  # a signal may end a call here, between any two steps
        lazily(writer, number).wait()
    assert all(name.startswith("trajlake-flusher") for name in env.threads)
    assert [one.sequence_number for one in iter_events(env, writer.folder) if one.trajectory_id == "t"] == [*range(30)]


def test_what_comes_while_a_thread_writes_is_written_next_and_nobody_writes_beside_it(
    env: WatchedDisk, writer: Writer
) -> None:
    env.gate.clear()
    leader = in_thread(lambda: lazily(writer, 0).wait())
    assert env.entered.wait(SOON_S)
    others = [in_thread(lazily(writer, 0, f"t{number}").wait, "other") for number in range(3)]
    nobody_waits = writer.append([event_of("t", 1)], info_of("t"))
    time.sleep(0.1)
    assert env.most_inside == 1
    env.gate.set()
    for thread in (leader, *others):
        thread.join(SOON_S)
        assert not thread.is_alive()
    until(lambda: nobody_waits.done)
    assert env.most_inside == 1


def test_the_flushers_own_look_does_not_come_between(env: WatchedDisk) -> None:
    """It sleeps until a lazy event is due: that moment may come while another thread writes."""
    writer = claimed(env, lazy_delay_s=0.05)
    due = lazily(writer, 0)
    env.gate.clear()
    leader = in_thread(lambda: lazily(writer, 1).wait())
    assert env.entered.wait(SOON_S)
    late = lazily(writer, 2)
    time.sleep(0.2)
    assert env.most_inside == 1
    env.gate.set()
    leader.join(SOON_S)
    until(lambda: due.done and late.done)
    finish(writer)


def test_threads_that_come_at_once_leave_it_to_the_flusher(env: WatchedDisk, writer: Writer) -> None:
    env.gate.clear()
    leader = in_thread(lambda: lazily(writer, 0).wait())
    assert env.entered.wait(SOON_S)
    others = [in_thread(lazily(writer, 0, f"t{number}").wait) for number in range(3)]
    until(lambda: all(len(append.waiters) == 1 for append in writer._commit._waiting))
    env.gate.set()
    for thread in (leader, *others):
        thread.join(SOON_S)
    rest(writer)
    assert not writer._flusher.would_lead, "the last barrier woke several: more may be on their way"
    in_thread(lambda: lazily(writer, 1).wait()).join(SOON_S)
    rest(writer)
    assert writer._flusher.would_lead


def test_who_waits_while_a_window_is_open_waits_no_longer_than_that(env: WatchedDisk) -> None:
    writer = claimed(env, commit_delay_max_ms=2)
    waiting = in_thread(lambda: lazily(writer, 0).wait())
    waiting.join(SOON_S)
    assert not waiting.is_alive(), "its event is no lazy one any more, and nobody had told the flusher"
    finish(writer)


def test_what_does_not_fit_into_the_batch_of_who_waits_is_waited_for_all_the_same(env: WatchedDisk) -> None:
    writer = claimed(env)
    done: list[bool] = []

    def agent() -> None:
        large = [event_of("t", number, size=900_000) for number in range(2)]
        first, second = (writer.append([event], info_of("t"), lazy=True) for event in large)
        second.wait()
        done.extend((first.done, second.done))

    in_thread(agent).join(SOON_S)
    assert done == [True, True]
    finish(writer)


def test_close_waits_for_the_thread_that_writes(env: WatchedDisk) -> None:
    writer = claimed(env)
    env.gate.clear()
    leader = in_thread(lambda: lazily(writer, 0).wait())
    assert env.entered.wait(SOON_S)
    closing = in_thread(writer.close)
    closing.join(0.1)
    assert closing.is_alive()
    env.gate.set()
    closing.join(SOON_S)
    leader.join(SOON_S)
    assert not closing.is_alive()
    assert len(list_segments(env, writer.folder)) == 1
    assert [one.trajectory_id for one in iter_events(env, writer.folder)] == ["first", "before", "t"]


def test_a_segment_that_such_a_thread_begins_is_sealed_for_its_age(env: WatchedDisk) -> None:
    writer = claimed(env, segment_age_max_s=0.1)
    until(lambda: writer._chain.active_path is None)  # the first segment is sealed for its age
    rest(writer)
    writer._flusher._alarm = env.monotonic() + NEVER_S / 2  # as behind a batch with lazy events: this one rings nobody
    in_thread(lambda: lazily(writer, 0).wait()).join(SOON_S)
    assert writer.stats().segments_begun == 2
    until(lambda: writer._chain.active_path is None)
    finish(writer)


@pytest.mark.parametrize("raised", [OSError(errno.EIO, "no"), SystemExit("stopped")])
def test_what_ends_the_thread_that_writes_ends_the_journal_for_all(env: WatchedDisk, raised: BaseException) -> None:
    writer = claimed(env)
    if isinstance(raised, OSError):
        env.raises = raised
        in_thread(lambda: lazily(writer, 0).wait()).join(SOON_S)  # the one fail-over that a writer has
        assert writer.stats().failed_over
        rest(writer)
    env.raises = raised
    env.gate.clear()
    env.entered.clear()
    told: list[BaseException] = []

    def wait(ticket: Ticket) -> None:
        try:
            ticket.wait()
        except (JournalError, SystemExit) as error:
            told.append(error)

    leader = in_thread(lambda: wait(lazily(writer, 1)))
    assert env.entered.wait(SOON_S)
    other = in_thread(lambda: wait(lazily(writer, 0, "other")))
    until(lambda: writer._commit.waiting_events == 1)
    env.gate.set()
    for thread in (leader, other):
        thread.join(SOON_S)
        assert not thread.is_alive()
    assert len(told) == 2
    assert any(isinstance(one, JournalFailed) for one in told)
    with pytest.raises(JournalFailed):
        lazily(writer, 2)
    finish(writer)
