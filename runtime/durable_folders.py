"""Folders whose names are durable, remembered, so that a small durable file costs no extra sync of its parents.

A folder that is found may have been made a moment ago by a process that was killed before its own sync; what is
created durably inside it would go with it. So the first use in a process syncs the names above it.

`env.make_folder` alone promises only what it makes itself: whatever must survive a power loss goes through here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from .env import Env, make_folder

T = TypeVar("T")

_KNOWN_MAX = 100_000


class DurableFolders:
    """Makes folders below `top` (an existing one). Any thread may call."""

    def __init__(self, env: Env, top: str) -> None:
        self._env = env
        self._top = top
        self._known: set[str] = set()

    def ensure(self, path: str) -> None:
        """On return `path` exists, and its name and those between it and `top` are durable."""
        if path in self._known:
            return
        make_folder(self._env, path)
        found, name = {path}, path
        while len(name) > len(self._top):
            name = name.rpartition("/")[0]
            self._env.fsync_dir(name or "/")
            if name in self._known:  # its own name is durable, and those above it
                break
            found.add(name)
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known |= found

    def store(self, path: str, store: Callable[[], T]) -> T:
        """Return `store()`, once `path` is such a folder; again where it turns out that somebody has removed it."""
        self.ensure(path)
        try:
            return store()
        except FileNotFoundError:
            self.forget(path)
            self.ensure(path)
            return store()

    def forget(self, path: str) -> None:
        """Call it when `path` turned out to be gone."""
        self._known.discard(path)
