"""Blobs: bulk that stands beside the segments, named by its sha256, once per tenant."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from hashlib import sha256 as sha256_of
from typing import Final

from trajlake.schemas.errors import InvalidId
from trajlake.schemas.ids import check_tenant

from .durable_folders import DurableFolders
from .env import Env, read_file, write_atomically
from .wal.journal_errors import BlobMissing

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class BlobStore:
    """Files `<folder>/<tenant>/<first two hex digits>/<sha256>`. Safe to use from any thread and process.

    A caller names a blob in an event within 24 h of `put`; collecting garbage (exclusive lock on `LOCK`) spares
    younger ones, and every `put` makes a blob young again.
    """

    def __init__(self, env: Env, folder: str) -> None:
        self._env = env
        self._folder = folder
        self._folders = DurableFolders(env, folder.rpartition("/")[0])

    def path(self, tenant: str, sha256: str) -> str:
        """Return where a blob stands or would stand. Raises `InvalidId` for what is no tenant or sha256."""
        if _SHA256.fullmatch(sha256) is None:
            raise InvalidId(f"{sha256[:80]!r} is not 64 lower-case hex digits")
        return f"{self._folder}/{check_tenant(tenant)}/{sha256[:2]}/{sha256}"

    def put(self, tenant: str, data: bytes) -> str:
        """Store `data`; on return it is durable under the sha256 that is returned. Raises OSError.

        A blob that is there already gets a fresh mtime; one whose bytes are damaged is written again.
        """
        sha256 = sha256_of(data).hexdigest()
        path = self.path(tenant, sha256)
        with self.locked(exclusive=False):
            if self._is_whole(path, data):
                self._env.touch(path)
                # Whoever put it first may have died before its name, or that of its folder, was durable.
                self._folders.ensure(path.rpartition("/")[0])
                self._env.fsync_dir(path.rpartition("/")[0])
                return sha256
            self._folders.ensure(path.rpartition("/")[0])
            write_atomically(self._env, path, data)
        return sha256

    def get(self, tenant: str, sha256: str) -> bytes:
        """Return the bytes of a blob, their hash checked. Raises `BlobMissing` if it is absent or damaged."""
        path = self.path(tenant, sha256)
        try:
            data = read_file(self._env, path)
        except FileNotFoundError:
            raise BlobMissing(f"{path}: no such blob here; bring it back from landing or replica") from None
        if sha256_of(data).hexdigest() != sha256:
            raise BlobMissing(f"{path}: its {len(data)} bytes do not have that hash; bring it back from landing")
        return data

    def has(self, tenant: str, sha256: str) -> bool:
        """Tell whether a blob's name is here. Its bytes are not read."""
        try:
            self._env.stat(self.path(tenant, sha256))
        except FileNotFoundError:
            return False
        return True

    def names(self, tenant: str | None = None) -> Iterator[tuple[str, str]]:
        """Yield (tenant, sha256) of every blob, sorted; files that are no blobs are passed over."""
        for owner in [tenant] if tenant is not None else self._list(self._folder):
            for prefix in self._list(f"{self._folder}/{owner}"):
                for name in self._list(f"{self._folder}/{owner}/{prefix}"):
                    if _SHA256.fullmatch(name):
                        yield owner, name

    @contextlib.contextmanager
    def locked(self, *, exclusive: bool) -> Iterator[None]:
        """Hold the store's lock: shared while a blob is written or refreshed, exclusive while garbage is removed."""
        path = f"{self._folder}/LOCK"
        try:
            fd = self._env.open(path, write=True, create=True)
        except FileNotFoundError:
            self._folders.ensure(self._folder)
            fd = self._env.open(path, write=True, create=True)
        try:
            self._env.flock(fd, exclusive=exclusive, wait=True)
            yield
        finally:
            self._env.close(fd)

    def _is_whole(self, path: str, data: bytes) -> bool:
        try:
            return read_file(self._env, path) == data
        except FileNotFoundError:
            return False

    def _list(self, folder: str) -> list[str]:
        try:
            return self._env.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
