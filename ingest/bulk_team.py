"""The processes of a bulk import: one writes, its helpers read and number sources, and hand over parcels of events.

Helpers load no engine, so that each costs some 30 MB. They are forked before the writing process has loaded its own.
"""

from __future__ import annotations

import multiprocessing
import pickle
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from queue import Queue
from typing import Any, Final, NamedTuple

from trajlake.runtime.journal_errors import JournalError

from .import_run import ImportOptions, Outcome
from .lake_side import LakeSide
from .loss_report import LossReport
from .parcels import Parcel

PARCELS_WAITING_MAX: Final = 3
"""Parcels that a helper makes ahead of the process that writes them."""


class NotFresh(Exception):
    """Lake or root know something of this source: it goes by the root."""


class Share(NamedTuple):
    """What one process did: outcomes, paths it left, loss reports, objects stored."""

    outcomes: list[Outcome]
    left: list[str]
    reports: list[LossReport]
    stored: list[Any]


class Work:
    """Batches of paths that processes take until none is left."""

    def __init__(self, side: LakeSide, batches: Sequence[Sequence[str]], options: ImportOptions) -> None:
        self.side = side
        self.batches = batches
        self.options = options
        self.context = multiprocessing.get_context("fork")
        self._turn = self.context.Value("q", 0)

    def next(self) -> list[str] | None:
        """Return the next batch, None when all are taken."""
        with self._turn.get_lock():
            place = int(self._turn.value)
            self._turn.value = place + 1
        return list(self.batches[place]) if place < len(self.batches) else None


class Helper:
    """One helper, running. `pipe` gives its parcels, then its share (see `received`)."""

    def __init__(self, work: Work) -> None:
        self.pipe, there = work.context.Pipe()
        self._process = work.context.Process(target=_help, args=(work, there), daemon=True)
        self._process.start()
        there.close()

    def tell(self, plan: tuple[Any, Any]) -> None:
        """Give it what the lake's side decided."""
        try:
            self.pipe.send(plan)
        except OSError:
            raise _died() from None

    def end(self) -> None:
        """Stop it, whatever it does."""
        self._process.terminate()
        self._process.join()
        self.pipe.close()


def received(pipe: Connection) -> Parcel | Share:
    """Return what a helper sent; raise what it failed with, `JournalError` if it died."""
    try:
        message: Any = pickle.loads(pipe.recv_bytes())  # noqa: S301 - from a process of our own
    except (EOFError, ConnectionError):
        raise _died() from None
    if isinstance(message, BaseException):
        raise message
    found: Parcel | Share = message
    return found


def _died() -> JournalError:
    return JournalError("a process of the import died; nothing was committed, run the same import again")


def _help(work: Work, pipe: Connection) -> None:
    from .bulk_run import BulkRun

    ready: Queue[Any] = Queue(PARCELS_WAITING_MAX)
    sender = threading.Thread(target=_send_all, args=(ready, pipe), name="trajlake-parcels", daemon=True)
    sender.start()
    try:
        run = BulkRun(work.side, work.options, pipe.recv)
        while (mine := work.next()) is not None:
            ready.put(run.parcel_of(mine))
        run.finish()
        ready.put(run.share)
    except EOFError:
        return  # the process that writes is gone
    except Exception as error:  # noqa: BLE001 - told to the process that writes, which raises it
        ready.put(error)
    ready.put(None)
    sender.join()


def _send_all(ready: Queue[Any], pipe: Connection) -> None:
    while (message := ready.get()) is not None:
        pipe.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))
