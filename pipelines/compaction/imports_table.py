"""The table `imports`: loss reports landed as `imports/<sha256>/<mapping version>….json`, and their sources."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec
import polars as pl

from trajlake.pipelines.compaction.run_plan import Plan
from trajlake.pipelines.lakehouse.arrow_schema import polars_schema
from trajlake.pipelines.lakehouse.content_store import StoredBlob, sync_objects
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.lake_errors import BlobDamaged
from trajlake.pipelines.lakehouse.landing import blob_path
from trajlake.pipelines.lakehouse.packs import Packer
from trajlake.pipelines.lakehouse.places import read, walk
from trajlake.pipelines.lakehouse.snapshot import Snapshot
from trajlake.pipelines.lakehouse.table_files import read_columns, read_rows
from trajlake.schemas.errors import InvalidId
from trajlake.schemas.ids import check_tenant
from trajlake.schemas.tables import SNAPSHOT_TABLES

TABLE = SNAPSHOT_TABLES["imports"]
KEY: Final = ("tenant", "sha256", "mapping_version")
_SHA256: Final = re.compile("[0-9a-f]{64}")


class Report(msgspec.Struct, frozen=True):
    """The fields of a loss report that are columns; the whole text is kept beside them."""

    tenant: str
    sha256: str
    mapping_version: int
    format: str
    name: str = ""
    bytes: int | None = None
    trajectories: dict[str, Any] = {}
    records: dict[str, int] = {}


class NewImports(NamedTuple):
    """`rows` come into `imports`; `replaced` are (tenant, sha256) whose older rows go; `sources` new objects."""

    rows: pl.DataFrame
    replaced: pl.DataFrame
    sources: list[StoredBlob]


def new_imports(plan: Plan, lake: Lake, snapshot: Snapshot) -> NewImports:
    """Return what the landed loss reports add to the lake; copies their sources into the content store."""
    silent = set(plan.silent)
    # A report that names an erased trajectory, or whose texts were taken out here, does not come back from landing.
    landed = {
        key: (report, text)
        for key, (report, text) in _landed(plan.landing).items()
        if not silent & {(report.tenant, name) for name in report.trajectories}
    }
    there = read_rows(lake.files(snapshot, "imports"), TABLE)
    held = {tuple(key): report for *key, report in there.select(*KEY, "report").iter_rows()}
    changed = {key for key, (_, text) in landed.items() if held.get(key) != text}
    rows = [row_of(*landed[key]) for key in sorted(changed)]
    schema = polars_schema(TABLE)
    frame = pl.DataFrame({name: [row.get(name) for row in rows] for name in schema}, schema=schema)
    wanted = {key[:2] for key in changed}
    names = {"tenant": pl.String, "sha256": pl.String}
    replaced = pl.DataFrame(sorted({key[:2] for key in held} & wanted), schema=names, orient="row")
    # What an older version said of the same source stays: its landed report may be gone.
    older = there.join(replaced, on=list(names), how="semi").join(frame, on=KEY, how="anti")
    absent = sorted(wanted - _stored(lake, snapshot, {tenant for tenant, _ in wanted}))
    sources = _stored_now(plan, lake, absent)
    return NewImports(pl.concat([frame, older.select(frame.columns)]), replaced, sources)


def _landed(landing: str) -> dict[tuple[str, str, int], tuple[Report, str]]:
    found = {}
    folder = os.path.join(landing, "imports")
    for name in sorted(walk(folder)):
        if not name.endswith(".json") or name.count("/") != 1:
            continue
        text = read(f"{folder}/{name}").decode()
        try:
            report = msgspec.json.decode(text, type=Report)
            check_tenant(report.tenant)
        except (msgspec.DecodeError, msgspec.ValidationError, InvalidId):
            continue
        # Both become parts of paths, and anybody may have put the report there.
        if _SHA256.fullmatch(report.sha256) is None:
            continue
        found[report.tenant, report.sha256, report.mapping_version] = (report, text)
    return found


def row_of(report: Report, text: str) -> dict[str, Any]:
    """Return the row of `imports` for a report and its whole text."""
    return {
        "tenant": report.tenant,
        "sha256": report.sha256,
        "mapping_version": report.mapping_version,
        "format": report.format,
        "name": report.name or None,
        "bytes": report.bytes,
        "trajectories": len(report.trajectories),
        "records_seen": report.records.get("seen"),
        "records_mapped": report.records.get("mapped"),
        "records_kept_raw": report.records.get("kept_raw"),
        "records_skipped": report.records.get("skipped"),
        "report": text,
    }


def _stored(lake: Lake, snapshot: Snapshot, tenants: set[str]) -> set[tuple[str, str]]:
    """Return (tenant, sha256) of every blob of these tenants that the lake names."""
    files = [file for file in lake.files(snapshot, "blobs") if file.partition["tenant"] in tenants] if tenants else []
    return {
        (file.partition["tenant"], digest)
        for file in files
        for digest in read_columns([file], SNAPSHOT_TABLES["blobs"], ("sha256",))["sha256"]
    }


def _stored_now(plan: Plan, lake: Lake, sources: Sequence[tuple[str, str]]) -> list[StoredBlob]:
    """Put the landed sources (tenant, sha256) into the content store, durably; those that are damaged stay out."""
    packer = Packer(lake.url, plan.run)
    for tenant, digest in sources:
        with suppress(FileNotFoundError, BlobDamaged):
            packer.put(tenant, digest, read(blob_path(plan.landing, tenant, digest)))
    found = packer.close()
    sync_objects(lake.url, found)
    return found
