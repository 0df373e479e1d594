"""Snapshots and run files: the two JSON documents by which a lake of many Delta tables changes as one.

A snapshot `<lake>/_trajlake/snapshots/<n>.json` is the commit point: the Delta version of every table, cursors,
erasure epoch, run report. A run file `<lake>/_trajlake/runs/<n>-<random>.json` holds everything run n does to every
table, so that anybody can finish a run that died half-way. Source: design/lake.md, *Snapshot*.
"""

from __future__ import annotations

import os
from typing import Any, Final, TypeVar

import msgspec

from trajlake.pipelines.lakehouse.lake_errors import LakeDamaged, LakeNewer
from trajlake.pipelines.lakehouse.places import entries, make_directory, put_if_absent, read

FORMAT: Final = 2
"""Since 2, a row of `blobs` may name a range of an object (`packs.py`). Lakes of format 1 are read and written."""
STATE_DIRECTORY: Final = "_trajlake"


class LostRange(msgspec.Struct, frozen=True, kw_only=True):
    """Lsns of a writer that were passed without their bytes: a corrupt segment, or one declared lost."""

    first: int
    last: int
    reason: str
    segment: str = ""


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """`next` is the end of the gapless run of lsns that the lake holds; `lost` are the ranges in it that it lacks."""

    next: int = 0
    lost: tuple[LostRange, ...] = ()


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One consistent version of all tables. `stale` names derived tables that lag behind `events`.

    `decided`: erasures (by id) that the run applied or refused; `erasure_epoch` counts all decided up to here.
    `evolved`: tables whose older files may lack a column that newer ones have.
    """

    format: int = FORMAT
    snapshot: int
    run: str
    kind: str
    created_at: str
    partition_by: tuple[str, ...]
    tables: dict[str, int]
    cursors: dict[str, Cursor] = {}
    erasure_epoch: int = 0
    stale: tuple[str, ...] = ()
    decided: dict[str, str] = {}
    evolved: tuple[str, ...] = ()
    report: dict[str, Any] = {}

    @property
    def number(self) -> int:
        return self.snapshot


class FileAdd(msgspec.Struct, frozen=True, kw_only=True):
    """A data file that a run adds: path below the table, partition values as text, Delta statistics as JSON text."""

    path: str
    size: int
    partition: dict[str, str]
    rows: int
    stats: str


class FileRemove(msgspec.Struct, frozen=True, kw_only=True):
    """A data file that a run takes out of a table (its bytes stay until vacuum)."""

    path: str
    size: int
    partition: dict[str, str]


class RunFile(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one run does. `name` is `<number>-<random>`; `number` the snapshot it makes."""

    format: int = FORMAT
    number: int
    name: str
    kind: str
    created_at: str
    partition_by: tuple[str, ...]
    adds: dict[str, list[FileAdd]]
    removes: dict[str, list[FileRemove]]
    new_columns: dict[str, list[str]] = {}
    cursors: dict[str, Cursor] = {}
    erasure_epoch: int = 0
    stale: tuple[str, ...] = ()
    decided: dict[str, str] = {}
    report: dict[str, Any] = {}


class Expired(msgspec.Struct, frozen=True, kw_only=True):
    """Says that a snapshot is not to be read any more, and why; its files go, or have gone."""

    format: int = FORMAT
    snapshot: int
    why: str
    at: str


def snapshot_numbers(lake: str) -> list[int]:
    """Return the numbers of all snapshots that were ever put, ascending; empty where there is no lake.

    A snapshot's file stays when it expires: it says that its run is decided, and keeps a slow finisher from putting
    it again with later versions.
    """
    return _numbers(os.path.join(lake, STATE_DIRECTORY, "snapshots"))


def expired_numbers(lake: str) -> list[int]:
    """Return the numbers of the snapshots that are marked expired."""
    return _numbers(os.path.join(lake, STATE_DIRECTORY, "expired"))


def _numbers(directory: str) -> list[int]:
    stems = (name.removesuffix(".json") for name in entries(directory) if name.endswith(".json"))
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def snapshot_path(lake: str, number: int) -> str:
    return os.path.join(lake, STATE_DIRECTORY, "snapshots", f"{number}.json")


def run_path(lake: str, name: str) -> str:
    return os.path.join(lake, STATE_DIRECTORY, "runs", f"{name}.json")


def expired_path(lake: str, number: int) -> str:
    return os.path.join(lake, STATE_DIRECTORY, "expired", f"{number}.json")


def put_expired(lake: str, mark: Expired) -> bool:
    """Mark a snapshot expired, durably; return whether this call did it."""
    make_directory(os.path.join(lake, STATE_DIRECTORY, "expired"))
    return put_if_absent(expired_path(lake, mark.snapshot), _text(mark))


def read_expired(lake: str, number: int) -> Expired:
    """Return why a snapshot expired. Raises as `read_snapshot` does."""
    return _read(expired_path(lake, number), Expired)


def read_snapshot(lake: str, number: int) -> Snapshot:
    """Return snapshot `number`. Raises `LakeDamaged` if it is unreadable, `LakeNewer` if a newer trajlake wrote it."""
    return _read(snapshot_path(lake, number), Snapshot)


def put_snapshot(lake: str, snapshot: Snapshot) -> bool:
    """Put a snapshot, whole and only if absent; return whether this call did it."""
    return put_if_absent(snapshot_path(lake, snapshot.snapshot), _text(snapshot))


def read_run(lake: str, name: str) -> RunFile:
    """Return the run file of that name. Raises as `read_snapshot` does."""
    return _read(run_path(lake, name), RunFile)


def put_run(lake: str, run: RunFile) -> None:
    """Put a run file, whole and durable. Its name is random, so that it never exists already."""
    if not put_if_absent(run_path(lake, run.name), _text(run)):
        raise LakeDamaged(f"run file {run.name} exists already: random names do not collide, look at the disk")


_Document = TypeVar("_Document", Snapshot, RunFile, Expired)


def _text(document: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def _read(path: str, kind: type[_Document]) -> _Document:
    try:
        text = read(path)
        version = msgspec.json.decode(text, type=dict[str, Any]).get("format", 0)
        if version > FORMAT:
            raise LakeNewer(f"{path}: format {version}, this trajlake reads up to {FORMAT}: upgrade it")
        return msgspec.json.decode(text, type=kind)
    except FileNotFoundError:
        raise LakeDamaged(f"{path}: missing; list what is there in {os.path.dirname(path)}") from None
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise LakeDamaged(f"{path}: not a readable {kind.__name__}: {error}") from None
