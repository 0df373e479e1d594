"""Erasure: texts of a trajectory, or of all that name a subject key, leave every place that we know of.

Order: the ledger row; a run that reads holds after its snapshot and empties the tables; then writers, the warm tier,
landing, pins and old files, each looked at on every pass; `complete` only once none of them holds the text. Until then
the erasure is `pending` and names what is left. Killed anywhere, the next pass goes on. Source: design/lake.md.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import msgspec
import polars as pl

from trajlake.pipelines.compaction.run_plan import NO_WRITER
from trajlake.pipelines.curate.kept import forget as forget_kept_rows
from trajlake.pipelines.forgetting.decide import (
    decide_erasures,
    decision_of,
    known_subjects,
    say,
    targets_of,
    tell_ledger,
)
from trajlake.pipelines.forgetting.erase_places import (
    Places,
    Target,
    clear_landing,
    clear_warm,
    with_inbox,
    writers_that_hold,
)
from trajlake.pipelines.lakehouse.commit import finish_half_done
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.lake_errors import LakeError, LakeMissing
from trajlake.pipelines.lakehouse.ledger import append_in_order
from trajlake.pipelines.lakehouse.protocol import is_complete
from trajlake.pipelines.lakehouse.run_draft import Draft, as_it_stands, on_newest
from trajlake.pipelines.lakehouse.snapshot import Snapshot
from trajlake.pipelines.lakehouse.staging import sweep_staging
from trajlake.pipelines.lakehouse.standing import Erasure, TrajectoryKey, keys_frame, read_standing
from trajlake.pipelines.lakehouse.table_files import may_hold, read_rows
from trajlake.pipelines.progress import Progress, no_progress
from trajlake.pipelines.upkeep.old_files import remove_old_files
from trajlake.schemas.tables import SNAPSHOT_TABLES

Clear = Callable[[Target, str, int], int]
"""Empties one warm tier (URL, epoch) and returns the rows that lost their text."""


class EraseReport(msgspec.Struct, kw_only=True):
    """Where an erasure stands. `left` names every place that still holds the text.

    `recut` are data sets to cut again; `related` trajectories that branched off or were called by an erased one, which
    are not erased with it.
    """

    erasure_id: str = ""
    epoch: int = 0
    state: str = "requested"
    snapshot: int = 0
    trajectories: list[TrajectoryKey] = []
    held: list[TrajectoryKey] = []
    left: list[str] = []
    expired_snapshots: list[str] = []
    recut: list[str] = []
    related: list[TrajectoryKey] = []


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What to erase: one trajectory, or whatever names the subject key."""

    tenant: str
    trajectory_id: str | None = None
    subject: str | None = None
    because: str = ""
    actor: str = ""

    def __post_init__(self) -> None:
        if (self.trajectory_id is None) == (self.subject is None):
            raise LakeError("erase: name either a trajectory or a subject key")


def request(lake: Lake, wanted: Wanted) -> Erasure:
    """Write the ledger row, durably, unless the same erasure is under way; return it as it stands."""
    same = (wanted.tenant, wanted.trajectory_id, wanted.subject)
    for one in read_standing(lake).erasures:
        if (one.tenant, one.trajectory_id, one.subject) == same and one.state in ("requested", "pending"):
            return one
    erasure_id = secrets.token_hex(8)
    newest = lake.newest().number

    def row(epoch: int) -> dict[str, Any]:
        return {
            "erasure_id": erasure_id, "epoch": epoch, "state": "requested", "tenant": wanted.tenant,
            "trajectory_id": wanted.trajectory_id, "subject": wanted.subject, "because": wanted.because,
            "actor": wanted.actor or None, "snapshot": newest, "detail": None,
        }  # fmt: skip

    append_in_order(lake, "erasures", row)
    return next(one for one in read_standing(lake).erasures if one.erasure_id == erasure_id)


def erase(
    lake: str, wanted: Wanted, places: Places | None = None, progress: Progress = no_progress,
    clear: Clear = clear_warm,
) -> EraseReport:  # fmt: skip
    """Ask for an erasure and carry it as far as it goes; see `continue_erasures` for the rest of the way."""
    opened = Lake.open(lake)
    finish_half_done(opened, lambda name: progress(name, 0, 0))
    asked = request(opened, wanted)
    progress("erasure requested", 0, 0)
    return continue_erasures(lake, places, progress, only=asked.erasure_id, clear=clear)[0]


def continue_erasures(
    lake: str, places: Places | None = None, progress: Progress = no_progress, only: str | None = None,
    clear: Clear = clear_warm,
) -> list[EraseReport]:  # fmt: skip
    """Decide what is undecided and go on with every erasure that is pending (or the one named); report each."""
    opened = Lake.open(lake)
    where = with_inbox(places or Places(), opened.url)

    def step(name: str) -> None:
        progress(name, 0, 0)

    finish_half_done(opened, step)
    decide_erasures(opened, step)
    tell_ledger(opened, step)
    wanted = [
        one for one in read_standing(opened).erasures
        if one.erasure_id == only or (only is None and one.state == "pending")
    ]  # fmt: skip
    reports = [_go_on(opened, erasure, where, step, clear) for erasure in wanted]
    if only is not None and not reports:
        raise LakeMissing(f"{lake}: no erasure {only}; see the ledger `erasures`")
    return reports


def what_would_go(lake: str, wanted: Wanted) -> EraseReport:
    """Say which trajectories an erasure would cover and which holds stand against it; write nothing."""
    opened = Lake.open(lake)
    known, snapshot = as_it_stands(opened, lambda draft: (known_subjects(draft), draft.snapshot))
    standing = read_standing(opened)
    asked = Erasure(erasure_id="", epoch=0, state="requested", tenant=wanted.tenant,
                    trajectory_id=wanted.trajectory_id, subject=wanted.subject)  # fmt: skip
    keys = targets_of(asked, known)
    held = [key for key in keys if standing.is_held(*key, known.get(key, frozenset()))]
    return EraseReport(
        state="dry_run", snapshot=snapshot.number, trajectories=keys, held=held, related=_related(opened, keys)
    )


def _go_on(lake: Lake, erasure: Erasure, places: Places, step: Callable[[str], None], clear: Clear) -> EraseReport:
    report = EraseReport(erasure_id=erasure.erasure_id, epoch=erasure.epoch, state=erasure.state)
    found = decision_of(lake, erasure)
    assert found is not None, "decide_erasures has decided every erasure of the ledger"
    decided, verdict = found
    report.snapshot = decided.number
    if verdict == "refused":
        report.state = "refused"
        held = decided.report.get("held", ())
        report.held = [(tenant, name) for asked, tenant, name in held if asked == erasure.erasure_id]
        return report
    target = on_newest(lake, lambda draft: _target(draft, erasure, decided), step)
    report.trajectories = sorted(target.keys)
    report.related = _related(lake, report.trajectories)
    writers = writers_that_hold(target, places)
    step("writers looked at")
    for url in places.warm:
        clear(target, url, erasure.epoch)
        step("warm tier cleared")
    cursors, statuses = lake.newest().cursors, _statuses(lake)
    landed = [line for path in places.landings for line in clear_landing(target, path, cursors, statuses)]
    step("landing cleared")
    why = f"erasure {erasure.erasure_id} took text that it named"
    report.expired_snapshots = remove_old_files(lake, target, why, decided.run, erasure.epoch, step)
    swept = sweep_staging(lake, places.gone)
    step("old files removed")
    # Curation keeps copies of payloads from night to night; the next one reads events again.
    kept = _forget_kept(lake) + swept.stuck + swept.elsewhere
    report.left = writers + landed + kept
    report.recut = _recut(lake, erasure)
    state = "complete" if is_complete(writers=writers, warm=(), landing=landed, pins=(), files=kept) else "pending"
    detail = {"run": decided.run, "left": report.left, "recut": report.recut}
    if (state, detail) != (erasure.state, erasure.detail):
        say(lake, erasure, state, decided.number, detail)
        step(f"erasure {state}")
    report.state = state
    return report


def _forget_kept(lake: Lake) -> list[str]:
    try:
        forget_kept_rows(lake)
    except OSError as error:
        return [f"rows that curation keeps: cannot be removed: {error}"]
    return []


def _target(draft: Draft, erasure: Erasure, decided: Snapshot) -> Target:
    standing = read_standing(draft.lake)
    known = known_subjects(draft)
    keys = {tuple(key) for key in decided.report.get("trajectories", ())}
    keys = {key for key in keys if erasure.covers(key[0], key[1], known.get(key, frozenset()))}
    later = targets_of(erasure, known)
    keys |= {key for key in later if not standing.is_held(*key, known.get(key, frozenset()))}
    frame = keys_frame(keys)
    writers: set[str] = set()
    for table in ("events", "quarantine"):
        rows = read_rows(may_hold(draft.files(table), frame), SNAPSHOT_TABLES[table], frame)
        writers |= set(rows["writer"].drop_nulls().unique()) - {NO_WRITER}
    blobs = frozenset((tenant, digest) for tenant, digest, _ in decided.report.get("blobs", ()))
    listed = read_rows(draft.files("blobs"), SNAPSHOT_TABLES["blobs"]).select("tenant", "sha256")
    return Target(
        keys=frozenset(keys),
        # A blob that another trajectory has named since is not theirs to lose.
        blobs=blobs - frozenset(listed.iter_rows()),
        imports=frozenset((tenant, digest) for tenant, digest in decided.report.get("imports", ())),
        writers=frozenset(writers),
    )


def _trajectories(lake: Lake) -> pl.DataFrame:
    return as_it_stands(lake, lambda draft: read_rows(draft.files("trajectories"), SNAPSHOT_TABLES["trajectories"]))


def _statuses(lake: Lake) -> dict[TrajectoryKey, str]:
    rows = _trajectories(lake)
    return {(tenant, i): status for tenant, i, status in rows.select("tenant", "trajectory_id", "status").iter_rows()}


def _related(lake: Lake, keys: list[TrajectoryKey]) -> list[TrajectoryKey]:
    rows = _trajectories(lake)
    asked = keys_frame(keys)
    found: set[TrajectoryKey] = set()
    for prefix in ("branch_of", "parent"):
        names = {f"{prefix}_tenant": "tenant", f"{prefix}_trajectory_id": "trajectory_id"}
        parents = rows.select(pl.col("tenant").alias("own_tenant"), pl.col("trajectory_id").alias("own"), *names)
        hit = parents.rename(names).join(asked, on=["tenant", "trajectory_id"], how="semi")
        found |= set(hit.select("own_tenant", "own").iter_rows())
    return sorted(found - set(keys))


def _recut(lake: Lake, erasure: Erasure) -> list[str]:
    from trajlake.pipelines.curate.recut import sets_to_recut

    return sorted(one.set_name for one in sets_to_recut(lake) if erasure.erasure_id in one.erasures)
