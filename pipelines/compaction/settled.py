"""`--settle-after`: only trajectories that ended long enough ago are taken; the rest stays in landing."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from trajlake.pipelines.compaction.run_plan import Plan
from trajlake.pipelines.derived.canonicalize import KEY


def leave_unsettled(plan: Plan, rows: pl.DataFrame, paths: Sequence[str]) -> tuple[pl.DataFrame, set[str]]:
    """Return the rows of settled trajectories, and the names of the segments that hold any other.

    Settled: its end was recorded before `plan.settled_before`. Imports and judgements count as ended, since their
    sources may never record an end; their last event must be old enough.
    """
    del paths
    if plan.settled_before is None or not len(rows):
        return rows, set()
    limit = pl.lit(plan.settled_before).cast(pl.Datetime("us", "UTC"))
    ended = (pl.col("event_type") == "TaskEnded") & (pl.col("recorded_at") < limit)
    other = pl.col("payload").str.contains(r'"origin":"(imported|judgement)"')
    not_live = (pl.col("event_type") == "TaskStarted") & other
    settled = rows.group_by(KEY).agg(
        (ended.any() | (not_live.any() & (pl.col("recorded_at").max() < limit))).alias("settled")
    )
    marked = rows.join(settled, on=KEY, how="left", maintain_order="left")
    left = marked.filter(~pl.col("settled")).select("writer", "lsn")
    return marked.filter("settled").drop("settled"), _segments_of(plan, left)


def _segments_of(plan: Plan, rows: pl.DataFrame) -> set[str]:
    names = set()
    for (writer,), part in rows.partition_by("writer", as_dict=True).items():
        lsns = part["lsn"]
        for segment in plan.segments:
            if segment.writer == writer and lsns.is_between(segment.first, segment.last).any():
                names.add(segment.name)
    return names
