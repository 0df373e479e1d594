"""The state machine of group commit, without threads: batches, deadlines, the queue's bound, the end."""

from __future__ import annotations

from tests.support.bare_writer import group
from tests.support.events import event_of
from trajlake.runtime.wal.group_commit import DURABLE, FAILED, Append, GroupCommit
from trajlake.runtime.wal.journal_errors import JournalFailed
from trajlake.runtime.wal.writer_options import WriterOptions


def an_append(number: int = 0, *, lazy: bool = False, events: int = 1, size: int = 100) -> Append:
    whole = group([event_of("t", number + i, size=size) for i in range(events)])
    return Append(whole.frames, whole.info, lazy)


def test_what_arrives_during_a_barrier_is_the_next_batch() -> None:
    commit = GroupCommit(WriterOptions(), 0)
    first, second, third = an_append(0), an_append(1), an_append(2)
    commit.offer(first, 1.0)
    assert commit.take(1.0) == [first]
    commit.offer(second, 1.0)
    commit.offer(third, 1.0)
    assert commit.durable_lsn == -1
    assert commit.finish() == [first]
    assert (first.state, commit.durable_lsn) == (DURABLE, 0)
    assert commit.take(1.0) == [second, third]
    assert (second.first_lsn, third.first_lsn) == (1, 2)


def test_lazy_events_wait_for_company_and_no_longer_than_their_delay() -> None:
    commit = GroupCommit(WriterOptions(lazy_delay_max_ms=50), 0)
    lazy = an_append(lazy=True)
    assert commit.offer(lazy, 1.0), "the driver must set its alarm"
    assert commit.take(1.049) == []
    assert commit.due_at() == 1.05
    assert commit.take(1.051) == [lazy]


def test_lazy_events_ride_with_the_next_urgent_one() -> None:
    commit = GroupCommit(WriterOptions(), 0)
    lazy, urgent = an_append(0, lazy=True), an_append(1)
    commit.offer(lazy, 1.0)
    assert commit.offer(urgent, 1.01), "an earlier deadline wakes the driver"
    assert commit.take(1.01) == [lazy, urgent]


def test_waiting_on_a_lazy_event_hurries_it() -> None:
    commit = GroupCommit(WriterOptions(), 0)
    lazy = an_append(lazy=True)
    commit.offer(lazy, 1.0)
    assert commit.hurry(lazy, 1.01)
    assert commit.take(1.01) == [lazy]


def test_a_window_waits_for_company_until_the_batch_is_full() -> None:
    commit = GroupCommit(WriterOptions(commit_delay_max_ms=2, batch_events_max=3), 0)
    appends = [an_append(n) for n in range(3)]
    commit.offer(appends[0], 1.0)
    commit.offer(appends[1], 1.0)
    assert commit.take(1.001) == []
    commit.offer(appends[2], 1.001)
    assert commit.take(1.001) == appends


def test_a_batch_stops_at_its_bounds_and_an_append_is_never_split() -> None:
    commit = GroupCommit(WriterOptions(batch_events_max=3), 0)
    first, second, long = an_append(0, events=2), an_append(2, events=2), an_append(4, events=7)
    for append in (first, second, long):
        commit.offer(append, 1.0)
    taken = []
    while batch := commit.take(1.0):
        taken.append(batch)
        commit.finish()
    assert taken == [[first], [second], [long]]
    assert (commit.next_lsn, commit.durable_lsn) == (11, 10)
    sized = GroupCommit(WriterOptions(batch_size_max_bytes=2000), 0)
    for number in range(4):
        sized.offer(an_append(number, size=600), 1.0)
    assert len(sized.take(1.0)) == 2


def test_the_queue_is_full_at_its_bound_and_empty_again_after_the_take() -> None:
    commit = GroupCommit(WriterOptions(queue_events_max=2), 0)
    commit.offer(an_append(0), 1.0)
    assert not commit.is_full
    commit.offer(an_append(1), 1.0)
    assert commit.is_full
    commit.take(1.0)
    assert not commit.is_full
    assert (commit.waiting_events, commit.waiting_bytes) == (0, 0)


def test_the_end_fails_what_is_in_flight_and_what_waits_but_nothing_that_is_durable() -> None:
    commit = GroupCommit(WriterOptions(), 0)
    durable, flying, waiting = an_append(0), an_append(1), an_append(2)
    commit.offer(durable, 1.0)
    commit.take(1.0)
    commit.finish()
    commit.offer(flying, 1.0)
    commit.take(1.0)
    commit.offer(waiting, 1.0)
    error = JournalFailed("gone")
    assert commit.fail(error) == [flying, waiting]
    assert [append.state for append in (durable, flying, waiting)] == [DURABLE, FAILED, FAILED]
    assert flying.error is error
    assert commit.durable_lsn == 0
