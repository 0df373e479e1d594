"""The landing as a place to put files: a local folder, or any fsspec URL. Every put is whole or not there."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, Protocol

from trajlake.runtime.cli_errors import EXIT_COULD_NOT_RUN, UserError
from trajlake.runtime.durable_folders import DurableFolders
from trajlake.runtime.env import Env, read_file, write_atomically

DAY_S: Final = 86_400.0


class LandingStore(Protocol):
    """Puts and looks. `path` is relative to the landing, with `/`. Failures of the store raise OSError."""

    url: str

    def put(self, path: str, data: bytes) -> None:
        """Store `data`, whole, replacing what is there; durable on return as far as the store promises it."""
        ...

    def put_file(self, path: str, source: str) -> None:
        """Store the bytes of a local file that never changes again."""
        ...

    def get(self, path: str) -> bytes | None:
        """Return what stands there, or None."""
        ...

    def size_and_age_s(self, path: str) -> tuple[int, float] | None:
        """Return size and age of what stands there, or None; an unknown age counts as old."""
        ...


class LocalLanding:
    """A folder: temp, sync, rename, directory sync."""

    def __init__(self, folder: str, env: Env, *, link: bool = False) -> None:
        self.url = os.path.abspath(folder)
        self._env = env
        self._link = link
        self._folders = DurableFolders(env, self.url.rpartition("/")[0])

    def put(self, path: str, data: bytes) -> None:
        target = f"{self.url}/{path}"
        self._folders.store(target.rpartition("/")[0], lambda: write_atomically(self._env, target, data))

    def put_file(self, path: str, source: str) -> None:
        """With `link` the landing shares the file's bytes (a landing beside its root, as in a lake's inbox)."""
        target = f"{self.url}/{path}"
        if self._link:
            self._folders.ensure(target.rpartition("/")[0])
            try:
                self._env.link(source, target)
                self._env.fsync_dir(target.rpartition("/")[0])
                return
            except OSError:  # it is there already, or another file system: a plain put decides
                pass
        self.put(path, read_file(self._env, source))

    def get(self, path: str) -> bytes | None:
        try:
            with open(f"{self.url}/{path}", "rb") as stream:
                return stream.read()
        except FileNotFoundError:
            return None

    def size_and_age_s(self, path: str) -> tuple[int, float] | None:
        try:
            status = os.stat(f"{self.url}/{path}")
        except FileNotFoundError:
            return None
        return status.st_size, time.time() - status.st_mtime


class LandingRefused(OSError):
    """The store behind a landing does not answer, or does not let us: mend that and ship again."""

    exit_code = EXIT_COULD_NOT_RUN


@contextmanager
def _told(where: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, TypeError):
        raise
    except Exception as error:  # each kind of store has errors of its own, by no means all of them OSErrors
        what = " ".join(str(error).split()) or type(error).__name__
        raise LandingRefused(f"{where}: {what}; nothing is half there, ship again") from error


class RemoteLanding:
    """An fsspec URL (object stores put whole objects; other stores get a temporary name and a move)."""

    def __init__(self, url: str) -> None:
        import fsspec

        try:
            self._filesystem, self._base = fsspec.core.url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise UserError(f"{url}: {error}", exit_code=EXIT_COULD_NOT_RUN) from None
        self.url = url

    def put(self, path: str, data: bytes) -> None:
        with _told(self.url):
            self._filesystem.pipe_file(self._full(path), data)
        stored = self.size_and_age_s(path)
        if stored is None or stored[0] != len(data):
            raise OSError(f"{self.url}/{path}: the store holds {stored and stored[0]} bytes of {len(data)} after a put")

    def put_file(self, path: str, source: str) -> None:
        with open(source, "rb") as stream:
            self.put(path, stream.read())

    def get(self, path: str) -> bytes | None:
        try:
            with _told(self.url):
                data: bytes = self._filesystem.cat_file(self._full(path))
        except FileNotFoundError:
            return None
        return data

    def size_and_age_s(self, path: str) -> tuple[int, float] | None:
        try:
            with _told(self.url):
                info: dict[str, Any] = self._filesystem.info(self._full(path), refresh=True)
        except FileNotFoundError:
            return None
        except TypeError:
            info = self._filesystem.info(self._full(path))
        modified = info.get("LastModified") or info.get("mtime") or info.get("created")
        stamp = modified.timestamp() if isinstance(modified, datetime) else modified
        age_s = time.time() - float(stamp) if isinstance(stamp, (int, float)) else DAY_S * 2
        return int(info.get("size") or 0), age_s

    def _full(self, path: str) -> str:
        return f"{self._base.rstrip('/')}/{path}"


def open_landing(url: str, env: Env, *, link: bool = False) -> LandingStore:
    """Return the landing behind a folder name, a `file://` URL or an fsspec URL. `link`: see `LocalLanding`."""
    if url.startswith("file://"):
        return LocalLanding(url.removeprefix("file://"), env, link=link)
    return RemoteLanding(url) if "://" in url else LocalLanding(url, env, link=link)
