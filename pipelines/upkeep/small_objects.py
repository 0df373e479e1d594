"""Maintenance of the content store: sources that stand alone, or in small packs, into packs that are large.

Every import leaves a source or a few, and a session that is imported while it grows leaves each of its ages: together
they take little more than the last. What events name stays as it is, because it is read one by one.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from trajlake.pipelines.forgetting.forget import BLOB, hits
from trajlake.pipelines.lakehouse.content_objects import blobs_of, rows_of
from trajlake.pipelines.lakehouse.content_store import object_of
from trajlake.pipelines.lakehouse.lake_errors import LakeDamaged
from trajlake.pipelines.lakehouse.packs import PACK_BYTES, moved
from trajlake.pipelines.lakehouse.run_draft import Draft
from trajlake.pipelines.lakehouse.table_files import read_columns, read_rows
from trajlake.schemas.tables import SNAPSHOT_TABLES

SMALL_BYTES: Final = PACK_BYTES // 2
"""An object that holds less than this is small: no two such are left, and a pack is not written twice for long."""
LEVEL: Final = 9
"""A tenth fewer bytes than at level 3, for four times the work."""


def pack_sources(draft: Draft) -> int:
    """Put the small objects of each tenant's sources together; return how many there were."""
    count = 0
    for tenant in sorted({file.partition["tenant"] for file in draft.files("imports")}):
        small = _small(draft, tenant)
        objects = small["object"].n_unique()
        if objects < 2:
            continue
        old = small.select(SNAPSHOT_TABLES["blobs"].column_names)
        new = rows_of(moved(draft.lake.url, blobs_of(old), draft.run, LEVEL))
        files = [file for file in draft.remaining("blobs") if hits(file, old, BLOB)]
        rest = read_rows(files, SNAPSHOT_TABLES["blobs"]).join(old, on=BLOB, how="anti")
        before, after = sum(file.rows for file in files), len(rest) + len(new)
        if before != after:
            raise LakeDamaged(f"{draft.lake.path('blobs')}: {before} rows before, {after} after packing; not committed")
        draft.remove("blobs", files)
        draft.write("blobs", pl.concat([rest, new]).sort(BLOB), "packed")
        count += objects
    return count


def _small(draft: Draft, tenant: str) -> pl.DataFrame:
    """Return the rows of sources in small objects, those of like names together: they are likely to be alike."""
    files = [file for file in draft.files("imports") if file.partition["tenant"] == tenant]
    imports = read_columns(files, SNAPSHOT_TABLES["imports"], ("tenant", "sha256", "name"))
    names = imports.group_by(BLOB).agg(pl.col("name").min())
    blobs = [[file] for file in draft.remaining("blobs") if file.partition["tenant"] == tenant]
    # A file at a time, because most blobs are none of these; and none, for the columns where there is no file.
    parts = [read_rows(some, SNAPSHOT_TABLES["blobs"]).join(names, on=BLOB, how="inner") for some in ([], *blobs)]
    found = pl.concat(parts)
    found = found.with_columns(pl.Series("object", [object_of(path) for path in found["path"]], dtype=pl.String))
    by_object = found.group_by("object").agg(pl.col("bytes").sum().alias("held"), pl.col("name").min().alias("first"))
    small = found.join(by_object.filter(pl.col("held") < SMALL_BYTES), on="object")
    return small.sort("first", "object", nulls_last=True)
