"""What every worker of a run is told, as one JSON file in its staging directory, and what each reports back.

Only paths cross a shuffle; workers find the plan, the staged rows and each other's reports by path.
"""

from __future__ import annotations

import os
import secrets
from typing import Final, TypeVar

import msgspec

from trajlake.pipelines.lakehouse.content_store import StoredBlob
from trajlake.pipelines.lakehouse.landing import DeclaredLost, LandedSegment
from trajlake.pipelines.lakehouse.snapshot import FileAdd
from trajlake.pipelines.lakehouse.standing import Standing

Status = str
"""ok | corrupt | newer | missing_blobs"""


NO_WRITER: Final = "0" * 32
"""`writer` of rows that no journal holds (any more); their lsn is -1."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of one run. `run` is its name `<number>-<random>`, `base` the snapshot it builds on.

    `buckets` is how many parts trajectories are spread over by their key. `settled_before` (µs UTC): only
    trajectories that ended before it are taken. `standing`: erasures and holds, read after the snapshot. `silent`:
    trajectories whose texts and blobs are gone, by erasure or expiry. `landing_stays`: see `CompactOptions`.
    """

    lake: str
    landing: str
    staging: str
    run: str
    base: int
    buckets: int
    partition_by: tuple[str, ...]
    derive: bool = True
    rebuild: tuple[str, ...] = ()
    settled_before: int | None = None
    segments: tuple[LandedSegment, ...] = ()
    declared: tuple[DeclaredLost, ...] = ()
    standing: Standing = Standing()
    silent: tuple[tuple[str, str], ...] = ()
    landing_stays: bool = True

    @property
    def number(self) -> int:
        return self.base + 1

    @property
    def path(self) -> str:
        return os.path.join(self.staging, "plan.json")


class SegmentReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `explode` found in one segment. `missing` are blobs that neither landing nor content store holds."""

    segment: LandedSegment
    status: Status
    why: str = ""
    rows: int = 0
    stored: tuple[StoredBlob, ...] = ()
    missing: tuple[tuple[str, str], ...] = ()


class BucketReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `reduce` did for one bucket. `drops`: per table a staged file of trajectories whose rows leave it.

    `unsettled` are segments that hold rows of trajectories left for later. `forgotten`: erased trajectories that
    new rows came for, and the blobs that these named.
    """

    adds: dict[str, list[FileAdd]]
    drops: dict[str, str]
    duplicates: int = 0
    events_added: int = 0
    superseded: int = 0
    held_back: int = 0
    conflicts: int = 0
    expired: int = 0
    touched: int = 0
    unsettled: tuple[str, ...] = ()
    forgotten: tuple[tuple[str, str], ...] = ()
    forgotten_blobs: tuple[tuple[str, str], ...] = ()


_Document = TypeVar("_Document", Plan, SegmentReport, BucketReport)


def write_document(path: str, document: msgspec.Struct) -> str:
    """Write a document whole (a retried worker may write it again) and return its path."""
    temporary = f"{path}.{secrets.token_hex(6)}.tmp"
    with open(temporary, "wb") as file:
        file.write(msgspec.json.encode(document))
    os.replace(temporary, path)
    return path


def read_document(path: str, kind: type[_Document]) -> _Document:
    """Return the document at `path`."""
    with open(path, "rb") as file:
        return msgspec.json.decode(file.read(), type=kind)
