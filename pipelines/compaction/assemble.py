"""The launcher's part of a run after the stages: everything the run does to every table, as one run file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
from deltalake import DeltaTable

from trajlake.pipelines.compaction.cursors import Advance, advance
from trajlake.pipelines.compaction.imports_table import new_imports
from trajlake.pipelines.compaction.run_plan import BucketReport, Plan, SegmentReport
from trajlake.pipelines.derived.derive import DERIVED
from trajlake.pipelines.forgetting.forget import live_blobs, live_in_adds, take_out
from trajlake.pipelines.lakehouse.arrow_schema import polars_schema
from trajlake.pipelines.lakehouse.content_objects import rows_of
from trajlake.pipelines.lakehouse.content_store import StoredBlob
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.lake_errors import LakeError
from trajlake.pipelines.lakehouse.packs import each_once
from trajlake.pipelines.lakehouse.run_draft import Draft
from trajlake.pipelines.lakehouse.run_report import RunReport
from trajlake.pipelines.lakehouse.snapshot import Cursor, RunFile, Snapshot
from trajlake.pipelines.lakehouse.standing import keys_frame
from trajlake.schemas.tables import SNAPSHOT_TABLES

NO_TENANT = "*"
"""Tenant of `segment_lost` rows, which belong to no tenant: outside the grammar of tenants on purpose."""


def assemble(
    plan: Plan,
    lake: Lake,
    snapshot: Snapshot,
    handle: DeltaTable,
    reports: Sequence[SegmentReport],
    buckets: Sequence[BucketReport],
    report: RunReport,
) -> RunFile | None:
    """Return the run file, or None if nothing changes; fill `report` either way. Writes the files still missing."""
    unsettled = {name for bucket in buckets for name in bucket.unsettled}
    moved = advance(snapshot.cursors, reports, plan.declared, unsettled)
    changes = Draft(lake, snapshot, handle, plan.run)
    removed = _rows(changes, buckets)
    imports = new_imports(plan, lake, snapshot)
    forgotten = _forgotten_blobs(changes, buckets)
    _blobs(plan, changes, reports, moved, report, imports.sources, forgotten)
    report.forgotten_blobs = sorted(forgotten)
    cursors = moved.cursors if plan.landing_stays else dict(snapshot.cursors)
    _lost(changes, snapshot.cursors, cursors)
    if len(imports.replaced):
        changes.drop("imports", imports.replaced, on=("tenant", "sha256"))
    changes.write("imports", imports.rows, "imports")
    stale = _stale(plan, snapshot, buckets)
    _tell(report, reports, buckets, moved, removed, len(imports.rows))
    if not plan.landing_stays and (moved.corrupt or moved.waiting):
        name, why = (moved.corrupt + moved.waiting)[0]
        raise LakeError(f"{plan.landing}/{name}: {why}; nothing was committed, import again")
    report.bytes_added = sum(add.size for adds in changes.adds.values() for add in adds)
    if not changes.adds and not changes.removes and cursors == dict(snapshot.cursors) and stale == snapshot.stale:
        return None
    report.outcome, report.snapshot, report.run = "committed", plan.number, plan.run
    return changes.run_file("compact", report.as_json(), cursors=cursors, stale=stale)


def _rows(changes: Draft, buckets: Sequence[BucketReport]) -> int:
    """Add what the buckets wrote and take out what they reported; return the rows that left `events`."""
    removed = 0
    for table in SNAPSHOT_TABLES:
        drops = [pl.read_ipc(b.drops[table]) for b in buckets if table in b.drops]
        if drops:
            dropped = changes.drop(table, pl.concat(drops).unique())
            removed += dropped if table == "events" else 0
        for bucket in buckets:
            changes.add(table, bucket.adds.get(table, []))
    return removed


def _blobs(
    plan: Plan,
    changes: Draft,
    reports: Sequence[SegmentReport],
    moved: Advance,
    report: RunReport,
    sources: Sequence[StoredBlob],
    forgotten: set[tuple[str, str]],
) -> None:
    found: list[StoredBlob] = []
    for segment in reports:
        if segment.segment.name in moved.admitted:
            found += segment.stored
        report.blobs_missing += [(tenant, digest) for tenant, digest in segment.missing]
    # The objects of blobs that only erased trajectories name were written already: nothing names them, vacuum comes.
    stored = each_once(plan.lake, [*found, *sources], plan.run, without=forgotten)
    report.blobs_stored = len(stored)
    # An object that a row named but that was found damaged was written anew: the old row goes.
    take_out(changes, forgotten.union((blob.tenant, blob.sha256) for blob in stored))
    changes.write("blobs", rows_of(stored), "blobs")


def _forgotten_blobs(changes: Draft, buckets: Sequence[BucketReport]) -> set[tuple[str, str]]:
    """Return the blobs that rows lost their text with and that no live row names."""
    named = {blob for bucket in buckets for blob in bucket.forgotten_blobs}
    if not named:
        return set()
    keys = keys_frame(key for bucket in buckets for key in bucket.forgotten)
    return named - live_blobs(changes, named, keys, set()) - live_in_adds(changes, named, keys)


def _lost(changes: Draft, before: dict[str, Cursor], after: dict[str, Cursor]) -> None:
    """Keep one `segment_lost` row per range that was passed without its bytes."""
    ranges = {(writer, lost) for writer, cursor in after.items() for lost in cursor.lost}
    if ranges == {(writer, lost) for writer, cursor in before.items() for lost in cursor.lost}:
        return
    changes.remove("quarantine", [f for f in changes.files("quarantine") if f.partition["tenant"] == NO_TENANT])
    schema = polars_schema(SNAPSHOT_TABLES["quarantine"])
    rows: list[dict[str, Any]] = [
        {
            "tenant": NO_TENANT, "writer": writer, "lsn": lost.first, "last_lsn": lost.last, "reason": "segment_lost",
            "detail": f"{lost.segment}: {lost.reason}" if lost.segment else lost.reason,
        }
        for writer, lost in sorted(ranges, key=lambda r: (r[0], r[1].first, r[1].last))
    ]  # fmt: skip
    frame = pl.DataFrame({name: [row.get(name) for row in rows] for name in schema}, schema=schema)
    changes.write("quarantine", frame, "lost")


def _stale(plan: Plan, snapshot: Snapshot, buckets: Sequence[BucketReport]) -> tuple[str, ...]:
    if plan.derive:
        return ()
    wrote = any(bucket.adds.get("events") or bucket.drops.get("events") for bucket in buckets)
    return tuple(DERIVED) if wrote else snapshot.stale


def _tell(
    report: RunReport,
    reports: Sequence[SegmentReport],
    buckets: Sequence[BucketReport],
    moved: Advance,
    removed: int,
    imports: int,
) -> None:
    tails = [one.segment for one in reports if one.segment.parts and one.segment.name in moved.admitted]
    report.segments_taken = len(moved.admitted) - len(tails)
    report.tails_read = sum(len(one.parts) for one in tails)
    report.segments_waiting += [(waiting.name, waiting.why) for waiting in moved.waiting]
    report.segments_corrupt = [(corrupt.name, corrupt.why) for corrupt in moved.corrupt]
    report.events_removed = removed
    report.imports_added = imports
    for name in ("duplicates", "events_added", "superseded", "held_back", "conflicts", "expired"):
        setattr(report, name, sum(getattr(bucket, name) for bucket in buckets))
    report.forgotten = sorted({key for bucket in buckets for key in bucket.forgotten})
    report.trajectories_touched = sum(bucket.touched for bucket in buckets)
