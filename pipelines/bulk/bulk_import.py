"""A bulk import's dealings with its lake: what it may build on, what the lake knows already, and the one commit.

`import --lake` of much that is new writes data files at once, without journal, landing and a second reading: under the
same run and snapshot rules, and with the same rows, as by way of a root. Whatever it meets that the lake, or the root
in its inbox, knows already goes by that way. `ingest` calls these functions through `bulk_door`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import polars as pl

from trajlake.pipelines.bulk.bulk_door import BulkKnown, BulkPlan
from trajlake.pipelines.bulk.bulk_rows import BulkWriter
from trajlake.pipelines.compaction.imports_table import Report, row_of
from trajlake.pipelines.forgetting.decide import decided_snapshot
from trajlake.pipelines.lakehouse.arrow_schema import polars_schema
from trajlake.pipelines.lakehouse.commit import add_new_columns, commit_run, finish_half_done, head_handle
from trajlake.pipelines.lakehouse.content_objects import rows_of
from trajlake.pipelines.lakehouse.content_store import ContentStore, StoredBlob
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.lake_errors import LakeError, RunLost
from trajlake.pipelines.lakehouse.ledger import append_run
from trajlake.pipelines.lakehouse.packs import each_once
from trajlake.pipelines.lakehouse.places import resolved
from trajlake.pipelines.lakehouse.run_draft import Draft, new_run_name
from trajlake.pipelines.lakehouse.run_report import RunReport
from trajlake.pipelines.lakehouse.snapshot import FileAdd
from trajlake.pipelines.lakehouse.table_files import may_hold, read_columns, read_rows
from trajlake.schemas.envelope import Event
from trajlake.schemas.tables import EVENTS, SNAPSHOT_TABLES

KNOWN_MAX: Final = 1_000_000
"""Rows of a tenant that a bulk import looks at: every process holds their names and hashes, some 150 bytes each."""


def begin(lake: str) -> BulkPlan | None:
    """Return the plan of a run on the newest snapshot, the lake made where there is none.

    None where rows must be looked at one by one: holds or erasures stand, or derived tables lag behind.
    """
    opened = Lake.open(lake, create=True)
    finish_half_done(opened)
    snapshot, standing = decided_snapshot(opened)
    if standing.holds or standing.erasures or snapshot.stale:
        return None
    return BulkPlan(
        lake=opened.url, run=new_run_name(snapshot), base=snapshot.number, partition_by=snapshot.partition_by
    )


def known(plan: BulkPlan, tenant: str) -> BulkKnown | None:
    """Return what the snapshot that the plan builds on knows of a tenant; None where that is too much to hold."""
    lake = Lake(plan.lake)
    snapshot = lake.snapshot(plan.base)
    files = {
        table: [file for file in lake.files(snapshot, table) if file.partition["tenant"] == tenant]
        for table in ("trajectories", "quarantine", "blobs", "imports")
    }
    if sum(file.rows for found in files.values() for file in found) > KNOWN_MAX:
        return None

    def column(table: str, name: str) -> frozenset[str]:
        found = files[table]
        return frozenset(read_columns(found, SNAPSHOT_TABLES[table], (name,))[name]) if found else frozenset()

    return BulkKnown(
        trajectories=column("trajectories", "trajectory_id") | column("quarantine", "trajectory_id"),
        blobs=column("blobs", "sha256"),
        sources=column("imports", "sha256"),
    )


def commit(
    plan: BulkPlan, by: BulkWriter, stored: Sequence[StoredBlob], reports: Sequence[str]
) -> dict[str, Any] | None:
    """Commit what was written as one run; return its report, durable and queryable.

    `stored` are the objects of all processes, durable; `reports` the texts of their loss reports. None where it must
    not count: another run came first, or two sources named the same trajectory. Its files are then named by nothing.
    """
    begun = time.monotonic()
    adds = by.close()
    if by.is_void:
        return None
    lake = Lake(plan.lake)
    try:
        snapshot = lake.snapshot(plan.base)
        handle = head_handle(lake, snapshot)
        columns = add_new_columns(lake, snapshot)
        if columns:
            handle = head_handle(lake, snapshot)
        draft = Draft(lake, snapshot, handle, plan.run)
        draft.new_columns = columns
        report = _drafted(draft, by, adds, stored, reports)
        commit_run(lake, draft.run_file("compact", report.as_json()), handle)
    except (RunLost, LakeError):
        if lake.newest().number == plan.base:
            raise
        if lake.any_snapshot(plan.base + 1).run != plan.run:
            return None
        # The run counts: what failed came after its snapshot.
    report.seconds = round(time.monotonic() - begun, 3)
    append_run(lake, report)
    return report.as_json()


def _drafted(
    draft: Draft, by: BulkWriter, adds: dict[str, list[FileAdd]], stored: Sequence[StoredBlob], reports: Sequence[str]
) -> RunReport:
    for table, files in adds.items():
        draft.add(table, files)
    blobs = each_once(draft.lake.url, stored, draft.run)
    draft.write("blobs", rows_of(blobs), "blobs")
    texts = [(msgspec.json.decode(text, type=Report), text) for text in reports]
    rows = [row_of(report, text) for report, text in sorted(texts, key=lambda one: (one[0].tenant, one[0].sha256))]
    schema = polars_schema(SNAPSHOT_TABLES["imports"])
    imports = pl.DataFrame({name: [row.get(name) for row in rows] for name in schema}, schema=schema)
    draft.write("imports", imports, "imports")
    report = RunReport(outcome="committed", snapshot=draft.snapshot.number + 1, run=draft.run)
    report.events_added, report.trajectories_touched = by.events, len(by.trajectories)
    report.blobs_stored, report.imports_added = len(blobs), len(rows)
    report.bytes_added = sum(add.size for files in draft.adds.values() for add in files)
    return report


def loss_reports(lake: str) -> list[str] | None:
    """Return the texts of all loss reports that the newest snapshot holds; None where there is no lake."""
    opened = Lake(resolved(lake, "lake"))
    if not opened.all_snapshot_numbers():
        return None
    files = opened.files(opened.newest(), "imports")
    return read_columns(files, SNAPSHOT_TABLES["imports"], ("report",))["report"].drop_nulls().to_list()


def trajectories(lake: str) -> list[tuple[str, str]]:
    """Return (tenant, id) of every trajectory of the newest snapshot; none where there is no lake."""
    opened = Lake(resolved(lake, "lake"))
    if not opened.all_snapshot_numbers():
        return []
    files = opened.files(opened.newest(), "trajectories")
    return list(read_columns(files, SNAPSHOT_TABLES["trajectories"], ("tenant", "trajectory_id")).iter_rows())


def held_events(lake: str, tenant: str, trajectory_id: str, token: int) -> tuple[dict[int, bytes], Event | None]:
    """Return what the newest snapshot holds of a trajectory under one token: hashes by number, and event 0."""
    opened = Lake(resolved(lake, "lake"))
    key = pl.DataFrame({"tenant": [tenant], "trajectory_id": [trajectory_id]})
    files = may_hold(opened.files(opened.newest(), "events"), key)
    rows = read_rows(files, EVENTS, key).filter(pl.col("fencing_token") == token)
    hashes = dict(rows.select("sequence_number", "cryptographic_hash").iter_rows())
    start = None
    for row in rows.filter(pl.col("sequence_number") == 0).iter_rows(named=True):
        start = Event(
            tenant=tenant, trajectory_id=trajectory_id, sequence_number=0, fencing_token=token, turn=row["turn"],
            type=row["event_type"], recorded_at=int(row["recorded_at"].timestamp() * 1_000_000),
            payload=None if row["payload"] is None else row["payload"].encode(),
            salt=None if row["salt"] is None else bytes.fromhex(row["salt"]),
            hash=bytes.fromhex(row["cryptographic_hash"]), schema_version=row["schema_version"],
        )  # fmt: skip
    return {number: bytes.fromhex(digest) for number, digest in hashes.items()}, start


def source_bytes(lake: str, tenant: str, sha256: str) -> bytes | None:
    """Return a blob of the newest snapshot; None where it names none."""
    opened = Lake(resolved(lake, "lake"))
    files = [file for file in opened.files(opened.newest(), "blobs") if file.partition["tenant"] == tenant]
    rows = read_columns(files, SNAPSHOT_TABLES["blobs"], ("sha256", "path")) if files else pl.DataFrame()
    paths = rows.filter(pl.col("sha256") == sha256)["path"].to_list() if len(rows) else []
    return ContentStore(opened.url).get(tenant, sha256, paths[0]) if paths else None
