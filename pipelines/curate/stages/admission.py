"""Stages 1 to 3: what may train at all, what is whole, how it ended. Grain: trajectories."""

from __future__ import annotations

import polars as pl

from ..funnel import Funnel
from ..models import any_glob
from ..policy import Policy


def eligible(trajectories: pl.DataFrame, policy: Policy, funnel: Funnel) -> pl.DataFrame:
    """Stage 1: denied unless granted. A hold keeps bytes and says nothing about training."""
    rule = policy.eligibility
    admitted = any_glob(pl.col("source_format").fill_null(""), rule.source_formats)
    refused = pl.lit(False)
    for subject in rule.refuse_subjects:
        refused |= pl.col("subjects").fill_null("").str.contains(f'"{subject}"', literal=True)
    reason = (
        pl.when(~pl.col("tenant").is_in(rule.tenants)).then(pl.lit("no_consent"))
        .when(pl.col("erasure_epoch").is_not_null() | (pl.col("status") == "expired")).then(pl.lit("erased"))
        .when(~pl.col("kind").is_in(rule.kinds)).then(pl.lit("kind"))
        .when((pl.col("kind") == "imported") & ~admitted)
        .then(pl.lit("source_format"))
        .when(pl.col("trajectory_id").is_in(rule.refuse_trajectories) | refused).then(pl.lit("refused"))
    )  # fmt: skip
    detail = pl.when(pl.col("kind") == "imported").then(pl.col("source_format"))
    return funnel.sift(1, "eligibility", trajectories, reason, detail, unit="trajectories")


def whole(trajectories: pl.DataFrame, errors: pl.DataFrame, funnel: Funnel) -> pl.DataFrame:
    """Stage 2: no conflict, nothing held back, no effect in doubt, the chain and the contexts as recorded.

    `errors` has tenant, trajectory_id, error, detail of the trajectories that extraction refused.
    """
    joined = trajectories.join(errors, on=["tenant", "trajectory_id"], how="left", maintain_order="left")
    reason = (
        pl.when(pl.col("conflicts") > 0).then(pl.lit("conflict"))
        .when(pl.col("held_back") > 0).then(pl.lit("held_back"))
        .when(pl.col("in_doubt") > 0).then(pl.lit("in_doubt"))
        .when(pl.col("error").is_not_null()).then(pl.col("error"))
    )  # fmt: skip
    return funnel.sift(2, "integrity", joined, reason, pl.col("detail"), unit="trajectories").drop("error", "detail")


def replayed(trajectories: pl.DataFrame, verdicts: pl.DataFrame, policy: Policy, funnel: Funnel) -> pl.DataFrame:
    """The optional gate `replay = same`: verdicts are annotations labelled `replay` whose text begins with `same`."""
    if not policy.replay.required:
        return trajectories
    joined = trajectories.join(verdicts, on=["tenant", "trajectory_id"], how="left", maintain_order="left")
    imported = pl.col("kind") == "imported"
    admitted = imported if policy.replay.imported == "admit" else pl.lit(False)
    reason = (
        pl.when(admitted | (pl.col("replay") == "same")).then(pl.lit(None, pl.String))
        .when(imported).then(pl.lit("replay_not_applicable"))
        .when(pl.col("replay").is_null()).then(pl.lit("not_replayed"))
        .otherwise(pl.lit("replay_differs"))
    )  # fmt: skip
    return funnel.sift(2, "replay", joined, reason, unit="trajectories").drop("replay")


def ended(trajectories: pl.DataFrame, policy: Policy, funnel: Funnel) -> pl.DataFrame:
    """Stage 3: how it ended; one that was cut off stays only as the policy says (`truncated`, `reward` known)."""
    rule = policy.outcome
    cut = pl.col("truncated")
    rewarded = pl.col("reward").fill_null(float("-inf")) >= policy.reward.minimum
    lost = {"drop": cut, "keep": pl.lit(False), "with reward": cut & ~rewarded}[rule.truncated]
    out = ~pl.col("status").is_in(rule.statuses)
    reason = (
        pl.when(out & (pl.col("status") == "open")).then(pl.lit("not_ended"))
        .when(out).then(pl.lit("errored"))
        .when(lost).then(pl.lit("truncated"))
    )  # fmt: skip
    return funnel.sift(3, "outcome", trajectories, reason, pl.col("status"), unit="trajectories")
