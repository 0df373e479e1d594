"""The receipt of an append: threads wait on it, coroutines await it."""

from __future__ import annotations

import contextlib
from _thread import LockType, allocate_lock
from asyncio import AbstractEventLoop, Future, get_running_loop
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any

from .group_commit import DURABLE, FAILED, WAITING, Append
from .journal_errors import JournalError, OutcomeUnknown, again

if TYPE_CHECKING:
    from .flusher import Flusher


class Ticket(Append):
    """Says when an append is durable. Any thread may wait, any number of times; any event loop may await.

    An interrupted, cancelled or timed-out wait leaves the outcome *unknown*: the events stay queued and will
    most likely become durable. Never take it for "not written".
    """

    __slots__ = ("flusher",)

    flusher: Flusher
    """Who writes it; set when it is submitted."""

    @property
    def done(self) -> bool:
        """True once the events are durable; False before, and for ever if the writer failed."""
        return self.state == DURABLE

    @property
    def failed(self) -> bool:
        """True once the writer ended before the events were durable: `wait` raises at once."""
        return self.state == FAILED

    @property
    def lsns(self) -> range:
        """The lsns of the events, in order; empty until their batch is on its way to the disk."""
        first = self.first_lsn
        return range(first, first + self.count) if first >= 0 else range(0)

    def wait(self, timeout: float | None = None) -> None:
        """Return once the events are durable.

        Raises `OutcomeUnknown` after `timeout` seconds, `JournalFailed` or `JournalClosed` if the writer ended
        before. Blocks the thread: in a coroutine, await the ticket instead.
        """
        if self.state == WAITING and not (self.lazy and timeout is None and self.flusher.lead(self)):
            lock = allocate_lock()
            lock.acquire()
            # No lock of the flusher's: the waiter is noted before the state is looked at again, and who ends an append
            # changes the state before it wakes. So we see the end, or are seen; where both happen, we wake for nothing.
            self.waiters.append(lock)
            if self.lazy:
                self.flusher.hurry(self, None)
            if self.state == WAITING and not lock.acquire(timeout=-1 if timeout is None else timeout):
                raise OutcomeUnknown(f"no answer from the disk within {timeout} s: the events may still become durable")
        if self.state == FAILED:
            assert self.error is not None
            raise again(self.error)

    def release_when_ended(self, lock: LockType) -> bool:
        """Have a held lock released, once, when `wait` would return; False if it would now. Never waits itself.

        False too where a thread that waits now would write itself: then let that thread wait.
        """
        if self.lazy and self.flusher.would_lead:
            return False
        with self.flusher._lock:  # so that the end comes either before the look, or after the note
            waits = self.state == WAITING
            if waits:
                self.waiters.append(lock)
        if waits and self.lazy:
            self.flusher.hurry(self, None)
        return waits

    def __await__(self) -> Generator[Any, None, None]:
        """Await durability; raises like `wait`. Cancelling the task leaves the events queued."""
        if self.state == WAITING:
            loop = get_running_loop()
            future: Future[None] = Future(loop=loop)
            self.waiters.append(future)  # before the second look, as in `wait`
            if self.lazy:
                self.flusher.hurry(self, loop)
            if self.state == WAITING:
                return future.__await__()
        if self.state == FAILED:
            assert self.error is not None
            raise again(self.error)
        return _at_once()


def _at_once() -> Generator[Any, None, None]:
    return
    yield


def wake(appends: Iterable[Append], error: JournalError | None = None) -> int:
    """Wake all who wait for appends that ended so: threads one by one, each event loop once for the whole batch.

    Returns how many threads that makes runnable, an event loop being one.
    """
    return wake_all([waiter for append in appends for waiter in append.waiters], error)


def wake_all(waiters: Iterable[Any], error: JournalError | None = None) -> int:
    """Wake these waiters; `error` is what the futures among them raise (threads look for themselves)."""
    threads = 0
    by_loop: dict[AbstractEventLoop, list[Future[None]]] = {}
    loop: AbstractEventLoop | None = None
    futures: list[Future[None]] = []
    for waiter in waiters:
        if isinstance(waiter, LockType):
            waiter.release()
            threads += 1
            continue
        if waiter.get_loop() is not loop:
            loop = waiter.get_loop()
            futures = by_loop.setdefault(loop, [])
        futures.append(waiter)
    for loop, futures in by_loop.items():
        # A loop that was closed meanwhile has nobody left to tell.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, futures, error)
    return threads + len(by_loop)


def _resolve(futures: list[Future[None]], error: JournalError | None) -> None:
    for future in futures:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(again(error))
