"""`trajlake gc`: what nothing names any more leaves the root. Source: design/journal.md, *The root*.

Names first, then what refers to them, then (under the exclusive lock `blobs/LOCK`) stat and unlink: so what appears
or is refreshed meanwhile is never taken. A writer names a blob within 24 h of its put, so a blob whose mtime is 24 h
before the look began, and that nothing named then, is never going to be named.

Events name blobs as `schemas.blobs` says; the `CheckpointSaved` of a checkpoint that is in use no more names nothing.
All else is read generously: any 64 hex digits in a checkpoint file, import report, mail item, or in a blob that may
itself be a list of blobs. Generous keeps garbage longer; strict would lose data.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from trajlake.schemas.blobs import blob_hashes
from trajlake.schemas.ids import trajectory_key

from ..checkpoints.checkpoint import CheckpointFiles, Record
from ..env import Env, read_file
from ..root import LOCK_FILE, Root
from ..wal.journal_errors import SegmentCorrupt
from ..wal.reader import list_segments, read_segment, segment_numbers, trajectory_keys
from ..wal.segment import segment_path
from .ended import Ended
from .landed import NAMES_A_BLOB, LandedCheck, LandedFiles

DAY_US: Final = 86_400_000_000
CHECKPOINT_AGE_MIN_US: Final = 7 * DAY_US
"""Older checkpoints of a trajectory that ended stay this long, for whoever wants to branch from them."""
GONE: Final = ".gone-"
_SHA256: Final = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_EVENT_NAMES_A_BLOB: Final = re.compile(b"|".join(map(re.escape, NAMES_A_BLOB)))
_MAY_LIST_BLOBS: Final = (b"{", b"[")
_LIST_PART_MAX: Final = 1 << 16
"""Parts of longer lists are at most so large, and may begin with anything."""
_AT_ONCE: Final = 256
"""Blobs unlinked under one hold of the lock: writers wait meanwhile."""


class GarbageReport(msgspec.Struct, kw_only=True):
    """What one run removed, or would remove: blobs as tenant/sha256, folders and files by path below the root."""

    dry_run: bool
    blobs: list[str] = []
    writers: list[str] = []
    checkpoints: list[str] = []
    leftovers: list[str] = []
    bytes: int = 0


def collect_garbage(root: Root, *, landed: LandedFiles | None = None, dry_run: bool = False) -> GarbageReport:
    """Remove unreferenced blobs, dead writers that the landing holds in full, old checkpoints, and temporary files.

    May run beside everything else, and be killed and run again. Without `landed` a writer that holds events stays.
    Raises OSError, `SegmentCorrupt`, `LeaseError`; what was removed by then was garbage.
    """
    report = GarbageReport(dry_run=dry_run)
    began_us = root.env.now_us()
    names = list(root.blobs.names())
    ended = Ended(root)
    _checkpoints(root, ended, began_us, report)
    _writers(root, ended, landed, began_us, report)
    _blobs(root, names, began_us, report)
    _leftovers(root, began_us, report)
    return report


# -- blobs -------------------------------------------------------------------------------------------------------------


def _blobs(root: Root, names: list[tuple[str, str]], began_us: int, report: GarbageReport) -> None:
    named = set(_named_in_files(root))
    unnamed = {name for name in names if name[1] not in named}
    if unnamed:
        unnamed -= _named_by_blobs(root, set(names) - unnamed, unnamed)
    candidates = sorted(unnamed)
    for start in range(0, len(candidates), _AT_ONCE):
        with root.blobs.locked(exclusive=True):
            for tenant, sha256 in candidates[start : start + _AT_ONCE]:
                _one_blob(root, tenant, sha256, began_us, report)


def _one_blob(root: Root, tenant: str, sha256: str, began_us: int, report: GarbageReport) -> None:
    path = root.blobs.path(tenant, sha256)
    with contextlib.suppress(FileNotFoundError):
        facts = root.env.stat(path)
        if facts.modified_at_us > began_us - DAY_US:
            return
        if not report.dry_run:
            root.env.unlink(path)
        report.blobs.append(f"{tenant}/{sha256}")
        report.bytes += facts.size_bytes


def _named_in_files(root: Root) -> Iterator[str]:
    """Every sha256 that a segment, checkpoint, import or mail item names; of imports the folders' names too."""
    for writer in root.writers():
        folder = root.writer_folder(writer)
        for number in segment_numbers(root.env, folder):
            yield from _named_by_events(root.env, segment_path(folder, number))
    for part in ("checkpoints", "imports", "mail"):
        for path in _walk(root.env, f"{root.path}/{part}"):
            yield from (found.decode() for found in _SHA256.findall(path.encode()))
            yield from _named_in(root.env, path)


def _named_by_events(env: Env, path: str) -> set[str]:
    """Raises `SegmentCorrupt` for damage, `UnknownVersion` for a newer event: then nothing may be called garbage."""
    try:
        scan = read_segment(env, path)
    except FileNotFoundError:  # dropped by retention: the landing holds what it named
        return set()
    if scan.end == "corrupt":
        raise SegmentCorrupt(scan.report, path=path, offset=scan.damaged_at, lsn=scan.last_lsn + 1)
    if _EVENT_NAMES_A_BLOB.search(scan.data) is None:
        return set()
    return {sha256 for event in scan.events() for sha256 in blob_hashes(event.type, event.payload)}


def _named_by_blobs(root: Root, live: set[tuple[str, str]], unnamed: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Those of `unnamed` that a live blob names (a list of files, a part of a checkpoint), or one that those name."""
    spared: set[tuple[str, str]] = set()
    while live:
        named = {sha256 for tenant, name in live for sha256 in _named_in(root.env, root.blobs.path(tenant, name), True)}
        live = {one for one in unnamed - spared if one[1] in named}
        spared |= live
    return spared


def _named_in(env: Env, path: str, only_lists: bool = False) -> Iterable[str]:
    try:
        data = read_file(env, path)
    except FileNotFoundError:  # mail that was read: its event names it now
        return []
    if only_lists and len(data) > _LIST_PART_MAX and not data.startswith(_MAY_LIST_BLOBS):
        return []
    return {found.decode() for found in _SHA256.findall(data)}


# -- writers -----------------------------------------------------------------------------------------------------------


def _writers(root: Root, ended: Ended, landed: LandedFiles | None, began_us: int, report: GarbageReport) -> None:
    env = root.env
    for name in _names(env, f"{root.path}/writers"):
        if name.startswith(GONE) and not report.dry_run:
            _empty(env, f"{root.path}/writers/{name}")
    for writer in root.writers():
        if writer in ended.open_writers:
            continue
        lock = _locked(root, writer)
        if lock is None:
            continue
        try:
            if _may_go(root, writer, ended, landed, began_us):
                report.writers.append(writer)
                if not report.dry_run:
                    _remove_writer(root, writer)
        finally:
            env.close(lock)


def _locked(root: Root, writer: str) -> int | None:
    try:
        lock = root.env.open(f"{root.writer_folder(writer)}/{LOCK_FILE}", write=True)
    except FileNotFoundError:
        return None
    if root.env.flock(lock, exclusive=True):
        return lock
    root.env.close(lock)
    return None


def _may_go(root: Root, writer: str, ended: Ended, landed: LandedFiles | None, began_us: int) -> bool:
    """The caller holds its LOCK. Nothing was written for a day, all has ended, and the landing holds every segment."""
    env, folder = root.env, root.writer_folder(writer)
    if any(env.stat(f"{folder}/{name}").modified_at_us > began_us - DAY_US for name in env.listdir(folder)):
        return False
    segments = list_segments(env, folder)
    if segments and (landed is None or not all(segment.is_sealed for segment in segments)):
        return False
    if landed is None:
        return True
    if any(key not in ended.keys for segment in segments for key in trajectory_keys(env, segment)):
        return False
    check = LandedCheck(root, landed)
    return not any(check.missing(segment) for segment in segments)


def _remove_writer(root: Root, writer: str) -> None:
    """One rename takes it out of sight: a folder half emptied would look like a new writer, and lsns would repeat."""
    env, folder = root.env, root.writer_folder(writer)
    hidden = f"{root.path}/writers/{GONE}{writer}"
    with root.blobs.locked(exclusive=True):
        env.rename(folder, hidden)
        env.fsync_dir(f"{root.path}/writers")
    _empty(env, hidden)


# -- checkpoints, leftovers --------------------------------------------------------------------------------------------


def _checkpoints(root: Root, ended: Ended, began_us: int, report: GarbageReport) -> None:
    """Of a trajectory that ended a week ago, all but the newest checkpoint and the pinned ones."""
    files = CheckpointFiles(root.env, root.path)
    by_trajectory: dict[tuple[str, str], list[Record]] = {}
    for record in files.all():
        by_trajectory.setdefault((record.tenant, record.trajectory_id), []).append(record)
    for (tenant, trajectory_id), records in sorted(by_trajectory.items()):
        key = trajectory_key(tenant, trajectory_id)
        if key not in ended.keys or len(records) < 2:
            continue
        folder = root.checkpoint_folder(key)
        with contextlib.suppress(FileNotFoundError):
            young_us = max(root.env.stat(f"{folder}/{name}").modified_at_us for name in _names(root.env, folder))
            if young_us > began_us - CHECKPOINT_AGE_MIN_US:
                continue
            if report.dry_run or files.remove_old(tenant, trajectory_id, records[-1].covers, keep=1):
                report.checkpoints.append(key.hex())


def _leftovers(root: Root, began_us: int, report: GarbageReport) -> None:
    """Temporary files of processes that were killed before they gave them a name."""
    for part in ("", "/trajectories", "/mail", "/checkpoints", "/imports", "/blobs", "/writers"):
        for path in _walk(root.env, root.path + part, deep=bool(part)):
            name = path.rpartition("/")[2]
            if not (name.startswith(".") and name.endswith(".tmp")):
                continue
            with contextlib.suppress(FileNotFoundError):
                if root.env.stat(path).modified_at_us > began_us - DAY_US:
                    continue
                if not report.dry_run:
                    root.env.unlink(path)
                report.leftovers.append(path.removeprefix(f"{root.path}/"))


def _empty(env: Env, folder: str) -> None:
    """Remove a folder and all in it; one that is gone already is fine."""
    for name in _names(env, folder):
        path = f"{folder}/{name}"
        with contextlib.suppress(FileNotFoundError):
            if env.stat(path).is_folder:
                _empty(env, path)
            else:
                env.unlink(path)
    with contextlib.suppress(FileNotFoundError):
        env.rmdir(folder)
        env.fsync_dir(folder.rpartition("/")[0])


def _walk(env: Env, folder: str, *, deep: bool = True) -> Iterator[str]:
    """Yield the paths of all files below a folder; of a missing one, none."""
    for name in _names(env, folder):
        path = f"{folder}/{name}"
        with contextlib.suppress(FileNotFoundError):
            if not env.stat(path).is_folder:
                yield path
            elif deep:
                yield from _walk(env, path)


def _names(env: Env, folder: str) -> list[str]:
    try:
        return env.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


__all__ = ["GarbageReport", "collect_garbage"]
