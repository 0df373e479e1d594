"""Making a folder equal to a saved tree: only what differs is written, what is too much is removed.

The folder's files are not synced: the objects are the durable copy, and a crash is followed by another restore.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from ..env import Env, write_fully
from .workspace import Workspace
from .workspace_tree import Entry, File, Folder, Link, WorkspaceError, decoded, link_text

Get = Callable[[str], bytes]
"""Brings an object by its sha256, its hash checked."""


def restore(workspace: Workspace, wanted: Folder, get: Get) -> Folder:
    """Make the folder equal `wanted` and return it as it is found then; a missing folder is made.

    Raises `WorkspaceError` if it is not equal afterwards (something writes in it), or an object is missing.
    """
    env = workspace.env
    _make_folders(env, workspace.path)
    now = workspace.look()
    if now.sha256 != wanted.sha256:
        _make_equal(workspace, workspace.path, "", now, wanted, get)
        now = workspace.look()
    if now.sha256 != wanted.sha256:
        raise WorkspaceError(
            f"workspace {workspace.path}: it is {now.sha256[:12]} after a restore to {wanted.sha256[:12]}; "
            "stop what writes in it, then resume"
        )
    return now


def _make_equal(workspace: Workspace, path: str, at: str, now: Folder, wanted: Folder, get: Get) -> None:
    env = workspace.env
    for name, entry in now.entries.items():
        if type(wanted.entries.get(name)) is not type(entry):
            _remove(workspace, f"{path}/{decoded(name)}", f"{at}{name}", entry)
    for name, entry in wanted.entries.items():
        old = now.entries.get(name)
        below = f"{path}/{decoded(name)}"
        if isinstance(entry, Folder):
            if isinstance(old, Folder) and (old.sha256, old.mode) == (entry.sha256, entry.mode):
                continue
            if not isinstance(old, Folder):
                with contextlib.suppress(FileExistsError):
                    env.mkdir(below)
                old = None
            env.set_mode(below, entry.mode | 0o700)
            empty = Folder(entry.mode, {}, "", b"")
            _make_equal(workspace, below, f"{at}{name}/", old or empty, entry, get)
            env.set_mode(below, entry.mode)
        elif isinstance(entry, Link):
            if old != entry:
                with contextlib.suppress(FileNotFoundError):
                    env.unlink(below)
                env.make_link(link_text(entry.target), below)
        elif old != entry:
            _write(env, below, entry, get)


def _write(env: Env, path: str, entry: File, get: Get) -> None:
    """Replace a file: under another name first, so that no reader ever sees half of it."""
    temporary = f"{path}.{env.random_bytes(8).hex()}.tmp"
    fd = env.open(temporary, write=True, create=True, exclusive=True)
    try:
        write_fully(env, fd, get(entry.sha256))
    finally:
        env.close(fd)
    env.set_mode(temporary, entry.mode)
    env.rename(temporary, path)


def _remove(workspace: Workspace, path: str, at: str, entry: Entry) -> None:
    """Remove what is no part of the wanted tree; what is ignored below a folder keeps the folder."""
    env = workspace.env
    if not isinstance(entry, Folder):
        env.unlink(path)
        return
    env.set_mode(path, entry.mode | 0o700)
    for name, below in entry.entries.items():
        _remove(workspace, f"{path}/{decoded(name)}", f"{at}/{name}", below)
    try:
        env.rmdir(path)
    except OSError as error:
        raise WorkspaceError(f"workspace: {path} holds what is ignored and cannot go ({error.strerror})") from None


def _make_folders(env: Env, path: str) -> None:
    missing: list[str] = []
    while path:
        try:
            env.look(path)
            break
        except FileNotFoundError:
            missing.append(path)
            path = path.rpartition("/")[0]
    for folder in reversed(missing):
        env.mkdir(folder)
