"""Which data file of a snapshot cannot be read: asked once a query failed, since looking costs reading them all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.lake_errors import LakeDamaged, LakeError
from trajlake.pipelines.lakehouse.object_places import first_line
from trajlake.pipelines.lakehouse.parquet_files import read_parquet
from trajlake.pipelines.lakehouse.snapshot import Snapshot


@contextmanager
def naming_damage(lake: Lake, snapshot: Snapshot) -> Iterator[None]:
    """Where the block fails over a file that is gone or damaged, raise `LakeDamaged`, which names it."""
    try:
        yield
    except LakeError:
        raise
    except Exception as error:
        if found := _unreadable(lake, snapshot):
            raise LakeDamaged(
                f"{found}; put the file back from a copy, or compact the landing into a new lake"
            ) from error
        raise


def _unreadable(lake: Lake, snapshot: Snapshot) -> str:
    for table in snapshot.tables:
        for file in lake.files(snapshot, table):
            try:
                read_parquet(file.path)
            except LakeError:
                raise
            except Exception as error:  # noqa: BLE001 - told as it is
                return f"snapshot {snapshot.number} names {file.path}, which cannot be read ({first_line(error)})"
    return ""
