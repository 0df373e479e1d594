"""Sends what a process's writer has made durable on to the replica, and says when it was acknowledged there.

One daemon thread. Appends leave in the order in which they were made and only once the local barrier has covered
them, each after the blobs it names; so an acknowledgement covers every earlier frame of the same trajectory. A replica
that is away is tried again for as long as the process lives; whoever waits gives up after a while, not knowing.
Source: design/journal.md, *Durability levels*.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Final, NamedTuple

from trajlake.schemas.envelope import Event

from ..env import REAL_ENV, Env
from ..wal.frame import TrajectoryInfo
from ..wal.journal_errors import JournalClosed, JournalError, OutcomeUnknown
from ..wal.ticket import Ticket
from .replica import BlobNotHeld, Frame, Replica, frames_of

PATIENCE_S: Final = 30.0
"""How long a wait lasts before its outcome is called unknown."""
BATCH_APPENDS_MAX: Final = 512
_LAZY_S: Final = 0.05
_PAUSE_MAX_S: Final = 2.0
_LOG: Final = logging.getLogger("trajlake")


class _Sent(NamedTuple):
    """Frames of one writer on their way. `ticket` None: durable here already (another writer's)."""

    position: int
    writer: str
    events: Sequence[Event]
    info: TrajectoryInfo
    ticket: Ticket | None


class Replication:
    """Any thread may call. `blob(tenant, sha256)` gives the bytes of a blob that stands in the root."""

    def __init__(
        self,
        replica: Replica,
        blob: Callable[[str, str], bytes],
        *,
        env: Env = REAL_ENV,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._replica = replica
        self._blob = blob
        self._env = env
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._queue: deque[_Sent] = deque()
        self._position = 0
        self._acknowledged = 0
        self._futures: list[tuple[int, asyncio.Future[None]]] = []
        self._thread: threading.Thread | None = None
        self._closed = False
        self._error: BaseException | None = None
        self._trouble = ""
        self._held: set[tuple[str, str]] = set()

    def send(self, writer: str, events: Sequence[Event], info: TrajectoryInfo, ticket: Ticket | None) -> int:
        """Queue one append (with its ticket) or frames that are durable already (without); return its position."""
        with self._changed:
            if self._closed:
                raise JournalClosed("the journal is closed: nothing goes to the replica any more")
            self._position += 1
            self._queue.append(_Sent(self._position, writer, events, info, ticket))
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="trajlake-replicate", daemon=True)
                thread.start()  # raises where the system gives no more threads: the next one takes this along
                self._thread = thread
            return self._position

    def wait(self, position: int, timeout: float | None = None) -> None:
        """Return once everything up to `position` is acknowledged. Raises `OutcomeUnknown` when that takes too long."""
        limit_s = self._patience_s if timeout is None else timeout
        with self._changed:
            self._changed.notify_all()  # it is durable here by now: the thread need not look for that
            done = self._changed.wait_for(lambda: self._acknowledged >= position or self._ended, limit_s)
            if self._acknowledged >= position:
                return
            raise self._unknown(limit_s) if not done else self._final()

    def wait_async(self, position: int) -> Generator[object, None, None]:
        """The same for coroutines: `yield from` it. The loop never blocks."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._changed:
            if self._acknowledged >= position:
                return
            if self._ended:
                raise self._final()
            self._futures.append((position, future))
            self._changed.notify_all()
        timer = loop.call_later(self._patience_s, self._give_up, future)
        try:
            yield from future
        finally:
            timer.cancel()

    def close(self, timeout_s: float = 10.0) -> bool:
        """Send what is queued, for so long at most; say whether all of it was acknowledged."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)
        with self._changed:
            return self._acknowledged == self._position

    # -- the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause_s = _LAZY_S
        while True:
            with self._changed:
                batch = self._durable_batch()
                if not batch:
                    if self._closed and not self._queue:
                        return
                    self._changed.wait(_LAZY_S if self._queue else None)
                    continue
            try:
                self._deliver(batch)
            except JournalError as error:  # the writer failed: these events are not durable here and never will be
                self._end(error)
                return
            except OSError as error:
                self._trouble = str(error)
                _LOG.warning("replica: %s; trying again", error)
                with self._changed:
                    if self._closed:
                        return
                    self._changed.wait(pause_s)
                pause_s = min(pause_s * 2, _PAUSE_MAX_S)
                continue
            except BaseException as error:
                self._end(error)
                raise
            pause_s, self._trouble = _LAZY_S, ""
            self._acknowledge(batch)

    def _durable_batch(self) -> list[_Sent]:
        """The front of the queue, as far as it is durable here, of one writer. An append that failed is included."""
        batch: list[_Sent] = []
        for sent in self._queue:
            known = sent.ticket is None or sent.ticket.done or sent.ticket.failed
            if not known or len(batch) >= BATCH_APPENDS_MAX or (batch and sent.writer != batch[0].writer):
                break
            batch.append(sent)
        return batch

    def _deliver(self, batch: Sequence[_Sent]) -> None:
        frames: list[Frame] = []
        for sent in batch:
            if sent.ticket is not None:
                sent.ticket.wait()  # returns or raises at once
            lsns = [event.lsn for event in sent.events] if sent.ticket is None else sent.ticket.lsns
            frames += frames_of(sent.events, lsns, sent.info)
        frames.sort(key=lambda frame: frame.header.lsn)
        self._put_blobs(frames)
        try:
            self._replica.append(batch[0].writer, frames)
        except BlobNotHeld:
            self._held.clear()
            raise

    def _put_blobs(self, frames: Sequence[Frame]) -> None:
        for tenant, sha256 in sorted({(frame.info.tenant, sha256) for frame in frames for sha256 in frame.blobs}):
            if (tenant, sha256) not in self._held:
                self._replica.put(tenant, sha256, self._blob(tenant, sha256))
                self._held.add((tenant, sha256))

    def _acknowledge(self, batch: Sequence[_Sent]) -> None:
        with self._changed:
            for _ in batch:
                self._queue.popleft()
            self._acknowledged = batch[-1].position
            ready = [future for position, future in self._futures if position <= self._acknowledged]
            self._futures = [one for one in self._futures if one[0] > self._acknowledged]
            self._changed.notify_all()
        for future in ready:
            _tell(future, None)

    def _end(self, error: BaseException) -> None:
        with self._changed:
            self._error = error
            futures, self._futures = self._futures, []
            self._changed.notify_all()
        for _, future in futures:
            _tell(future, self._final())

    # -- waiting -----------------------------------------------------------------------------------------------

    @property
    def _ended(self) -> bool:
        return self._error is not None or (self._closed and (self._thread is None or not self._thread.is_alive()))

    def _give_up(self, future: asyncio.Future[None]) -> None:
        if not future.done():
            future.set_exception(self._unknown(self._patience_s))

    def _unknown(self, limit_s: float) -> OutcomeUnknown:
        why = f" ({self._trouble})" if self._trouble else ""
        return OutcomeUnknown(f"no acknowledgement from the replica within {limit_s:g} s{why}: it may still come")

    def _final(self) -> JournalError:
        return OutcomeUnknown(f"replication has ended: {self._error or 'the journal is closed'}")


def _tell(future: asyncio.Future[None], error: BaseException | None) -> None:
    def tell() -> None:
        if not future.done():
            future.set_exception(error) if error is not None else future.set_result(None)

    with contextlib.suppress(RuntimeError):  # a loop that was closed meanwhile has nobody left to tell
        future.get_loop().call_soon_threadsafe(tell)
