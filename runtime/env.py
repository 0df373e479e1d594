"""The one door to disk, clock, randomness and process facts. Nothing else in `runtime/` calls `os` or `time`.

Tests pass an implementation of their own that loses what was not synced (`tests/support/faulty_env.py`).
Paths are plain strings. Every method may raise `OSError`; callers decide what that means.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
PIECE_BYTES: Final = 256 << 10
_BOOT_ID_PATH: Final = "/proc/sys/kernel/random/boot_id"
_BOOT_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_MOUNTS_PATH: Final = "/proc/self/mountinfo"


class FileFacts(NamedTuple):
    """What `Env.stat` tells: size in bytes, mtime in µs UTC, inode, whether it is a folder."""

    size_bytes: int
    modified_at_us: int
    inode: int
    is_folder: bool


class DeviceFacts(NamedTuple):
    """A block device as the system counts it: cache flushes and bytes written since boot.

    `write_cache` is "write back" (volatile: barriers flush it), "write through" (none needed), or "".
    """

    name: str
    write_cache: str
    flushes: int
    written_bytes: int


class EntryFacts(NamedTuple):
    """What `Env.look` tells of one name, links not followed: kind ("file", "folder", "link" or "other"), permission
    bits, size in bytes, times in ns UTC, inode.
    """

    kind: str
    mode: int
    size_bytes: int
    modified_at_ns: int
    changed_at_ns: int
    inode: int


_KINDS: Final = {0o100000: "file", 0o040000: "folder", 0o120000: "link"}


class Env:
    """The real machine. Methods are safe to call from any thread.

    `one_call_barrier` tells whether one call is a write and its barrier (`pwrite_durably`); it is false where the
    system has no RWF_DSYNC, or where it is switched off for a file system that is not trusted with it. Then a
    barrier is `pwrite` followed by `fdatasync`.
    """

    def __init__(self, *, one_call_barrier: bool = True) -> None:
        self._dsync = os.RWF_DSYNC if one_call_barrier and hasattr(os, "RWF_DSYNC") else 0
        self.one_call_barrier = self._dsync != 0

    # -- files -------------------------------------------------------------------------------------------------

    def open(self, path: str, *, write: bool = False, create: bool = False, exclusive: bool = False) -> int:
        """Return a descriptor (closed on exec). `exclusive` refuses an existing file with FileExistsError."""
        flags = os.O_CLOEXEC | (os.O_RDWR if write else os.O_RDONLY)
        if create:
            flags |= os.O_CREAT | (os.O_EXCL if exclusive else 0)
        return os.open(path, flags, FILE_MODE)

    def close(self, fd: int) -> None:
        os.close(fd)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        """Return up to `size` bytes at `offset`; fewer only at the end of the file."""
        parts: list[bytes] = []
        while size > 0:
            part = os.pread(fd, size, offset)
            if not part:
                break
            parts.append(part)
            size -= len(part)
            offset += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        """Write at `offset` and return the bytes written, which may be fewer. Nothing is durable yet."""
        return os.pwrite(fd, data, offset)

    def pwrite_durably(self, fd: int, data: bytes, offset: int) -> int:
        """Write at `offset`; on return the bytes counted are durable. Only where `one_call_barrier` is true, and
        meant for blocks that were written and synced before.
        """
        return os.pwritev(fd, (data,), offset, self._dsync)

    def fdatasync(self, fd: int) -> None:
        """Make all bytes of the file, and its size, durable. A failure is final: never call it again in hope."""
        if sys.platform == "darwin":
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(fd)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    # -- names -------------------------------------------------------------------------------------------------

    def rename(self, source: str, target: str) -> None:
        """Replace `target` by `source` atomically; durable after `fsync_dir` of the folder."""
        os.rename(source, target)

    def link(self, source: str, target: str) -> None:
        """Give a file a second name; FileExistsError if `target` exists (so one of two racing makers wins)."""
        os.link(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        os.mkdir(path, FOLDER_MODE)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def listdir(self, path: str) -> list[str]:
        """Return the names in a folder, sorted."""
        return sorted(os.listdir(path))

    def stat(self, path: str) -> FileFacts:
        """Return the facts of a file or folder; FileNotFoundError if there is none."""
        found = os.stat(path)
        return FileFacts(found.st_size, found.st_mtime_ns // 1000, found.st_ino, (found.st_mode & 0o170000) == 0o040000)

    def look(self, path: str) -> EntryFacts:
        """Return the facts of a name itself; FileNotFoundError if there is none. For workspaces."""
        found = os.lstat(path)
        kind = _KINDS.get(found.st_mode & 0o170000, "other")
        return EntryFacts(
            kind, found.st_mode & 0o7777, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino
        )  # fmt: skip

    def read_link(self, path: str) -> str:
        """Return where a symbolic link points."""
        return os.readlink(path)

    def make_link(self, target: str, path: str) -> None:
        """Make a symbolic link at `path`; FileExistsError if the name is taken."""
        os.symlink(target, path)

    def set_mode(self, path: str, mode: int) -> None:
        """Set the permission bits of a file or folder."""
        os.chmod(path, mode)

    def touch(self, path: str) -> None:
        """Set the mtime of an existing file to now."""
        os.utime(path)

    def absolute(self, path: str | os.PathLike[str]) -> str:
        """Return the path from the file system's root on, as a string."""
        return os.path.abspath(os.fspath(path))

    def fsync_dir(self, path: str) -> None:
        """Make the names in a folder durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def file_system(self, path: str) -> str:
        """Return the kind of file system that holds `path` ("ext4", "nfs4", ...); "" where the system tells none."""
        best, kind = -1, ""
        with contextlib.suppress(OSError):
            for line in Path(_MOUNTS_PATH).read_text(encoding="utf-8", errors="replace").splitlines():
                head, _, tail = line.partition(" - ")
                mount = head.split(" ")[4].replace("\\040", " ").rstrip("/")
                if f"{path}/".startswith(f"{mount}/") and len(mount) >= best:
                    best, kind = len(mount), tail.split(" ", 1)[0]
        return kind

    def device(self, path: str) -> DeviceFacts | None:
        """Return the counters of the device under `path`, None where the system tells none (network, memory)."""
        with contextlib.suppress(OSError, IndexError, ValueError):
            number = os.stat(path).st_dev
            folder = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve(strict=True)
            if (folder / "partition").exists():  # flushes are counted for whole disks only
                folder = folder.parent
            counts = (folder / "stat").read_text(encoding="ascii").split()
            cache = ""
            with contextlib.suppress(OSError):
                cache = (folder / "queue/write_cache").read_text(encoding="ascii").strip()
            return DeviceFacts(folder.name, cache, int(counts[15]), int(counts[6]) * 512)
        return None

    # -- locks -------------------------------------------------------------------------------------------------

    def flock(self, fd: int, *, exclusive: bool, wait: bool = False) -> bool:
        """Take the advisory lock of an open file; False if somebody else holds it and `wait` is not set."""
        how = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        try:
            fcntl.flock(fd, how if wait else how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    # -- clock, randomness, process ----------------------------------------------------------------------------

    def now_us(self) -> int:
        """Return µs since 1970 UTC. It may step: never order by it."""
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        """Return seconds of a clock that never steps back."""
        return time.monotonic()

    def give_way(self) -> None:
        """Let the threads go first that wait for the interpreter now."""
        os.sched_yield()  # gives the interpreter up as sleep(0) does, without the timer's 50 us and more

    def boottime_us(self) -> int:
        """Return µs since boot, time asleep included."""
        return time.clock_gettime_ns(_BOOT_CLOCK) // 1000

    def boot_id(self) -> bytes:
        """Return 16 bytes that change with every boot; zeros where the system tells none."""
        with contextlib.suppress(OSError, ValueError):
            return uuid.UUID(Path(_BOOT_ID_PATH).read_text(encoding="ascii").strip()).bytes
        return bytes(16)

    def random_bytes(self, size: int) -> bytes:
        return os.urandom(size)

    def pid(self) -> int:
        return os.getpid()

    def host(self) -> str:
        return socket.gethostname()

    def variable(self, name: str) -> str | None:
        """Return an environment variable, None if it is not set: how credentials are named, never passed on."""
        return os.environ.get(name)

    def after_fork_in_child(self, callback: Callable[[], None]) -> None:
        """Have `callback` run in every child that `os.fork` makes from now on; it cannot be taken back."""
        os.register_at_fork(after_in_child=callback)


REAL_ENV: Final = Env()


def exists(env: Env, path: str) -> bool:
    """Tell whether a file or folder has that name now."""
    try:
        env.stat(path)
    except FileNotFoundError:
        return False
    return True


def read_file(env: Env, path: str) -> bytes:
    """Return all bytes of a file."""
    fd = env.open(path)
    try:
        return env.pread(fd, env.size(fd), 0)
    finally:
        env.close(fd)


def write_fully(env: Env, fd: int, data: bytes, offset: int = 0) -> None:
    """Write all of `data` at `offset`, or raise OSError.

    A full disk, a quota or a limit takes what still fits and tells its reason only when the rest is asked for.
    """
    written = 0
    while written < len(data):
        count = env.pwrite(fd, data[written:] if written else data, offset + written)
        if count <= 0:
            raise OSError(f"short write: {written} of {len(data)} bytes at {offset}")
        written += count


def write_atomically(env: Env, path: str, data: bytes) -> None:
    """Replace `path` by `data`: on return it is durable; after a crash the old or the new file is there, whole.

    Bulk goes to the disk in pieces, each with a sync of its own: a commit beside it waits for one piece, not for all.
    """
    folder, _, name = path.rpartition("/")
    temporary = f"{folder}/.{name}.{env.random_bytes(8).hex()}.tmp"
    _write_new(env, temporary, data)
    env.rename(temporary, path)
    env.fsync_dir(folder)


def create_atomically(env: Env, path: str, data: bytes) -> bool:
    """Create `path` with `data`, durably; False (and nothing changed) if the name exists."""
    folder, _, name = path.rpartition("/")
    temporary = f"{folder}/.{name}.{env.random_bytes(8).hex()}.tmp"
    _write_new(env, temporary, data)
    try:
        env.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        env.unlink(temporary)
    env.fsync_dir(folder)
    return True


def _write_new(env: Env, path: str, data: bytes) -> None:
    fd = env.open(path, write=True, create=True, exclusive=True)
    try:
        for offset in range(0, max(1, len(data)), PIECE_BYTES):
            write_fully(env, fd, data[offset : offset + PIECE_BYTES], offset)
            env.fdatasync(fd)
    except OSError:
        with contextlib.suppress(OSError):
            env.unlink(path)
        raise
    finally:
        env.close(fd)


def make_folder(env: Env, path: str) -> None:
    """Make a folder and its missing parents, each name durable on return; an existing one is left as it is."""
    missing: list[str] = []
    while path:
        try:
            env.stat(path)
            break
        except FileNotFoundError:
            missing.append(path)
            path = path.rpartition("/")[0]
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):
            env.mkdir(folder)
        env.fsync_dir(folder.rpartition("/")[0] or "/")
