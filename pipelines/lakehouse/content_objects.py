"""Objects of the content store as a snapshot names them: found by hash, read, verified all together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Final

import msgspec
import polars as pl

from trajlake.pipelines.lakehouse.arrow_schema import polars_schema
from trajlake.pipelines.lakehouse.content_store import ContentStore, StoredBlob, object_of
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.lake_errors import LakeError, LakeMissing
from trajlake.pipelines.lakehouse.table_files import read_rows, threads
from trajlake.schemas.tables import SNAPSHOT_TABLES

_HASH: Final = re.compile(r"[0-9a-f]{6,64}")


class BadHash(LakeError):
    exit_code = 2


class Verified(msgspec.Struct, kw_only=True):
    """What reading every object found. `problems` is one line each."""

    objects: int = 0
    bytes: int = 0
    problems: list[str] = []


def objects(lake: str, snapshot: int | None = None) -> list[StoredBlob]:
    """Return the rows of `blobs` at a snapshot (default newest)."""
    opened = Lake.open(lake)
    at = opened.newest() if snapshot is None else opened.snapshot(snapshot)
    return blobs_of(read_rows(opened.files(at, "blobs"), SNAPSHOT_TABLES["blobs"]))


def blobs_of(rows: pl.DataFrame) -> list[StoredBlob]:
    """Return rows of `blobs` one by one."""
    return [msgspec.convert(row, StoredBlob) for row in rows.iter_rows(named=True)]


def rows_of(blobs: Iterable[StoredBlob]) -> pl.DataFrame:
    """Return blobs as rows of `blobs`."""
    rows = [msgspec.to_builtins(blob) for blob in sorted(blobs, key=lambda blob: (blob.tenant, blob.sha256))]
    return pl.DataFrame(rows, schema=polars_schema(SNAPSHOT_TABLES["blobs"]))


def find_object(lake: str, tenant: str, digits: str, snapshot: int | None = None) -> StoredBlob:
    """Return the one object of the tenant whose hash begins with `digits` (at least 6)."""
    if _HASH.fullmatch(digits) is None:
        raise BadHash(f"{ascii(digits)}: give 6 to 64 lower-case hex digits of the blob's sha256")
    found = [one for one in objects(lake, snapshot) if one.tenant == tenant and one.sha256.startswith(digits)]
    if not found:
        raise LakeMissing(f"blob {digits} of tenant {tenant} is in no content store: erased, expired, or never landed")
    if len(found) > 1:
        raise BadHash(f"{digits}: {len(found)} blobs of tenant {tenant} begin so; give more digits")
    return found[0]


def read_object(lake: str, one: StoredBlob) -> bytes:
    """Return an object's bytes, verified."""
    return ContentStore(Lake.open(lake).url).get(one.tenant, one.sha256, one.path)


def verify_objects(
    lake: str, snapshot: int | None = None, progress: Callable[[str, int, int], None] = lambda *_: None
) -> Verified:
    """Read every object, on all cores, and compare hash and sizes with its row."""
    listed = objects(lake, snapshot)
    store = ContentStore(Lake.open(lake).url)
    result = Verified(objects=len(listed))

    def check(together: list[StoredBlob]) -> list[str | None]:
        return [_problem(one, found) for one, found in store.get_all(together)]

    listed.sort(key=lambda one: one.path)
    by_object = [list(rows) for _, rows in groupby(listed, lambda one: object_of(one.path))]
    with ThreadPoolExecutor(threads(), thread_name_prefix="trajlake-verify") as pool:
        for done, (together, problems) in enumerate(zip(by_object, pool.map(check, by_object), strict=True)):
            result.bytes += sum(one.bytes for one in together)
            result.problems += [problem for problem in problems if problem is not None]
            progress("objects read", done + 1, len(by_object))
    return result


def _problem(one: StoredBlob, found: bytes | LakeError) -> str | None:
    if isinstance(found, LakeError):
        return str(found)
    return None if len(found) == one.bytes else f"{one.path}: {len(found)} bytes, its row says {one.bytes}"
