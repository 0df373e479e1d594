"""The tree of a workspace as objects named by their sha256: files, and one object per folder. Pure; no disk.

A folder's object is JSON: `{"entries":[[name,kind,...],...],"trajlake tree":1}`, entries sorted by name:
`["f", mode, sha256, size]`, `["l", target]`, `["d", mode, sha256]`. The hash of the top folder's object is the hash of
the workspace: equal hashes mean equal names, bytes, links and permission bits. Times and owners are not part of it.

Names that are no UTF-8 are written with %XX for each such byte (and % as %25), so every path is legal text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from trajlake.schemas.events import FileChange

from ..wal.journal_errors import JournalError

_MARK: Final = "trajlake tree"
_encode: Final = msgspec.json.Encoder(order="sorted").encode


class WorkspaceError(JournalError):
    """The workspace could not be saved or brought back as it must be; the text says which path and what to do."""


@dataclass(frozen=True, slots=True)
class File:
    """A file by the hash of its bytes. `mode` is the permission bits."""

    mode: int
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link and where it points, as text of the path encoding."""

    target: str


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder: its entries by encoded name, sorted; `sha256` and `data` are those of its object."""

    mode: int
    entries: Mapping[str, Entry]
    sha256: str
    data: bytes


Entry = File | Link | Folder


def folder_of(mode: int, entries: Mapping[str, Entry]) -> Folder:
    """Return a folder with its object made."""
    ordered = {name: entries[name] for name in sorted(entries)}
    data = _encode({_MARK: 1, "entries": [[name, *_row(one)] for name, one in ordered.items()]})
    return Folder(mode, ordered, hashlib.sha256(data).hexdigest(), data)


def _row(entry: Entry) -> list[Any]:
    if isinstance(entry, File):
        return ["f", entry.mode, entry.sha256, entry.size_bytes]
    if isinstance(entry, Link):
        return ["l", entry.target]
    return ["d", entry.mode, entry.sha256]


def read_tree(sha256: str, get: Callable[[str], bytes], mode: int = 0o700) -> Folder:
    """Return the tree whose top object has this hash; `get` brings an object, its hash checked.

    Raises `WorkspaceError` for an object that is no folder of this version.
    """
    data = get(sha256)
    try:
        tree = msgspec.json.decode(data)
        rows = tree["entries"]
        if tree[_MARK] != 1:
            raise WorkspaceError(f"workspace object {sha256}: version {tree[_MARK]}; use a newer trajlake")
        entries = {row[0]: _entry(row[1:], get) for row in rows}
    except (msgspec.DecodeError, KeyError, IndexError, TypeError):
        raise WorkspaceError(f"workspace object {sha256}: not a folder; run 'trajlake journal verify'") from None
    return Folder(mode, entries, sha256, data)


def _entry(row: list[Any], get: Callable[[str], bytes]) -> Entry:
    if row[0] == "f":
        return File(row[1], row[2], row[3])
    return Link(row[1]) if row[0] == "l" else read_tree(row[2], get, row[1])


def objects_of(sha256: str, get: Callable[[str], bytes]) -> set[str]:
    """Return the hashes of every object a workspace needs: its folders and its files."""
    found: set[str] = set()
    waiting = [read_tree(sha256, get)]
    while waiting:
        folder = waiting.pop()
        found.add(folder.sha256)
        for entry in folder.entries.values():
            if isinstance(entry, Folder):
                waiting.append(entry)
            elif isinstance(entry, File):
                found.add(entry.sha256)
    return found


def changes_between(before: Folder, after: Folder, at: str = "") -> list[FileChange]:
    """Return what makes `after` of `before`, in an order that can be applied.

    A path that ends with "/" is a folder; a change with neither hash, link nor mode takes the path away.
    """
    gone: list[FileChange] = []
    made: list[FileChange] = []
    for name in sorted({*before.entries, *after.entries}):
        old, new = before.entries.get(name), after.entries.get(name)
        path = f"{at}{name}"
        if old == new or (isinstance(old, Folder) and isinstance(new, Folder) and _same(old, new)):
            continue
        if old is not None and type(old) is not type(new):
            gone.append(FileChange(path=f"{path}/" if isinstance(old, Folder) else path))
        if isinstance(new, Folder):
            if not isinstance(old, Folder) or old.mode != new.mode:
                made.append(FileChange(path=f"{path}/", mode=new.mode))
            base = old if isinstance(old, Folder) else EMPTY
            made.extend(changes_between(base, new, f"{path}/"))
        elif isinstance(new, File):
            made.append(FileChange(path=path, sha256=new.sha256, mode=new.mode))
        elif isinstance(new, Link):
            made.append(FileChange(path=path, link=new.target))
    return [*gone, *made]


def _same(old: Folder, new: Folder) -> bool:
    return old.sha256 == new.sha256 and old.mode == new.mode


def with_changes(tree: Folder, changes: Iterable[FileChange], size_of: Callable[[str], int]) -> Folder:
    """Return `tree` with recorded changes applied; `size_of` tells a file's size by its hash.

    Raises `WorkspaceError` for a change below a path that is no folder.
    """
    changed = _open(tree)
    for change in changes:
        *above, name = change.path.rstrip("/").split("/")
        at = changed
        for part in above:
            below = at[1].get(part)
            if not isinstance(below, list):
                raise WorkspaceError(f"workspace: recorded change of {change.path!r} is below no folder")
            at = below
        if change.sha256 is not None:
            at[1][name] = File(change.mode or 0, change.sha256, size_of(change.sha256))
        elif change.link is not None:
            at[1][name] = Link(change.link)
        elif change.path.endswith("/") and change.mode is not None:
            found = at[1].get(name)
            at[1][name] = [change.mode, found[1] if isinstance(found, list) else {}]
        else:
            at[1].pop(name, None)
    return _closed(changed)


def _open(folder: Folder) -> list[Any]:
    return [folder.mode, {name: _open(one) if isinstance(one, Folder) else one for name, one in folder.entries.items()}]


def _closed(folder: list[Any]) -> Folder:
    mode, entries = folder
    return folder_of(mode, {name: _closed(one) if isinstance(one, list) else one for name, one in entries.items()})


_HARD: Final = re.compile("[%\udc80-\udcff]")


def encoded(name: str) -> str:
    """Return a file name (as the system gives it) as legal text."""
    return _HARD.sub(lambda m: f"%{ord(m[0]) & 0xFF:02X}", name)


def decoded(text: str) -> str:
    """Return the file name that `encoded` made this of. Raises `WorkspaceError` for one that leaves its folder."""
    name = re.sub("%([0-9A-F]{2})", lambda m: _byte(int(m[1], 16)), text)
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise WorkspaceError(f"workspace: {text!r} is no name of a file")
    return name


def _byte(value: int) -> str:
    return chr(value) if value < 0x80 else chr(0xDC00 + value)


def link_text(text: str) -> str:
    """Return a link's target as the system takes it."""
    return re.sub("%([0-9A-F]{2})", lambda m: _byte(int(m[1], 16)), text)


EMPTY: Final = folder_of(0o700, {})
