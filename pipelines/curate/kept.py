"""Candidate rows kept from night to night: `<lake>/_trajlake/curate/<key>/part-*.parquet`.

A trajectory is read again when its head has changed; nothing else reads events. What is kept is a copy of payloads,
so it goes when they are erased: `forget` is part of an erasure, and every run begins with `drop_erased`.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import polars as pl

from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.parquet_files import read_parquet, scan_parquet
from trajlake.pipelines.lakehouse.places import (
    entries,
    make_directory,
    put_replacing,
    read,
    remove,
    remove_tree,
    size,
    walk,
)  # fmt: skip
from trajlake.pipelines.lakehouse.snapshot import STATE_DIRECTORY, Snapshot
from trajlake.pipelines.lakehouse.staging import staging_folder

from .extract import ExtractKey
from .tasks import ExtractPlan, plan_tasks, write_plan
from .worker import run_task, write_rows

FOLDER: Final = "curate"
SMALL_BYTES: Final = 32 * 1024 * 1024
SMALL_PARTS_MAX: Final = 24
"""Parts smaller than `SMALL_BYTES` are merged once there are more than this many."""

HEAVY: Final = ("messages", "tools", "context_hashes", "token_ids", "logprobs")
"""Columns that only writing reads."""
KEY: Final = ["tenant", "trajectory_id", "head_hash"]
ROW_KEY: Final = (*KEY, "row_key", "segment_no")

Run = Callable[[str, int], None]
"""Runs the tasks of the plan at a path; the number is how many there are."""


class Kept:
    """The kept rows of one lake under one key. One process at a time should add to it; readers need nothing."""

    def __init__(self, lake: Lake, key: ExtractKey) -> None:
        self.lake = lake
        self.key = key
        self.folder = lake.path(STATE_DIRECTORY, FOLDER, key.name())

    def parts(self) -> list[str]:
        """Return the paths of all parts, by name."""
        return [os.path.join(self.folder, name) for name in entries(self.folder) if name.endswith(".parquet")]

    def heads(self) -> pl.DataFrame:
        """Return the trajectories that are kept, each with the head it was read at."""
        found = [read_parquet(path, KEY).unique() for path in self.parts()]
        return pl.concat(found).unique() if found else pl.DataFrame(schema=dict.fromkeys(KEY, pl.String))

    def bring(
        self, snapshot: Snapshot, wanted: pl.DataFrame, evaluations: dict[str, bytes], run: Run | None = None
    ) -> int:
        """Extract what of `wanted` (tenant, trajectory_id, head_hash) is not kept yet; return how many trajectories."""
        absent = wanted.select(KEY).join(self.heads(), on=KEY, how="anti", maintain_order="left")
        if not len(absent):
            return 0
        make_directory(self.folder)
        staging = tempfile.mkdtemp(prefix="curate-", dir=staging_folder(self.lake))
        try:
            path = os.path.join(staging, "wanted.arrow")
            absent.write_ipc(path)
            plan = ExtractPlan(
                lake=self.lake.url,
                snapshot=snapshot.number,
                folder=staging,
                kept=self.folder,
                wanted=path,
                key=self.key,
                evaluations=evaluations,
                pin=getattr(self.lake, "pin_name", ""),
                tasks=plan_tasks(self.lake.files(snapshot, "events"), absent),
            )
            (run or run_here)(write_plan(plan), len(plan.tasks))
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        self._merge_small()
        return len(absent)

    def features(self, wanted: pl.DataFrame, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Return every light column, or the keys and those named, of the rows of `wanted`, by row key and segment."""
        return self._rows(wanted, None, None if columns is None else (*ROW_KEY, *columns))

    def rows(self, wanted: pl.DataFrame, low: str, high: str) -> pl.DataFrame:
        """Return the heavy columns of the rows of `wanted` whose row key is in [low, high), by row key and segment."""
        return self._rows(wanted, (low, high), (*ROW_KEY, *HEAVY))

    def _rows(
        self, wanted: pl.DataFrame, keys: tuple[str, str] | None, columns: tuple[str, ...] | None
    ) -> pl.DataFrame:
        parts = []
        heads = wanted.select(KEY).unique()
        for path in self.parts():
            scan = scan_parquet(path)
            scan = scan.drop(HEAVY) if columns is None else scan.select(columns)
            if keys is not None:
                scan = scan.filter((pl.col("row_key") >= keys[0]) & (pl.col("row_key") < keys[1]))
            rows = scan.collect()
            if len(rows):
                parts.append(rows.join(heads, on=KEY, how="semi"))
        if not parts:
            from .extract import empty_rows

            rows = empty_rows()
            return rows.drop(HEAVY) if columns is None else rows.select(columns)
        whole = pl.concat(parts, rechunk=False).unique(["tenant", "trajectory_id", "segment_no"], keep="any")
        return whole.sort("row_key", "tenant", "trajectory_id", "segment_no")

    def _merge_small(self) -> None:
        small = [path for path in self.parts() if size(path) < SMALL_BYTES]
        if len(small) <= SMALL_PARTS_MAX:
            return
        rows = pl.concat([read_parquet(path) for path in small]).unique([*KEY, "segment_no"], keep="any")
        write_rows(
            rows.sort("row_key", "segment_no"),
            os.path.join(self.folder, f"part-0-merged-{secrets.token_hex(4)}.parquet"),
        )
        for path in small:
            remove(path)


def run_here(plan_path: str, count: int) -> None:
    """Run every task in this process."""
    for number in range(count):
        run_task(plan_path, number)


def pool_of(workers: int) -> Run:
    """Return a runner of tasks in `workers` processes, of which this one is one."""

    def run(plan_path: str, count: int) -> None:
        if workers <= 1 or count <= 1:
            run_here(plan_path, count)
            return
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        # Spawned: a forked child would inherit locks that Polars' threads hold.
        context = multiprocessing.get_context("spawn")
        threads, os.environ["POLARS_MAX_THREADS"] = os.environ.get("POLARS_MAX_THREADS"), "1"
        try:
            with ProcessPoolExecutor(min(workers, count) - 1, mp_context=context) as pool:
                begun = [pool.submit(run_task, plan_path, number) for number in range(count)]
                # From the end, what no child has taken yet.
                for number in reversed(range(count)):
                    if begun[number].cancel():
                        run_task(plan_path, number)
                for task in begun:
                    if not task.cancelled():
                        task.result()
        finally:
            if threads is None:
                del os.environ["POLARS_MAX_THREADS"]
            else:
                os.environ["POLARS_MAX_THREADS"] = threads

    return run


def forget(lake: Lake) -> int:
    """Remove everything that curation keeps of a lake; return the bytes freed. The next run reads events again."""
    folder = lake.path(STATE_DIRECTORY, FOLDER)
    freed = sum(size(f"{folder}/{below}") for below in walk(folder))
    remove_tree(folder)
    return freed


def drop_erased(lake: Lake, snapshot: Snapshot) -> bool:
    """Forget everything kept when the lake's erasure epoch has risen since it was; return whether that happened."""
    mark = lake.path(STATE_DIRECTORY, FOLDER, "epoch.json")
    try:
        known = msgspec.json.decode(read(mark), type=int)
    except (FileNotFoundError, msgspec.DecodeError):
        known = -1
    if known == snapshot.erasure_epoch:
        return False
    forget(lake)
    make_directory(os.path.dirname(mark))
    put_replacing(mark, msgspec.json.encode(snapshot.erasure_epoch))
    return known >= 0
