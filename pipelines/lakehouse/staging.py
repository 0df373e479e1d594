"""Staging directories: what the workers of one run write for each other; worth nothing once the run is decided.

A lake in object storage is staged on a disk that the lake does not see. So whoever stages says so in the lake first, by
a note `_trajlake/staging/<name>.json`, which goes after the folder: a note that stays says where a killed process may
have left texts. An import into such a lake has its inbox there too, under the same rule, for as long as it runs.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import msgspec

from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.places import (
    entries,
    is_remote,
    make_directory,
    put_if_absent,
    read,
    remove,
    remove_tree,
    scratch,
    staging_place,
)
from trajlake.pipelines.lakehouse.protocol import run_number
from trajlake.pipelines.lakehouse.snapshot import STATE_DIRECTORY

KEPT_S: Final = 86_400
INBOX: Final = "inbox-"
LOCK: Final = "LOCK"
ALL_GONE: Final = "all"


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """That something is staged outside the lake. `place` names the disk, whatever host looks at it."""

    place: str
    host: str
    folder: str


class Swept(NamedTuple):
    """`gone`: names removed. `stuck`: a line for each that this disk does not let go. `elsewhere`: a line for each of
    which only another host, or an import that still runs, can say that it is gone."""

    gone: list[str]
    stuck: list[str]
    elsewhere: list[str]


def staging_folder(lake: Lake) -> str:
    """Return where the runs of this host stage: in the lake, or on this host's disk for a lake in object storage."""
    return scratch(lake.url) if is_remote(lake.url) else lake.path(STATE_DIRECTORY, "staging")


def stage(lake: Lake, name: str) -> str:
    """Return the folder in which `name` may stage from now on: made, and noted in a lake that does not hold it."""
    folder = os.path.join(staging_folder(lake), name)
    make_directory(folder)
    note(lake, folder)
    return folder


def note(lake: Lake, folder: str) -> None:
    """Say in a lake in object storage that `folder` of this host holds texts of it. Before the first of them."""
    if is_remote(lake.url):
        said = Note(place=staging_place(), host=socket.gethostname(), folder=folder)
        put_if_absent(_note_path(lake, os.path.basename(folder)), msgspec.json.encode(said))


def unstage(lake: Lake, folder: str) -> list[str]:
    """Remove a staging folder, then its note; return a line where the disk does not let it go."""
    try:
        remove_tree(folder)
    except OSError as error:
        return [f"{folder}: staged texts cannot be removed: {error.strerror or error}"]
    if is_remote(lake.url):
        remove(_note_path(lake, os.path.basename(folder)))
    return []


def sweep_staging(lake: Lake, gone: Collection[str] = ()) -> Swept:
    """Remove the staging of every decided run, of imports that were killed, and what is older than a day.

    A launcher that still works in one of a decided run has lost already: it finds its files gone and begins again.
    Erasure counts on this, for staged rows hold texts: what of them this process cannot see is in `elsewhere`, but for
    the names in `gone` (or `all`), of which a person says that their disk is no more.
    """
    directory = staging_folder(lake)
    newest = lake.newest().number
    swept = Swept([], [], [])
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        if _is_over(path, newest):
            stuck = unstage(lake, path)
            swept.stuck.extend(stuck)
            swept.gone.extend([] if stuck else [name])
    if is_remote(lake.url):
        swept.elsewhere.extend(_noted(lake, directory, newest, gone))
    return swept


def _is_over(path: str, newest: int) -> bool:
    name = os.path.basename(path)
    try:
        if name.startswith(INBOX):
            return not _is_locked(path)
        return 0 <= run_number(name) <= newest or os.path.getmtime(path) < time.time() - KEPT_S
    except FileNotFoundError:
        return False


def _noted(lake: Lake, directory: str, newest: int, gone: Collection[str]) -> Iterator[str]:
    """Strike the notes of what is gone, and yield a line for each that stands. Undecided runs know of every erasure."""
    for entry in entries(lake.path(STATE_DIRECTORY, "staging")):
        name = entry.removesuffix(".json")
        if run_number(name) > newest:
            continue
        try:
            said = msgspec.json.decode(read(_note_path(lake, name)), type=Note)
        except FileNotFoundError:
            continue  # its process was faster
        here = said.place == staging_place()
        if name in gone or ALL_GONE in gone or (here and not os.path.exists(os.path.join(directory, name))):
            remove(_note_path(lake, name))
        elif not here:
            yield (
                f"{said.folder} on {said.host}: may hold staged texts; run 'trajlake erase --pending' there, "
                f"or give --gone {name} if that disk is no more"
            )
        elif name.startswith(INBOX):
            yield f"{said.folder}: an import is under way in it; go on when it has ended"


def _note_path(lake: Lake, name: str) -> str:
    return lake.path(STATE_DIRECTORY, "staging", f"{name}.json")


@contextmanager
def inbox(lake: Lake) -> Iterator[str]:
    """Give a folder of this host to one import into a lake in object storage; it goes when the import ends.

    What killed imports left goes first. A lake that is there is told; one that is not cannot have been asked to erase.
    """
    directory = staging_folder(lake)
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if name.startswith(INBOX) and _is_over(path, 0):
            unstage(lake, path)
    name = f"{INBOX}{secrets.token_hex(8)}"
    folder = os.path.join(directory, name)
    # Locked before it has its name: whoever sees the name sees the lock.
    making = os.path.join(directory, f"new-{name}")
    make_directory(making)
    with open(os.path.join(making, LOCK), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.rename(making, folder)
        if lake.all_snapshot_numbers():
            note(lake, folder)
        try:
            yield folder
        finally:
            stuck = unstage(lake, folder)
    if stuck:
        raise OSError(stuck[0])


def _is_locked(folder: str) -> bool:
    with open(os.path.join(folder, LOCK), "rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
