"""Where the text of an erased trajectory may stand outside the tables: writers, the warm tier, landing.

Roots are looked at, never written to: their retention and gc are the runtime's. A known writer is one that an event of
the trajectory names; while its root still holds the text, or nobody says where that root is, the erasure is pending.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from trajlake.ingest.stores.opener import check_warm
from trajlake.pipelines.lakehouse.landing import LandedSegment, blob_path, list_segments
from trajlake.pipelines.lakehouse.places import is_remote, read, remove, remove_tree, resolved, sync_directory, walk
from trajlake.pipelines.lakehouse.snapshot import Cursor
from trajlake.pipelines.lakehouse.staging import ALL_GONE
from trajlake.pipelines.lakehouse.standing import TrajectoryKey
from trajlake.runtime.cli_errors import UserError
from trajlake.runtime.env import REAL_ENV
from trajlake.runtime.root import Root
from trajlake.runtime.wal.columns import scan_columns
from trajlake.runtime.wal.journal_errors import JournalError
from trajlake.runtime.wal.reader import open_segment, read_segment, trajectory_keys
from trajlake.schemas.ids import trajectory_key


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look: roots and landings by path, warm tiers by URL. `gone`: writers whose disk is no more, or `all`."""

    roots: tuple[str, ...] = ()
    landings: tuple[str, ...] = ()
    warm: tuple[str, ...] = ()
    gone: frozenset[str] = frozenset()


def check_places(places: Places) -> None:
    """Refuse a place that was named and is not there, before anything is erased. Raises `RootError`, `UserError`."""
    for path in places.roots:
        Root.open(path, create=False)
    for path in places.landings:
        if not is_remote(path) and not os.path.isdir(resolved(path, "landing")):
            raise UserError(f"--landing {path}: no such folder; check the path")
    for url in places.warm:
        check_warm(url)


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What goes: trajectories, the blobs that nothing else names, imports by source, and the writers known to them."""

    keys: frozenset[TrajectoryKey]
    blobs: frozenset[tuple[str, str]] = frozenset()
    imports: frozenset[tuple[str, str]] = frozenset()
    writers: frozenset[str] = frozenset()


def writers_that_hold(target: Target, places: Places) -> list[str]:
    """Return one line for each known writer or root that still holds a text, or that nobody has shown."""
    found: list[str] = []
    shown: set[str] = set()
    for path in places.roots:
        root = Root.open(path, create=False)
        writers = root.writers()
        shown.update(writers)
        for writer in writers:
            found += [f"writer {writer} in {path}: {what}" for what in _held_by(root, writer, target)]
        for key in _digests(target.keys):
            for what, folder in (("mail", root.mail_folder(key)), ("checkpoints", root.checkpoint_folder(key))):
                if os.path.isdir(folder) and os.listdir(folder):
                    found.append(f"root {path}: {what} of it in {os.path.basename(folder)}")
        found += [f"root {path}: blob {digest}" for tenant, digest in sorted(target.blobs)
                  if root.blobs.has(tenant, digest)]  # fmt: skip
    if ALL_GONE not in places.gone:
        unseen = sorted(target.writers - shown - places.gone)
        found += [f"writer {writer}: its root was not named; give --journal, or --gone {writer}" for writer in unseen]
    return found


def _digests(keys: Iterable[TrajectoryKey]) -> list[bytes]:
    return [trajectory_key(*key) for key in sorted(keys)]


def _held_by(root: Root, writer: str, target: Target) -> list[str]:
    wanted = set(_digests(target.keys))
    folder = root.writer_folder(writer)
    held = []
    for name in sorted(os.listdir(folder)):
        if name.endswith(".seg"):
            try:
                segment = open_segment(REAL_ENV, os.path.join(folder, name))
                if wanted & set(trajectory_keys(REAL_ENV, segment)):
                    held.append(f"segment {name} holds it")
            except JournalError as error:
                held.append(f"segment {name} cannot be read: {error}")
            except FileNotFoundError:
                continue  # retention was faster
    return held


def clear_warm(target: Target, url: str, epoch: int) -> int:
    """Erase in a warm tier: the id enters `trajectory_erased` in the transaction that empties the rows.

    Every later insert reads it, so nothing comes back. Returns the rows that lost their text.
    """
    from trajlake.ingest.stores.postgres_database import Database

    database = Database(url)
    touched = 0
    for tenant, trajectory_id in sorted(target.keys):

        def erase(connection: Any, tenant: str = tenant, trajectory_id: str = trajectory_id) -> int:
            row = connection.execute("select erase_trajectory(%s, %s, %s)", (tenant, trajectory_id, epoch)).fetchone()
            return int(row[0])

        touched += database.run(erase)
    return touched


def clear_landing(
    target: Target, landing: str, cursors: Mapping[str, Cursor], statuses: Mapping[TrajectoryKey, str]
) -> list[str]:
    """Remove what landing holds of it; return one line for each object that must stay for now, and why.

    A segment goes once it is committed, and with it its other trajectories' frames, so these must have ended and be
    in the snapshot.
    """
    left: list[str] = []
    wanted = set(_digests(target.keys))
    segments, _ = list_segments(landing)
    for segment in segments:
        path = os.path.join(landing, segment.name)
        try:
            if not wanted & _keys_in(path):
                continue
            why = _why_it_stays(path, segment, target, cursors, statuses)
        except (JournalError, FileNotFoundError):
            continue  # a corrupt segment is listed by compaction, which says what may be done
        left += [f"{segment.name}: {why}"] if why else _gone(_unlink, path)
    left += _clear_tails(wanted, landing, cursors)
    for tenant, digest in sorted(target.blobs | target.imports):
        left += _gone(_unlink, blob_path(landing, tenant, digest))
    for _, digest in sorted(target.imports):
        left += _gone(remove_tree, os.path.join(landing, "imports", digest))
    for key in sorted(wanted):
        left += _gone(remove_tree, os.path.join(landing, "checkpoints", key.hex()))
    return left


def _gone(take: Callable[[str], None], path: str) -> list[str]:
    """Take `path` away; return a line where the disk does not let us."""
    try:
        take(path)
    except OSError as error:
        return [f"{path}: cannot be removed: {error.strerror or error}"]
    return []


def _keys_in(path: str) -> set[bytes]:
    if is_remote(path):
        return {info.key for info in scan_columns(read(path), path).trajectories}
    return set(trajectory_keys(REAL_ENV, open_segment(REAL_ENV, path)))


def _why_it_stays(
    path: str, segment: LandedSegment, target: Target, cursors: Mapping[str, Cursor],
    statuses: Mapping[TrajectoryKey, str],
) -> str:  # fmt: skip
    if segment.last >= cursors.get(segment.writer, Cursor()).next:
        return "not committed yet; compact first"
    for info in scan_columns(read(path), path).trajectories:
        key = (info.tenant, info.trajectory_id)
        if key not in target.keys and statuses.get(key, "open") == "open":
            return f"shared with {info.trajectory_id!r} of tenant {info.tenant}, which is open"
    return ""


def _clear_tails(wanted: Collection[bytes], landing: str, cursors: Mapping[str, Cursor]) -> list[str]:
    left = []
    top = os.path.join(landing, "tails")
    for name in sorted(walk(top)):
        path, writer = os.path.join(top, name), name.partition("/")[0]
        try:
            keys, last_lsn = _tail(path)
        except (JournalError, FileNotFoundError):
            continue
        except OSError as error:
            left.append(f"tails/{name}: cannot be read: {error.strerror or error}")
            continue
        if not set(wanted) & keys:
            continue
        if last_lsn < cursors.get(writer, Cursor()).next:
            left += _gone(_unlink, path)
        else:
            left.append(f"tails/{name}: not covered by a committed segment yet")
    return left


def _tail(path: str) -> tuple[set[bytes], int]:
    """Return whose frames a tail holds, and its last lsn."""
    if is_remote(path):
        columns = scan_columns(read(path), path)
        return {info.key for info in columns.trajectories}, columns.last_lsn
    scan = read_segment(REAL_ENV, path)
    return set(scan.infos), scan.last_lsn


def _unlink(path: str) -> None:
    if remove(path):
        sync_directory(os.path.dirname(path))


def inbox(lake: str) -> Places:
    """Return the root and landing inside a lake that `import --lake` uses, where they exist."""
    if is_remote(lake):
        return Places()
    home = os.path.join(lake, "_trajlake", "inbox")
    journal, landing = os.path.join(home, "journal"), os.path.join(home, "landing")
    return Places(
        roots=(journal,) if os.path.exists(os.path.join(journal, "root.json")) else (),
        landings=(landing,) if os.path.isdir(landing) else (),
    )


def with_inbox(places: Places, lake: str) -> Places:
    """Return `places` with the lake's own inbox; a place named twice is looked at once."""
    own = inbox(lake)
    return Places(
        roots=_once(places.roots, own.roots), landings=_once(places.landings, own.landings), warm=places.warm,
        gone=places.gone,
    )  # fmt: skip


def _once(*lists: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(resolved(path, "place") for paths in lists for path in paths))
