"""Imports many files with several processes: each has a writer of its own in the same root.

The work of an import is decoding and hashing, which one process cannot spread over cores. Files are dealt out in
small groups; files that may copy one another (`copies.py`) or share a session name stay with one process, in order.
What two processes both append under one key is the same bytes, so nothing can go wrong but doubled work.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Final

from trajlake.runtime.root import Root
from trajlake.runtime.wal.journal_errors import JournalError

from .import_run import ImportOptions, ImportRun, Outcome
from .lake_side import LakeSide
from .sources import Source

WORTH_BYTES: Final = 24 * 1024 * 1024
"""Below this one process is faster: a second one costs its start."""
GROUP_SIZE_MAX_BYTES: Final = 4 * 1024 * 1024
PROCESSES_MAX: Final = 4


def processes_for(sources: Sequence[Source]) -> int:
    """Return how many processes are worth their start for these files."""
    if sum(source.size or 0 for source in sources) < WORTH_BYTES or not all(source.is_local for source in sources):
        return 1
    # A loaded engine has threads of its own, which a fork would lose in the middle of what they do.
    if "polars" in sys.modules or threading.active_count() > 1 or "fork" not in multiprocessing.get_all_start_methods():
        return 1
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count() or 1
    return max(1, min(PROCESSES_MAX, cores, len(sources)))


def import_many(
    root: Root, groups: Sequence[Sequence[str]], options: ImportOptions, processes: int, side: LakeSide | None = None
) -> Iterator[Outcome]:
    """Import groups of local paths, yielding outcomes in the order of the groups; durable when it ends.

    Raises `JournalError` if a process dies: what it had appended stands, and the next run completes it.
    """
    context = multiprocessing.get_context("fork")
    batches = dealt(groups)
    pipes, workers = [], []
    for number in range(processes):
        here, there = context.Pipe(duplex=False)
        mine = batches[number::processes]
        worker = context.Process(target=_work, args=(root.path, mine, options, side, there), daemon=True)
        worker.start()
        there.close()
        pipes.append(here)
        workers.append(worker)
    try:
        for number in range(len(batches)):
            yield from _received(pipes[number % processes])
    except BaseException:
        for worker in workers:
            worker.terminate()  # else it would wait for ever to hand over what nobody takes
        raise
    finally:
        for worker in workers:
            worker.join()
    if any(worker.exitcode for worker in workers):
        raise _died()


def _received(pipe: Connection) -> list[Outcome]:
    try:
        outcomes: list[Outcome] = pipe.recv()
    except EOFError:
        raise _died() from None
    return outcomes


def _died() -> JournalError:
    return JournalError("a process of the import died; run the same import again, it goes on where it was")


def dealt(groups: Sequence[Sequence[str]], size_bytes: int = GROUP_SIZE_MAX_BYTES) -> list[list[str]]:
    """Return groups of paths put together until they have `size_bytes`; no group is split."""
    batches: list[list[str]] = []
    size = size_bytes
    for group in groups:
        if size >= size_bytes:
            batches.append([])
            size = 0
        batches[-1].extend(group)
        size += sum(os.path.getsize(path) for path in group)
    return batches


def _work(
    path: str, batches: Sequence[Sequence[str]], options: ImportOptions, side: LakeSide | None, pipe: Connection
) -> None:
    with ImportRun(Root.open(path), options, side) as run:
        for paths in batches:
            outcomes = [run.import_source(Source.of_path(one)) for one in paths]
            run.flush()
            pipe.send(outcomes)
    pipe.close()
