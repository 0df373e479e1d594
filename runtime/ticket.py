"""The receipt of an append: threads wait on it, coroutines await it."""

from __future__ import annotations

import asyncio
import contextlib
from _thread import allocate_lock
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any

from .group_commit import DURABLE, FAILED, WAITING, Append
from .journal_errors import OutcomeUnknown, again

if TYPE_CHECKING:
    from .flusher import Flusher


class Ticket:
    """Says when an append is durable. Any thread may wait, any number of times; any event loop may await.

    An interrupted, cancelled or timed-out wait leaves the outcome *unknown*: the events stay queued and will
    most likely become durable. Never take it for "not written".
    """

    __slots__ = ("_append", "_count", "_flusher")

    def __init__(self, append: Append, count: int, flusher: Flusher) -> None:
        self._append = append
        self._count = count
        self._flusher = flusher

    @property
    def done(self) -> bool:
        """True once the events are durable; False before, and for ever if the writer failed."""
        return self._append.state == DURABLE

    @property
    def failed(self) -> bool:
        """True once the writer ended before the events were durable: `wait` raises at once."""
        return self._append.state == FAILED

    @property
    def lsns(self) -> range:
        """The lsns of the events, in order; empty until their batch is on its way to the disk."""
        first = self._append.first_lsn
        return range(first, first + self._count) if first >= 0 else range(0)

    def wait(self, timeout: float | None = None) -> None:
        """Return once the events are durable.

        Raises `OutcomeUnknown` after `timeout` seconds, `JournalFailed` or `JournalClosed` if the writer ended
        before. Blocks the thread: in a coroutine, await the ticket instead.
        """
        append = self._append
        if append.state == WAITING:
            lock = allocate_lock()
            lock.acquire()
            if self._flusher.register(append, lock) and not lock.acquire(timeout=-1 if timeout is None else timeout):
                raise OutcomeUnknown(f"no answer from the disk within {timeout} s: the events may still become durable")
        if append.state == FAILED:
            assert append.error is not None
            raise again(append.error)

    def __await__(self) -> Generator[Any, None, None]:
        """Await durability; raises like `wait`. Cancelling the task leaves the events queued."""
        append = self._append
        if append.state == WAITING:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if self._flusher.register(append, future):
                yield from future
        if append.state == FAILED:
            assert append.error is not None
            raise again(append.error)


def wake(appends: Iterable[Append]) -> None:
    """Wake all who wait for these appends: threads one by one, each event loop once for the whole batch."""
    loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for append in appends:
        waiters, append.waiters = append.waiters, None
        for waiter in waiters or ():
            if isinstance(waiter, asyncio.Future):
                loops.setdefault(waiter.get_loop(), []).append(waiter)
            else:
                waiter.release()
    for loop, futures in loops.items():
        # A loop that was closed meanwhile has nobody left to tell.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, futures)


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
