"""What the ledgers `holds` and `erasures` ask for, as it stands now: read after the snapshot, at each attempt of a run.

A hold stands from its `place` row until its `lift` row. An erasure's newest row is its state; the epoch of its first
row orders it. A trajectory is covered by its id, by one of its subject keys, or (holds) by its whole tenant.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec
import polars as pl

from trajlake.pipelines.lakehouse.arrow_schema import polars_schema
from trajlake.pipelines.lakehouse.parquet_files import read_parquet
from trajlake.schemas.tables import TABLES

if TYPE_CHECKING:
    from trajlake.pipelines.lakehouse.lake import Lake

State = str
"""requested | refused | pending | complete"""
TrajectoryKey = tuple[str, str]
Subjects = Collection[str]
NO_SUBJECTS: Final[frozenset[str]] = frozenset()


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """A hold that was placed. `status`: place (not yet followed by a run) | confirm | late | lift."""

    hold_id: str
    tenant: str
    trajectory_id: str | None = None
    subject: str | None = None
    because: str = ""
    status: str = "place"

    def covers(self, tenant: str, trajectory_id: str, subjects: Subjects = NO_SUBJECTS) -> bool:
        """Tell whether this trajectory must not be deleted by it (a lifted hold covers nothing)."""
        return self.status != "lift" and _matches(self, tenant, trajectory_id, subjects, whole_tenant=True)


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """An erasure as it stands. `asked_at` is the newest snapshot when it was asked for."""

    erasure_id: str
    epoch: int
    state: State
    tenant: str
    trajectory_id: str | None = None
    subject: str | None = None
    because: str = ""
    asked_at: int = 0
    detail: dict[str, Any] = {}

    def covers(self, tenant: str, trajectory_id: str, subjects: Subjects = NO_SUBJECTS) -> bool:
        """Tell whether it asks for this trajectory; a refused one asks for nothing."""
        return self.state != "refused" and _matches(self, tenant, trajectory_id, subjects, whole_tenant=False)


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """All holds and erasures, by first row."""

    holds: tuple[Hold, ...] = ()
    erasures: tuple[Erasure, ...] = ()

    @property
    def epoch(self) -> int:
        """The newest epoch that was asked for; 0 without any."""
        return max((one.epoch for one in self.erasures), default=0)

    def is_held(self, tenant: str, trajectory_id: str, subjects: Subjects = NO_SUBJECTS) -> bool:
        return any(hold.covers(tenant, trajectory_id, subjects) for hold in self.holds)

    def needed(self) -> Standing:
        """Return what a worker must know: erasures that were not refused, holds that were not lifted."""
        return Standing(
            holds=tuple(hold for hold in self.holds if hold.status != "lift"),
            erasures=tuple(msgspec.structs.replace(one, detail={}) for one in self.erasures if one.state != "refused"),
        )


class Coverage:
    """Looks up, among many decided erasures, the one that covers a trajectory.

    An erasure by id that was applied covers later copies whatever holds stand: had a hold come before it, it would
    have been refused. One by subject meets trajectories that nobody knew when it was applied: there a hold beats it.
    """

    def __init__(self, standing: Standing) -> None:
        self._by_id: dict[TrajectoryKey, int] = {}
        self._by_subject: dict[tuple[str, str], int] = {}
        self._standing = standing
        self._held = any(hold.status != "lift" for hold in standing.holds)
        for one in standing.erasures:
            if one.state == "refused":
                continue
            if one.trajectory_id is not None:
                key = (one.tenant, one.trajectory_id)
                self._by_id[key] = max(one.epoch, self._by_id.get(key, 0))
            elif one.subject is not None:
                key = (one.tenant, one.subject)
                self._by_subject[key] = max(one.epoch, self._by_subject.get(key, 0))

    def __bool__(self) -> bool:
        return bool(self._by_id or self._by_subject)

    def epoch_of(self, tenant: str, trajectory_id: str, subjects: Subjects = NO_SUBJECTS) -> int | None:
        """Return the epoch of the newest erasure that covers the trajectory, None for none."""
        by_id = self._by_id.get((tenant, trajectory_id))
        if by_id is not None:
            return by_id
        found = max((self._by_subject.get((tenant, subject), 0) for subject in subjects), default=0)
        if not found or (self._held and self._standing.is_held(tenant, trajectory_id, subjects)):
            return None
        return found


def _matches(one: Hold | Erasure, tenant: str, trajectory_id: str, subjects: Subjects, *, whole_tenant: bool) -> bool:
    if one.tenant != tenant:
        return False
    if one.trajectory_id is not None:
        return one.trajectory_id == trajectory_id
    if one.subject is not None:
        return one.subject in subjects
    return whole_tenant


def read_standing(lake: Lake) -> Standing:
    """Return holds and erasures at the ledgers' newest versions."""
    holds: dict[str, Hold] = {}
    for row in ledger_rows(lake, "holds"):
        base = holds.get(row["hold_id"]) or Hold(
            hold_id=row["hold_id"], tenant=row["tenant"], trajectory_id=row["trajectory_id"], subject=row["subject"],
            because=row["because"] or "",
        )  # fmt: skip
        status = "lift" if "lift" in (base.status, row["action"]) else row["action"]
        holds[row["hold_id"]] = msgspec.structs.replace(base, status=status)
    erasures: dict[str, Erasure] = {}
    for row in ledger_rows(lake, "erasures"):
        first = erasures.get(row["erasure_id"])
        detail = msgspec.json.decode(row["detail"]) if row["detail"] else {}
        if first is None:
            first = Erasure(
                erasure_id=row["erasure_id"], epoch=row["epoch"], state=row["state"], tenant=row["tenant"],
                trajectory_id=row["trajectory_id"], subject=row["subject"], because=row["because"] or "",
                asked_at=row["snapshot"] or 0,
            )  # fmt: skip
        erasures[row["erasure_id"]] = msgspec.structs.replace(first, state=row["state"], detail=detail)
    return Standing(holds=tuple(holds.values()), erasures=tuple(erasures.values()))


def ledger_rows(lake: Lake, name: str) -> list[dict[str, Any]]:
    """Return a ledger's rows by time, an append that was written twice once."""
    schema = polars_schema(TABLES[name])
    parts = []
    for path in lake.ledger_files(name):
        found = read_parquet(path)
        absent = [pl.lit(None, kind).alias(column) for column, kind in schema.items() if column not in found.columns]
        parts.append(found.with_columns(absent).select(pl.col(n).cast(k) for n, k in schema.items()))
    if not parts:
        return []
    rows = pl.concat(parts).unique("row_id", keep="first", maintain_order=True)
    order = [name for name in ("at", "epoch") if name in schema]
    return rows.sort(order, maintain_order=True).to_dicts()


def subjects_of(text: str | None) -> frozenset[str]:
    """Return the subject keys in a `subjects` column; none for null or what is no list of texts."""
    if not text:
        return NO_SUBJECTS
    try:
        return frozenset(msgspec.json.decode(text, type=list[str]))
    except msgspec.MsgspecError:
        return NO_SUBJECTS


class _Start(msgspec.Struct):
    subjects: tuple[str, ...] = ()


def subjects_in(payload: str) -> frozenset[str]:
    """Return the subject keys that a `TaskStarted` names."""
    try:
        return frozenset(msgspec.json.decode(payload, type=_Start).subjects)
    except msgspec.MsgspecError:
        return frozenset()


def keys_frame(keys: Iterable[TrajectoryKey]) -> pl.DataFrame:
    """Return (tenant, trajectory_id) pairs as a frame."""
    return pl.DataFrame(sorted(set(keys)), schema={"tenant": pl.String, "trajectory_id": pl.String}, orient="row")
