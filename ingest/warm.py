"""Ships a root's journals to the warm tier as they are written: the active segment too, up to what is durable.

The cursor of each journal moves in the transaction that inserts its events, so a killed shipper or database loses
nothing and doubles nothing. Frames go in lsn order, journal by journal. The agent never waits for any of this.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, Protocol

import msgspec

from trajlake.runtime.replicas.replica import Frame
from trajlake.runtime.root import Root
from trajlake.runtime.wal.journal_errors import SegmentCorrupt

from .journal_tail import JournalTail

BATCH_EVENTS_MAX: Final = 10_000
BATCH_SIZE_MAX_BYTES: Final = 16 << 20
FIRST_EVENTS_MAX: Final = 1_000
"""Of a batch that was not read ahead: the database shall soon have something to do while the next one is."""
AHEAD_FROM_EVENTS: Final = 500
POLL_S: Final = 0.1
_PAUSE_MAX_S: Final = 5.0
_GIVE_WAY_S: Final = 1e-5
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

    def prepare(self, writer: str, frames: Sequence[Frame], give_way: Callable[[], None]) -> Any:
        """Return what `insert` takes for these frames as `prepared`. Runs in a thread beside an `insert` of others.

        Calls `give_way` every millisecond or so.
        """
        ...

    def insert(self, writer: str, frames: Sequence[Frame], *, from_lsn: int, prepared: Any = None) -> int:
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
        # A writer's next batch, read and prepared while one is inserted.
        self._ahead: dict[str, Future[tuple[list[Frame], Any]]] = {}

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
            frames, prepared = self._batch(writer, tail)
        except SegmentCorrupt as error:
            self._trouble[writer] = str(error)
            return False
        except FileNotFoundError:  # a segment without an event went when its writer closed
            self._forget(writer)
            return False
        except BaseException:
            self._forget(writer)
            raise
        self._trouble.pop(writer, None)
        if not frames:
            return False
        if len(frames) >= AHEAD_FROM_EVENTS:
            # Perhaps there is more: it is read, checked and prepared while the database takes this.
            self._ahead[writer] = self._pool.submit(self._prepared, writer, tail)
        try:
            report.duplicates += self.tier.insert(writer, frames, from_lsn=frames[0].header.lsn, prepared=prepared)
        except CursorMoved:
            self._forget(writer)
            return True
        except BaseException:
            self._forget(writer)
            raise
        report.events += len(frames)
        return True

    def _batch(self, writer: str, tail: JournalTail) -> tuple[list[Frame], Any]:
        ahead = self._ahead.pop(writer, None)
        return (tail.read(FIRST_EVENTS_MAX, BATCH_SIZE_MAX_BYTES), None) if ahead is None else ahead.result()

    def _prepared(self, writer: str, tail: JournalTail) -> tuple[list[Frame], Any]:
        frames = tail.read(BATCH_EVENTS_MAX, BATCH_SIZE_MAX_BYTES, _give_way)
        return frames, self.tier.prepare(writer, frames, _give_way) if frames else None

    def _forget(self, writer: str) -> None:
        """Begin again at the cursor, next time."""
        ahead = self._ahead.pop(writer, None)
        if ahead is not None:
            ahead.exception()  # the tail is in the other thread's hands until it is done
        self._tails.pop(writer).close()


def _give_way() -> None:
    """Let the thread that sends rows have the interpreter.

    It needs it for a moment after each 200 KB, and would wait 5 ms for it, while the server takes two for as much.
    """
    time.sleep(_GIVE_WAY_S)
