"""Ships a root's journals to the warm tier as they are written: the active segment too, up to what is durable.

The cursor of each journal moves in the transaction that inserts its events, so a killed shipper or database loses
nothing and doubles nothing. Frames go in lsn order, journal by journal. The agent never waits for any of this.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Protocol

import msgspec

from trajlake.runtime.replicas.replica import Frame
from trajlake.runtime.root import Root
from trajlake.runtime.wal.journal_errors import SegmentCorrupt

from .journal_tail import JournalTail

BATCH_EVENTS_MAX: Final = 5_000
BATCH_SIZE_MAX_BYTES: Final = 16 << 20
POLL_S: Final = 0.1
_PAUSE_MAX_S: Final = 5.0
_LOG: Final = logging.getLogger("trajlake")


class CursorMoved(Exception):
    """The cursor of a writer stands elsewhere: read on from `next_lsn`."""

    def __init__(self, writer: str, next_lsn: int) -> None:
        super().__init__(f"writer {writer}: the cursor stands at lsn {next_lsn}")
        self.next_lsn = next_lsn


class WarmTier(Protocol):
    """Where events are queryable at once. Errors of the network are OSError: unknown, try again."""

    url: str

    def cursor(self, writer: str) -> int:
        """Return the lsn up to which (exclusive) a writer's events are there."""
        ...

    def insert(self, writer: str, frames: Sequence[Frame], *, from_lsn: int) -> int:
        """Insert frames from the cursor on, move it, and return how many events were there already."""
        ...


class WarmReport(msgspec.Struct, kw_only=True):
    """What one run did. `trouble`: journals that cannot be read on, one line each."""

    warm: str
    events: int = 0
    duplicates: int = 0
    journals: int = 0
    trouble: list[str] = []


class WarmShipper:
    """Ships one root to one warm tier. May run beside live writers and beside other shippers."""

    def __init__(self, root: Root, tier: WarmTier) -> None:
        self.root = root
        self.tier = tier
        self._tails: dict[str, JournalTail] = {}
        self._trouble: dict[str, str] = {}
        self._pool = ThreadPoolExecutor(1, "trajlake-warm-read")
        self._ahead: dict[str, Future[list[Frame]]] = {}  # a writer's next batch, read while one is inserted

    def run(self, stop: Callable[[], bool] = lambda: False) -> WarmReport:
        """Ship everything that is durable now. Raises OSError where the tier does not take it."""
        report = WarmReport(warm=self.tier.url)
        for writer in self.root.writers():
            report.journals += 1
            while not stop() and self._ship_some(writer, report):
                pass
        report.trouble = [self._trouble[writer] for writer in sorted(self._trouble)]
        return report

    def follow(
        self, stop: threading.Event, *, poll_s: float = POLL_S, told: Callable[[WarmReport], None] = lambda _: None
    ) -> None:
        """Keep shipping until `stop` is set. A tier that does not answer is tried again for as long as it takes.

        `told` gets the report of each round that did something or met new trouble.
        """
        pause_s = poll_s
        known: list[str] = []
        while not stop.is_set():
            try:
                report = self.run(stop.is_set)
            except OSError as error:
                _LOG.warning("warm tier: %s; trying again", error)
                pause_s = min(max(pause_s * 2, 0.2), _PAUSE_MAX_S)
            else:
                pause_s = poll_s
                if report.events or report.trouble != known:
                    told(report)
                known = report.trouble
            stop.wait(pause_s)
        self.close()

    def close(self) -> None:
        """Close what is open in the root."""
        for writer in list(self._tails):
            self._forget(writer)

    def _ship_some(self, writer: str, report: WarmReport) -> bool:
        """Ship one batch of a writer; False if it has nothing more that is durable."""
        tail = self._tails.get(writer)
        if tail is None:
            tail = JournalTail(self.root.env, self.root.writer_folder(writer), self.tier.cursor(writer))
            self._tails[writer] = tail
        try:
            frames = self._batch(writer, tail)
        except SegmentCorrupt as error:
            self._trouble[writer] = str(error)
            return False
        except FileNotFoundError:  # a segment without an event went when its writer closed
            self._forget(writer)
            return False
        self._trouble.pop(writer, None)
        if not frames:
            return False
        if len(frames) == BATCH_EVENTS_MAX:
            # There is more: it is read and checked while the database takes this.
            self._ahead[writer] = self._pool.submit(tail.read, BATCH_EVENTS_MAX, BATCH_SIZE_MAX_BYTES)
        try:
            report.duplicates += self.tier.insert(writer, frames, from_lsn=frames[0].header.lsn)
        except CursorMoved:
            self._forget(writer)
            return True
        except BaseException:
            self._forget(writer)
            raise
        report.events += len(frames)
        return True

    def _batch(self, writer: str, tail: JournalTail) -> list[Frame]:
        ahead = self._ahead.pop(writer, None)
        return tail.read(BATCH_EVENTS_MAX, BATCH_SIZE_MAX_BYTES) if ahead is None else ahead.result()

    def _forget(self, writer: str) -> None:
        """Begin again at the cursor, next time."""
        ahead = self._ahead.pop(writer, None)
        if ahead is not None:
            ahead.exception()  # the tail is in the other thread's hands until it is done
        self._tails.pop(writer).close()
