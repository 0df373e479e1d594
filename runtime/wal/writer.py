"""The writer: `append(events, info) -> Ticket`, for threads and for asyncio."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import weakref
from _thread import allocate_lock
from collections.abc import Callable, Sequence

from trajlake.schemas.envelope import Event

from ..env import Env
from .flusher import Flusher
from .frame import TrajectoryInfo, prepare
from .group_commit import GroupCommit
from .journal_errors import EventRefused, JournalClosed
from .segment_chain import SegmentChain
from .stats import Stats, WriterStats
from .ticket import Ticket
from .writer_options import WriterOptions


class Writer:
    """Appends events to the segments of one writer directory, which this process holds (`Root.claim_writer`).

    Any thread and any coroutine may append. Events become durable in the order of their `append` calls, and
    before a later one is, so one barrier covers all that went before it.
    """

    def __init__(
        self, env: Env, folder: str, writer_id: str, *, next_number: int, next_lsn: int, previous_seal: bytes,
        options: WriterOptions, on_close: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self.writer_id = writer_id
        self.folder = folder
        self._measured = Stats()
        self.recovery_reports: list[str] = []
        self._on_close = on_close
        self._closed = False
        self._freeing = allocate_lock()
        self._commit = GroupCommit(options, next_lsn)
        self._chain = SegmentChain(
            env, folder, bytes.fromhex(writer_id), next_number=next_number, next_lsn=next_lsn,
            previous_seal=previous_seal, options=options,
        )  # fmt: skip
        self._flusher = Flusher(env, self._commit, self._chain, self._measured)
        self._flusher.start(f"trajlake-flusher-{writer_id[:8]}")
        atexit.register(self.close)
        _disown_in_children(env, self)

    @property
    def durable_lsn(self) -> int:
        """The last lsn that is durable; -1 before the first."""
        return self._commit.durable_lsn

    @property
    def next_lsn(self) -> int:
        """No event appended after this call gets a lower lsn (what a tenure records as its first lsn)."""
        return self._commit.next_lsn

    @property
    def queue_full_count(self) -> int:
        """How often a caller found the queue full and had to wait."""
        return self._commit.queue_full_count

    def stats(self) -> WriterStats:
        """Return the writer's numbers now. Cheap; any thread."""
        chain = self._chain
        return WriterStats(
            self.writer_id, self._measured, self.durable_lsn, chain.bytes_written, chain.segments_begun,
            self.queue_full_count, chain.failed_over is not None, chain.space_low,
        )  # fmt: skip

    def append(self, events: Sequence[Event], info: TrajectoryInfo, *, lazy: bool = False) -> Ticket:
        """Queue events of one trajectory, in order and next to each other; returns at once.

        They are durable when the ticket says so. `lazy` is for events that nobody waits for: they ride with the
        next barrier, at latest `lazy_delay_max_ms` (50) from now, and do not cause one earlier unless somebody
        does wait on the ticket (`append(..., lazy=True).wait()` is how one thread commits fastest: it may write
        itself). `hash`, `salt` and all other fields of the events are the caller's; the chain is not checked here.

        When the queue is full, a thread waits here until there is room (counted); a coroutine never waits:
        await `room()` before appending much. Raises `EventRefused`, `JournalClosed`, `JournalFailed`; then
        none of the events was queued.
        """
        if not events:
            raise EventRefused("append of no events")
        frames = []
        for event in events:
            frames.append(prepare(event, info))  # noqa: PERF401 - a comprehension is one call more for each append
        ticket = Ticket(frames, info, lazy)
        if self._commit.is_full and not _in_event_loop():
            self._wait_for_room()
        self._flusher.submit(ticket)
        return ticket

    def refuse_if_full(self) -> None:
        """Raise `JournalFull` when the disk has no room for a further segment. Call it before an intent.

        Results and observations may still be appended: one spare segment is kept for them.
        """
        self._chain.refuse_if_full()

    async def room(self) -> None:
        """Wait until the queue is not full (the asyncio counterpart of the wait in `append`)."""
        while True:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            if not self._flusher.wait_for_room(future):
                return
            await future

    def seal(self) -> None:
        """Have the active segment sealed soon, so that it can be shipped. Returns at once."""
        self._flusher.ask_seal()

    def close(self) -> None:
        """Write all that is queued, seal, stop the thread, free the writer directory. May be called twice, and again
        after a Ctrl-C that cut it short.

        Runs at interpreter exit by itself. Raises nothing: what could not be written is told by its tickets.
        """
        if self._closed:
            return
        self._flusher.close()
        with self._freeing:
            if not self._closed:
                self._closed = True
                self._on_close()
        atexit.unregister(self.close)

    def disown(self) -> None:
        """Runs in a forked child: this writer stays the parent's. Appends raise `JournalClosed`."""
        if not self._closed:
            self._closed = True
            self._flusher.disown()
            self._on_close()

    def _wait_for_room(self) -> None:
        while True:
            lock = allocate_lock()
            lock.acquire()
            if not self._flusher.wait_for_room(lock):
                return
            lock.acquire()

    def __enter__(self) -> Writer:
        if self._closed:
            raise JournalClosed("the journal is closed: open it again to append")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _in_event_loop() -> bool:
    with contextlib.suppress(RuntimeError):
        asyncio.get_running_loop()
        return True
    return False


def _disown_in_children(env: Env, writer: Writer) -> None:
    reference = weakref.ref(writer)

    def disown() -> None:
        alive = reference()
        if alive is not None:
            alive.disown()

    env.after_fork_in_child(disown)
