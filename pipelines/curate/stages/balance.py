"""Stages 16 to 18: how much of what, and which side of the split. Seeded; nothing depends on the order of files."""

from __future__ import annotations

import hashlib

import polars as pl

from ..funnel import Funnel
from ..policy import Policy


def capped(rows: pl.DataFrame, policy: Policy, funnel: Funnel) -> pl.DataFrame:
    """Stage 16: at most `per_task` trajectories of a task, and of all rows at most a share from one split group.

    Which ones stay is drawn by hash of the seed and the trajectory, best reward first.
    """
    rule = policy.caps
    rows = rows.with_columns(drawn(rows, policy.seed).alias("_draw"))
    if rule.per_task:
        order = rows.select("task_key", "tenant", "trajectory_id", "reward", "_draw").unique()
        order = order.sort("task_key", "reward", "_draw", descending=[False, True, False], nulls_last=True)
        order = order.with_columns(pl.int_range(pl.len()).over("task_key").alias("_rank"))
        rows = rows.join(
            order.select("tenant", "trajectory_id", "_rank"),
            on=["tenant", "trajectory_id"],
            how="left",
            maintain_order="left",
        )
        reason = pl.when(pl.col("_rank") >= rule.per_task).then(pl.lit("capped"))
        rows = funnel.sift(16, "cap per task", rows, reason, pl.format("task {}", "task_id")).drop("_rank")
    if rule.group_share and len(rows):
        most = max(1, int(rule.group_share * len(rows)))
        ranked = rows.sort("reward", "_draw", "sample_key", descending=[True, False, False], nulls_last=True)
        ranked = ranked.with_columns(pl.int_range(pl.len()).over("split_group").alias("_rank"))
        reason = pl.when(pl.col("_rank") >= most).then(pl.lit("capped"))
        rows = funnel.sift(16, "cap per group", ranked, reason, pl.format("group {}", "split_group")).drop("_rank")
    return rows.drop("_draw").sort("sample_key")


def solvable(tasks: pl.DataFrame, policy: Policy, funnel: Funnel) -> pl.DataFrame:
    """Stage 17 (RLVR): tasks that are sometimes solved, on the raw verdicts of at least `attempts_min` attempts."""
    rule = policy.tasks
    reason = (
        pl.when(pl.col("pass_n") < rule.attempts_min).then(pl.lit("too_few_attempts"))
        .when(pl.col("pass_k") == 0).then(pl.lit("too_hard"))
        .when((pl.col("pass_k") == pl.col("pass_n")) & pl.lit(not rule.keep_solved)).then(pl.lit("too_easy"))
    )  # fmt: skip
    detail = pl.format("{} of {} passed", "pass_k", "pass_n")
    return funnel.sift(17, "difficulty", tasks, reason, detail, unit="tasks")


def split(rows: pl.DataFrame, policy: Policy, funnel: Funnel) -> pl.DataFrame:
    """Stage 18: whole groups to one side, by hash of the seed and the group."""
    groups = rows["split_group"].unique().to_list()
    share = policy.split.validation
    sides = {group: "validation" if fraction(f"{policy.seed} split {group}") < share else "train" for group in groups}
    rows = rows.with_columns(
        pl.col("split_group").replace_strict(sides, return_dtype=pl.String, default="train").alias("split")
    )
    counts = dict(rows.group_by("split").len().sort("split").iter_rows())
    funnel.mark(18, "split", "rows" if "segment_no" in rows.columns else "tasks", len(rows), counts)
    return rows


def drawn(rows: pl.DataFrame, seed: int) -> pl.Series:
    """Return a number in [0, 1) for each row's trajectory."""
    keys = [
        f"{seed} {tenant}\n{trajectory}" for tenant, trajectory in rows.select("tenant", "trajectory_id").iter_rows()
    ]
    return pl.Series("_draw", [fraction(key) for key in keys], pl.Float64)


def fraction(text: str) -> float:
    """Return a number in [0, 1) that depends on the text alone."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big") / (1 << 56)
