"""The funnel: how many came into each stage, how many went, and one ledger row for each that went, with its reason."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import polars as pl

LEDGER_SCHEMA: Final[dict[str, Any]] = {
    "tenant": pl.String, "trajectory_id": pl.String, "segment_no": pl.Int64, "stage_no": pl.Int32, "stage": pl.String,
    "reason": pl.String, "detail": pl.String,
}  # fmt: skip
"""`segment_no` is null where a whole trajectory went."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One stage's numbers: `before` = `after` + all of `dropped`. `unit` is trajectories, rows or tasks."""

    stage_no: int
    stage: str
    unit: str
    before: int
    after: int
    dropped: dict[str, int] = {}
    noted: dict[str, int] = {}


class Funnel:
    """Collects the steps and the ledger of one run."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._ledger: list[pl.DataFrame] = []

    def sift(
        self, stage_no: int, stage: str, frame: pl.DataFrame, reason: pl.Expr, detail: pl.Expr | None = None,
        *, unit: str = "rows",
    ) -> pl.DataFrame:  # fmt: skip
        """Return the rows of `frame` for which `reason` is null; the others go into the ledger."""
        marked = frame.with_columns(
            reason.cast(pl.String).alias("_reason"),
            (pl.lit(None) if detail is None else detail).cast(pl.String).alias("_detail"),
        )
        gone = marked.filter(pl.col("_reason").is_not_null())
        kept = marked.filter(pl.col("_reason").is_null()).drop("_reason", "_detail")
        self.note(stage_no, stage, unit, len(frame), gone)
        return kept

    def note(self, stage_no: int, stage: str, unit: str, before: int, gone: pl.DataFrame) -> None:
        """Take in a step whose dropped rows are `gone`, with `_reason` and `_detail`."""
        segment = pl.col("segment_no") if "segment_no" in gone.columns and unit == "rows" else pl.lit(None)
        self._ledger.append(
            gone.select(
                "tenant", "trajectory_id", segment.cast(pl.Int64).alias("segment_no"),
                pl.lit(stage_no, pl.Int32).alias("stage_no"), pl.lit(stage).alias("stage"),
                pl.col("_reason").alias("reason"), pl.col("_detail").alias("detail"),
            )
        )  # fmt: skip
        counts = dict(gone.group_by("_reason").len().sort("_reason").iter_rows())
        self.steps.append(
            Step(stage_no=stage_no, stage=stage, unit=unit, before=before, after=before - len(gone), dropped=counts)
        )

    def mark(self, stage_no: int, stage: str, unit: str, count: int, noted: dict[str, int]) -> None:
        """Take in a step that drops nothing but changes something (a mask), with what it did."""
        self.steps.append(Step(stage_no=stage_no, stage=stage, unit=unit, before=count, after=count, noted=noted))

    def ledger(self) -> pl.DataFrame:
        """Return one row per drop, in an order that depends on nothing but the rows."""
        if not self._ledger:
            return pl.DataFrame(schema=LEDGER_SCHEMA)
        whole = pl.concat([part.cast(LEDGER_SCHEMA) for part in self._ledger])  # type: ignore[arg-type]
        return whole.sort("stage_no", "tenant", "trajectory_id", "segment_no", "reason", "detail")

    def adds_up(self) -> bool:
        """Return whether every step's numbers add up, and each begins with what the one before left, by unit."""
        last: dict[str, int] = {}
        for step in self.steps:
            if step.before != step.after + sum(step.dropped.values()):
                return False
            if last.setdefault(step.unit, step.before) != step.before:
                return False
            last[step.unit] = step.after
        return True


def why_empty(steps: list[Step]) -> str:
    """Return what took most where nothing is left: the largest drop of any stage."""
    drops = [(count, step, reason) for step in steps for reason, count in step.dropped.items()]
    if not drops:
        return "nothing came in"
    count, step, reason = max(drops, key=lambda drop: drop[0])
    return f"most went at {step.stage_no} {step.stage}: {reason} {count:,} of {step.before:,} {step.unit}"


def as_table(steps: list[Step]) -> str:
    """Return the funnel as text, one line a stage."""
    lines = [f"{'stage':<28}{'unit':<14}{'in':>10}{'out':>10}  dropped"]
    for step in steps:
        told = {**step.dropped, **step.noted}
        shown = ", ".join(f"{name} {count:,}" for name, count in told.items())
        lines.append(
            f"{step.stage_no:>2} {step.stage:<25}{step.unit:<14}{step.before:>10,}{step.after:>10,}  {shown}".rstrip()
        )
    return "\n".join(lines)
