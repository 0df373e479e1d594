"""Delta logs: checkpoints written and synced by maintenance, and cleaned only below the oldest snapshot kept.

delta-rs syncs neither, and a torn checkpoint hides a table; so a checkpoint counts once it was read back and synced,
and one that power loss tore is removed, with the pointer to it, before a launcher does anything else.
"""

from __future__ import annotations

import io
import json
import os
import re
from typing import Final

import pyarrow.parquet as pq

from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.places import entries, is_remote, read, remove, sync_all, sync_directory
from trajlake.pipelines.lakehouse.protocol import log_may_go_below
from trajlake.schemas.tables import SNAPSHOT_TABLES, TABLES

LOG: Final = "_delta_log"
POINTER: Final = "_last_checkpoint"
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(?:\.[^/]*)?\.parquet")
_COMMIT: Final = re.compile(r"(\d{20})\.json")


def checkpoint(lake: Lake, table: str, commits_min: int) -> int | None:
    """Write a checkpoint of a table that has `commits_min` commits since the last; return its version, durable."""
    log = lake.path(table, LOG)
    handle = lake.handle(table)
    version = handle.version()
    newest = max(checkpoints(log), default=-1)
    if version - newest < commits_min:
        return None
    handle.create_checkpoint()
    files = [name for name in entries(log) if _version_of(name) == version] + [POINTER]
    for name in files:
        if name != POINTER:
            _read_metadata(os.path.join(log, name))
    sync_all([os.path.join(log, name) for name in files], lake.url)
    return version


def checkpoints(log: str) -> list[int]:
    """Return the versions that a log folder holds checkpoints of, ascending."""
    found = {_version_of(name) for name in entries(log)}
    return sorted(version for version in found if version >= 0)


def _read_metadata(path: str) -> None:
    pq.read_metadata(io.BytesIO(read(path)) if is_remote(path) else path)


def _version_of(name: str) -> int:
    match = _CHECKPOINT.fullmatch(name)
    return int(match[1]) if match else -1


def mend_torn_checkpoints(log: str) -> list[str]:
    """Remove checkpoints that cannot be read, and the pointer where it names none; return their names.

    Nothing is lost: the commits that a checkpoint sums up are removed only once it is durable and older snapshots
    are gone. An object is never torn, so nothing is asked of object storage.
    """
    if is_remote(log):
        return []
    names = entries(log)
    torn = []
    for name in names:
        if _version_of(name) >= 0:
            try:
                _read_metadata(os.path.join(log, name))
            except Exception:  # noqa: BLE001
                torn.append(name)
    if POINTER in names and (torn or not _names_one(log)):
        torn.append(POINTER)
    for name in sorted(torn, reverse=True):  # the pointer first: a reader then falls back to the commits
        os.unlink(os.path.join(log, name))
    if torn:
        sync_directory(log)
    return torn


def _names_one(log: str) -> bool:
    try:
        version = json.loads(read(os.path.join(log, POINTER)))["version"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return version in checkpoints(log)


def clean_logs(lake: Lake, *, dry_run: bool = False) -> int:
    """Remove the commits and checkpoints that no kept snapshot needs any more; return how many files.

    Ledgers are read at their newest version only, but keep their commits: a row's place in time is evidence.
    """
    numbers = lake.snapshot_numbers()
    kept = [lake.snapshot(number) for number in numbers]
    removed = 0
    for table in SNAPSHOT_TABLES:
        log = lake.path(table, LOG)
        limit = log_may_go_below([s.tables[table] for s in kept if table in s.tables], checkpoints(log))
        for name in entries(log):
            match = _COMMIT.fullmatch(name)
            version = int(match[1]) if match else _version_of(name)
            if 0 <= version < limit:
                if not dry_run:
                    remove(os.path.join(log, name))
                removed += 1
        if removed and not dry_run:
            sync_directory(log)
    return removed


def all_tables() -> tuple[str, ...]:
    """Return every table and ledger that has a log."""
    return tuple(TABLES)
