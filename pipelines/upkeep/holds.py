"""Holds: what must not be deleted. A hold beats erasure and retention from the run that follows its row.

The row is written, then a run (which may change nothing) is committed: every later run reads holds after that
snapshot. After it the hold is confirmed, or late, if the snapshot already has the erasure or expiry.
"""

from __future__ import annotations

import hashlib
import secrets

import msgspec
import polars as pl

from trajlake.pipelines.forgetting.decide import run_on_decided
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.lake_errors import LakeError, LakeMissing
from trajlake.pipelines.lakehouse.ledger import append_ledger
from trajlake.pipelines.lakehouse.protocol import hold_status
from trajlake.pipelines.lakehouse.run_draft import Draft
from trajlake.pipelines.lakehouse.snapshot import RunFile, Snapshot
from trajlake.pipelines.lakehouse.standing import Hold, Standing, read_standing, subjects_of
from trajlake.pipelines.lakehouse.table_files import read_rows
from trajlake.pipelines.progress import Progress, no_progress
from trajlake.schemas.tables import SNAPSHOT_TABLES


class HoldReport(msgspec.Struct, kw_only=True):
    """A hold as it stands; `gone`: what it covers whose text an erasure or retention took before it."""

    hold_id: str
    status: str
    snapshot: int = 0
    tenant: str = ""
    trajectory_id: str | None = None
    subject: str | None = None
    because: str = ""
    gone: list[str] = []


def place(
    lake: str, *, tenant: str, trajectory_id: str | None = None, subject: str | None = None, because: str,
    actor: str = "", hold_id: str | None = None, progress: Progress = no_progress,
) -> HoldReport:  # fmt: skip
    """Place a hold on a trajectory, a subject key, or (neither given) the whole tenant; confirmed or late on return.

    Killed half-way it holds from its row on, without a status; `confirm_all`, or placing it again under its id, tells
    the status.
    """
    if trajectory_id is not None and subject is not None:
        raise LakeError("hold: name a trajectory or a subject key, not both")
    opened = Lake.open(lake)
    name = hold_id or secrets.token_hex(8)
    known = {hold.hold_id: hold for hold in read_standing(opened).holds}
    if name not in known:
        row = {
            "hold_id": name, "action": "place", "tenant": tenant, "trajectory_id": trajectory_id, "subject": subject,
            "because": because, "actor": actor or None, "snapshot": opened.newest().number,
        }  # fmt: skip
        append_ledger(opened, "holds", [row])
        progress("hold placed", 0, 0)
    return _confirm(opened, name, progress)


def confirm_all(lake: str, progress: Progress = no_progress) -> list[HoldReport]:
    """Give every hold that was placed and never confirmed its status; return those."""
    opened = Lake.open(lake)
    waiting = [hold.hold_id for hold in read_standing(opened).holds if hold.status == "place"]
    return [_confirm(opened, name, progress) for name in waiting]


def lift(lake: str, hold_id: str, *, because: str, actor: str = "") -> HoldReport:
    """Lift a hold, durably on return. Raises `LakeMissing` where there is none of that id."""
    opened = Lake.open(lake)
    hold = _find(opened, hold_id)
    if hold.status != "lift":
        _say(opened, hold, "lift", opened.newest().number, because, actor)
    return _report(msgspec.structs.replace(hold, status="lift"), opened.newest().number, [])


def list_holds(lake: str) -> list[HoldReport]:
    """Return every hold that was ever placed, with its status."""
    opened = Lake.open(lake)
    return [_report(hold, 0, []) for hold in read_standing(opened).holds]


def _find(lake: Lake, hold_id: str) -> Hold:
    for hold in read_standing(lake).holds:
        if hold.hold_id == hold_id:
            return hold
    raise LakeMissing(f"hold {hold_id}: there is none of that id; 'trajlake hold list' shows them")


def _confirm(lake: Lake, hold_id: str, progress: Progress) -> HoldReport:
    hold = _find(lake, hold_id)
    if hold.status != "place":
        return _report(hold, lake.newest().number, [])

    def nothing(draft: Draft, _: Standing) -> RunFile:
        return draft.run_file("hold", {"hold": hold_id})

    # Every run that reads its snapshot after this one reads the row; every run before it has lost or is in it.
    snapshot = run_on_decided(lake, nothing, lambda name: progress(name, 0, 0))
    assert snapshot is not None
    gone = gone_under(lake, snapshot, hold)
    status = hold_status(is_gone=bool(gone))
    _say(lake, hold, status, snapshot.number, hold.because, "")
    progress(f"hold {status}", 0, 0)
    return _report(msgspec.structs.replace(hold, status=status), snapshot.number, gone)


def gone_under(lake: Lake, snapshot: Snapshot, hold: Hold) -> list[str]:
    """Return the trajectories under a hold whose texts are gone in `snapshot`, by id."""
    rows = read_rows(lake.files(snapshot, "trajectories"), SNAPSHOT_TABLES["trajectories"])
    taken = rows.filter(
        pl.col("erasure_epoch").is_not_null() | (pl.col("status") == "expired") | (pl.col("payloads_expired") > 0)
        | (pl.col("blobs_expired") > 0)
    ).select("tenant", "trajectory_id", "subjects")  # fmt: skip
    found = {i for tenant, i, subjects in taken.iter_rows() if hold.covers(tenant, i, subjects_of(subjects))}
    for erasure in read_standing(lake).erasures:
        if erasure.state in ("refused", "requested") or erasure.tenant != hold.tenant:
            continue
        if erasure.trajectory_id is not None and hold.covers(erasure.tenant, erasure.trajectory_id):
            found.add(erasure.trajectory_id)  # applied before it has landed
        elif erasure.subject is not None and erasure.subject == hold.subject:
            found.add(f"subject {erasure.subject}")
    return sorted(found)


def _say(lake: Lake, hold: Hold, action: str, snapshot: int, because: str, actor: str) -> None:
    row_id = hashlib.sha256(f"{hold.hold_id} {action}".encode()).hexdigest()[:32]
    row = {
        "row_id": row_id, "hold_id": hold.hold_id, "action": action, "tenant": hold.tenant,
        "trajectory_id": hold.trajectory_id, "subject": hold.subject, "because": because, "actor": actor or None,
        "snapshot": snapshot,
    }  # fmt: skip
    append_ledger(lake, "holds", [row])


def _report(hold: Hold, snapshot: int, gone: list[str]) -> HoldReport:
    names = {"place": "placed", "confirm": "confirmed", "late": "late", "lift": "lifted"}
    return HoldReport(
        hold_id=hold.hold_id, status=names[hold.status], snapshot=snapshot, tenant=hold.tenant,
        trajectory_id=hold.trajectory_id, subject=hold.subject, because=hold.because, gone=gone,
    )  # fmt: skip
