"""Which blobs the payloads of rows name."""

from __future__ import annotations

import polars as pl

from trajlake.schemas.blobs import blob_hashes


def blobs_named(rows: pl.DataFrame) -> list[tuple[str, str]]:
    """Return (tenant, sha256) of every blob that the payloads name, sorted."""
    suspects = rows.filter(
        pl.col("payload").str.contains('"$blob"', literal=True)
        | pl.col("payload").str.contains('"changes"', literal=True)
    ).select("tenant", "event_type", "payload")
    named = {
        (tenant, digest)
        for tenant, kind, payload in suspects.iter_rows()
        for digest in blob_hashes(kind, payload.encode())
    }
    return sorted(named)
