"""What `ingest` calls for imports into a lake, by name (entry point `lake_bulk`). Importing this loads no engine.

`objects` serves the helpers of a bulk import, which never load one; all else belongs to the process that writes.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trajlake.pipelines.lakehouse.content_store import ContentStore, StoredBlob, sync_objects
from trajlake.pipelines.lakehouse.packs import Packer
from trajlake.pipelines.lakehouse.places import resolved, store_errors
from trajlake.pipelines.lakehouse.snapshot import snapshot_numbers
from trajlake.schemas.envelope import Event

if TYPE_CHECKING:
    from trajlake.pipelines.bulk.bulk_rows import BulkWriter


_M_MMAP_THRESHOLD: Final = -3
LARGE_BYTES: Final = 4 * 1024 * 1024
"""Blocks from this size on leave no hole in the heap when they are freed; left alone, glibc raises it eightfold."""


class BulkPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What every process of a bulk import is told. `base` is the snapshot that the run builds on."""

    lake: str
    run: str
    base: int
    partition_by: tuple[str, ...]


class BulkKnown(msgspec.Struct, frozen=True, kw_only=True):
    """What of a tenant the lake knows: trajectories, blobs with an object, sources by hash."""

    trajectories: frozenset[str] = frozenset()
    blobs: frozenset[str] = frozenset()
    sources: frozenset[str] = frozenset()


class BulkObjects:
    """Blobs and sources that one process puts into the content store of a run."""

    def __init__(self, plan: BulkPlan) -> None:
        self._plan = plan
        self._store = ContentStore(plan.lake)
        self._packer = Packer(plan.lake, plan.run)
        self._stored: dict[tuple[str, str], StoredBlob] = {}

    def put(self, tenant: str, sha256: str, data: bytes) -> None:
        """Store a blob, once."""
        if (tenant, sha256) not in self._stored:
            self._stored[tenant, sha256] = self._store.put(tenant, sha256, data, self._plan.run)

    def put_source(self, tenant: str, sha256: str, data: bytes) -> None:
        """Store a source, once, with others."""
        if (tenant, sha256) not in self._stored:
            self._packer.put(tenant, sha256, data)

    def stored(self) -> list[StoredBlob]:
        """Return every object put here, durable."""
        found = [*self._stored.values(), *self._packer.close()]
        sync_objects(self._plan.lake, found)
        return found


def objects(plan: BulkPlan) -> BulkObjects:
    """Return where a process puts blobs and sources."""
    return BulkObjects(plan)


def begin(lake: str, tenant: str) -> tuple[BulkPlan, BulkKnown] | None:
    """Return the plan and what the lake knows of a tenant; None as `bulk_import.begin` and `known` say.

    Best asked of a process that ends with the answer: what the engines keep for making tables goes with it.
    """
    _load_modestly()
    from trajlake.pipelines.bulk import bulk_import

    plan = bulk_import.begin(lake)
    known = None if plan is None else bulk_import.known(plan, tenant)
    return None if plan is None or known is None else (plan, known)


def foresee(lake: str) -> None:
    """Load what `writer` needs while `begin` is asked, where its answer is known: a new lake refuses nothing.

    No process may be forked from then on.
    """
    if not snapshot_numbers(lake):
        _load_modestly()
        import trajlake.pipelines.bulk.bulk_rows  # noqa: F401


def writer(plan: BulkPlan) -> BulkWriter:
    """Return the writer of the plan's data files. Loads the engines."""
    _load_modestly()
    from trajlake.pipelines.bulk.bulk_rows import BulkWriter

    return BulkWriter(plan.lake, plan.run, plan.partition_by)


def _load_modestly() -> None:
    """Tell allocators and engines that are not loaded yet to give freed memory back at once, and to use one thread.

    The other cores have helpers, and each thread of an engine would keep memory of its own.
    """
    with suppress(OSError, AttributeError):  # of glibc alone
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    os.environ.setdefault("_RJEM_MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0")  # of Polars
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def commit(
    plan: BulkPlan, by: BulkWriter, stored: Sequence[StoredBlob], reports: Sequence[str]
) -> dict[str, Any] | None:
    """See `bulk_import.commit`."""
    from trajlake.pipelines.bulk import bulk_import

    return bulk_import.commit(plan, by, stored, reports)


def loss_reports(lake: str) -> list[str] | None:
    """See `bulk_import.loss_reports`."""
    from trajlake.pipelines.bulk import bulk_import

    with store_errors(lake):
        return bulk_import.loss_reports(lake)


def trajectories(lake: str) -> list[tuple[str, str]]:
    """See `bulk_import.trajectories`."""
    from trajlake.pipelines.bulk import bulk_import

    with store_errors(lake):
        return bulk_import.trajectories(lake)


def inbox(lake: str) -> AbstractContextManager[str]:
    """Give a folder of this host to an import into a lake in object storage; see `staging.inbox`."""
    from trajlake.pipelines.lakehouse.lake import Lake
    from trajlake.pipelines.lakehouse.staging import inbox

    return inbox(Lake(resolved(lake, "lake")))


def held_events(lake: str, tenant: str, trajectory_id: str, token: int) -> tuple[dict[int, bytes], Event | None]:
    """See `bulk_import.held_events`."""
    from trajlake.pipelines.bulk import bulk_import

    with store_errors(lake):
        return bulk_import.held_events(lake, tenant, trajectory_id, token)


def source_bytes(lake: str, tenant: str, sha256: str) -> bytes | None:
    """See `bulk_import.source_bytes`."""
    from trajlake.pipelines.bulk import bulk_import

    with store_errors(lake):
        return bulk_import.source_bytes(lake, tenant, sha256)
