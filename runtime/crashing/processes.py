"""Children by fork, several at a time. The parent has no thread of its own and has not imported the user's module."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ..cli_errors import UserError
from .life import write_told
from .places import Told

LIFE_MAX_S: Final = 60.0
"""A life that takes longer is killed, and counts as one that does not end."""
_LOOK_EVERY_S: Final = 0.002


@dataclass(frozen=True)
class Life:
    """One child to run: `work` says what it did; the word is left in `told`, what it prints in `output`."""

    work: Callable[[], Told]
    told: str
    output: str
    max_s: float = LIFE_MAX_S


@dataclass(frozen=True)
class Ended:
    """How a child ended: `killed` by itself at its boundary, `hung` and killed by us, or neither."""

    killed: bool = False
    hung: bool = False


Trial = Generator[Life, Ended, Any]
"""A trial yields the lives it wants, is sent how each ended, and returns its verdict."""


def run_all(trials: Iterable[Trial], jobs: int) -> Iterator[Any]:
    """Run trials, up to `jobs` children at a time, and yield what each returns as it comes. Kills all it leaves."""
    waiting = iter(trials)
    running: dict[int, tuple[Trial, float, bool]] = {}
    try:
        while True:
            while len(running) < jobs:
                trial = next(waiting, None)
                if trial is None:
                    break
                yield from _step(trial, None, running)
            if not running:
                return
            yield from _wait(running)
    finally:
        for pid in running:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _wait(running: dict[int, tuple[Trial, float, bool]]) -> Iterator[Any]:
    ended = False
    for pid, (trial, until_s, hung) in list(running.items()):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found == 0:
            if time.monotonic() > until_s and not hung:
                os.kill(pid, signal.SIGKILL)
                running[pid] = trial, until_s, True
            continue
        ended = True
        del running[pid]
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        yield from _step(trial, Ended(killed=killed and not hung, hung=hung), running)
    if not ended:
        time.sleep(_LOOK_EVERY_S)


def _step(trial: Trial, ended: Ended | None, running: dict[int, tuple[Trial, float, bool]]) -> Iterator[Any]:
    try:
        life = next(trial) if ended is None else trial.send(ended)
    except StopIteration as stop:
        yield stop.value
        return
    running[_fork(life)] = trial, time.monotonic() + life.max_s, False


def _fork(life: Life) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _child(life)
    return pid


def _child(life: Life) -> None:
    """Never returns. SIGINT is left to the parent, which ends its children."""
    code = 3
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        output = os.open(life.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for fd, target in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(fd, target)
        write_told(life.told, life.work())
        code = 0
    except UserError as error:
        write_told(life.told, Told(refused=str(error), code=error.exit_code))
        code = 0
    except BaseException as error:  # noqa: BLE001 - the parent is told; the trace is in the output
        traceback.print_exc()
        write_told(life.told, Told(refused=f"{type(error).__name__}: {error}"))
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
