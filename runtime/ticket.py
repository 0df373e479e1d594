"""The receipt of an append: threads wait on it, coroutines await it."""

from __future__ import annotations

import asyncio
import contextlib
from _thread import LockType, allocate_lock
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
        if self.state == WAITING:
            lock = allocate_lock()
            lock.acquire()
            if self.flusher.register(self, lock) and not lock.acquire(timeout=-1 if timeout is None else timeout):
                raise OutcomeUnknown(f"no answer from the disk within {timeout} s: the events may still become durable")
        if self.state == FAILED:
            assert self.error is not None
            raise again(self.error)

    def __await__(self) -> Generator[Any, None, None]:
        """Await durability; raises like `wait`. Cancelling the task leaves the events queued."""
        if self.state == WAITING:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if self.flusher.register(self, future):
                return future.__await__()
        if self.state == FAILED:
            assert self.error is not None
            raise again(self.error)
        return _at_once()


def _at_once() -> Generator[Any, None, None]:
    return
    yield


def wake(appends: Iterable[Append], error: JournalError | None = None) -> None:
    """Wake all who wait for appends that ended so: threads one by one, each event loop once for the whole batch."""
    wake_all([waiter for append in appends for waiter in append.waiters], error)


def wake_all(waiters: Iterable[Any], error: JournalError | None = None) -> None:
    """Wake these waiters; `error` is what the futures among them raise (threads look for themselves)."""
    futures: list[asyncio.Future[None]] = []
    for waiter in waiters:
        if isinstance(waiter, LockType):
            waiter.release()
        else:
            futures.append(waiter)
    while futures:
        loop = futures[0].get_loop()
        # A loop that was closed meanwhile has nobody left to tell.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, [future for future in futures if future.get_loop() is loop], error)
        futures = [future for future in futures if future.get_loop() is not loop]


def _resolve(futures: list[asyncio.Future[None]], error: JournalError | None) -> None:
    for future in futures:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(again(error))
