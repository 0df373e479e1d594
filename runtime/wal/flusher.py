"""Who writes: it drives `GroupCommit` over a `SegmentChain`, one thread at a time. Callers only queue and wait.

Mostly that is a thread of its own, for Python delivers signals to the main thread between any two bytecodes: there a
caller that wrote for others could be stopped with their events half-way. Another thread that waits by itself writes
itself (`lead`): to have it done is two changes of threads more, and takes half as long again as the barrier.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from _thread import allocate_lock, get_ident
from math import inf
from typing import Any, Final

from ..env import Env
from .barrier_check import speed_warnings
from .group_commit import WAITING, Append, GroupCommit
from .journal_errors import JournalClosed, JournalError, JournalFailed, again
from .segment_chain import SegmentChain
from .stats import Stats
from .ticket import Ticket, wake, wake_all

FIRST_BARRIERS: Final = 50
_LOG: Final = logging.getLogger("trajlake")


class Flusher:
    """Owns the lock of the state machine. Methods may be called from any thread unless they say otherwise."""

    def __init__(self, env: Env, commit: GroupCommit, chain: SegmentChain, stats: Stats) -> None:
        self._env = env
        self._monotonic = env.monotonic
        self._commit = commit
        self._chain = chain
        self._stats = stats
        self._lock = threading.Lock()
        self._bell = allocate_lock()
        self._bell.acquire()
        self._turn = allocate_lock()
        self._turn.acquire()
        self._asleep = False
        self._crowded = False
        self._main_thread = threading.main_thread().ident
        self._alarm = 0.0
        self._watches = self._lazy_came = False
        self._ringing_loop: asyncio.AbstractEventLoop | None = None
        self._room_waiters: list[Any] = []
        self._seal_asked = False
        self._thread: threading.Thread | None = None
        self._closed: JournalClosed | None = None
        self._first_barriers_us: list[float] | None = []

    def start(self, name: str) -> None:
        """Start the thread. It is a daemon so that `close` at exit (atexit) runs before it is stopped."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, ticket: Ticket) -> None:
        """Queue an append. Raises `JournalClosed` or `JournalFailed`, and then nothing was queued."""
        ticket.flusher = self
        now = self._monotonic()
        commit = self._commit
        with self._lock:
            ended = self._closed or commit.error
            if ended is not None:
                raise again(ended)
            # Ring first: an interrupt behind the bell costs one idle look, one before it would cost the wake-up.
            if self._asleep and not ticket.lazy:
                self._ring()
            if ticket.lazy:
                self._lazy_came = True
            if commit.offer(ticket, now) and self._asleep and self._is_due_before_alarm():
                self._ring()

    def hurry(self, append: Append, loop: asyncio.AbstractEventLoop | None) -> None:
        """Make a lazy append urgent. From an event loop the bell rings where its turn ends, once for all tasks that
        wait by then: so they share a barrier. (A loop that stops before costs the lazy delay, no more.)
        """
        with self._lock:
            self._commit.hurry(append, self._monotonic())
            if loop is None:
                self._ring_if_asleep()
            elif self._ringing_loop is not loop:
                loop.call_soon(self._ring_for_loop)
                self._ringing_loop = loop

    def _ring_for_loop(self) -> None:
        with self._lock:
            self._ringing_loop = None
            self._ring_if_asleep()

    @property
    def would_lead(self) -> bool:
        """Whether a thread that waited now would write itself: a guess, nothing is held."""
        return self._asleep and not self._crowded

    def lead(self, append: Append) -> bool:
        """Write what waits, `append` with it, in the calling thread; False: leave it to the flusher's thread.

        Only while that sleeps, and the last barrier had no more than one to wake: threads that come at once share more
        barriers when none of them writes. On return of True `append` has ended; on False it may have.
        """
        if not self.would_lead or get_ident() == self._main_thread:
            return False
        now = self._monotonic()
        with self._lock:
            if not self._asleep or not self._turn.acquire(blocking=False):
                return False
            self._commit.hurry(append, now)
            batch = self._commit.take(now)
            if not batch:  # a window is open: the flusher is to look when it closes
                self._turn.release()
                self._ring()
                return False
            self._asleep = False  # nobody rings before the turn is given back
        try:
            self._write(batch, now, led=True)
        except JournalError as error:
            self._end(error)
        except BaseException as error:
            self._end(JournalFailed(f"the thread that wrote was stopped: {error!r}; start a new process to recover"))
            raise
        finally:
            self._give_back()
        return append.state != WAITING  # a batch has a limit, and takes what came first

    def _give_back(self) -> None:
        """Let the flusher's thread sleep on, or wake it for what came meanwhile."""
        with self._lock:
            self._turn.release()
            came = self._commit.due_at() is not None or self._seal_asked
            if came or self._commit.closing or self._commit.error is not None or self._is_seal_due_before_alarm():
                self._bell.release()
            else:
                self._asleep = True

    def wait_for_room(self, waiter: Any) -> bool:
        """Have `waiter` (as in `register`) woken when the queue has shrunk; False if there is room now."""
        with self._lock:
            if not self._commit.is_full or self._closed is not None or self._commit.error is not None:
                return False
            self._commit.queue_full_count += 1
            self._room_waiters.append(waiter)
            return True

    def ask_seal(self) -> None:
        """Have the active segment sealed after the batches before it."""
        with self._lock:
            self._seal_asked = True
            self._ring_if_asleep()

    def close(self) -> None:
        """Write what waits, seal, and end the thread. Later calls of `submit` raise. May be called twice."""
        with self._lock:
            self._closed = self._closed or JournalClosed("the journal is closed: open it again to append")
            self._commit.closing = True
            self._ring_if_asleep()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def disown(self) -> None:
        """In a forked child: the thread is the parent's. Take new locks, fail what waits, touch no file."""
        self._lock = threading.Lock()
        self._thread = None
        self._closed = JournalClosed(
            "the journal belongs to the parent process: open it in the child, or start children with"
            " multiprocessing's 'spawn' method"
        )
        self._commit.fail(self._closed)
        self._chain.disown()

    # -- the thread --------------------------------------------------------------------------------------------

    def _ring(self) -> None:
        self._asleep = False
        self._bell.release()

    def _ring_if_asleep(self) -> None:
        if self._asleep:
            self._ring()

    def _is_due_before_alarm(self) -> bool:
        due = self._commit.due_at()
        return due is not None and due < self._alarm

    def _is_seal_due_before_alarm(self) -> bool:
        due = self._chain.seal_due_at()
        return due is not None and due < self._alarm

    def _run(self) -> None:
        try:
            while self._step():
                pass
            self._chain.close()
        except JournalError as error:
            self._end(error)
        except BaseException as error:
            self._end(JournalFailed(f"the flusher thread stopped: {error!r}; start a new process to recover"))
            raise
        finally:
            self._chain.abandon()

    def _step(self) -> bool:
        """Do what is due, or sleep until something is. False when closed and all is written."""
        now = self._monotonic()
        with self._lock:
            self._asleep = False
            self._bell.acquire(blocking=False)  # what rang till now is looked at here
            if self._commit.error is not None:
                raise again(self._commit.error)
            batch = self._commit.take(now)
            asked, self._seal_asked = self._seal_asked, False
            seal_due = self._chain.seal_due_at()
            seal = asked or (seal_due is not None and now >= seal_due)
            idle = not batch and not seal
            if idle and self._commit.closing:
                return False
            if idle:
                self._alarm = self._next_look(now, seal_due)
                self._asleep = True
                self._turn.release()
        if batch:
            self._write(batch, now)
        if seal:
            self._chain.seal()
        if idle:
            self._sleep(now)
        return True

    def _next_look(self, now: float, seal_due: float | None) -> float:
        """When to look again if nobody rings. Where lazy events come, that is once within their delay behind a batch:
        those that come till then need no bell, and a writer at rest does not keep waking up.
        """
        due = self._commit.due_at()
        if due is None and self._watches:
            due = now + self._commit.lazy_delay
            self._watches = False
        return min((at for at in (due, seal_due) if at is not None), default=inf)

    def _sleep(self, now: float) -> None:
        self._bell.acquire(timeout=-1 if self._alarm == inf else max(0.0, self._alarm - now))
        self._turn.acquire()

    def _write(self, batch: list[Append], taken_at: float, *, led: bool = False) -> None:
        """Make a batch durable and wake who waits. Only the thread whose turn it is; `led`: it waits itself."""
        chain = self._chain
        chain.write_batch(batch)
        durable_at = self._monotonic()
        events = chain.next_lsn - batch[0].first_lsn
        with self._lock:
            done = self._commit.finish()
            room: list[Any] = []
            if not self._commit.is_full:
                room, self._room_waiters = self._room_waiters, room
        woken = wake(done)
        woken_at = self._monotonic()
        if room:
            wake_all(room)
        chain.catch_up()
        self._stats.batch(
            events,
            queue_s=taken_at - batch[0].offered_at,
            batch_s=chain.laid_out_at - taken_at,
            write_s=chain.barrier_begun_at - chain.laid_out_at,
            barrier_s=durable_at - chain.barrier_begun_at,
            wake_s=woken_at - durable_at,
        )
        if self._first_barriers_us is not None:
            self._judge_barriers((durable_at - chain.barrier_begun_at) * 1e6)
        self._watches, self._lazy_came = self._lazy_came, False
        self._crowded = woken + led > 1
        if woken > 1:
            # Whom this barrier woke is ready to append again, and would miss the next one by a hair: two groups would
            # take turns for ever, each waiting for two barriers.
            self._env.give_way()

    def _judge_barriers(self, taken_us: float) -> None:
        """The self-test at open, at no cost: the first barriers of a writer tell what the disk is."""
        assert self._first_barriers_us is not None
        self._first_barriers_us.append(taken_us)
        if len(self._first_barriers_us) == FIRST_BARRIERS:
            for warning in speed_warnings(sorted(self._first_barriers_us)[FIRST_BARRIERS // 2]):
                _LOG.warning("%s: %s; see 'trajlake doctor'", self._chain.folder, warning)
            self._first_barriers_us = None

    def _end(self, error: JournalError) -> None:
        with self._lock:
            lost = self._commit.fail(error)
            room, self._room_waiters = self._room_waiters, []
        wake(lost, error)
        wake_all(room)
