"""Group commit as a state machine: what waits, what makes the next batch, what is durable. No thread, disk or clock.

The driver (`flusher.py`, or a test) calls every method under one lock of its own and passes the time in.

States of an append: waiting -> in flight -> durable, or failed. One batch is in flight at a time; all that
arrives meanwhile is the next one. Nothing leaves `waiting` but into a batch, in order of arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .frame import PreparedFrame, TrajectoryInfo
from .journal_errors import JournalError
from .segment import Group
from .writer_options import WriterOptions

WAITING = 0
DURABLE = 1
FAILED = 2


class Append(Group):
    """One append on its way to the disk. `state` changes once, under the driver's lock; who waits is woken after."""

    __slots__ = ("error", "first_lsn", "lazy", "offered_at", "state", "waiters")

    def __init__(self, frames: Sequence[PreparedFrame], info: TrajectoryInfo, lazy: bool = False) -> None:
        # As in Group, but for the call: this is made for every append.
        self.frames = frames
        self.info = info
        self.count = len(frames)
        size = info.frame_size
        for frame in frames:
            size += frame[3]
        self.size = size
        self.offered_at = 0.0
        self.lazy = lazy
        self.state = WAITING
        self.first_lsn = -1
        self.error: JournalError | None = None
        self.waiters: list[Any] = []


class GroupCommit:
    """See the module. `queue_full_count` counts callers that found the queue full."""

    def __init__(self, options: WriterOptions, next_lsn: int) -> None:
        self._options = options
        self._delay = options.commit_delay_max_ms / 1000
        self.lazy_delay = options.lazy_delay_max_ms / 1000
        self._batch_events_max = options.batch_events_max
        self._queue_events_max = options.queue_events_max
        self._queue_size_max = options.queue_size_max_bytes
        self._waiting: list[Append] = []
        self._in_flight: list[Append] = []
        self._deadline = 0.0
        self._events = 0
        self._bytes = 0
        self.next_lsn = next_lsn
        self.durable_lsn = next_lsn - 1
        self.error: JournalError | None = None
        self.closing = False
        self.queue_full_count = 0
        self.batch_count = 0

    @property
    def waiting_events(self) -> int:
        return self._events

    @property
    def waiting_bytes(self) -> int:
        return self._bytes

    @property
    def is_full(self) -> bool:
        """True while callers should wait before they append."""
        return self._events >= self._queue_events_max or self._bytes >= self._queue_size_max

    @property
    def is_empty(self) -> bool:
        return not self._waiting and not self._in_flight

    def offer(self, append: Append, now: float) -> bool:
        """Queue an append; True if the driver should look again now, because its next batch became due earlier.

        A signal may interrupt this between any two lines, in the main thread: the append itself comes last.
        """
        append.offered_at = now
        due = now + (self.lazy_delay if append.lazy else self._delay)
        wake = not self._waiting or due < self._deadline
        if wake:
            self._deadline = due
        self._events += append.count
        self._bytes += append.size
        if self._events >= self._batch_events_max:
            self._deadline = min(self._deadline, now)
            wake = True
        self._waiting.append(append)
        return wake

    def hurry(self, append: Append, now: float) -> bool:
        """Somebody waits for this lazy append now; True if the driver should look again."""
        if not append.lazy or append.state != WAITING:
            return False
        append.lazy = False
        due = now + self._delay
        if due < self._deadline:
            self._deadline = due
            return True
        return False

    def due_at(self) -> float | None:
        """Return when the next batch is to be taken; None while nothing waits."""
        return self._deadline if self._waiting else None

    def take(self, now: float) -> list[Append]:
        """Return the next batch if one is due (or the journal is closing), else an empty list."""
        assert not self._in_flight, "one barrier at a time"
        if not self._waiting or (now < self._deadline and not self.closing):
            return []
        count = self._fitting()
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        lsn = self.next_lsn
        for append in batch:
            append.first_lsn = lsn
            lsn += append.count
            self._bytes -= append.size
        self._events -= lsn - self.next_lsn
        self.next_lsn = lsn
        if not self._waiting:
            # An interrupted `offer` may have counted what it never queued.
            self._events = self._bytes = 0
        else:
            self._deadline = now
        self._in_flight = batch
        self.batch_count += 1
        return batch

    def _fitting(self) -> int:
        """Return how many of the waiting appends make one batch: at least one, and never part of one."""
        size_max = self._options.batch_size_max_bytes
        if self._events <= self._batch_events_max and self._bytes <= size_max:
            return len(self._waiting)
        events = size = 0
        for count, append in enumerate(self._waiting):
            events += append.count
            size += append.size
            if count and (events > self._batch_events_max or size > size_max):
                return count
        return len(self._waiting)

    def finish(self) -> list[Append]:
        """The batch in flight is durable. Returns its appends, for the driver to wake who waits."""
        batch, self._in_flight = self._in_flight, []
        self.durable_lsn = self.next_lsn - 1
        for append in batch:
            append.frames = ()
            append.state = DURABLE
        return batch

    def fail(self, error: JournalError) -> list[Append]:
        """The journal is at its end: everything in flight or waiting has an unknown outcome. Returns all of it."""
        self.error = error
        lost = self._in_flight + self._waiting
        self._in_flight = []
        self._waiting = []
        self._events = self._bytes = 0
        for append in lost:
            append.error = error
            append.frames = ()
            append.state = FAILED
        return lost
