"""Ledgers of a lake: append-only tables that no run overwrites, read at their newest version. Pure data.

Several rows may share one id: the newest `at` is the state, the older ones are its history. Each row has a
`row_id` of its own, because an append that is tried again may be written twice.
"""

from __future__ import annotations

from typing import Final

from .columns import Column, Table

_ROW: Final = Column("row_id", "string", "hex", "unique per row: an append tried again is recognised", nullable=False)
_AT: Final = Column("at", "timestamp", "", "when the row was written", nullable=False)
_ACTOR: Final = Column("actor", "string", "", "opaque key of who asked")
_TENANT: Final = Column("tenant", "string", "", "tenant concerned", nullable=False)
_TRAJECTORY: Final = Column("trajectory_id", "string", "", "trajectory concerned; null = by subject or whole tenant")
_SNAPSHOT: Final = Column("snapshot", "int64", "", "snapshot concerned")
_DETAIL: Final = Column("detail", "string", "json", "further facts")

HOLDS: Final = Table(
    "holds",
    "what must not be deleted",
    (
        _ROW,
        Column("hold_id", "string", "", "the hold", nullable=False),
        Column("action", "string", "", "place | confirm | late | lift", nullable=False),
        _TENANT,
        _TRAJECTORY,
        Column("subject", "string", "", "opaque subject key"),
        Column("because", "string", "", "why"),
        _ACTOR,
        _SNAPSHOT,
        _AT,
    ),
    ledger=True,
)

ERASURES: Final = Table(
    "erasures",
    "what is to be erased, and how far that is",
    (
        _ROW,
        Column("erasure_id", "string", "", "the erasure", nullable=False),
        Column("epoch", "int64", "", "rises by one with each request", nullable=False),
        Column("state", "string", "", "requested | refused | pending | complete", nullable=False),
        _TENANT,
        _TRAJECTORY,
        Column("subject", "string", "", "opaque subject key"),
        Column("because", "string", "", "why"),
        _ACTOR,
        _SNAPSHOT,
        _DETAIL,
        _AT,
    ),
    ledger=True,
)

EXPORTS: Final = Table(
    "exports",
    "data sets cut from the lake",
    (
        _ROW,
        Column("export_id", "string", "", "the data set", nullable=False),
        Column("kind", "string", "", "sft | rlvr | evidence | ...", nullable=False),
        Column("manifest_sha256", "string", "hex", "hash of its manifest"),
        Column("path", "string", "", "where it was written"),
        Column("rows", "int64", "rows", "rows in it"),
        Column("erasure_epoch", "int64", "", "newest erasure its snapshot had", nullable=False),
        _SNAPSHOT,
        _ACTOR,
        _DETAIL,
        _AT,
    ),
    ledger=True,
)

ANCHORS: Final = Table(
    "anchors",
    "roots over trajectory heads, to be kept outside the lake as well",
    (
        _ROW,
        Column("anchor_id", "string", "", "the anchor", nullable=False),
        _TENANT,
        Column("day", "date", "", "UTC day it covers", nullable=False),
        Column("root", "string", "hex", "Merkle root over heads and file hashes", nullable=False),
        Column("previous_root", "string", "hex", "root of the anchor before"),
        Column("trajectories", "int64", "rows", "heads covered", nullable=False),
        Column("signature", "string", "", "signature over the root"),
        _SNAPSHOT,
        _DETAIL,
        _AT,
    ),
    ledger=True,
)

SECRETS: Final = Table(
    "secrets",
    "findings of the secret scanner, never the secret itself",
    (
        _ROW,
        _TENANT,
        _TRAJECTORY,
        Column("sequence_number", "int64", "", "event it stands in; null for a blob alone"),
        Column("sha256", "string", "hex", "blob it stands in; null for an event"),
        Column("kind", "string", "", "aws_key | github_pat | jwt | ...", nullable=False),
        Column("offset_hash", "string", "hex", "hash of place and value: recognises the same finding", nullable=False),
        Column("scanner_version", "string", "", "version of the rules", nullable=False),
        _AT,
    ),
    ledger=True,
)

AUDIT_FINDINGS: Final = Table(
    "audit_findings",
    "violations that audits selected",
    (
        _ROW,
        Column("audit_run", "string", "", "the run of the audits", nullable=False),
        Column("control", "string", "", "id of the control", nullable=False),
        Column("control_version", "string", "", "version of the control"),
        Column("query_sha256", "string", "hex", "hash of the SQL that ran"),
        _TENANT,
        _TRAJECTORY,
        Column("sequence_number", "int64", "", "event concerned"),
        Column("action_id", "string", "", "action concerned"),
        _SNAPSHOT,
        _DETAIL,
        _AT,
    ),
    ledger=True,
)

RUNS: Final = Table(
    "runs",
    "one row per finished run: what it read, wrote and left",
    (
        _ROW,
        Column("run", "string", "", "<snapshot>-<random>: name of the run file", nullable=False),
        Column("kind", "string", "", "compact | rebuild | maintain | retain | erase | hold | scan", nullable=False),
        _SNAPSHOT,
        Column("outcome", "string", "", "committed | lost | nothing_to_do | finished_other", nullable=False),
        Column("events_added", "int64", "rows", "rows new in events", nullable=False),
        Column("events_removed", "int64", "rows", "rows moved out of events", nullable=False),
        Column("segments", "int64", "files", "segments taken", nullable=False),
        Column("seconds", "float64", "s", "wall clock", nullable=False),
        Column("report", "string", "json", "the whole report"),
        _AT,
    ),
    ledger=True,
)

LEDGERS: Final = (HOLDS, ERASURES, EXPORTS, ANCHORS, SECRETS, AUDIT_FINDINGS, RUNS)
