"""`trajlake scan`: every payload and blob of a lake, once per scanner version, into the ledger `secrets`.

What has been scanned is noted per trajectory (up to which event, with that event's hash) and per blob under
`_trajlake/scans/<version>/`, after the findings are in the ledger: a killed scan repeats work, never misses any. One
that came to its end is a row of the ledger `runs`.
"""

from __future__ import annotations

import os
import re
import secrets as randomness
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import msgspec
import polars as pl

from trajlake.pipelines.lakehouse.content_store import ContentStore
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.ledger import append_ledger
from trajlake.pipelines.lakehouse.parquet_files import read_parquet
from trajlake.pipelines.lakehouse.places import entries, make_directory, put_if_absent
from trajlake.pipelines.lakehouse.snapshot import STATE_DIRECTORY, Snapshot

from .secret_rules import PREFILTER, SCANNER_VERSION, WORDS, Found, find, suspicious
from .tasks import Slice, plan_tasks, read_slices, read_table

SCANNED_SCHEMA: Final[dict[str, Any]] = {
    "tenant": pl.String, "trajectory_id": pl.String, "last_sequence": pl.Int64, "head_hash": pl.String,
    "sha256": pl.String,
}  # fmt: skip
THREADS: Final = 2
"""Tasks in memory at once: one is read while another is looked through, and neither holds Python's lock for long."""
LITERALS_AT_ONCE: Final = 64
"""Literals of one expression: up to so many are looked for with vector instructions, more by a slower automaton."""
COLUMNS: Final = ["tenant", "trajectory_id", "sequence_number", "cryptographic_hash", "payload"]


class ScanReport(NamedTuple):
    """What one scan did; `found` counts new rows of the ledger."""

    scanner_version: str
    snapshot: int
    trajectories: int
    payloads: int
    blobs: int
    found: int


def scan(lake: Lake, snapshot: Snapshot) -> ScanReport:
    """Scan what of `snapshot` has not been scanned by this version. Safe to kill and to run twice at once."""
    began_s = time.monotonic()
    known = scanned(lake)
    trajectories = read_table(lake, snapshot, "trajectories", ["tenant", "trajectory_id", "last_sequence", "head_hash"])
    trajectories = trajectories.sort("tenant", "trajectory_id")
    wanted = trajectories.join(known, on=["tenant", "trajectory_id", "head_hash"], how="anti", maintain_order="left")
    before = known_findings(lake)
    seen = set(before["offset_hash"].to_list())
    payloads = found = 0
    tasks = plan_tasks(lake.files(snapshot, "events"), wanted)
    with ThreadPoolExecutor(THREADS, thread_name_prefix="trajlake-scan") as pool:
        for count, findings in pool.map(lambda slices: _in_events(slices, known), tasks):
            payloads += count
            found += _note(lake, findings, seen)
    blobs = read_table(lake, snapshot, "blobs", ["tenant", "sha256", "path"])
    absent = blobs.join(known, on=["tenant", "sha256"], how="anti").sort("tenant", "sha256")
    found += _note(lake, _in_blobs(lake, absent), seen)
    _remember(lake, snapshot, wanted, absent)
    report = ScanReport(SCANNER_VERSION, snapshot.number, len(wanted), payloads, len(absent), found)
    _finish(lake, report, time.monotonic() - began_s)
    return report


def scanned(lake: Lake) -> pl.DataFrame:
    """Return what this version of the scanner has read: trajectories by head, blobs by hash."""
    folder = lake.path(STATE_DIRECTORY, "scans", SCANNER_VERSION)
    names = [name for name in entries(folder) if name.endswith(".parquet")]
    parts = [read_parquet(os.path.join(folder, name)) for name in names]
    return pl.concat(parts) if parts else pl.DataFrame(schema=SCANNED_SCHEMA)


def known_findings(lake: Lake, files: list[str] | None = None) -> pl.DataFrame:
    """Return the findings of this version of the scanner, one row each; of the given ledger files, or the newest."""
    paths = lake.ledger_files("secrets") if files is None else files
    names = ["tenant", "trajectory_id", "sequence_number", "sha256", "kind", "offset_hash", "scanner_version"]
    if not paths:
        return pl.DataFrame(schema={name: pl.Int64 if name == "sequence_number" else pl.String for name in names})
    rows = pl.concat([read_parquet(path, names) for path in paths])
    rows = rows.filter(pl.col("scanner_version") == SCANNER_VERSION)
    return rows.unique(["tenant", "offset_hash"], keep="any").sort("tenant", "offset_hash")


def _not_scanned(rows: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Leave out events that an earlier scan has read: those up to one whose hash it noted."""
    noted = known.filter(pl.col("trajectory_id").is_not_null())
    if not len(noted):
        return rows
    same = rows.join(
        noted, left_on=["tenant", "trajectory_id", "sequence_number", "cryptographic_hash"],
        right_on=["tenant", "trajectory_id", "last_sequence", "head_hash"], how="inner",
    ).group_by("tenant", "trajectory_id").agg(pl.col("sequence_number").max().alias("_read"))  # fmt: skip
    joined = rows.join(same, on=["tenant", "trajectory_id"], how="left", maintain_order="left")
    return joined.filter(pl.col("sequence_number") > pl.col("_read").fill_null(-1)).drop("_read")


def _suspicious(text: pl.Expr) -> pl.Expr:
    """Return whether a text is worth `find`, as `secret_rules.suspicious` does for one."""
    found = text.str.contains("(?i)" + "|".join(map(re.escape, WORDS)))
    for first in range(0, len(PREFILTER), LITERALS_AT_ONCE):
        found |= text.str.contains("|".join(map(re.escape, PREFILTER[first : first + LITERALS_AT_ONCE])))
    return found


def _in_events(slices: list[Slice], known: pl.DataFrame) -> tuple[int, list[dict[str, Any]]]:
    """Return how many payloads of a task are looked at, and what is found in them."""
    rows = read_slices(slices, COLUMNS).filter(pl.col("payload").is_not_null())
    fresh = _not_scanned(rows, known)
    return len(fresh), _in_payloads(fresh)


def _in_payloads(rows: pl.DataFrame) -> list[dict[str, Any]]:
    suspects = rows.filter(_suspicious(pl.col("payload")))
    columns = suspects.select("tenant", "trajectory_id", "sequence_number", "payload")
    return [
        {**_row(tenant, one, f"{tenant}\n{name}\n{seq}"), "trajectory_id": name, "sequence_number": seq}
        for tenant, name, seq, text in columns.iter_rows()
        for one in find(text)
    ]


def _in_blobs(lake: Lake, blobs: pl.DataFrame) -> list[dict[str, Any]]:
    store = ContentStore(lake.url)
    findings: list[dict[str, Any]] = []
    for tenant, digest, path in blobs.select("tenant", "sha256", "path").iter_rows():
        text = store.get(tenant, digest, path).decode("utf-8", "ignore")
        found = find(text) if suspicious(text) else []
        findings += [{**_row(tenant, one, f"{tenant}\nblob\n{digest}"), "sha256": digest} for one in found]
    return findings


def _row(tenant: str, found: Found, place: str) -> dict[str, Any]:
    return {
        "tenant": tenant,
        "kind": found.kind,
        "offset_hash": found.offset_hash(place),
        "scanner_version": SCANNER_VERSION,
    }


def _note(lake: Lake, findings: list[dict[str, Any]], seen: set[str]) -> int:
    fresh = []
    for row in findings:
        if row["offset_hash"] not in seen:
            seen.add(row["offset_hash"])
            fresh.append(row)
    if fresh:
        append_ledger(lake, "secrets", fresh)
    return len(fresh)


def _finish(lake: Lake, report: ScanReport, seconds: float) -> None:
    """Note in the ledger `runs` that this snapshot was scanned to its end: audits judge secrets from there on."""
    row = {
        "run": f"{report.snapshot}-scan-{randomness.token_hex(8)}", "kind": "scan", "snapshot": report.snapshot,
        "outcome": "committed", "events_added": 0, "events_removed": 0, "segments": 0, "seconds": seconds,
        "report": msgspec.json.encode(report._asdict()).decode(),
    }  # fmt: skip
    append_ledger(lake, "runs", [row])


def _remember(lake: Lake, snapshot: Snapshot, trajectories: pl.DataFrame, blobs: pl.DataFrame) -> None:
    if not len(trajectories) and not len(blobs):
        return
    empty = pl.DataFrame(schema=SCANNED_SCHEMA)
    rows = pl.concat([empty, trajectories, blobs.select("tenant", "sha256")], how="diagonal")
    folder = lake.path(STATE_DIRECTORY, "scans", SCANNER_VERSION)
    make_directory(folder)
    import io

    buffer = io.BytesIO()
    rows.write_parquet(buffer)
    put_if_absent(os.path.join(folder, f"{snapshot.number}-{randomness.token_hex(8)}.parquet"), buffer.getvalue())
