"""SIGTERM (a deploy, a preemption notice): drain within a grace time; what cannot finish is left as by a crash."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Annotated

import typer

GRACE = Annotated[float, typer.Option("--grace", metavar="SECONDS", help="Time to end a turn after SIGTERM.")]
GRACE_S = 25.0
"""Shorter than the 30 s that schedulers usually give."""


def drain_on_sigterm(drain: Callable[[], None], grace_s: float = GRACE_S) -> None:
    """From now on SIGTERM calls `drain` (say, `journal.drain`); `grace_s` later the process is gone, exit code 143.

    Call it in the main thread. It is safe to be killed at any moment: the grace only spares a resume its settling.
    """

    def on_signal(_number: int, _frame: object) -> None:
        drain()
        timer = threading.Timer(grace_s, os._exit, (128 + signal.SIGTERM,))
        timer.daemon = True
        timer.start()

    signal.signal(signal.SIGTERM, on_signal)
