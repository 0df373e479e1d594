"""Stages 4 and 5: rewards, and the health of the verifiers that gave them. Grain: trajectories."""

from __future__ import annotations

import fnmatch
import re

import polars as pl

from ..funnel import Funnel
from ..policy import Policy

KEY = ["tenant", "trajectory_id"]


def rewards(judgements: pl.DataFrame, trajectories: pl.DataFrame, policy: Policy) -> pl.DataFrame:
    """Return per judged trajectory: reward, verifier, version, how often judged, whether verdicts flipped, details.

    Counted are rewards of the policy's verifier with a version, about the trajectory as it stands or up to an event
    that was named. Of several the newest counts (by time, then version, then where it stands).
    """
    rule = policy.reward
    name = re.compile(fnmatch.translate(rule.verifier))
    names = [one for one in judgements["verifier"].unique().to_list() if name.match(one)]
    counted = judgements.filter(
        (pl.col("kind") == "reward") & pl.col("verifier").is_in(names) & pl.col("value_number").is_not_null()
    )
    if not rule.unversioned:
        counted = counted.filter(pl.col("verifier_version").fill_null("") != "")
    counted = counted.select(
        pl.col("judged_tenant").alias("tenant"), pl.col("judged_trajectory_id").alias("trajectory_id"),
        "judged_sequence", pl.col("head_hash").alias("judged_head"), "verifier",
        pl.col("verifier_version").fill_null(""), "value_number", "details", "recorded_at",
        pl.col("trajectory_id").alias("judged_in"), "sequence_number",
    )  # fmt: skip
    counted = counted.join(trajectories.select(*KEY, "head_hash"), on=KEY, how="inner")
    counted = counted.filter(
        pl.col("judged_head").is_null() | pl.col("judged_sequence").is_not_null()
        | (pl.col("judged_head") == pl.col("head_hash"))
    )  # fmt: skip
    passed = pl.col("value_number") >= rule.minimum
    flips = (
        counted.group_by(*KEY, "verifier", "verifier_version")
        .agg(passed.n_unique().alias("verdicts"), pl.len().alias("times"))
        .group_by(KEY)
        .agg((pl.col("verdicts") > 1).any().alias("flipped"), pl.col("times").sum().cast(pl.Int64).alias("judged"))
    )
    newest = counted.sort(*KEY, "recorded_at", "verifier_version", "judged_in", "sequence_number").group_by(
        KEY, maintain_order=True
    ).last()  # fmt: skip
    return newest.select(
        *KEY, pl.col("value_number").alias("reward"), "verifier", "verifier_version",
        pl.col("details").alias("reward_details"),
    ).join(flips, on=KEY, how="left").sort(KEY)  # fmt: skip


def rewarded(trajectories: pl.DataFrame, policy: Policy, funnel: Funnel) -> pl.DataFrame:
    """Stage 4: rejection sampling."""
    rule = policy.reward
    reason = (
        pl.when(pl.col("reward").is_null() & pl.lit(rule.required)).then(pl.lit("no_reward"))
        .when(pl.col("reward") < rule.minimum).then(pl.lit("low_reward"))
    )  # fmt: skip
    detail = pl.format("{} by {} {}", "reward", "verifier", "verifier_version")
    return funnel.sift(4, "reward", trajectories, reason, detail, unit="trajectories")


def healthy(trajectories: pl.DataFrame, flaky_tasks: pl.Series, policy: Policy, funnel: Funnel) -> pl.DataFrame:
    """Stage 5: a task on which a verifier contradicted itself is set aside whole, whatever this trajectory got."""
    flaky = pl.col("task_key").is_in(flaky_tasks.implode()) & pl.lit(policy.verifier.flaky == "drop")
    reason = pl.when(flaky).then(pl.lit("flaky_verifier"))
    detail = pl.format("task {}: one trajectory got two verdicts of one version", "task_id")
    return funnel.sift(5, "verifier health", trajectories, reason, detail, unit="trajectories")
