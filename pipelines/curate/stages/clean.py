"""Stages 11 and 12: secrets and personal data. Dropped; or, where the policy opts in, redacted and said so."""

from __future__ import annotations

import polars as pl

from ..funnel import Funnel
from ..policy import Policy


def with_findings(rows: pl.DataFrame, findings: pl.DataFrame, lineage: pl.DataFrame) -> pl.DataFrame:
    """Add `secret_seqs` (events of the row with a finding), `secret_kinds` and `secret_elsewhere`.

    `findings` has tenant, trajectory_id, sequence_number, sha256, kind. `lineage` has, per branch, one row for each
    ancestor: tenant, trajectory_id, ancestor_tenant, ancestor_id, last (its last inherited event). A finding in a
    blob, or in an ancestor, is `secret_elsewhere`: nothing of the row's own events can be redacted for it.
    """
    rows = rows.with_row_index("_row")
    base = rows.select("_row", "tenant", "trajectory_id")
    own = rows.select("_row", "tenant", "trajectory_id", pl.col("item_seqs").alias("sequence_number")).explode(
        "sequence_number"
    )
    placed = findings.filter(pl.col("sequence_number").is_not_null())
    hits = own.join(placed, on=["tenant", "trajectory_id", "sequence_number"], how="inner")
    direct = hits.group_by("_row").agg(
        pl.col("sequence_number").unique().sort().alias("secret_seqs"),
        pl.col("kind").unique().sort().alias("own_kinds"),
    )
    stored = rows.select("_row", "tenant", pl.col("blobs").alias("sha256")).explode("sha256")
    in_blobs = stored.join(findings.filter(pl.col("sha256").is_not_null()), on=["tenant", "sha256"], how="inner")
    ancestors = {"tenant": "ancestor_tenant", "trajectory_id": "ancestor_id"}
    named = placed.select("tenant", "trajectory_id", "sequence_number", "kind").rename(ancestors)
    above = base.join(lineage, on=["tenant", "trajectory_id"], how="inner").join(
        named, on=["ancestor_tenant", "ancestor_id"], how="inner"
    ).filter(pl.col("sequence_number") <= pl.col("last"))  # fmt: skip
    far = pl.concat([in_blobs.select("_row", "kind"), above.select("_row", "kind")])
    elsewhere = far.group_by("_row").agg(pl.col("kind").unique().sort().alias("secret_elsewhere"))
    rows = rows.join(direct, on="_row", how="left", maintain_order="left")
    rows = rows.join(elsewhere, on="_row", how="left", maintain_order="left").drop("_row")
    kinds = pl.concat_list(pl.col("own_kinds").fill_null([]), pl.col("secret_elsewhere").fill_null([]))
    return rows.with_columns(kinds.list.unique().list.sort().alias("secret_kinds")).drop("own_kinds")


def without_secrets(rows: pl.DataFrame, policy: Policy, funnel: Funnel, unit: str = "rows") -> pl.DataFrame:
    """Stage 11. `redact` keeps a row whose findings all stand in messages that no model wrote; it is redacted and
    scanned again when it is written."""
    found = pl.col("secret_kinds").list.len() > 0
    spoken = pl.col("secret_seqs").fill_null([]).list.set_intersection(pl.col("reply_seqs")).list.len() > 0
    mendable = pl.lit(policy.secrets.action == "redact") & ~spoken & pl.col("secret_elsewhere").is_null()
    reason = pl.when(~pl.col("scanned")).then(pl.lit("unscanned")).when(found & ~mendable).then(pl.lit("secret"))
    return funnel.sift(11, "secrets", rows, reason, pl.col("secret_kinds").list.join(", "), unit=unit)


def without_pii(rows: pl.DataFrame, policy: Policy, funnel: Funnel) -> pl.DataFrame:
    """Stage 12."""
    if policy.pii.finder == "off":
        return rows
    lost = pl.col("pii").is_not_null() & pl.lit(policy.pii.action == "drop")
    return funnel.sift(12, "pii", rows, pl.when(lost).then(pl.lit("pii")), pl.col("pii"))
