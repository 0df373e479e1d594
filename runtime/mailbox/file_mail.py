"""Mail in the root: `mail/<key>/<id>.json`, created once by linking a synced file to its name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from trajlake.schemas.ids import trajectory_key

from ..durable_folders import DurableFolders
from ..env import REAL_ENV, Env, create_atomically, read_file
from .mail import MailConflict, MailItem, decode_item, encode_item


class FileMailStore:
    """A `MailStore` over the root at `root` (an absolute path). Any thread and process may call."""

    def __init__(self, root: str, *, env: Env = REAL_ENV) -> None:
        self._folder = f"{root}/mail"
        self._env = env
        self._folders = DurableFolders(env, root)

    def post(self, item: MailItem) -> bool:
        text = encode_item(item)
        path = self._path(item)
        if self._create(path, text):
            return True
        with contextlib.suppress(FileNotFoundError):
            if read_file(self._env, path) != text:
                raise MailConflict(f"mail {item.id} for {item.trajectory_id!r} is waiting already, with other contents")
        # The name may stand there without being durable: its maker can have died before its own sync.
        self._env.fsync_dir(path.rpartition("/")[0])
        return False

    def waiting(self, tenant: str, trajectory_id: str) -> list[MailItem]:
        folder = f"{self._folder}/{trajectory_key(tenant, trajectory_id).hex()}"
        return sorted(self._items(folder), key=lambda item: (item.posted_at, item.id))

    def is_empty(self, tenant: str, trajectory_id: str) -> bool:
        """Whether `waiting` would find nothing: one look at a local folder, short enough for an event loop."""
        names = self._names(f"{self._folder}/{trajectory_key(tenant, trajectory_id).hex()}")
        return not names or not any(map(_is_item, names))

    def delete(self, item: MailItem) -> None:
        path = self._path(item)
        try:
            self._env.unlink(path)
        except FileNotFoundError:
            return
        self._env.fsync_dir(path.rpartition("/")[0])

    def trajectories(self) -> Iterator[tuple[str, str]]:
        for key in self._names(self._folder):
            for item in self._items(f"{self._folder}/{key}"):
                yield item.tenant, item.trajectory_id
                break

    def _create(self, path: str, text: bytes) -> bool:
        # An empty mail folder may be tidied away.
        return self._folders.store(path.rpartition("/")[0], lambda: create_atomically(self._env, path, text))

    def _items(self, folder: str) -> Iterator[MailItem]:
        for name in self._names(folder):
            if _is_item(name):
                path = f"{folder}/{name}"
                with contextlib.suppress(FileNotFoundError):  # deleted by the lease holder meanwhile
                    yield decode_item(read_file(self._env, path), path)

    def _names(self, folder: str) -> list[str]:
        try:
            return self._env.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _path(self, item: MailItem) -> str:
        return f"{self._folder}/{trajectory_key(item.tenant, item.trajectory_id).hex()}/{item.id}.json"


def _is_item(name: str) -> bool:
    return name.endswith(".json") and not name.startswith(".")
