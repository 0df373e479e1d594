"""Erasures are decided by a run, whoever makes it: a compaction, maintenance, retention, a hold, or `erase` itself.

A run reads its snapshot, then the ledgers. Where an erasure is there that the snapshot lacks, a run decides it first:
refused where a hold stands, else the texts go. Then the run that was wanted is made. The ledger is told afterwards,
from the snapshots, so that a kill in between is mended by the next launcher.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import msgspec
import polars as pl

from trajlake.pipelines.forgetting.forget import forget
from trajlake.pipelines.lakehouse.commit import Step, no_step
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.lake_errors import RunLost
from trajlake.pipelines.lakehouse.ledger import append_ledger
from trajlake.pipelines.lakehouse.protocol import decide_erasure, erasures_to_decide
from trajlake.pipelines.lakehouse.run_draft import Draft, run_until_won
from trajlake.pipelines.lakehouse.snapshot import RunFile, Snapshot
from trajlake.pipelines.lakehouse.standing import (
    Erasure,
    Standing,
    TrajectoryKey,
    read_standing,
    subjects_in,
    subjects_of,
)
from trajlake.pipelines.lakehouse.table_files import read_columns, read_rows
from trajlake.schemas.tables import SNAPSHOT_TABLES


def decide_erasures(lake: Lake, step: Step = no_step) -> Snapshot | None:
    """Make a run that decides every erasure the newest snapshot lacks; None where there is none. Tells the ledger."""
    snapshot = run_until_won(lake, _decisions, step)
    tell_ledger(lake, step)
    return snapshot


def run_on_decided(
    lake: Lake, make: Callable[[Draft, Standing], RunFile | None], step: Step = no_step
) -> Snapshot | None:
    """Make a run on a snapshot that lacks no erasure; `make` gets the ledgers as read after that snapshot."""

    def attempt(draft: Draft) -> RunFile | None:
        standing = read_standing(lake)
        if erasures_to_decide(draft.snapshot.erasure_epoch, standing.epoch):
            raise RunLost("an erasure was asked for: it is decided first", "")
        return make(draft, standing)

    return run_until_won(lake, attempt, step, before=lambda: decide_erasures(lake, step))


def decided_snapshot(lake: Lake, step: Step = no_step) -> tuple[Snapshot, Standing]:
    """Return the newest snapshot and the ledgers read after it, once no erasure is missing from it."""
    while True:
        snapshot = lake.newest()
        standing = read_standing(lake)
        if erasures_to_decide(snapshot.erasure_epoch, standing.epoch):
            decide_erasures(lake, step)
        elif any(one.state == "requested" for one in standing.erasures):
            tell_ledger(lake, step)  # a kill came between the run and its word in the ledger: was it refused?
        else:
            return snapshot, standing


def _decisions(draft: Draft) -> RunFile | None:
    standing = read_standing(draft.lake)
    wanted = erasures_to_decide(draft.snapshot.erasure_epoch, standing.epoch)
    if not wanted:
        return None
    known = known_subjects(draft)
    decided: dict[str, str] = {}
    under_hold: list[tuple[str, str, str]] = []
    epochs: dict[TrajectoryKey, int] = {}
    for erasure in standing.erasures:
        if erasure.epoch not in wanted:
            continue
        targets = targets_of(erasure, known)
        held = [key for key in targets if standing.is_held(*key, known.get(key, frozenset()))]
        under_hold += [(erasure.erasure_id, *key) for key in held]
        decided[erasure.erasure_id] = decide_erasure(is_held=bool(held))
        if decided[erasure.erasure_id] == "applied":
            epochs.update(dict.fromkeys(targets, erasure.epoch))
    done = forget(draft, epochs)
    report = {
        "erasures": decided, "trajectories": sorted(epochs), "rows": done.rows, "blobs": done.blobs,
        "imports": done.imports, "held": under_hold,
    }  # fmt: skip
    return draft.run_file("erase", report, erasure_epoch=standing.epoch, decided=decided)


def known_subjects(draft: Draft) -> dict[TrajectoryKey, frozenset[str]]:
    """Return every trajectory that the draft's snapshot holds, with its subject keys."""
    columns = ("tenant", "trajectory_id", "subjects")
    rows = read_columns(draft.files("trajectories"), SNAPSHOT_TABLES["trajectories"], columns)
    found = {(t, i): subjects_of(text) for t, i, text in rows.select(columns).iter_rows()}
    if "trajectories" in draft.snapshot.stale:
        events = read_rows(draft.files("events"), SNAPSHOT_TABLES["events"])
        starts = events.filter(pl.col("event_type") == "TaskStarted").select(*columns[:2], "payload")
        for tenant, trajectory_id, payload in starts.iter_rows():
            if payload is not None:
                found[tenant, trajectory_id] = subjects_in(payload)
    return found


def targets_of(erasure: Erasure, known: dict[TrajectoryKey, frozenset[str]]) -> list[TrajectoryKey]:
    """Return the trajectories that an erasure is about: by id also one that has not landed yet."""
    found = {key for key, subjects in known.items() if erasure.covers(*key, subjects)}
    if erasure.trajectory_id is not None:
        found.add((erasure.tenant, erasure.trajectory_id))
    return sorted(found)


def decision_of(lake: Lake, erasure: Erasure) -> tuple[Snapshot, str] | None:
    """Return the snapshot that decided an erasure, and how; None while none has."""
    for number in lake.all_snapshot_numbers():
        if number > erasure.asked_at:
            snapshot = lake.any_snapshot(number)
            if erasure.erasure_id in snapshot.decided:
                return snapshot, snapshot.decided[erasure.erasure_id]
    return None


def tell_ledger(lake: Lake, step: Step = no_step) -> None:
    """Write what was decided into the ledger, where nobody has yet: `refused`, or `pending` until no place is left."""
    epoch = lake.newest().erasure_epoch
    for erasure in read_standing(lake).erasures:
        if erasure.state != "requested" or erasure.epoch > epoch:
            continue
        found = decision_of(lake, erasure)
        if found is not None:
            state = "refused" if found[1] == "refused" else "pending"
            say(lake, erasure, state, found[0].number, {"run": found[0].run})
            step(f"erasure {state}")


def say(lake: Lake, erasure: Erasure, state: str, snapshot: int, detail: Mapping[str, object]) -> None:
    """Append an erasure's new state. Two launchers that say the same make one row of it."""
    text = msgspec.json.encode(detail).decode()
    row_id = hashlib.sha256(f"{erasure.erasure_id} {state} {text}".encode()).hexdigest()[:32]
    row = {
        "row_id": row_id, "erasure_id": erasure.erasure_id, "epoch": erasure.epoch, "state": state,
        "tenant": erasure.tenant, "trajectory_id": erasure.trajectory_id, "subject": erasure.subject,
        "because": erasure.because, "snapshot": snapshot, "detail": text,
    }  # fmt: skip
    append_ledger(lake, "erasures", [row])
