"""One task of extraction: slices of `events` in, one Parquet file of candidate rows out. A process needs only paths."""

from __future__ import annotations

import gc
import os
import secrets
from functools import cached_property
from typing import Any, Final

import polars as pl

from trajlake.pipelines.lakehouse.content_store import ContentStore
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.lake_errors import LakeMissing
from trajlake.pipelines.lakehouse.parquet_files import write_parquet
from trajlake.pipelines.lakehouse.places import is_remote
from trajlake.pipelines.lakehouse.snapshot import Snapshot
from trajlake.pipelines.lakehouse.table_files import may_hold, read_rows
from trajlake.schemas.tables import EVENTS

from .extract import CHAIN_COLUMNS, EVENT_COLUMNS, Inputs, extract
from .items import KINDS_READ
from .pinned import open_at
from .tasks import ExtractPlan, read_plan, read_slices, read_table

ROW_GROUP_ROWS: Final = 512
"""Rows that are read together: a range of keys is read without the rest of the file."""


def run_task(plan_path: str, number: int) -> str:
    """Extract task `number` and return the path of its rows. May run twice: the later file replaces nothing."""
    plan = read_plan(plan_path)
    wanted = pl.read_ipc(plan.wanted)
    columns = [*EVENT_COLUMNS, *(CHAIN_COLUMNS if plan.key.verify_chain else ())]
    events = read_slices(plan.tasks[number], columns)
    source = _Source(plan)
    heads = {row[:2]: row[2] for row in wanted.select("tenant", "trajectory_id", "head_hash").iter_rows()}
    # Nothing here makes cycles, and the collector would walk a task's hundred thousand objects again and again.
    gc.disable()
    try:
        rows = extract(events, plan.key, Inputs(plan.evaluations, source.fetch, source.ancestors, heads))
    finally:
        gc.enable()
    name = f"part-{plan.snapshot}-{number:05d}-{secrets.token_hex(4)}.parquet"
    path = os.path.join(plan.kept, name)
    write_rows(rows, path)
    return path


def write_rows(rows: pl.DataFrame, path: str) -> None:
    """Write candidate rows under `path`, whole or not at all."""
    if is_remote(path):
        write_parquet(rows, path, level=1, row_group_rows=ROW_GROUP_ROWS)
        return
    temporary = f"{path}.tmp"
    write_parquet(rows, temporary, level=1, row_group_rows=ROW_GROUP_ROWS)
    os.replace(temporary, path)


class _Source:
    """Blobs and ancestors of a snapshot, looked up when a trajectory needs them."""

    def __init__(self, plan: ExtractPlan) -> None:
        self._plan = plan
        self._store = ContentStore(plan.lake)
        self._paths: dict[tuple[str, str], str] | None = None
        self._branches: dict[tuple[str, str], tuple[str, str, int]] | None = None

    @cached_property
    def _opened(self) -> tuple[Lake, Snapshot]:
        return open_at(self._plan.lake, self._plan.snapshot, self._plan.pin)

    def fetch(self, tenant: str, digest: str) -> bytes:
        if self._paths is None:
            blobs = read_table(*self._opened, "blobs", ["tenant", "sha256", "path"])
            self._paths = {row[:2]: row[2] for row in blobs.iter_rows()}
        path = self._paths.get((tenant, digest))
        if path is None:
            raise LakeMissing(f"blob {digest} of tenant {tenant}: no row in blobs")
        return self._store.get(tenant, digest, path)

    def ancestors(self, tenant: str, trajectory_id: str) -> list[tuple[int, list[tuple[int, str, str]]]]:
        """Return (levels up, its inherited events) of every ancestor, the oldest first."""
        if self._branches is None:
            names = ["branch_of_tenant", "branch_of_trajectory_id", "branch_of_sequence"]
            rows = read_table(*self._opened, "trajectories", ["tenant", "trajectory_id", *names])
            rows = rows.filter(pl.col("branch_of_trajectory_id").is_not_null())
            self._branches = {row[:2]: row[2:] for row in rows.iter_rows()}
        found: list[tuple[int, list[tuple[int, str, str]]]] = []
        at = self._branches.get((tenant, trajectory_id))
        up = 0
        while at is not None:
            up += 1
            found.append((up, self._inherited(*at)))
            at = self._branches.get(at[:2])
        return found[::-1]

    def _inherited(self, tenant: str, trajectory_id: str, last: int) -> list[tuple[int, str, str]]:
        among = pl.DataFrame({"tenant": [tenant], "trajectory_id": [trajectory_id]})
        lake, snapshot = self._opened
        files = may_hold(lake.files(snapshot, "events"), among)
        rows = read_rows(files, EVENTS, among).sort("sequence_number").filter(pl.col("sequence_number") <= last)
        listed: list[tuple[int, str, str]] = [
            row for row in rows.select("sequence_number", "event_type", "payload").iter_rows() if row[2] is not None
        ]
        gone = _given_up_of(listed)
        return [row for row in listed if row[0] not in gone and row[1] in KINDS_READ]


def _given_up_of(rows: list[tuple[int, str, str]]) -> frozenset[int]:
    from .extract import given_up_numbers

    return given_up_numbers([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])


__all__: list[Any] = ["ROW_GROUP_ROWS", "run_task", "write_rows"]
