"""Folders whose names are durable, remembered, so that a small durable file costs no extra sync of its parents.

A folder that is found may have been made a moment ago by a process that was killed before its own sync; what is
created durably inside it would go with it. So the first use in a process syncs the names above it.
"""

from __future__ import annotations

from .env import Env, make_folder

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
        above = path
        while len(above) > len(self._top):
            above = above.rpartition("/")[0]
            self._env.fsync_dir(above or "/")
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known.add(path)

    def forget(self, path: str) -> None:
        """Call it when `path` turned out to be gone."""
        self._known.discard(path)
