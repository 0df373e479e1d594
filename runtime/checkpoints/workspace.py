"""The files an agent works on: found, hashed, saved as content-addressed objects, and brought back.

Source: design/agent.md, *Checkpoints, workspace, restore*. A look at the folder costs a stat per file; only files whose
size, times or inode changed are read, and those touched within `CLOCK_GRANULARITY_S` of the last look, since such a
change can leave all of them as they were. What is saved is what was read: a file that changes meanwhile is read again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Protocol

from ..env import EntryFacts, Env, read_file
from .side_by_side import side_by_side
from .workspace_tree import Entry, File, Folder, Link, WorkspaceError, decoded, encoded, folder_of

CLOCK_GRANULARITY_S: Final = 2.0
"""The coarsest clock of a file system in use (FAT); a file younger than this at the last look is read again."""
READ_AGAIN: Final = 5
"""How often a file that changes while it is read is read again before the snapshot is given up."""


class Objects(Protocol):
    """Where objects are kept: `BlobStore`, seen for one tenant."""

    def put(self, tenant: str, data: bytes) -> str: ...

    def get(self, tenant: str, sha256: str) -> bytes: ...


@dataclass(frozen=True, slots=True)
class _Seen:
    facts: EntryFacts
    looked_at_ns: int
    file: File


class Workspace:
    """One folder. `look` finds what is in it; `save` makes it durable. Not for several threads at once.

    `ignore`: globs over paths below the folder ("build/*", "*.pyc"); what matches is not looked at, saved, or removed.
    `outside`: absolute paths that are no part of it wherever they lie (the journal's own root).
    Sockets, pipes and devices hold no bytes to keep: they are passed over.
    """

    def __init__(self, env: Env, path: str, *, ignore: Sequence[str] = (), outside: Sequence[str] = ()) -> None:
        self.env = env
        self.path = env.absolute(path)
        self.ignore = tuple(ignore)
        self.outside = frozenset(env.absolute(one) for one in outside)
        self.files_read = 0
        self._seen: dict[str, _Seen] = {}
        self._saved: Folder | None = None

    def look(self) -> Folder:
        """Return the folder as it is now. Raises `WorkspaceError` if it is none, or does not keep still."""
        try:
            facts = self.env.look(self.path)
        except FileNotFoundError:
            facts = None
        if facts is None or facts.kind != "folder":
            raise WorkspaceError(f"workspace {self.path}: no such folder; give workspace=PATH of an existing one")
        seen: dict[str, _Seen] = {}
        try:
            tree = self._folder(self.path, "", 0o700, seen)
        except PermissionError as error:
            raise WorkspaceError(f"workspace: {error.filename} cannot be read; make it readable, then resume") from None
        self._seen = seen
        return tree

    def save(self, tree: Folder, objects: Objects, tenant: str) -> int:
        """Make every object of `tree` durable and return the bytes written; what the last saved one shares is not.

        Files are read from the folder, so call it while `tree` is what is there; `WorkspaceError` if it is not.
        """
        wanted: dict[str, Callable[[], bytes]] = {}
        self._missing(tree, self._saved, self.path, wanted)
        known = _hashes(self._saved) if self._saved is not None else set()
        jobs = [(sha256, make) for sha256, make in wanted.items() if sha256 not in known]
        written = sum(side_by_side(lambda job: _save(objects, tenant, *job), jobs))
        self._saved = tree
        return written

    def assume_saved(self, tree: Folder) -> None:
        """Take it that every object of `tree`, folders too, is durable: it was read from a snapshot that is in use."""
        self._saved = tree

    def is_ignored(self, at: str) -> bool:
        """Whether a path below the folder is no part of the workspace."""
        return any(fnmatchcase(at, pattern) for pattern in self.ignore)

    # -- looking ---------------------------------------------------------------------------------------------------

    def _folder(self, path: str, at: str, mode: int, seen: dict[str, _Seen]) -> Folder:
        entries: dict[str, Entry] = {}
        for name in self.env.listdir(path):
            below, where = f"{path}/{name}", f"{at}{encoded(name)}"
            if below in self.outside or self.is_ignored(where):
                continue
            try:
                entry = self._entry(below, where, seen)
            except FileNotFoundError:
                continue
            if entry is not None:
                entries[encoded(name)] = entry
        return folder_of(mode, entries)

    def _entry(self, path: str, at: str, seen: dict[str, _Seen]) -> Entry | None:
        facts = self.env.look(path)
        if facts.kind == "folder":
            return self._folder(path, f"{at}/", facts.mode, seen)
        if facts.kind == "link":
            return Link(encoded(self.env.read_link(path)))
        if facts.kind != "file":
            return None
        known = self._seen.get(at)
        if known is None or known.facts != facts or not _settled(known):
            known = self._read(path, facts)
        seen[at] = known
        return known.file

    def _read(self, path: str, facts: EntryFacts) -> _Seen:
        for _ in range(READ_AGAIN):
            looked_at_ns = self.env.now_us() * 1000
            data = read_file(self.env, path)
            self.files_read += 1
            after = self.env.look(path)
            if after == facts and len(data) == facts.size_bytes:
                return _Seen(facts, looked_at_ns, File(facts.mode, hashlib.sha256(data).hexdigest(), len(data)))
            facts = after
        raise WorkspaceError(f"workspace: {path} changes while it is read; stop what writes it, then resume")

    # -- saving ----------------------------------------------------------------------------------------------------

    def _missing(
        self, tree: Folder, saved: Folder | None, path: str, wanted: dict[str, Callable[[], bytes]]
    ) -> None:  # fmt: skip
        if saved is not None and saved.sha256 == tree.sha256:
            return
        wanted[tree.sha256] = lambda: tree.data
        for name, entry in tree.entries.items():
            old = saved.entries.get(name) if saved is not None else None
            below = f"{path}/{decoded(name)}"
            if isinstance(entry, Folder):
                self._missing(entry, old if isinstance(old, Folder) else None, below, wanted)
            elif isinstance(entry, File) and (not isinstance(old, File) or old.sha256 != entry.sha256):
                wanted[entry.sha256] = self._reader(below, entry)

    def _reader(self, path: str, entry: File) -> Callable[[], bytes]:
        def read() -> bytes:
            data = read_file(self.env, path)
            if hashlib.sha256(data).hexdigest() != entry.sha256:
                raise WorkspaceError(f"workspace: {path} changed while it was saved; stop what writes it, then resume")
            return data

        return read


def _settled(known: _Seen) -> bool:
    """Whether equal facts prove equal bytes: the last change lies further back than the clock's grain."""
    youngest = max(known.facts.modified_at_ns, known.facts.changed_at_ns)
    return known.looked_at_ns - youngest > CLOCK_GRANULARITY_S * 1e9


def _save(objects: Objects, tenant: str, sha256: str, make: Callable[[], bytes]) -> int:
    data = make()
    if objects.put(tenant, data) != sha256:
        raise WorkspaceError(f"workspace object {sha256}: the store gave it another name")
    return len(data)


def _hashes(tree: Folder) -> set[str]:
    found = {tree.sha256}
    for entry in tree.entries.values():
        if isinstance(entry, Folder):
            found |= _hashes(entry)
        elif isinstance(entry, File):
            found.add(entry.sha256)
    return found
