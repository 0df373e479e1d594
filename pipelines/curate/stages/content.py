"""Stages 6 to 10: what a row's text shows. Grain: rows (segments)."""

from __future__ import annotations

import polars as pl

from ..funnel import Funnel
from ..policy import Policy


def clean_of_leaks(rows: pl.DataFrame, funnel: Funnel) -> pl.DataFrame:
    """Stage 6: the agent read its answer out of the history. The whole trajectory goes, not only that segment."""
    leaked = pl.col("leak").drop_nulls().first().over("tenant", "trajectory_id")
    return funnel.sift(6, "leak", rows, pl.when(leaked.is_not_null()).then(pl.lit("leak")), leaked)


def well_formed(rows: pl.DataFrame, policy: Policy, funnel: Funnel) -> pl.DataFrame:
    """Stage 7: calls and answers pair, roles are in order, tools were shown, the shape can be said."""
    rule = policy.structure
    bad = pl.col("target_bad").list.any() & pl.lit(rule.bad_arguments == "drop")
    unshown = pl.col("unshown_tool").is_not_null() & pl.lit(rule.shown_tools)
    reason = (
        pl.when(pl.col("error").is_not_null()).then(pl.col("error"))
        .when(~pl.col("is_text")).then(pl.lit("not_text"))
        .when(pl.col("malformed").is_not_null()).then(pl.lit("malformed"))
        .when(unshown).then(pl.lit("tool_not_shown"))
        .when(bad).then(pl.lit("malformed"))
    )  # fmt: skip
    detail = pl.coalesce("detail", "malformed", "unshown_tool")
    return funnel.sift(7, "structure", rows, reason, detail)


def without_loops(rows: pl.DataFrame, policy: Policy, funnel: Funnel) -> pl.DataFrame:
    """Stage 8: the same call over and over, or the same words."""
    rule = policy.loops
    looped = (pl.col("loop_repeats") >= rule.repeats) | (pl.col("loop_ratio") >= rule.ratio)
    detail = pl.format("same call {} times, {} of the words said before", "loop_repeats", "loop_ratio")
    return funnel.sift(8, "loops", rows, pl.when(looped).then(pl.lit("loop")), detail)


def of_length(rows: pl.DataFrame, policy: Policy, funnel: Funnel) -> pl.DataFrame:
    """Stage 9: long enough to teach, short enough to be read whole. Turns are counted over the trajectory."""
    rule = policy.length
    replies = pl.col("target_seqs").list.len().sum().over("tenant", "trajectory_id")
    limit = pl.lit(rule.tokens_max)
    reason = (
        pl.when(replies < rule.replies_min).then(pl.lit("too_short"))
        .when((limit > 0) & (pl.col("prompt_tokens") >= limit)).then(pl.lit("no_trainable_tokens"))
        .when((limit > 0) & (pl.col("tokens") > limit)).then(pl.lit("too_long"))
    )  # fmt: skip
    detail = pl.format("{} tokens, {} before the first target", "tokens", "prompt_tokens")
    return funnel.sift(9, "length", rows, reason, detail)


def masked(rows: pl.DataFrame, policy: Policy, funnel: Funnel) -> pl.DataFrame:
    """Stage 10: which targets train. Other models' replies, failed steps and broken arguments stay as context."""
    from ..models import allowed

    rows = rows.with_row_index("_row")
    names = ["target_places", "target_models", "target_systems", "target_failed", "target_bad"]
    flat = rows.select("_row", *names).explode(names)
    verdict = (
        pl.when(~allowed(policy.models)).then(pl.lit("model_not_allowed"))
        .when(pl.col("target_failed") & pl.lit(policy.masking.failed_steps)).then(pl.lit("failed_step"))
        .when(pl.col("target_bad")).then(pl.lit("bad_arguments"))
    )  # fmt: skip
    flat = flat.with_columns(verdict.alias("mask"))
    trained = flat.group_by("_row", maintain_order=True).agg(
        pl.col("target_places").filter(pl.col("mask").is_null()).alias("train_places"),
        pl.col("target_models").filter(pl.col("mask").is_null()).unique().sort().alias("train_models"),
        pl.col("mask").drop_nulls().value_counts(sort=False).alias("masks"),
        pl.col("mask").drop_nulls().first().alias("first_mask"),
    )
    noted = dict(flat.filter(pl.col("mask").is_not_null()).group_by("mask").len().sort("mask").iter_rows())
    funnel.mark(10, "masking", "rows", len(rows), noted)
    joined = rows.join(trained, on="_row", how="left", maintain_order="left").drop("_row", "masks")
    reason = pl.when(pl.col("train_places").list.len() == 0).then(
        pl.when(pl.col("first_mask") == "model_not_allowed").then(pl.lit("model_not_allowed"))
        .otherwise(pl.lit("no_trainable_tokens"))
    )  # fmt: skip
    return funnel.sift(10, "nothing to train", joined, reason, pl.col("target_models").list.join(", ")).drop(
        "first_mask"
    )
