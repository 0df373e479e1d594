"""Second stage of a run: all new rows of one bucket's trajectories in, data files of every table out.

A bucket holds whole trajectories. Rows of theirs that the lake already has are read beside the new ones, so that
copies vanish, held-back rows return and superseded rows leave. Nothing is removed here: which trajectories must
leave which table is reported, and the launcher rewrites those files once for all buckets.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import polars as pl

from trajlake.pipelines.compaction.cursors import advance
from trajlake.pipelines.compaction.existing import known_trajectories
from trajlake.pipelines.compaction.explode import REPORT_SUFFIX
from trajlake.pipelines.compaction.run_plan import BucketReport, Plan, SegmentReport, read_document, write_document
from trajlake.pipelines.compaction.settled import leave_unsettled
from trajlake.pipelines.derived.canonicalize import (
    CANONICAL,
    CONFLICT,
    HELD_BACK,
    KEY,
    REASONS,
    SUPERSEDED,
    Judged,
    canonicalize,
)
from trajlake.pipelines.derived.carry_over import carry_over
from trajlake.pipelines.derived.derive import derive
from trajlake.pipelines.forgetting.erased_openings import openings_of, with_openings
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.named_blobs import blobs_named
from trajlake.pipelines.lakehouse.snapshot import FileAdd, Snapshot
from trajlake.pipelines.lakehouse.standing import NO_SUBJECTS, Coverage, keys_frame, subjects_in, subjects_of
from trajlake.pipelines.lakehouse.table_files import may_hold, read_rows, write_files
from trajlake.schemas.history import Opening
from trajlake.schemas.tables import EVENTS, SNAPSHOT_TABLES

FROM_EVENTS, FROM_QUARANTINE, FROM_LANDING = 0, 1, 2


class Held(NamedTuple):
    """What the lake has of a bucket's trajectories: their rows, openings, and which are expired."""

    events: pl.DataFrame
    quarantine: pl.DataFrame
    openings: dict[tuple[str, str], tuple[Opening, ...]]
    expired: pl.DataFrame
    subjects: dict[tuple[str, str], frozenset[str]]


Written = tuple[dict[str, list[FileAdd]], dict[str, str]]
"""Adds by table, and by table the staged file of trajectories that leave it."""


def reduce(plan_path: str, number: int, paths: Sequence[str]) -> str:
    """Reduce bucket `number` over the staged files and reports at `paths`; return the path of its report.

    May run twice, also at once: files of a run that does not commit are named by nothing.
    """
    plan = read_document(plan_path, Plan)
    lake = Lake(plan.lake)
    snapshot = lake.snapshot(plan.base)
    rows = _new_rows(plan, snapshot, paths)
    report = BucketReport(adds={}, drops={})
    if len(rows) or plan.rebuild:
        rows, unsettled = leave_unsettled(plan, rows, paths)
        report = _reduce_rows(plan, lake, snapshot, rows, number)
        report = msgspec.structs.replace(report, unsettled=tuple(sorted(unsettled)))
    return write_document(os.path.join(plan.staging, f"bucket-{number}.json"), report)


def _new_rows(plan: Plan, snapshot: Snapshot, paths: Sequence[str]) -> pl.DataFrame:
    reports = [read_document(path, SegmentReport) for path in sorted(set(paths)) if path.endswith(REPORT_SUFFIX)]
    admitted = advance(snapshot.cursors, reports, plan.declared).admitted
    frames = [
        pl.read_ipc(path)
        for path in sorted(set(paths))
        if path.endswith(".arrow") and segment_of(plan, path) in admitted
    ]
    if not frames:
        return pl.DataFrame()
    return pl.concat(frames, rechunk=False).with_columns(pl.lit(FROM_LANDING, pl.UInt8).alias("origin"))


def segment_of(plan: Plan, path: str) -> str:
    """Return the name of the segment that a staged file holds rows of."""
    return plan.segments[int(os.path.basename(path).split("-")[0])].name


def _reduce_rows(plan: Plan, lake: Lake, snapshot: Snapshot, new: pl.DataFrame, number: int) -> BucketReport:
    held = _held(plan, lake, snapshot, new, number)
    expired_rows = 0
    if len(held.expired) and len(new):
        kept = new.join(held.expired, on=KEY, how="anti", maintain_order="left")
        expired_rows, new = len(new) - len(kept), kept
    parts = [part for part in (held.events, held.quarantine, new) if len(part)]
    if not parts:
        return BucketReport(adds={}, drops={}, expired=expired_rows)
    columns = [*EVENTS.column_names, "origin"]
    everything = pl.concat([part.select(columns) for part in parts], rechunk=False)
    judged = canonicalize(everything, held.openings)
    judged = judged if plan.rebuild else touched_only(judged)
    verdicts = judged.rows["verdict"]
    epochs = erased_epochs(plan, judged, held.subjects)
    met = _met(plan, new, epochs)
    adds, drops = _write(plan, lake, judged, held, number, epochs)
    return BucketReport(
        forgotten=met,
        forgotten_blobs=_blobs_that_go(met, new, judged.rows),
        adds=adds,
        drops=drops,
        duplicates=judged.duplicates,
        events_added=len(judged.rows.filter((verdicts == CANONICAL) & (judged.rows["origin"] != FROM_EVENTS))),
        superseded=int((verdicts == SUPERSEDED).sum()),
        held_back=int((verdicts == HELD_BACK).sum()),
        conflicts=int((verdicts == CONFLICT).sum()),
        expired=expired_rows,
        touched=judged.rows["t"].n_unique(),
    )


def _held(plan: Plan, lake: Lake, snapshot: Snapshot, new: pl.DataFrame, number: int) -> Held:
    """Read what the lake has of the trajectories in `new` (or of the whole bucket, when tables are rebuilt)."""
    ids, known, event_files = known_trajectories(plan, lake, snapshot, new, number)
    openings = {
        (tenant, trajectory_id): tuple(msgspec.json.decode(text, type=list[Opening]))
        for tenant, trajectory_id, text in known.filter(pl.col("openings").is_not_null())
        .select(*KEY, "openings")
        .iter_rows()
    }
    events = read_rows(event_files, EVENTS, known)
    quarantine_files = may_hold(lake.files(snapshot, "quarantine"), ids)
    quarantine = read_rows(quarantine_files, SNAPSHOT_TABLES["quarantine"], ids)
    for key, found in openings_of(quarantine).items():
        openings[key] = (*openings.get(key, ()), *found)
    expired = known.filter(pl.col("status") == "expired").select(KEY)
    subjects = {(t, i): subjects_of(text) for t, i, text in known.select(*KEY, "subjects").iter_rows()}
    return Held(
        events.with_columns(pl.lit(FROM_EVENTS, pl.UInt8).alias("origin")),
        quarantine.with_columns(pl.lit(FROM_QUARANTINE, pl.UInt8).alias("origin")),
        openings,
        expired,
        subjects,
    )


def touched_only(judged: Judged) -> Judged:
    """Leave out the trajectories for which nothing new has come: every new row was a copy."""
    touched = judged.rows.filter(pl.col("origin") == FROM_LANDING)["t"].unique()
    if len(touched) == len(judged.trajectories):
        return judged
    return judged._replace(rows=judged.rows.filter(pl.col("t").is_in(touched.implode())))


def erased_epochs(
    plan: Plan, judged: Judged, subjects: Mapping[tuple[str, str], frozenset[str]]
) -> dict[tuple[str, str], int]:
    """Return the trajectories among `judged` that an erasure covers, by id or by a subject key, with its epoch."""
    coverage = Coverage(plan.standing)
    silent = dict.fromkeys(plan.silent, 0)
    if not coverage and not silent:
        return {}
    found = dict(subjects)
    starts = judged.rows.filter((pl.col("event_type") == "TaskStarted") & pl.col("payload").is_not_null())
    for tenant, trajectory_id, payload in starts.select(*KEY, "payload").iter_rows():
        found[tenant, trajectory_id] = found.get((tenant, trajectory_id), NO_SUBJECTS) | subjects_in(payload)
    epochs = {}
    for tenant, trajectory_id in judged.rows.select(KEY).unique().iter_rows():
        epoch = coverage.epoch_of(tenant, trajectory_id, found.get((tenant, trajectory_id), NO_SUBJECTS))
        if epoch is None and (tenant, trajectory_id) in silent:
            epoch = max((one.epoch for one in plan.standing.erasures), default=0)  # its row has the exact one
        if epoch is not None:
            epochs[tenant, trajectory_id] = epoch
    return epochs


def _met(plan: Plan, new: pl.DataFrame, epochs: Mapping[tuple[str, str], int]) -> tuple[tuple[str, str], ...]:
    """Return the erased trajectories that new rows came for, be they copies: landing holds their text again."""
    if not len(new) or not (plan.silent or epochs):
        return ()
    return tuple(sorted(set(new.select(KEY).unique().iter_rows()) & (set(plan.silent) | set(epochs))))


def _blobs_that_go(met: Sequence[tuple[str, str]], *frames: pl.DataFrame) -> tuple[tuple[str, str], ...]:
    """Return the blobs that texts of erased trajectories name, among new rows and those judged."""
    if not met:
        return ()
    keys = keys_frame(met)
    texts = [
        rows.join(keys, on=KEY, how="semi").filter(pl.col("payload").is_not_null()) for rows in frames if len(rows)
    ]
    return tuple(sorted({blob for rows in texts for blob in blobs_named(rows)}))


def _without_texts(rows: pl.DataFrame, table: str, epochs: Mapping[tuple[str, str], int]) -> pl.DataFrame:
    """Return the rows with every erasable column null where the trajectory is erased."""
    if not epochs:
        return rows
    described = SNAPSHOT_TABLES[table]
    gone = rows.select(
        pl.struct(KEY).is_in(keys_frame(epochs).select(pl.struct(KEY)).to_series().implode())
    ).to_series()
    emptied = [
        pl.when(gone).then(None).otherwise(pl.col(column.name)).alias(column.name)
        for column in described.columns
        if column.erasable
    ]
    found = rows.with_columns(emptied)
    if table == "trajectories":
        marks = pl.Series([epochs.get(key) for key in rows.select(KEY).iter_rows()], dtype=pl.Int64)
        found = found.with_columns(pl.coalesce("erasure_epoch", marks).alias("erasure_epoch"))
    return found


def _write(
    plan: Plan, lake: Lake, judged: Judged, held: Held, number: int, epochs: Mapping[tuple[str, str], int]
) -> tuple[dict[str, list[FileAdd]], dict[str, str]]:
    adds: dict[str, list[FileAdd]] = {}
    drops: dict[str, str] = {}

    def write(table: str, rows: pl.DataFrame) -> None:
        part = f"{number:04d}"
        rows = _without_texts(rows, table, epochs)
        adds[table] = write_files(rows, SNAPSHOT_TABLES[table], lake.path(table), plan.run, plan.partition_by, part)

    def drop(table: str, trajectories: pl.DataFrame) -> None:
        if len(trajectories):
            drops[table] = os.path.join(plan.staging, f"drop-{table}-{number}.arrow")
            trajectories.select(KEY).unique().write_ipc(drops[table])

    counting = _placed(judged.rows.filter(pl.col("verdict") == CANONICAL))
    moved = _moved(judged.rows, counting, keys_frame(epochs))
    fresh = counting.filter((pl.col("origin") != FROM_EVENTS) | pl.col("t").is_in(moved["t"].implode()))
    touched = judged.trajectories.join(judged.rows.select("t").unique(), on="t", how="semi")
    write("events", fresh)
    drop("events", moved)
    aside = judged.rows.filter(pl.col("verdict") != CANONICAL)
    put_aside = _quarantined(aside)
    gone = put_aside.join(keys_frame(epochs), on=KEY, how="semi")
    rest = put_aside.join(keys_frame(epochs), on=KEY, how="anti")
    write("quarantine", pl.concat([rest, with_openings(gone, held.openings)]) if len(gone) else put_aside)
    drop("quarantine", touched.join(held.quarantine.select(KEY).unique(), on=KEY, how="semi"))
    if plan.derive:
        del fresh
        known = touched.join(held.events.select(KEY).unique(), on=KEY, how="semi")
        tables = carry_over(lake, lake.snapshot(plan.base), counting, derive(counting, judged, aside))
        for table, rows in tables.items():
            write(table, rows)
            drop(table, known)
    return {name: files for name, files in adds.items() if files}, drops


def _placed(counting: pl.DataFrame) -> pl.DataFrame:
    """Give every canonical row the partition of its trajectory's event 0; remember where it stood as `was_…`."""
    names = ("started_on", "model")
    first = counting.filter(pl.col("sequence_number") == 0)
    if all(counting[name].n_unique() == 1 for name in names):
        return counting.with_columns(pl.col(name).alias(f"was_{name}") for name in names)
    places = first.select("t", *(pl.col(name).alias(f"its_{name}") for name in names))
    return counting.join(places, on="t", how="left", maintain_order="left").with_columns(
        *(pl.col(name).alias(f"was_{name}") for name in names),
        *(pl.col(f"its_{name}").alias(name) for name in names),
    )


def _moved(rows: pl.DataFrame, counting: pl.DataFrame, erased: pl.DataFrame) -> pl.DataFrame:
    """Return the trajectories with rows in `events` that must be written anew.

    They count no more, belong in another partition now, or still hold a text that a hold kept from an erasure.
    """
    texts = rows.filter((pl.col("origin") == FROM_EVENTS) & pl.col("payload").is_not_null())
    gone = rows.filter((pl.col("origin") == FROM_EVENTS) & (pl.col("verdict") != CANONICAL))
    elsewhere = counting.filter(
        (pl.col("origin") == FROM_EVENTS)
        & ((pl.col("started_on") != pl.col("was_started_on")) | (pl.col("model") != pl.col("was_model")))
    )
    kept_by_holds = texts.join(erased, on=KEY, how="semi")
    return pl.concat([frame.select("t", *KEY) for frame in (gone, elsewhere, kept_by_holds)]).unique()


def _quarantined(aside: pl.DataFrame) -> pl.DataFrame:
    reason = pl.col("verdict").replace_strict(REASONS, return_dtype=pl.String)
    return aside.with_columns(
        reason.alias("reason"),
        pl.when(pl.col("verdict") == HELD_BACK)
        .then(pl.lit("waits for a missing event or opening before it"))
        .otherwise(None)
        .alias("detail"),
        pl.lit(None, pl.Int64).alias("last_lsn"),
    )
