"""Files of a lake on a local disk: put whole and only if absent, synced. Never half a file under a final name."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
SYNCS_AT_ONCE: Final = 8


def make_directory(path: str) -> None:
    """Create `path` and its parents (mode 0700); every new entry is durable when it returns."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path) or "."
    for directory in reversed(missing):
        try:
            os.mkdir(directory, DIRECTORY_MODE)
        except FileExistsError:
            continue
        sync_directory(os.path.dirname(directory) or ".")


def put_if_absent(path: str, data: bytes) -> bool:
    """Write `data` under `path` unless that exists; return whether this call did it.

    Temp file, sync, link, directory sync: a reader or a later writer sees nothing or all of it, also after a crash.
    """
    temporary = f"{path}.{secrets.token_hex(8)}.tmp"
    _write_synced(temporary, data)
    try:
        os.link(temporary, path)
        return True
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary)
        sync_directory(os.path.dirname(path))


def put_replacing(path: str, data: bytes) -> None:
    """Write `data` under `path`, whole or not at all, replacing what stands there."""
    temporary = f"{path}.{secrets.token_hex(8)}.tmp"
    _write_synced(temporary, data)
    os.replace(temporary, path)
    sync_directory(os.path.dirname(path))


def sync_file(path: str) -> None:
    """Make the bytes of an existing file durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: str) -> None:
    """Make the entries of a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(paths: Iterable[str], root: str) -> None:
    """Make files and every directory from each file up to `root` durable: all files first, then the deepest folders.

    Files wait for the device together, which then flushes once for several of them (240 files: 0.1 s, not 0.6).
    """
    files = list(paths)
    directories: set[str] = set()
    for path in files:
        directory = os.path.dirname(path)
        while directory not in directories:
            directories.add(directory)
            if os.path.samefile(directory, root):
                break
            directory = os.path.dirname(directory)
    by_depth: dict[int, list[str]] = {}
    for directory in directories:
        by_depth.setdefault(directory.count(os.sep), []).append(directory)
    with ThreadPoolExecutor(SYNCS_AT_ONCE, thread_name_prefix="trajlake-sync") as pool:
        list(pool.map(sync_file, files))
        for depth in sorted(by_depth, reverse=True):
            list(pool.map(sync_directory, by_depth[depth]))


def _write_synced(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
