"""First stage of a run: one segment in, its blobs into the content store, its rows into staging files by bucket.

A worker's element is a segment; only paths leave it. Whatever is wrong with a segment ends up in its report, never in
an exception: one corrupt segment stops no other.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import polars as pl

from trajlake.pipelines.compaction.decode import SegmentNewer, event_columns, open_sealed
from trajlake.pipelines.compaction.run_plan import NO_WRITER, Plan, SegmentReport, read_document, write_document
from trajlake.pipelines.lakehouse.content_store import ContentStore, StoredBlob, sync_objects
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.lake_errors import BlobDamaged, LakeError
from trajlake.pipelines.lakehouse.landing import LandedSegment, blob_path
from trajlake.pipelines.lakehouse.named_blobs import blobs_named
from trajlake.pipelines.lakehouse.parquet_files import scan_parquet
from trajlake.pipelines.lakehouse.places import read
from trajlake.pipelines.lakehouse.standing import keys_frame
from trajlake.runtime.wal.columns import SegmentColumns
from trajlake.runtime.wal.journal_errors import SegmentCorrupt
from trajlake.schemas.errors import InvalidEvent

REPORT_SUFFIX: Final = ".report.json"


def explode(plan_path: str, place: int) -> list[tuple[int, str]]:
    """Stage segment number `place` of the plan; return (bucket, path) of every file that a reducer must see.

    Each bucket is given the segment's report, and its rows if it has any there. May run twice, also at once.
    """
    plan = read_document(plan_path, Plan)
    segment = plan.segments[place]
    stem = os.path.join(plan.staging, f"{place:06d}")
    staged: list[tuple[int, str]] = []
    try:
        opened = _open_tails(plan, segment) if segment.parts else [_open(plan, segment)]
        rows = _rows_of(plan, opened, segment.name)
        stored, missing = _move_blobs(plan, rows) if opened else ([], [])
        if missing:
            report = SegmentReport(
                segment=segment, status="missing_blobs", missing=tuple(missing), rows=len(rows),
                why=f"blob {missing[0][1]} of tenant {missing[0][0]} has not landed ({len(missing)} missing)",
            )  # fmt: skip
        else:
            staged = _stage(plan, opened, rows, stem) if opened else []
            report = SegmentReport(segment=segment, status="ok", rows=len(rows), stored=tuple(stored))
    except SegmentNewer as error:
        report = SegmentReport(segment=segment, status="newer", why=str(error))
    except (SegmentCorrupt, InvalidEvent, msgspec.DecodeError) as error:
        report = SegmentReport(segment=segment, status="corrupt", why=str(error))
    path = write_document(stem + REPORT_SUFFIX, report)
    return staged + [(number, path) for number in range(plan.buckets)]


def _open(plan: Plan, segment: LandedSegment) -> SegmentColumns:
    sealed = open_sealed(os.path.join(plan.landing, segment.name))
    found = (sealed.header.writer, sealed.first_lsn, sealed.last_lsn)
    if found != (segment.writer, segment.first, segment.last):
        raise SegmentCorrupt(f"{segment.name}: holds lsn {found[1]} to {found[2]} of writer {found[0]}")
    return sealed


def _open_tails(plan: Plan, tails: LandedSegment) -> list[SegmentColumns]:
    """Return the tails that are still there: one that is gone meanwhile has been covered."""
    opened = []
    for name in tails.parts:
        with contextlib.suppress(FileNotFoundError):
            opened.append(open_sealed(os.path.join(plan.landing, name)))
    if any(one.header.writer != tails.writer for one in opened):
        raise SegmentCorrupt(f"{tails.name}: holds frames of another writer")
    return opened


def _rows_of(plan: Plan, opened: Sequence[SegmentColumns], name: str) -> pl.DataFrame:
    parts = [event_columns(one, name) for one in opened]
    rows = parts[0] if len(parts) == 1 else pl.concat(parts, rechunk=False) if parts else pl.DataFrame()
    if parts and not plan.landing_stays:
        rows = rows.with_columns(pl.lit(NO_WRITER).alias("writer"), pl.lit(-1, pl.Int64).alias("lsn"))
    return rows


def _stage(plan: Plan, opened: Sequence[SegmentColumns], rows: pl.DataFrame, stem: str) -> list[tuple[int, str]]:
    bucket_of = np.concatenate([_buckets_of(plan, one) for one in opened])
    staged = []
    for number in np.unique(bucket_of).tolist():
        part = rows.filter(pl.Series(bucket_of == number)) if plan.buckets > 1 else rows
        path = f"{stem}-{number}.arrow"
        temporary = f"{path}.{secrets.token_hex(6)}.tmp"
        part.write_ipc(temporary, compat_level=pl.CompatLevel.newest())
        os.replace(temporary, path)
        staged.append((number, path))
    return staged


def _buckets_of(plan: Plan, sealed: SegmentColumns) -> np.ndarray[Any, Any]:
    owners = np.frombuffer(sealed.ordinals, "<u4")
    of_trajectory = np.array([bucket(info.key, plan.buckets) for info in sealed.trajectories], np.int64)
    return np.take(of_trajectory, owners)


def bucket(key: bytes, buckets: int) -> int:
    """Return the bucket of a trajectory key: stable over processes, versions and runs of the same size."""
    return int.from_bytes(key[:4], "big") % buckets


def _move_blobs(plan: Plan, rows: pl.DataFrame) -> tuple[list[StoredBlob], list[tuple[str, str]]]:
    """Copy every blob that `rows` name into the content store; return the new objects and the blobs found nowhere."""
    silent = keys_frame(plan.silent)
    loud = rows.join(silent, on=list(silent.columns), how="anti") if plan.silent else rows
    named = blobs_named(loud)
    if not named:
        return [], []
    known = _known_blobs(plan, named)
    store = ContentStore(plan.lake)
    stored: list[StoredBlob] = []
    missing: list[tuple[str, str]] = []
    for tenant, digest in named:
        held = known.get((tenant, digest))
        if held is not None and _whole(store, tenant, digest, held):
            continue
        try:
            data = read(blob_path(plan.landing, tenant, digest))
        except FileNotFoundError:
            data = None
        if data is None:
            missing.append((tenant, digest))
            continue
        try:
            stored.append(store.put(tenant, digest, data, plan.run))
        except BlobDamaged:
            missing.append((tenant, digest))
    sync_objects(plan.lake, stored)
    return stored, [one for one in missing if one in known or not _has_expired(plan, loud, one)]


def _has_expired(plan: Plan, rows: pl.DataFrame, blob: tuple[str, str]) -> bool:
    """Tell whether retention took a blob: the lake knows every trajectory here to name it, and holds it no more."""
    tenant, digest = blob
    mine = rows.filter((pl.col("tenant") == tenant) & pl.col("payload").str.contains(digest, literal=True))
    lake = Lake(plan.lake)
    refs: set[str] = set()
    for file in lake.files(lake.snapshot(plan.base), "blob_refs"):
        if file.partition["tenant"] == tenant:
            scan = scan_parquet(file.path)
            refs |= set(scan.filter(pl.col("sha256") == digest).select("trajectory_id").collect().to_series())
    return set(mine["trajectory_id"]) <= refs


def _known_blobs(plan: Plan, named: list[tuple[str, str]]) -> dict[tuple[str, str], str]:
    lake = Lake(plan.lake)
    tenants = {tenant for tenant, _ in named}
    files = [file for file in lake.files(lake.snapshot(plan.base), "blobs") if file.partition["tenant"] in tenants]
    wanted = pl.Series([digest for _, digest in named])
    known: dict[tuple[str, str], str] = {}
    for file in files:
        scan = scan_parquet(file.path).select("sha256", "path")
        for digest, path in scan.filter(pl.col("sha256").is_in(wanted.implode())).collect().iter_rows():
            known[file.partition["tenant"], digest] = path
    return known


def _whole(store: ContentStore, tenant: str, digest: str, path: str) -> bool:
    try:
        store.get(tenant, digest, path)
    except LakeError:
        return False
    return True
