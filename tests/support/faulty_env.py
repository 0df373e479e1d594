"""A machine in memory that keeps only what was synced: the tests' implementation of `runtime.env.Env`.

What it models, per 512-byte sector and per folder:

* written bytes are volatile until `fdatasync` (or `pwrite_durably`, for its own sectors) returns; at a power
  loss each unsynced sector independently has its old content or that of any write since (loss, tear, reorder);
* the size of a file is volatile like its bytes;
* names (create, rename, link, unlink, mkdir) are volatile until `fsync_dir` of their folder; at a power loss
  any prefix, or any subset, of the unsynced changes of a folder is there; a rename is one change;
* a failed sync is as on Linux: the sectors count as clean, a later sync "succeeds" and does not save them.

`crash_image(seed)` builds the machine after a power loss from the present moment, `process_death()` the one
after a SIGKILL (nothing is lost but locks). `before` is called ahead of every call that changes the disk, and in
`pwrite_durably` between write and barrier: the moments at which a test builds its images.
"""

from __future__ import annotations

import errno
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from trajlake.runtime.env import Env, FileFacts

SECTOR = 512


@dataclass
class File:
    data: bytearray = field(default_factory=bytearray)
    synced: bytearray = field(default_factory=bytearray)
    unsynced: dict[int, list[bytes]] = field(default_factory=dict)
    doomed: dict[int, list[bytes]] = field(default_factory=dict)
    """Sectors that a failed sync marked clean: later syncs pass them over."""
    sizes: list[int] = field(default_factory=list)
    modified_at_us: int = 0
    inode: int = 0
    locks: dict[int, bool] = field(default_factory=dict)

    def write(self, data: bytes, offset: int) -> None:
        end = offset + len(data)
        if end > len(self.data):
            self.data.extend(bytes(end - len(self.data)))
            self.sizes.append(end)
        self.data[offset:end] = data
        for sector in range(offset // SECTOR, (end + SECTOR - 1) // SECTOR):
            content = bytes(self.data[sector * SECTOR : (sector + 1) * SECTOR])
            self.doomed.pop(sector, None)
            self.unsynced.setdefault(sector, []).append(content)

    def sync(self, sectors: range | None = None) -> None:
        self._resize(len(self.data))
        self.sizes.clear()
        for sector in list(self.unsynced) if sectors is None else [s for s in sectors if s in self.unsynced]:
            content = self.unsynced.pop(sector)[-1]
            at = sector * SECTOR
            self.synced[at : at + len(content)] = content
        del self.synced[len(self.data) :]

    def doom(self) -> None:
        for sector, versions in self.unsynced.items():
            self.doomed.setdefault(sector, []).extend(versions)
        self.unsynced.clear()

    def after_power_loss(self, pick: random.Random | None) -> File:
        """Return the file as the disk may hold it; without `pick`, with every unsynced byte gone."""
        kept = File(bytearray(self.synced), inode=self.inode, modified_at_us=self.modified_at_us)
        if pick is not None:
            kept._grow(pick.choice([len(self.synced), *self.sizes]))
            for source in (self.doomed, self.unsynced):
                for sector, versions in source.items():
                    choice = pick.randint(0, len(versions))
                    at = sector * SECTOR
                    if choice and at < len(kept.data):
                        content = versions[choice - 1][: len(kept.data) - at]
                        kept.data[at : at + len(content)] = content
        kept.synced = bytearray(kept.data)
        return kept

    def _grow(self, size: int) -> None:
        if size > len(self.data):
            self.data.extend(bytes(size - len(self.data)))
        else:
            del self.data[size:]

    def _resize(self, size: int) -> None:
        if size > len(self.synced):
            self.synced.extend(bytes(size - len(self.synced)))


@dataclass
class Folder:
    names: dict[str, File | Folder] = field(default_factory=dict)
    synced: dict[str, File | Folder] = field(default_factory=dict)
    unsynced: list[dict[str, File | Folder | None]] = field(default_factory=list)
    modified_at_us: int = 0
    inode: int = 0

    def change(self, **names: File | Folder | None) -> None:
        for name, node in names.items():
            if node is None:
                del self.names[name]
            else:
                self.names[name] = node
        self.unsynced.append(names)

    def sync(self) -> None:
        self.synced = dict(self.names)
        self.unsynced.clear()

    def after_power_loss(self, pick: random.Random | None, seen: dict[int, File | Folder]) -> Folder:
        names = dict(self.synced)
        if pick is not None and self.unsynced:
            prefix = pick.random() < 0.5
            length = pick.randint(0, len(self.unsynced))
            for place, change in enumerate(self.unsynced):
                if place < length if prefix else pick.random() < 0.5:
                    names.update(change)  # type: ignore[arg-type]
        kept = Folder(inode=self.inode)
        for name, node in names.items():
            if node is None:
                continue
            if id(node) not in seen:
                seen[id(node)] = (
                    node.after_power_loss(pick) if isinstance(node, File) else node.after_power_loss(pick, seen)
                )
            kept.names[name] = seen[id(node)]
        kept.synced = dict(kept.names)
        return kept


@dataclass
class Fault:
    """At a call: `short` writes half and returns the count; else `error` is raised, once or `for_good`."""

    error: int = errno.EIO
    short: bool = False
    for_good: bool = False


class FaultyEnv(Env):
    """See the module. Same seed, same calls: same bytes. `sync_works=False` makes every sync a lie (no barrier)."""

    def __init__(self, seed: int = 0, *, sync_works: bool = True, tree: Folder | None = None) -> None:
        super().__init__()
        self.one_call_barrier = True
        self.seed = seed
        self.sync_works = sync_works
        self.faults: dict[int, Fault] = {}
        self.calls = 0
        self.trace: list[tuple[str, str]] = []
        self.before: Callable[[str, str], None] = lambda _operation, _path: None
        self.capacity_bytes: int | None = None
        self._random = random.Random(seed)
        self._tree = tree or Folder(inode=1)
        self._open: dict[int, tuple[File | Folder, str]] = {}
        self._next = 10
        self._broken: Fault | None = None
        self._clock_us = 1_700_000_000_000_000
        self._mutex = threading.RLock()

    # -- what tests ask ----------------------------------------------------------------------------------------

    def crash_image(self, seed: int | None = None) -> FaultyEnv:
        """Return the machine after a power loss now; with `seed` None every unsynced byte and name is gone."""
        with self._mutex:
            pick = None if seed is None else random.Random(seed)
            return FaultyEnv(self.seed + 1, tree=self._tree.after_power_loss(pick, {}))

    def process_death(self) -> FaultyEnv:
        """Return the machine after a SIGKILL now: the page cache lives on, locks are free, nothing became durable."""
        with self._mutex:
            other = FaultyEnv(self.seed + 1, sync_works=self.sync_works, tree=self._tree)
            for file, _ in self._open.values():
                if isinstance(file, File):
                    file.locks.clear()
            return other

    def file(self, path: str) -> File:
        node = self._find(path)
        assert isinstance(node, File)
        return node

    # -- files -------------------------------------------------------------------------------------------------

    def open(self, path: str, *, write: bool = False, create: bool = False, exclusive: bool = False) -> int:
        with self._mutex:
            folder, name = self._parent(path)
            node = folder.names.get(name)
            if node is None:
                if not create:
                    raise FileNotFoundError(errno.ENOENT, "no such file", path)
                self._call("create", path)
                node = File(inode=self._inode(), modified_at_us=self.now_us())
                folder.change(**{name: node})
            elif exclusive:
                raise FileExistsError(errno.EEXIST, "file exists", path)
            fd = self._inode()
            self._open[fd] = (node, path)
            return fd

    def close(self, fd: int) -> None:
        with self._mutex:
            node, _ = self._open.pop(fd)
            if isinstance(node, File):
                node.locks.pop(fd, None)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        with self._mutex:
            return bytes(self._fd(fd)[0].data[offset : offset + size])

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        with self._mutex:
            return self._write("pwrite", fd, data, offset)

    def pwrite_durably(self, fd: int, data: bytes, offset: int) -> int:
        with self._mutex:
            file, _ = self._fd(fd)
            try:
                count = self._write("pwrite_durably", fd, data, offset)
            except OSError:
                file.doom()
                raise
            self.before("the barrier inside pwrite_durably", self._fd(fd)[1])
            if self.sync_works:
                file.sync(range(offset // SECTOR, (offset + count + SECTOR - 1) // SECTOR))
            return count

    def fdatasync(self, fd: int) -> None:
        with self._mutex:
            file, path = self._fd(fd)
            try:
                self._call("fdatasync", path)
            except OSError:
                file.doom()
                raise
            if self.sync_works:
                file.sync()

    def truncate(self, fd: int, size: int) -> None:
        with self._mutex:
            file, path = self._fd(fd)
            self._call("truncate", path)
            file._grow(size)
            file.sizes.append(size)
            for sector in [s for s in file.unsynced if s * SECTOR >= size]:
                del file.unsynced[sector]

    def size(self, fd: int) -> int:
        with self._mutex:
            return len(self._fd(fd)[0].data)

    # -- names -------------------------------------------------------------------------------------------------

    def rename(self, source: str, target: str) -> None:
        with self._mutex:
            folder, old = self._parent(source)
            other, new = self._parent(target)
            assert folder is other, "the journal renames within a folder only"
            if old not in folder.names:
                raise FileNotFoundError(errno.ENOENT, "no such file", source)
            self._call("rename", target)
            folder.change(**{new: folder.names[old], old: None})

    def link(self, source: str, target: str) -> None:
        with self._mutex:
            folder, name = self._parent(target)
            if name in folder.names:
                raise FileExistsError(errno.EEXIST, "file exists", target)
            self._call("link", target)
            folder.change(**{name: self._find(source)})

    def unlink(self, path: str) -> None:
        with self._mutex:
            folder, name = self._parent(path)
            if name not in folder.names:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._call("unlink", path)
            folder.change(**{name: None})

    def mkdir(self, path: str) -> None:
        with self._mutex:
            folder, name = self._parent(path)
            if name in folder.names:
                raise FileExistsError(errno.EEXIST, "file exists", path)
            self._call("mkdir", path)
            folder.change(**{name: Folder(inode=self._inode(), modified_at_us=self.now_us())})

    def rmdir(self, path: str) -> None:
        with self._mutex:
            folder, name = self._parent(path)
            found = folder.names.get(name)
            if not isinstance(found, Folder):
                raise FileNotFoundError(errno.ENOENT, "no such folder", path)
            if found.names:
                raise OSError(errno.ENOTEMPTY, "folder not empty", path)
            self._call("rmdir", path)
            folder.change(**{name: None})

    def listdir(self, path: str) -> list[str]:
        with self._mutex:
            found = self._find(path)
            if not isinstance(found, Folder):
                raise NotADirectoryError(errno.ENOTDIR, "not a folder", path)
            return sorted(found.names)

    def stat(self, path: str) -> FileFacts:
        with self._mutex:
            found = self._find(path)
            size = len(found.data) if isinstance(found, File) else 0
            return FileFacts(size, found.modified_at_us, found.inode, isinstance(found, Folder))

    def touch(self, path: str) -> None:
        with self._mutex:
            self._find(path).modified_at_us = self.now_us()

    def absolute(self, path: object) -> str:
        return str(path)

    def fsync_dir(self, path: str) -> None:
        with self._mutex:
            found = self._find(path)
            assert isinstance(found, Folder)
            self._call("fsync_dir", path)
            if self.sync_works:
                found.sync()

    def flock(self, fd: int, *, exclusive: bool, wait: bool = False) -> bool:
        while True:
            with self._mutex:
                locks = self._fd(fd)[0].locks
                if not any(theirs or exclusive for other, theirs in locks.items() if other != fd):
                    locks[fd] = exclusive
                    return True
            if not wait:
                return False
            time.sleep(0.001)

    # -- clock, randomness, process ----------------------------------------------------------------------------

    def now_us(self) -> int:
        self._clock_us += 1
        return self._clock_us

    def boottime_us(self) -> int:
        return self._clock_us - 1_600_000_000_000_000

    def boot_id(self) -> bytes:
        return bytes(range(16))

    def random_bytes(self, size: int) -> bytes:
        with self._mutex:
            return self._random.randbytes(size)

    def file_system(self, path: str) -> str:
        return "in-memory"

    def pid(self) -> int:
        return 4242

    def host(self) -> str:
        return "in-memory"

    def after_fork_in_child(self, callback: Callable[[], None]) -> None:
        pass

    # -- inside ------------------------------------------------------------------------------------------------

    def _write(self, operation: str, fd: int, data: bytes, offset: int) -> int:
        file, path = self._fd(fd)
        grown = max(0, offset + len(data) - len(file.data))
        if grown and self.capacity_bytes is not None and self._used() + grown > self.capacity_bytes:
            # As file systems do: what still fits is taken, and only a call for which nothing fits is refused.
            data = data[: len(data) - (self._used() + grown - self.capacity_bytes)]
            if not data:
                raise OSError(errno.ENOSPC, "no space left", path)
        try:
            short = self._call(operation, path)
        except OSError:
            # A barrier that fails has often written all of it: only its sync went wrong.
            file.write(data[: self._random.choice([len(data), self._random.randint(0, len(data))])], offset)
            raise
        if short:
            data = data[: len(data) // 2]
        file.write(data, offset)
        file.modified_at_us = self.now_us()
        return len(data)

    def _call(self, operation: str, path: str) -> bool:
        """Count a call that changes the disk; raise or return True (a short write) if it is to go wrong."""
        self.before(operation, path)
        self.calls += 1
        self.trace.append((operation, path))
        fault = self._broken or self.faults.get(self.calls)
        if fault is None:
            return False
        if fault.for_good:
            self._broken = fault
        if fault.short and operation.startswith("pwrite"):
            return True
        raise OSError(fault.error, f"injected at call {self.calls} ({operation})", path)

    def _used(self) -> int:
        seen: dict[int, int] = {}
        stack: list[File | Folder] = [self._tree]
        while stack:
            node = stack.pop()
            if isinstance(node, File):
                seen[node.inode] = len(node.data)
            else:
                stack.extend(node.names.values())
        return sum(seen.values())

    def _inode(self) -> int:
        self._next += 1
        return self._next

    def _fd(self, fd: int) -> tuple[File, str]:
        node, path = self._open[fd]
        assert isinstance(node, File)
        return node, path

    def _parent(self, path: str) -> tuple[Folder, str]:
        folder, _, name = path.rpartition("/")
        node = self._find(folder)
        if not isinstance(node, Folder):
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", folder)
        return node, name

    def _find(self, path: str) -> File | Folder:
        node: File | Folder = self._tree
        for part in path.split("/"):
            if not part:
                continue
            if not isinstance(node, Folder):
                raise NotADirectoryError(errno.ENOTDIR, "not a folder", path)
            if part not in node.names:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            node = node.names[part]
        return node
