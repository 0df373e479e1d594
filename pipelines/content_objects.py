"""Objects of the content store as a snapshot names them: found by hash, read, verified all together."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from trajlake.pipelines.content_store import ContentStore, StoredBlob
from trajlake.pipelines.lake import Lake
from trajlake.pipelines.lake_errors import LakeError, LakeMissing
from trajlake.pipelines.table_files import read_rows, threads
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
    rows = read_rows(opened.files(at, "blobs"), SNAPSHOT_TABLES["blobs"])
    return [msgspec.convert(row, StoredBlob) for row in rows.iter_rows(named=True)]


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

    def check(one: StoredBlob) -> str | None:
        try:
            size = len(store.get(one.tenant, one.sha256, one.path))
        except LakeError as error:
            return str(error)
        return None if size == one.bytes else f"{one.path}: {size} bytes, its row says {one.bytes}"

    with ThreadPoolExecutor(threads(), thread_name_prefix="trajlake-verify") as pool:
        for done, (one, problem) in enumerate(zip(listed, pool.map(check, listed), strict=True)):
            result.bytes += one.bytes
            if problem is not None:
                result.problems.append(problem)
            progress("objects read", done + 1, len(listed))
    return result
