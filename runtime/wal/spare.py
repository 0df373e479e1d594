"""Zero-filled files made ahead of use, by a helper thread, so that a commit never waits for one."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable
from typing import Final

from ..env import Env
from .segment import fill_with_zeros
from .segment_format import TEMPORARY

REST: Final = 3
"""A spare in the making uses a quarter of the device's time, unless it would come too late."""
REST_MAX_S: Final = 0.1
LEAD: Final = 1.25
"""How far a spare has to be ahead of the segment in use: finished when that is used to four fifths."""


class SpareKeeper:
    """Keeps one spare file ready in a writer's folder.

    `threaded=False` makes spares in the caller instead (tests and tools): the same code, no concurrency.
    `used_share` (0 to 1) is set by who writes: how much of the segment before the spare is used.
    Callbacks (`on_space`) are told True when a spare could not be made for lack of space, False when one could.
    """

    def __init__(
        self, env: Env, folder: str, *, threaded: bool, on_space: Callable[[bool], None] = lambda _: None
    ) -> None:
        self._env = env
        self._folder = folder
        self._on_space = on_space
        self._threaded = threaded
        self._lock = threading.Condition()
        self._wanted = 0
        self._ready: tuple[str, int] | None = None
        self._busy = False
        self._awaited = False
        self._piece_at = 0.0
        self.used_share = 0.0
        self._stop = False
        self._thread: threading.Thread | None = None
        self._made = 0

    def want(self, size_bytes: int) -> None:
        """Have a spare of that size made in the background (now, without threads). Never raises for disk errors."""
        with self._lock:
            if self._ready or self._busy or self._stop:
                return
            self._wanted = size_bytes
            if self._threaded:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="trajlake-spare", daemon=True)
                    self._thread.start()
                self._lock.notify_all()
                return
        self._make_wanted()

    def take(self, size_bytes: int) -> str:
        """Return the path of a zero-filled file of at least that size, made now if none is ready. Raises OSError."""
        with self._lock:
            while self._busy:
                self._awaited = True
                self._lock.notify_all()
                self._lock.wait()
            self._awaited = False
            self._wanted = 0
            ready, self._ready = self._ready, None
        if ready is not None:
            if ready[1] >= size_bytes:
                return ready[0]
            with contextlib.suppress(OSError):
                self._env.unlink(ready[0])
        return self._make(size_bytes)

    def close(self) -> None:
        """Stop the helper and remove an unused spare."""
        with self._lock:
            self._stop = True
            self._lock.notify_all()
        if self._thread is not None:
            self._thread.join()
        if self._ready is not None:
            with contextlib.suppress(OSError):
                self._env.unlink(self._ready[0])
            self._ready = None

    def _make(self, size_bytes: int, pace: Callable[[float], None] = lambda _: None) -> str:
        self._made += 1
        path = f"{self._folder}/spare-{self._env.random_bytes(6).hex()}{TEMPORARY}"
        fill_with_zeros(self._env, path, size_bytes, pace)
        return path

    def _breathe(self, made_share: float) -> None:
        """Between two pieces of a spare: leave the device to commits for as long as `REST` pieces take."""
        now = self._env.monotonic()
        with self._lock:
            pressed = self._awaited or self._stop or made_share < self.used_share * LEAD
            if self._threaded and self._piece_at and not pressed:
                self._lock.wait(min((now - self._piece_at) * REST, REST_MAX_S))
        self._piece_at = self._env.monotonic()

    def _make_wanted(self) -> None:
        with self._lock:
            size, self._wanted = self._wanted, 0
            if not size:
                return
            self._busy = True
        made: tuple[str, int] | None = None
        full: bool | None = None
        try:
            self._piece_at = 0.0
            made = (self._make(size, self._breathe), size)
            full = False
        except OSError as error:
            # A spare is only a convenience: any real trouble shows again, and is told, when one is needed.
            full = error.errno in (errno.ENOSPC, errno.EDQUOT) or None
        finally:
            with self._lock:
                self._busy = False
                self._ready = made
                self._lock.notify_all()
        if full is not None:
            self._on_space(full)

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._wanted and not self._stop:
                    self._lock.wait()
                if self._stop:
                    return
            self._make_wanted()
