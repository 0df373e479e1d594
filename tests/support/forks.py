"""Processes that start in a moment: forked from one that has loaded what they need, and does nothing else.

A fork of the test's own process would hold the locks of threads that it does not have. A fresh interpreter would spend
two seconds on its imports, many times what a small run takes.
"""

from __future__ import annotations

import atexit
import importlib
import os
import pickle
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

PROJECT: Final = Path(__file__).resolve().parent.parent.parent
WAIT_MAX_S: Final = 240
"""How long a process of a test may take, on a machine that has much else to do."""


class Forks:
    """The process that forks. `modules` are loaded in it, once; they must start no threads."""

    def __init__(self, *modules: str) -> None:
        command = [sys.executable, "-m", "tests.support.forks", *modules]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PROJECT)
        atexit.register(self.close)

    def start(self, work: Callable[..., None], *arguments: Any) -> int:
        """Call a module's function in a new process and return its pid, at once. The pid is not used again before
        `wait` was called."""
        return int(self._ask((work, arguments)))

    def wait(self, pid: int) -> int:
        """Return how a process ended: the code of its sys.exit, 1 for an exception, minus the signal that killed it."""
        return int(self._ask(pid))

    def _ask(self, what: Any) -> Any:
        asked, told = self._server.stdin, self._server.stdout
        assert asked is not None
        assert told is not None
        pickle.dump(what, asked)
        asked.flush()
        if not select.select([told], [], [], WAIT_MAX_S)[0]:
            self.close()
            raise AssertionError(f"no answer within {WAIT_MAX_S} s: {what}")
        return pickle.load(told)

    def close(self) -> None:
        """End the process that forks."""
        self._server.kill()
        self._server.wait()


def serve(asked: Any, told: Any) -> None:
    """Fork for a (function, arguments), wait for a pid, until `asked` ends."""
    while True:
        try:
            what = pickle.load(asked)
        except EOFError:
            return
        if isinstance(what, int):
            answer = os.waitstatus_to_exitcode(os.waitpid(what, 0)[1])
        elif not (answer := os.fork()):
            _child(*what)
        pickle.dump(answer, told)
        told.flush()


def _child(work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    code = 1
    try:
        with open(os.devnull, "r+b") as nothing:
            os.dup2(nothing.fileno(), 0)
            os.dup2(2, 1)
        work(*arguments)
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in sys.argv[1:]:
        importlib.import_module(name)
    serve(sys.stdin.buffer, sys.stdout.buffer)
