"""Maintenance of the content store: sources that stand alone, or in small packs, into packs that are large.

Every import leaves a source or a few, and a session that is imported while it grows leaves each of its ages: together
they take little more than the last. What events name stays as it is, because it is read one by one.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from trajlake.pipelines.content_objects import blobs_of, rows_of
from trajlake.pipelines.content_store import object_of
from trajlake.pipelines.forget import BLOB
from trajlake.pipelines.packs import PACK_BYTES, moved
from trajlake.pipelines.run_draft import Draft
from trajlake.pipelines.table_files import read_columns, read_rows
from trajlake.schemas.tables import SNAPSHOT_TABLES

SMALL_BYTES: Final = PACK_BYTES // 2
"""An object that holds less than this is small: no two such are left, and a pack is not written twice for long."""
LEVEL: Final = 9
"""A tenth fewer bytes than at level 3, for four times the work."""


def pack_sources(draft: Draft) -> int:
    """Put the small objects of each tenant's sources together; return how many there were."""
    files = draft.remaining("blobs")
    count = 0
    for tenant in sorted({file.partition["tenant"] for file in files}):
        mine = [file for file in files if file.partition["tenant"] == tenant]
        rows = read_rows(mine, SNAPSHOT_TABLES["blobs"])
        small = _small(draft, rows, tenant)
        objects = small["object"].n_unique()
        if objects < 2:
            continue
        new = rows_of(moved(draft.lake.url, blobs_of(small.select(rows.columns)), draft.run, LEVEL))
        rest = rows.join(small, on=BLOB, how="anti")
        draft.remove("blobs", mine)
        draft.write("blobs", pl.concat([rest, new]).sort(BLOB), "packed")
        count += objects
    return count


def _small(draft: Draft, rows: pl.DataFrame, tenant: str) -> pl.DataFrame:
    """Return the rows of sources in small objects, those of like names together: they are likely to be alike."""
    files = [file for file in draft.files("imports") if file.partition["tenant"] == tenant]
    imports = read_columns(files, SNAPSHOT_TABLES["imports"], ("tenant", "sha256", "name"))
    names = imports.group_by(BLOB).agg(pl.col("name").min())
    found = rows.with_columns(pl.Series("object", [object_of(path) for path in rows["path"]], dtype=pl.String))
    found = found.join(names, on=BLOB, how="inner")
    by_object = found.group_by("object").agg(pl.col("bytes").sum().alias("held"), pl.col("name").min().alias("first"))
    small = found.join(by_object.filter(pl.col("held") < SMALL_BYTES), on="object")
    return small.sort("first", "object", nulls_last=True)
