"""Backup of a root, beside everything that runs on it: a folder with a manifest, whole when the manifest is there.

What a backup promises: every event that was acknowledged before it began, every blob that an event, checkpoint or
import report in it names, every mail item whose event is not in it. So the order of copying is part of the promise:

| first to last | because |
|---|---|
| mail | an item goes only after its event is durable: copied first, it is here, or its event is |
| segments | |
| blobs, imports, checkpoints | each is durable before the event that names it |
| lease records, generations | a tenure is recorded before its first event: no event is here whose tenure is not |
| root.json, manifest | |

The shared lock `blobs/LOCK`, held all the time, keeps `gc` and retention out; writers do not notice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from hashlib import sha256 as sha256_of
from typing import Final

import msgspec

from ..durable_folders import DurableFolders
from ..env import Env, create_atomically, exists, read_file, write_fully
from ..root import ROOT_FILE, Root
from ..wal.journal_errors import RootError, SegmentCorrupt
from ..wal.reader import segment_numbers
from ..wal.segment import segment_path
from ..wal.segment_format import BLOCK_SIZE
from ..wal.segment_scan import scan_segment

MANIFEST: Final = "backup.json"
FORMAT: Final = 1
BEFORE_SEGMENTS: Final = ("mail",)
AFTER_SEGMENTS: Final = ("blobs", "imports", "checkpoints", "trajectories", "generations")
_PASSED_OVER: Final = ("LOCK",)


class CopiedFile(msgspec.Struct, frozen=True, array_like=True):
    """A file of a backup: path below it, bytes, sha256 in hex."""

    path: str
    size_bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What `backup.json` says. `taken_at` is µs UTC, when the copying began."""

    format: int
    root_id: str
    source: str
    host: str
    taken_at: int
    files: list[CopiedFile]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def back_up(root: Root, target: str) -> Manifest:
    """Copy a root into the folder `target`, which must be empty or absent; durable on return.

    Raises `RootError` where `target` holds something, `SegmentCorrupt` for a segment whose acknowledged events cannot
    be read (a backup must not pass damage on in silence), OSError. A backup without its manifest is none.
    """
    env = root.env
    target = env.absolute(target)
    if f"{target}/".startswith(f"{root.path}/"):
        raise RootError(f"{target}: inside the root that is to be backed up; name a folder outside")
    if exists(env, target) and env.listdir(target):
        raise RootError(f"{target}: not empty; name a new folder for each backup")
    began_us = env.now_us()
    copies = Copies(env, target)
    with root.blobs.locked(exclusive=False):
        for part in BEFORE_SEGMENTS:
            copies.tree(root.path, part)
        for writer in root.writers():
            for number in segment_numbers(env, root.writer_folder(writer)):
                with contextlib.suppress(FileNotFoundError):  # an empty one that its writer closed
                    path = segment_path(root.writer_folder(writer), number)
                    copies.put(path.removeprefix(f"{root.path}/"), durable_bytes(env, path))
        for part in AFTER_SEGMENTS:
            copies.tree(root.path, part)
        copies.put(ROOT_FILE, read_file(env, f"{root.path}/{ROOT_FILE}"))
    manifest = Manifest(
        format=FORMAT, root_id=root.facts.root_id, source=root.path, host=env.host(), taken_at=began_us,
        files=copies.files,
    )  # fmt: skip
    create_atomically(env, f"{target}/{MANIFEST}", msgspec.json.encode(manifest) + b"\n")
    return manifest


def durable_bytes(env: Env, path: str) -> bytes:
    """Return the valid bytes of a segment, all of them durable on return, also while its writer appends.

    What was read may be newer than the last barrier, and would be lost with the machine while a copy kept it: so
    the file is synced behind the reading. Raises `SegmentCorrupt` for damage.
    """
    fd = env.open(path)
    try:
        for _ in range(2):  # a second look: a barrier may have gone by between two parts of the first
            data = env.pread(fd, env.size(fd), 0)
            scan = scan_segment(data, path)
            if scan.end != "corrupt":
                break
        if scan.end == "corrupt":
            raise SegmentCorrupt(scan.report, path=path, offset=scan.damaged_at, lsn=scan.last_lsn + 1)
        if scan.end != "sealed":
            env.fdatasync(fd)
        return data[: max(scan.end_offset, BLOCK_SIZE)]
    finally:
        env.close(fd)


class Copies:
    """Writes files below a folder, each synced, its name too, and remembers them."""

    def __init__(self, env: Env, target: str) -> None:
        self._env = env
        self._target = target
        self._folders = DurableFolders(env, target.rpartition("/")[0] or "/")
        self._folders.ensure(target)
        self.files: list[CopiedFile] = []

    def tree(self, source: str, part: str) -> None:
        """Copy all files below `source`/`part`; those that go meanwhile, and locks and temporary ones, are left out."""
        for path in files_below(self._env, f"{source}/{part}"):
            with contextlib.suppress(FileNotFoundError):
                self.put(path.removeprefix(f"{source}/"), read_file(self._env, path))

    def put(self, path: str, data: bytes) -> None:
        """Write one file, durably."""
        whole = f"{self._target}/{path}"
        self._folders.ensure(whole.rpartition("/")[0])
        fd = self._env.open(whole, write=True, create=True, exclusive=True)
        try:
            write_fully(self._env, fd, data)
            self._env.fdatasync(fd)
        finally:
            self._env.close(fd)
        self._env.fsync_dir(whole.rpartition("/")[0])
        self.files.append(CopiedFile(path, len(data), sha256_of(data).hexdigest()))


def files_below(env: Env, folder: str) -> Iterator[str]:
    """Yield the paths of the files below a folder that belong in a copy, sorted; of a missing one, none."""
    try:
        names = env.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        path = f"{folder}/{name}"
        if name.startswith(".") or name in _PASSED_OVER:
            continue
        with contextlib.suppress(FileNotFoundError):
            if env.stat(path).is_folder:
                yield from files_below(env, path)
            else:
                yield path
