"""Why a trajectory is in a set or not: its rows, and for each that went the stage, the reason and the detail."""

from __future__ import annotations

import os

import msgspec
import polars as pl

from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.runtime.cli_errors import UserError

from .cut import LEDGER_FILE, CutOptions, fresh_sources, run_of
from .policy import Loaded
from .select import choose
from .tasks import read_table


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """`kept`: (segment, split). `dropped`: (segment or None, stage, reason, detail)."""

    tenant: str
    trajectory_id: str
    kept: list[tuple[int, str]]
    dropped: list[tuple[int | None, str, str, str]]

    @property
    def is_in(self) -> bool:
        return bool(self.kept)


def explain(lake: str, trajectory_id: str, loaded: Loaded, options: CutOptions) -> list[Explanation]:
    """Run the policy's selection and return what became of a trajectory, in each tenant that has one of that id."""
    opened = Lake.open(lake)
    sources = fresh_sources(opened, options)
    known = read_table(opened, sources.snapshot, "trajectories", ["tenant", "trajectory_id", "kind"])
    tenants = known.filter((pl.col("trajectory_id") == trajectory_id) & (pl.col("kind") != "judgement"))["tenant"]
    if not len(tenants):
        raise UserError(f"{trajectory_id}: no such trajectory in snapshot {sources.snapshot.number}")
    chosen = choose(sources, loaded, run_of(options))
    kept = chosen.rows.select("tenant", "trajectory_id", "segment_no", "split")
    return [_of(tenant, trajectory_id, kept, chosen.funnel.ledger()) for tenant in tenants.sort()]


def explain_set(folder: str, trajectory_id: str) -> list[Explanation]:
    """Return the same out of a set's own ledger and rows."""
    ledger = pl.read_parquet(os.path.join(folder, LEDGER_FILE))
    rows = []
    for name in ("rows", "tasks"):
        below = os.path.join(folder, name)
        for file in sorted(os.listdir(below)) if os.path.isdir(below) else ():
            part = pl.read_parquet(os.path.join(below, file))
            number = pl.col("segment_no").cast(pl.Int64) if "segment_no" in part.columns else pl.lit(0, pl.Int64)
            rows.append(part.select("tenant", "trajectory_id", number.alias("segment_no"), "split"))
    schema = {"tenant": pl.String, "trajectory_id": pl.String, "segment_no": pl.Int64, "split": pl.String}
    kept = pl.concat(rows) if rows else pl.DataFrame(schema=schema)
    both = pl.concat([kept.select("tenant", "trajectory_id"), ledger.select("tenant", "trajectory_id")])
    tenants = both.filter(pl.col("trajectory_id") == trajectory_id)["tenant"].unique().sort()
    if not len(tenants):
        raise UserError(f"{trajectory_id}: neither in {folder} nor in its ledger; it came after that set was cut")
    return [_of(tenant, trajectory_id, kept, ledger) for tenant in tenants]


def _of(tenant: str, trajectory_id: str, kept: pl.DataFrame, ledger: pl.DataFrame) -> Explanation:
    here = (pl.col("tenant") == tenant) & (pl.col("trajectory_id") == trajectory_id)
    stays = kept.filter(here).select("segment_no", "split").unique().sort("segment_no")
    gone = ledger.filter(here).select("segment_no", "stage", "reason", pl.col("detail").fill_null(""))
    return Explanation(
        tenant=tenant,
        trajectory_id=trajectory_id,
        kept=[(number, split) for number, split in stays.iter_rows()],
        dropped=[(number, stage, reason, detail) for number, stage, reason, detail in gone.iter_rows()],
    )
