"""The processes of a bulk import: one writes, its helpers read and number sources, and hand over parcels of events.

Helpers load no engine, so that each costs some 30 MB. They are forked before the writing process has loaded its own.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import Queue
from typing import Any, Final, NamedTuple

from trajlake.runtime.wal.journal_errors import JournalError

from .import_run import ImportOptions, Outcome
from .lake_side import LakeSide
from .loss_report import LossReport

PARCELS_WAITING_MAX: Final = 3
"""Parcels that a helper makes ahead of the process that writes them: what it makes while a batch is written."""


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

    def __init__(self, work: Work, team: Sequence[Helper] = ()) -> None:
        self.pipe, there = work.context.Pipe()
        # A fork inherits the ends of the process that writes: held, no helper would see that it is gone.
        not_mine = [self.pipe, *(helper.pipe for helper in team)]
        self._process = work.context.Process(target=_help, args=(work, there, not_mine), daemon=True)
        self._process.start()
        there.close()

    def tell(self, plan: tuple[Any, Any]) -> None:
        """Give it what the lake's side decided. One that had no use for it may be done: its share says what it did."""
        with suppress(OSError):
            self.pipe.send(plan)

    def end(self) -> None:
        """Stop it, whatever it does."""
        self._process.terminate()
        self._process.join()
        self.pipe.close()


def received(pipe: Connection) -> Any:
    """Return what a process sent, a helper its parcels and its share; raise what it failed with.

    Raises `JournalError` if it died.
    """
    try:
        message: Any = pickle.loads(pipe.recv_bytes())  # noqa: S301 - from a process of our own
    except (EOFError, ConnectionError):
        raise _died() from None
    if isinstance(message, BaseException):
        raise message
    return message


def asked(
    context: Any, ask: Callable[[], Any], team: Sequence[Helper] = (), meanwhile: Callable[[], None] = lambda: None
) -> Any:
    """Return what `ask` returns in a process of its own: what it loads goes with it. Raises what it raises.

    `team` are the helpers that run already; `meanwhile` is done here until the answer comes.
    """
    here, there = context.Pipe(duplex=False)
    not_mine = [here, *(helper.pipe for helper in team)]
    process = context.Process(target=_answer, args=(ask, there, not_mine), daemon=True)
    process.start()
    there.close()
    try:
        meanwhile()
        return received(here)
    finally:
        process.join()
        here.close()


def _told(error: Exception) -> Exception:
    """Return an error as a pipe takes it: itself, or one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
    except Exception:  # noqa: BLE001 - whatever keeps it from being told
        return JournalError(f"a process of the import failed: {type(error).__name__}: {error}")
    return error


def _died() -> JournalError:
    return JournalError("a process of the import died; nothing was committed, run the same import again")


def _answer(ask: Callable[[], Any], pipe: Connection, not_mine: Sequence[Connection]) -> None:
    for other in not_mine:
        other.close()
    try:
        found = ask()
    except Exception as error:  # noqa: BLE001 - told to the process that asks, which raises it
        found = _told(error)
    pipe.send_bytes(pickle.dumps(found, pickle.HIGHEST_PROTOCOL))


def _help(work: Work, pipe: Connection, not_mine: Sequence[Connection]) -> None:
    from .bulk_run import BulkRun

    for other in not_mine:
        other.close()
    plan: Future[tuple[Any, Any]] = Future()
    threading.Thread(target=_receive, args=(plan, pipe), name="trajlake-plan", daemon=True).start()
    ready: Queue[Any] = Queue(PARCELS_WAITING_MAX)
    sender = threading.Thread(target=_send_all, args=(ready, pipe), name="trajlake-parcels", daemon=True)
    sender.start()
    try:
        run = BulkRun(work.side, work.options, plan.result)
        while (mine := work.next()) is not None:
            ready.put(run.parcel_of(mine))
        run.finish()
        ready.put(run.share)
    except Exception as error:  # noqa: BLE001 - told to the process that writes, which raises it
        ready.put(_told(error))
    ready.put(None)
    sender.join()


def _receive(plan: Future[tuple[Any, Any]], pipe: Connection) -> None:
    """Take the plan whenever it comes: the process that tells it reads nothing before it has told all.

    Nothing comes after it. The end of the pipe says that the process that writes is gone, and this one has no use.
    """
    with suppress(EOFError, OSError):
        plan.set_result(pipe.recv())
        pipe.recv()
    os._exit(1)


def _send_all(ready: Queue[Any], pipe: Connection) -> None:
    try:
        while (message := ready.get()) is not None:
            pipe.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))
    except OSError:
        os._exit(1)  # nobody takes it: without this thread, the others would wait for ever
