"""Retention: bytes expire, causality stays. First blobs, then payloads, at last the whole trajectory.

Ids, order, hashes, status, authorization, intent and result rows stay until the whole trajectory is due; then its rows
go, and its row in `trajectories` stays as `expired` with its openings, so that a late copy brings nothing back. Holds
are read after the snapshot. Source: design/lake.md, *Retention, holds, erasure, pins*.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import polars as pl

from trajlake.pipelines.forgetting.decide import run_on_decided
from trajlake.pipelines.forgetting.forget import BLOB, KEY, Change, live_blobs, rewrite, take_out, texts_null
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.lake_errors import LakeError
from trajlake.pipelines.lakehouse.protocol import may_expire
from trajlake.pipelines.lakehouse.run_draft import Draft, as_it_stands
from trajlake.pipelines.lakehouse.snapshot import RunFile
from trajlake.pipelines.lakehouse.standing import Standing, keys_frame, read_standing, subjects_of
from trajlake.pipelines.lakehouse.table_files import may_hold, read_rows
from trajlake.pipelines.progress import Progress, no_progress
from trajlake.pipelines.upkeep.retention_policy import Rule
from trajlake.schemas.tables import SNAPSHOT_TABLES

DAY_S: Final = 86_400.0
STAYS_WHILE_ROWS_STAY: Final = frozenset({"LeaseAcquired", "LeaseReleased"})
"""Types that hold no text of anybody: their payloads are the line of tenures, and stay as long as the rows."""


class RetainReport(msgspec.Struct, kw_only=True):
    """What retention took. `held`: trajectories that were due and are under a hold."""

    outcome: str = "nothing_to_do"
    snapshot: int = 0
    trajectories_expired: int = 0
    payloads_expired: int = 0
    blobs_expired: int = 0
    held: list[tuple[str, str]] = []


class _Due(msgspec.Struct, kw_only=True):
    """What is due: (tenant, id) by what goes. `types`: per trajectory the event types whose payloads go."""

    whole: set[tuple[str, str]]
    types: dict[tuple[str, str], frozenset[str] | None]
    blobs: set[tuple[str, str]]
    held: set[tuple[str, str]]


def retain(
    lake: str, rules: Sequence[Rule], *, dry_run: bool = False, now: float | None = None,
    progress: Progress = no_progress,
) -> RetainReport:  # fmt: skip
    """Take what the rules say is due, in one run. Killed at any moment, the next call finishes or begins again."""
    opened = Lake.open(lake)
    if opened.newest().stale:
        raise LakeError(f"{lake}: derived tables lag behind events; run 'trajlake compact' without --events-only first")
    moment = time.time() if now is None else now
    report = RetainReport()
    if dry_run:

        def count(draft: Draft) -> int:
            _count(report, draft, _due(draft, read_standing(opened), rules, moment))
            return draft.snapshot.number

        report.outcome, report.snapshot = "dry_run", as_it_stands(opened, count)
        return report
    snapshot = run_on_decided(
        opened, lambda draft, standing: _take(draft, standing, rules, moment, report),
        lambda name: progress(name, 0, 0),
    )  # fmt: skip
    report.outcome = "nothing_to_do" if snapshot is None else "committed"
    report.snapshot = opened.newest().number
    return report


def _due(draft: Draft, standing: Standing, rules: Sequence[Rule], now: float) -> _Due:
    rows = read_rows(draft.files("trajectories"), SNAPSHOT_TABLES["trajectories"])
    rows = rows.filter(pl.col("status") != "expired")
    due = _Due(whole=set(), types={}, blobs=set(), held=set())
    facts = rows.select(*KEY, "kind", "status", "subjects", pl.col("last_event_at").dt.epoch("us") / 1e6)
    for tenant, trajectory_id, kind, status, subjects, last_s in facts.iter_rows():
        key = (tenant, trajectory_id)
        held = standing.is_held(*key, subjects_of(subjects))
        is_open = status == "open" and kind == "live"
        for rule in rules:
            if not rule.applies(tenant, kind):
                continue
            age_s, kept_s = now - last_s, rule.days * DAY_S
            if may_expire(is_held=held, is_open=is_open, age_s=age_s, kept_for_s=kept_s):
                if rule.what == "trajectories":
                    due.whole.add(key)
                elif rule.what == "payloads":
                    before = due.types.get(key, frozenset())
                    due.types[key] = None if before is None or rule.types is None else before | rule.types
            elif may_expire(is_held=False, is_open=is_open, age_s=age_s, kept_for_s=kept_s):
                due.held.add(key)
    due.blobs = _blobs_due(draft, standing, rules, now, rows)
    return due


def _blobs_due(
    draft: Draft, standing: Standing, rules: Sequence[Rule], now: float, rows: pl.DataFrame
) -> set[tuple[str, str]]:
    """Return the blobs all of whose naming trajectories are due: one that is open, young or held keeps them."""
    wanted = [rule for rule in rules if rule.what == "blobs"]
    if not wanted:
        return set()
    refs = read_rows(draft.files("blob_refs"), SNAPSHOT_TABLES["blob_refs"])
    events = read_rows(may_hold(draft.files("events"), refs.select(KEY).unique()), SNAPSHOT_TABLES["events"])
    dated = refs.join(events.select(*KEY, "sequence_number", "recorded_at"), on=[*KEY, "sequence_number"], how="left")
    facts = rows.select(*KEY, "kind", "status", "subjects")
    named = dated.join(facts, on=KEY, how="left").with_columns(pl.col("recorded_at").dt.epoch("us") / 1e6)
    verdicts: dict[tuple[str, str], bool] = {}
    for tenant, digest, trajectory_id, kind, status, subjects, at_s in named.select(
        *BLOB, "trajectory_id", "kind", "status", "subjects", "recorded_at"
    ).iter_rows():
        rule_days = [rule.days for rule in wanted if rule.applies(tenant, kind or "live")]
        free = bool(rule_days) and may_expire(
            is_held=standing.is_held(tenant, trajectory_id, subjects_of(subjects)),
            is_open=status == "open" and kind == "live",
            age_s=now - (at_s or 0.0),
            kept_for_s=min(rule_days, default=0) * DAY_S,
        )
        verdicts[tenant, digest] = verdicts.get((tenant, digest), True) and free
    present = set(read_rows(draft.files("blobs"), SNAPSHOT_TABLES["blobs"]).select(BLOB).iter_rows())
    return {blob for blob, free in verdicts.items() if free} & present


def _payload_rows(draft: Draft, due: _Due) -> pl.DataFrame:
    """Return tenant, trajectory_id, sequence_number of the payloads that go now."""
    keys = keys_frame(due.types.keys() - due.whole)
    events = read_rows(may_hold(draft.files("events"), keys), SNAPSHOT_TABLES["events"], keys)
    events = events.filter(pl.col("payload").is_not_null() & ~pl.col("event_type").is_in(sorted(STAYS_WHILE_ROWS_STAY)))
    some = [(*key, kind) for key, kinds in due.types.items() if kinds is not None for kind in sorted(kinds)]
    every = keys_frame(key for key, kinds in due.types.items() if kinds is None)
    schema = {"tenant": pl.String, "trajectory_id": pl.String, "event_type": pl.String}
    listed = pl.DataFrame(some, schema=schema, orient="row")
    mine = pl.concat([
        events.join(every, on=KEY, how="semi"), events.join(listed, on=[*KEY, "event_type"], how="semi"),
    ])  # fmt: skip
    return mine.select(*KEY, "sequence_number").unique()


def _take(draft: Draft, standing: Standing, rules: Sequence[Rule], now: float, report: RetainReport) -> RunFile | None:
    due = _due(draft, standing, rules, now)
    payloads = _count(report, draft, due)
    if not due.whole and not len(payloads) and not due.blobs:
        return None
    gone = keys_frame(due.whole)
    blobs = _blobs_of(draft, gone)
    blob_trajectories = _naming(draft, due.blobs)
    _empty_payloads(draft, payloads, due.types)
    _note(draft, gone, payloads, blob_trajectories)
    for table, described in SNAPSHOT_TABLES.items():
        if table != "trajectories" and "trajectory_id" in described.column_names and len(gone):
            draft.drop(table, gone)
    take_out(draft, due.blobs | (blobs - live_blobs(draft, blobs, gone, set())))
    done = {
        "trajectories": sorted(due.whole), "payloads": len(payloads), "blobs": sorted(due.blobs),
        "held": sorted(due.held),
    }  # fmt: skip
    return draft.run_file("retain", done)


def _count(report: RetainReport, draft: Draft, due: _Due) -> pl.DataFrame:
    payloads = _payload_rows(draft, due)
    report.trajectories_expired = len(due.whole)
    report.payloads_expired = len(payloads)
    report.blobs_expired = len(due.blobs)
    report.held = sorted(due.held)
    return payloads


def _blobs_of(draft: Draft, keys: pl.DataFrame) -> set[tuple[str, str]]:
    refs = read_rows(may_hold(draft.files("blob_refs"), keys), SNAPSHOT_TABLES["blob_refs"], keys)
    return set(refs.select(BLOB).unique().iter_rows())


def _naming(draft: Draft, blobs: set[tuple[str, str]]) -> pl.DataFrame:
    wanted = pl.DataFrame(sorted(blobs), schema=dict.fromkeys(BLOB, pl.String), orient="row")
    refs = read_rows(draft.files("blob_refs"), SNAPSHOT_TABLES["blob_refs"]).join(wanted, on=BLOB, how="semi")
    return refs.select(*KEY, "sha256").unique().group_by(KEY).len("blobs_gone")


def _aside(types: Mapping[tuple[str, str], frozenset[str] | None]) -> Change:
    """Return the change that empties rows of `quarantine` by the same types as rows of `events`."""
    every = keys_frame(key for key, kinds in types.items() if kinds is None)
    listed = [(*key, kind) for key, kinds in types.items() if kinds is not None for kind in sorted(kinds)]
    schema = {"tenant": pl.String, "trajectory_id": pl.String, "event_type": pl.String}
    some = pl.DataFrame(listed, schema=schema, orient="row")

    def change(rows: pl.DataFrame) -> pl.DataFrame:
        goes = rows.select(
            (pl.struct(KEY).is_in(every.select(pl.struct(KEY)).to_series().implode())
             | pl.struct(*KEY, "event_type").is_in(some.select(pl.struct(*KEY, "event_type")).to_series().implode()))
            & ~pl.col("event_type").is_in(sorted(STAYS_WHILE_ROWS_STAY))
        ).to_series()  # fmt: skip
        return rows.with_columns(
            pl.when(goes).then(None).otherwise(pl.col(name)).alias(name) for name in ("payload", "salt")
        )

    return change


def _empty_payloads(
    draft: Draft, payloads: pl.DataFrame, types: Mapping[tuple[str, str], frozenset[str] | None]
) -> None:
    """Empty payload and salt of the rows that are due, and what derived rows hold of them."""
    if not len(payloads):
        return
    keys = payloads.select(KEY).unique()
    where = [*KEY, "sequence_number"]

    def in_events(rows: pl.DataFrame) -> pl.DataFrame:
        marked = rows.join(
            payloads.with_columns(pl.lit(True).alias("due")), on=where, how="left", maintain_order="left"
        )
        return marked.with_columns(
            pl.when(pl.col("due").is_null()).then(pl.col(name)).alias(name) for name in ("payload", "salt")
        ).drop("due")

    rewrite(draft, "events", keys, in_events)
    rewrite(draft, "quarantine", keys, _aside(types))
    for table in ("model_calls", "judgements"):
        described = SNAPSHOT_TABLES[table]

        def in_derived(rows: pl.DataFrame, table: str = table) -> pl.DataFrame:
            mine = rows.join(payloads, on=where, how="semi", maintain_order="left")
            rest = rows.join(payloads, on=where, how="anti", maintain_order="left")
            return pl.concat([rest, texts_null(SNAPSHOT_TABLES[table])(mine).select(rest.columns)])

        if any(column.erasable for column in described.columns):
            rewrite(draft, table, keys, in_derived)
    for table in ("tool_calls", "approvals"):
        rewrite(draft, table, keys, texts_null(SNAPSHOT_TABLES[table]))


def _note(draft: Draft, gone: pl.DataFrame, payloads: pl.DataFrame, blobs: pl.DataFrame) -> None:
    """Note in `trajectories` what went: how many payloads and blobs, and `expired` for what went as a whole."""
    counted = payloads.group_by(KEY).len("payloads_gone")
    keys = pl.concat([frame.select(KEY) for frame in (gone, counted, blobs)]).unique()
    if not len(keys):
        return
    whole = gone.with_columns(pl.lit(True).alias("whole"))
    started = payloads.filter(pl.col("sequence_number") == 0).select(KEY).with_columns(pl.lit(True).alias("no_start"))

    def change(rows: pl.DataFrame) -> pl.DataFrame:
        found = rows
        for frame in (whole, counted, blobs, started):
            found = found.join(frame, on=KEY, how="left", maintain_order="left")
        is_whole = pl.col("whole").is_not_null()
        lost = pl.col("payloads_gone").is_not_null() | is_whole
        texts = [column.name for column in SNAPSHOT_TABLES["trajectories"].columns if column.erasable]
        return found.with_columns(
            pl.when(is_whole).then(pl.lit("expired")).otherwise(pl.col("status")).alias("status"),
            _sum("payloads_expired", "payloads_gone").alias("payloads_expired"),
            _sum("blobs_expired", "blobs_gone").alias("blobs_expired"),
            *(pl.when(lost).then(None).otherwise(pl.col(name)).alias(name) for name in texts),
        ).select(rows.columns)

    rewrite(draft, "trajectories", keys, change)


def _sum(kept: str, new: str) -> pl.Expr:
    both = pl.col(kept).fill_null(0) + pl.col(new).fill_null(0).cast(pl.Int64)
    return pl.when(pl.col(kept).is_null() & pl.col(new).is_null()).then(None).otherwise(both)
