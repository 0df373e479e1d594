"""What derived rows keep of events whose payload is gone: columns are carried over from the rows of the snapshot.

Derived rows are recomputed whenever a trajectory is touched. An erased or expired payload gives defaults then; the row
that was computed while it was there knows better. Erasable columns are null on both sides and stay null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import polars as pl

from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.snapshot import Snapshot
from trajlake.pipelines.lakehouse.table_files import may_hold, read_rows
from trajlake.schemas.tables import SNAPSHOT_TABLES

KEY: Final = ["tenant", "trajectory_id"]
NOTED: Final = ("erasure_epoch", "payloads_expired", "blobs_expired")
"""Columns of `trajectories` that no event tells: they come from the row before, always."""
_BY_EVENT: Final = ("model_calls", "judgements", "checkpoints", "blob_refs")
_STARTED: Final = (
    "model_id", "model_version", "kind", "agent", "task", "principal", "subjects", "source_format", "source_session",
    "parent_tenant", "parent_trajectory_id", "parent_action_id", "policy_version", "prompt_version",
    "tool_schema_version", "sampling", "workspace", "workspace_snapshot",
)  # fmt: skip
_ENDED: Final = ("status", "result", "end_reason")
_BRANCHED: Final = (
    "branch_of_tenant", "branch_of_trajectory_id", "branch_of_sequence", "branch_of_hash", "branch_at_turn",
)  # fmt: skip
_SEQUENCES: Final = ("proposed_seq", "authorized_seq", "intent_seq", "result_seq", "settled_seq", "late_seq")

Tables = dict[str, pl.DataFrame]


def carry_over(lake: Lake, snapshot: Snapshot, counting: pl.DataFrame, tables: Tables) -> Tables:
    """Return `tables` (derived rows of the trajectories in `counting`) with what payloads that are gone once told."""
    keys = counting.select(KEY).unique()
    gone = counting.filter(pl.col("payload").is_null()).select(*KEY, "sequence_number", "event_type")

    def old(table: str, among: pl.DataFrame) -> pl.DataFrame:
        return read_rows(may_hold(lake.files(snapshot, table), among), SNAPSHOT_TABLES[table], among)

    trajectories = old("trajectories", keys)
    if not len(gone):
        return {**tables, "trajectories": _noted(tables["trajectories"], trajectories)}
    touched = gone.select(KEY).unique()
    standing = counting.select(*KEY, "sequence_number")
    found = dict(tables)
    for table in _BY_EVENT:
        found[table] = _by_event(table, tables[table], old(table, touched), gone)
    found["tool_calls"] = _actions(tables["tool_calls"], old("tool_calls", touched), standing)
    found["approvals"] = _approvals(tables["approvals"], old("approvals", touched))
    found["trajectories"] = _trajectories(tables["trajectories"], trajectories, gone, found)
    return {name: frame.select(tables[name].columns) for name, frame in found.items()}


def _by_event(table: str, new: pl.DataFrame, old: pl.DataFrame, gone: pl.DataFrame) -> pl.DataFrame:
    """Rows of one event each: where its payload is gone, the old row stands, given up if it is now."""
    where = [*KEY, "sequence_number"]
    kept = old.join(gone, on=where, how="semi")
    if "given_up" in new.columns:
        now = new.select(*where, pl.col("given_up").alias("now"))
        kept = kept.join(now, on=where, how="left").with_columns(
            (pl.col("given_up") | pl.col("now").fill_null(False)).alias("given_up")
        ).drop("now")  # fmt: skip
    fresh = new.join(kept.select(where).unique(), on=where, how="anti")
    whole = pl.concat([fresh, kept.select(fresh.columns)])
    return whole.sort(SNAPSHOT_TABLES[table].sort_by, nulls_last=True)


def _merged(new: pl.DataFrame, old: pl.DataFrame, on: list[str], more: Callable[[str], pl.Expr | None]) -> pl.DataFrame:
    """Return new and old rows by key: each column the new row's value, else the old one's, or as `more` says."""
    both = new.join(old, on=on, how="full", coalesce=True, suffix="_old")
    columns = []
    for name in new.columns:
        if name in on:
            continue
        special = more(name)
        columns.append((pl.coalesce(name, f"{name}_old") if special is None else special).alias(name))
    return both.with_columns(columns).select(new.columns)


def _actions(new: pl.DataFrame, old: pl.DataFrame, standing: pl.DataFrame) -> pl.DataFrame:
    """Actions: what an event of each told stays while that event is canonical; the stage follows from both."""
    for name in _SEQUENCES:
        there = standing.select(*KEY, pl.col("sequence_number").alias(name), pl.lit(True).alias("there"))
        old = old.join(there, on=[*KEY, name], how="left").with_columns(
            pl.when(pl.col("there")).then(pl.col(name)).alias(name)
        ).drop("there")  # fmt: skip
    old = old.filter(pl.any_horizontal(pl.col(name).is_not_null() for name in _SEQUENCES))
    intent = pl.coalesce("intent_seq", "intent_seq_old")
    is_fresh = pl.col("result_seq").is_not_null()

    def more(name: str) -> pl.Expr | None:
        if name == "stage":
            settled = is_fresh & intent.is_not_null()
            known = pl.col("stage_old").is_not_null()
            return pl.when(settled).then(pl.lit("settled")).when(known & ~is_fresh).then("stage_old").otherwise("stage")
        if name in ("attempts", "system_no"):
            return pl.max_horizontal(name, f"{name}_old")
        if name in ("given_up", "lossy"):
            return pl.col(name).fill_null(False) | pl.col(f"{name}_old").fill_null(False)
        return None

    merged = _merged(new, old, [*KEY, "action_id"], more)
    return merged.sort(SNAPSHOT_TABLES["tool_calls"].sort_by, nulls_last=True)


def _approvals(new: pl.DataFrame, old: pl.DataFrame) -> pl.DataFrame:
    def more(name: str) -> pl.Expr | None:
        if name == "state":
            answered = pl.col("resolved_seq").is_not_null()
            return pl.when(answered | pl.col("state_old").is_null()).then("state").otherwise("state_old")
        if name == "uses":
            return pl.max_horizontal(name, f"{name}_old")
        if name == "given_up":
            return pl.col(name).fill_null(False) | pl.col(f"{name}_old").fill_null(False)
        return None

    merged = _merged(new, old, [*KEY, "approval_id"], more)
    return merged.sort(SNAPSHOT_TABLES["approvals"].sort_by, nulls_last=True)


def _trajectories(new: pl.DataFrame, old: pl.DataFrame, gone: pl.DataFrame, tables: Mapping[str, pl.DataFrame]) -> (
    pl.DataFrame
):  # fmt: skip
    """Life facts of events whose payload is gone come from the old row; counts of rows from the merged tables."""
    groups = {"TaskStarted": _STARTED, "TaskEnded": _ENDED, "Branched": _BRANCHED}
    found = new.join(old, on=KEY, how="left", suffix="_old", maintain_order="left")
    known = pl.col("started_at_old").is_not_null()
    for event_type, names in groups.items():
        mark = gone.filter(pl.col("event_type") == event_type).select(KEY).unique()
        found = found.join(mark.with_columns(pl.lit(True).alias("lost")), on=KEY, how="left", maintain_order="left")
        lost = pl.col("lost").fill_null(False) & known
        found = found.with_columns(
            pl.when(lost).then(pl.col(f"{name}_old")).otherwise(pl.col(name)).alias(name) for name in names
        ).drop("lost")  # fmt: skip
    found = found.with_columns(pl.max_horizontal(name, f"{name}_old").alias(name) for name in ("given_up", "system_no"))
    counts = {
        "model_calls": tables["model_calls"].group_by(KEY).agg(
            pl.len().alias("calls_now"),
            pl.when(pl.col("input_tokens").count() > 0).then(pl.col("input_tokens").sum()).alias("input_now"),
            pl.when(pl.col("output_tokens").count() > 0).then(pl.col("output_tokens").sum()).alias("output_now"),
        ),
        "tool_calls": tables["tool_calls"].group_by(KEY).agg(
            pl.len().alias("actions_now"), (pl.col("stage") == "in_doubt").sum().alias("doubts_now")
        ),
    }  # fmt: skip
    for frame in counts.values():
        found = found.join(frame, on=KEY, how="left", maintain_order="left")
    found = found.with_columns(
        pl.col("calls_now").fill_null(0).cast(pl.Int64).alias("model_calls"),
        pl.col("input_now").alias("input_tokens"), pl.col("output_now").alias("output_tokens"),
        pl.col("actions_now").fill_null(0).cast(pl.Int64).alias("tool_calls"),
        pl.col("doubts_now").fill_null(0).cast(pl.Int64).alias("in_doubt"),
    )  # fmt: skip
    return _noted(found.select(new.columns), old)


def _noted(new: pl.DataFrame, old: pl.DataFrame) -> pl.DataFrame:
    kept = old.select(*KEY, *(pl.col(name).alias(f"{name}_old") for name in NOTED))
    found = new.join(kept, on=KEY, how="left", maintain_order="left")
    return found.with_columns(pl.coalesce(name, f"{name}_old").alias(name) for name in NOTED).select(new.columns)
