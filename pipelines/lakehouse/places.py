"""Where a lake or a landing stands: a local disk or object storage, told apart by the path, with one set of verbs.

A local path is a plain path and goes to the operating system as before; `s3://BUCKET/KEY` goes to object storage. The
promises are the same: what is put is whole or not there, and durable on return.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from trajlake.pipelines.lakehouse import durable_files, object_places
from trajlake.pipelines.lakehouse.lake_errors import LakeError
from trajlake.pipelines.lakehouse.object_places import is_remote, store_errors

STAGING_VARIABLE: Final = "TRAJLAKE_STAGING"

__all__ = [
    "entries", "exists", "is_remote", "make_directory", "open_place", "put_if_absent", "put_replacing", "read",
    "remove", "remove_tree", "resolved", "scratch", "size", "staging_place", "store_errors", "sync_all",
    "sync_directory", "walk",
]  # fmt: skip


def resolved(url: str | Path, what: str) -> str:
    """Return the absolute local path or the s3:// URL that `url` means; `LakeError` for any other scheme."""
    text = str(url)
    parts = urlsplit(text)
    if parts.scheme == "file":
        return os.path.abspath(unquote(parts.path))
    if is_remote(text):
        return object_places.checked_url(text, what)
    if "://" in text:
        raise LakeError(f"{text}: a {what} on {parts.scheme}:// is not supported; give a local path or s3://")
    return os.path.abspath(text)


def open_place(url: str) -> None:
    """Tell this process of a lake or landing, before anything of it is asked; costs nothing, asks nothing."""
    if is_remote(url):
        object_places.open_place(url)


def scratch(place: str) -> str:
    """Return a local folder for what one host notes about a place in object storage; made, and closed to others.

    `TRAJLAKE_STAGING` names the folder above it: one that all workers see, where a cluster runs the stages.
    """
    folder = os.path.join(_above(), hashlib.sha256(place.encode()).hexdigest()[:16])
    durable_files.make_directory(folder)
    return folder


def staging_place() -> str:
    """Return the name of the folder above all `scratch` folders: the same for every host that sees this one."""
    path = os.path.join(_above(), ".place")
    durable_files.make_directory(_above())
    if not os.path.exists(path):
        durable_files.put_if_absent(path, secrets.token_hex(16).encode())
    return read(path).decode()


def _above() -> str:
    return os.path.abspath(
        os.environ.get(STAGING_VARIABLE)
        or os.path.join(
            os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"), "trajlake", "staging"
        )
    )


def read(path: str) -> bytes:
    """Return the bytes at `path`. Raises `FileNotFoundError`."""
    if is_remote(path):
        return object_places.read(path)
    with open(path, "rb") as file:
        return file.read()


def size(path: str) -> int:
    """Return the size of what stands at `path`. Raises `FileNotFoundError`."""
    return object_places.size(path) if is_remote(path) else os.path.getsize(path)


def exists(path: str) -> bool:
    """Tell whether a file or an object stands at `path`."""
    if not is_remote(path):
        return os.path.exists(path)
    try:
        object_places.size(path)
    except FileNotFoundError:
        return False
    return True


def entries(folder: str) -> list[str]:
    """Return the names of files and folders in `folder`, sorted; none where there is no such folder."""
    if is_remote(folder):
        return sorted({below.partition("/")[0] for below, _ in object_places.walk(folder)})
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def walk(folder: str, *, without: str = "") -> Iterator[str]:
    """Yield the path below `folder` of every file there, leaving out folders called `without`."""
    if is_remote(folder):
        for below, _ in object_places.walk(folder):
            if not without or without not in below.split("/")[:-1]:
                yield below
        return
    for at, folders, names in os.walk(folder):
        if without in folders:
            folders.remove(without)
        for name in sorted(names):
            yield os.path.relpath(os.path.join(at, name), folder)


def make_directory(path: str) -> None:
    """Create a folder and its parents, durably; object storage has none."""
    if not is_remote(path):
        durable_files.make_directory(path)


def put_if_absent(path: str, data: bytes) -> bool:
    """Put `data` at `path` unless something stands there; return whether this call did it."""
    if is_remote(path):
        return object_places.put_if_absent(path, data)
    return durable_files.put_if_absent(path, data)


def put_replacing(path: str, data: bytes) -> None:
    """Put `data` at `path`, whole, replacing what stands there."""
    if is_remote(path):
        object_places.put(path, data)
    else:
        durable_files.put_replacing(path, data)


def remove(path: str) -> bool:
    """Remove what stands at `path`, not yet synced; return whether something did (in object storage: always)."""
    if is_remote(path):
        object_places.remove(path)
        return True
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def remove_tree(folder: str) -> None:
    """Remove everything in `folder`, durably; none there is fine. Raises `OSError` where something of it stays."""
    if is_remote(folder):
        for below in list(walk(folder)):
            object_places.remove(f"{folder}/{below}")
        return
    try:
        while True:
            os.lstat(folder)
            with suppress(FileNotFoundError):  # another process removes it too: go on with what is left
                shutil.rmtree(folder)
    except FileNotFoundError:
        with suppress(FileNotFoundError):
            durable_files.sync_directory(os.path.dirname(folder))


def sync_directory(path: str) -> None:
    """Make the entries of a folder durable; object storage needs no such thing."""
    if not is_remote(path):
        durable_files.sync_directory(path)


def sync_all(paths: Iterable[str], root: str) -> None:
    """Make files and every directory from each up to `root` durable; objects are durable once put."""
    if not is_remote(root):
        durable_files.sync_all(paths, root)
