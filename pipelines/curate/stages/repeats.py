"""Stages 13 to 15: rows that repeat another row, and rows that hold an evaluation. Grain: rows."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from ..funnel import Funnel
from ..policy import Policy

BEST_FIRST = ["reward", "characters", "sample_key"]
DESCENDING = [True, False, False]


def without_copies(rows: pl.DataFrame, funnel: Funnel) -> pl.DataFrame:
    """Stage 13: same tools, first question and text of the targets, ids and times apart. The best reward stays, then
    the shortest, then the smallest key."""
    ranked = rows.sort(BEST_FIRST, descending=DESCENDING, nulls_last=True)
    first = pl.col("sample_key").first().over("dup_sha")
    reason = pl.when(pl.col("sample_key") != first).then(pl.lit("dup_exact"))
    return funnel.sift(13, "exact duplicates", ranked, reason, first).sort("sample_key")


def without_near_copies(
    rows: pl.DataFrame, policy: Policy, funnel: Funnel, texts: Callable[[pl.DataFrame], list[str]]
) -> pl.DataFrame:
    """Stage 14, where the policy asks for it: rows alike by the threshold form a cluster, its best row stays.

    `texts` returns what the targets of the given rows emitted, ids and times masked.
    """
    if not policy.duplicates.near:
        return rows.with_columns(pl.lit(None, pl.String).alias("dedup_cluster"))
    from ..near_duplicates import alike, clusters

    ranked = rows.sort(BEST_FIRST, descending=DESCENDING, nulls_last=True).with_row_index("place")
    ranked = ranked.with_columns(pl.col("place").cast(pl.Int64))

    def of_places(places: list[int]) -> dict[int, str]:
        return dict(zip(places, texts(ranked[places]), strict=True))

    found = clusters(alike(ranked.select("place", "signature"), policy.duplicates.threshold, of_places))
    heads = pl.DataFrame(
        {"place": list(found), "head": list(found.values())}, schema={"place": pl.Int64, "head": pl.Int64}
    )
    keys = ranked.select(pl.col("place").alias("head"), pl.col("sample_key").alias("dedup_cluster"))
    ranked = ranked.join(heads.join(keys, on="head", how="left"), on="place", how="left", maintain_order="left")
    reason = pl.when(pl.col("head") != pl.col("place")).then(pl.lit("dup_near"))
    return (
        funnel.sift(14, "near duplicates", ranked, reason, pl.col("dedup_cluster"))
        .drop("place", "head")
        .sort("sample_key")
    )


def uncontaminated(rows: pl.DataFrame, policy: Policy, funnel: Funnel, unit: str = "rows") -> pl.DataFrame:
    """Stage 15: shares a run of words with an evaluation, or is a run of one of its tasks."""
    listed = pl.col("task_id").is_in(policy.contamination.task_ids)
    reason = pl.when(pl.col("contaminated").is_not_null() | listed).then(pl.lit("contaminated"))
    detail = pl.coalesce("contaminated", pl.format("task {}", "task_id"))
    return funnel.sift(15, "contamination", rows, reason, detail, unit=unit)
