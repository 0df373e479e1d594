"""The arbiter of generations in a folder: `generations/<key>/<g>.json` under a root, or a landing on a file system."""

from __future__ import annotations

from ..durable_folders import DurableFolders
from ..env import REAL_ENV, Env, create_atomically


class FileArbiter:
    """An `Arbiter` below `folder` (an absolute path)."""

    def __init__(self, folder: str, *, env: Env = REAL_ENV) -> None:
        self._folder = f"{folder}/generations"
        self._env = env
        self._folders = DurableFolders(env, folder)

    def create(self, key: str, generation: int, body: bytes) -> bool:
        folder = f"{self._folder}/{key}"
        self._folders.ensure(folder)
        return create_atomically(self._env, f"{folder}/{generation}.json", body)
