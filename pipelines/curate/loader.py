"""Rows of a set as Arrow batches: sharded by rank and worker, seeded, resumable at a row, in bounded memory.

`RowStream` is a plain iterable; `as_torch` wraps it as a PyTorch `IterableDataset`, where torch is installed. Memory is
a window of row groups, whatever the size of the set. Same arguments, same rows in the same order, on any machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trajlake.pipelines.lake import Lake
from trajlake.pipelines.lake_errors import LakeError
from trajlake.runtime.cli_errors import EXIT_COULD_NOT_RUN, UserError

WINDOW_GROUPS: Final = 4
"""Row groups that are in memory, and among which rows are shuffled."""


@dataclass(frozen=True, slots=True)
class _Group:
    path: str
    index: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowStream:
    """Batches of the rows of `files` (Parquet). Iterating again gives the same rows; `start` skips rows of this shard.

    `rank` of `world` processes and `worker` of `workers` loaders share the rows without overlap and without gap.
    `seed` None keeps the file's order; `epoch` gives another shuffle of the same seed.
    """

    files: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    batch_rows: int = 64
    rank: int = 0
    world: int = 1
    worker: int = 0
    workers: int = 1
    seed: int | None = None
    epoch: int = 0
    start: int = 0

    def __post_init__(self) -> None:
        if not (
            0 <= self.rank < self.world and 0 <= self.worker < self.workers and self.batch_rows > 0 and self.start >= 0
        ):
            raise UserError("loader: rank < world, worker < workers, batch_rows > 0 and start >= 0 must hold")

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        skip = self.start
        for number, window in enumerate(self._windows()):
            rows = sum(group.rows for group in window)
            rows = len(range(self._offset(), rows, self._stride())) if self._by_rows() else rows
            if skip >= rows:
                skip -= rows
                continue
            table = self._read(window, number)
            yield from table.slice(skip).combine_chunks().to_batches(max_chunksize=self.batch_rows)
            skip = 0

    def __len__(self) -> int:
        """Return the rows of this shard, before `start`."""
        total = 0
        for window in self._windows():
            rows = sum(group.rows for group in window)
            total += len(range(self._offset(), rows, self._stride())) if self._by_rows() else rows
        return total

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield rows one by one."""
        for batch in self:
            yield from batch.to_pylist()

    def _shard(self) -> tuple[int, int]:
        return self.rank * self.workers + self.worker, self.world * self.workers

    def _groups(self) -> list[_Group]:
        return list(_groups_of(self.files))

    def _by_rows(self) -> bool:
        """Whether shards share row groups, each taking every n-th row: where there are too few groups to share out."""
        return len(self._groups()) < 4 * self._shard()[1] and self._shard()[1] > 1

    def _offset(self) -> int:
        return self._shard()[0] if self._by_rows() else 0

    def _stride(self) -> int:
        return self._shard()[1] if self._by_rows() else 1

    def _windows(self) -> Iterator[list[_Group]]:
        groups = self._groups()
        if self.seed is not None:
            groups = [groups[place] for place in self._random(0).permutation(len(groups))]
        if not self._by_rows():
            index, count = self._shard()
            groups = groups[index::count]
        for first in range(0, len(groups), WINDOW_GROUPS):
            yield groups[first : first + WINDOW_GROUPS]

    def _read(self, window: Sequence[_Group], number: int) -> pa.Table:
        columns = None if self.columns is None else list(self.columns)
        parts = [pq.ParquetFile(group.path).read_row_group(group.index, columns=columns) for group in window]
        table = pa.concat_tables(parts)
        if self.seed is not None:
            table = table.take(pa.array(self._random(number + 1).permutation(len(table))))
        if self._by_rows():
            table = table.take(pa.array(np.arange(self._offset(), len(table), self._stride())))
        return table

    def _random(self, number: int) -> np.random.Generator:
        # Every shard draws the same order of groups; a window's own draw differs with its number alone.
        shard = 0 if number == 0 or self._by_rows() else self._shard()[0] + 1
        return np.random.default_rng([self.seed or 0, self.epoch, number, shard])


@lru_cache(maxsize=64)
def _groups_of(files: tuple[str, ...]) -> tuple[_Group, ...]:
    found = []
    for path in files:
        metadata = pq.read_metadata(path)
        found += [_Group(path, n, metadata.row_group(n).num_rows) for n in range(metadata.num_row_groups)]
    return tuple(found)


def open_set(folder: str, split: str = "train", table: str = "rows", **options: Any) -> RowStream:
    """Return the stream over one split of a set's table (`rows`, or the folder of a Parquet family)."""
    path = os.path.join(folder, table, f"{split}.parquet")
    if not os.path.exists(path):
        raise UserError(f"{path}: no such file; the set has no {split} split of {table}")
    return RowStream(files=(path,), **options)


def open_pin(lake: str, name: str, split: str = "train", table: str = "rows", **options: Any) -> RowStream:
    """Return the stream over the set that a pin keeps, after its manifest was found unchanged where it was written."""
    import hashlib

    from trajlake.pipelines.parquet_files import read_parquet

    opened = Lake.open(lake)
    for file in opened.ledger_files("exports"):
        rows = read_parquet(file, ["export_id", "manifest_sha256", "path"])
        for export, digest, path in rows.iter_rows():
            manifest = os.path.join(path or "", "manifest.json")
            if export != name or not os.path.exists(manifest):
                continue
            with open(manifest, "rb") as text:
                if hashlib.file_digest(text, "sha256").hexdigest() == digest:
                    return open_set(path, split, table, **options)
    raise LakeError(f"pin {name}: no set of that pin stands where it was written; rebuild it: trajlake curate rebuild")


def as_torch(stream: RowStream) -> Any:
    """Return a PyTorch `IterableDataset` of Arrow batches; its workers share the stream's shard among them."""
    try:
        import torch.utils.data as data
    except ImportError:
        raise UserError(
            "as_torch: torch is not installed; iterate the RowStream itself", exit_code=EXIT_COULD_NOT_RUN
        ) from None

    class Rows(data.IterableDataset):  # type: ignore[misc, unused-ignore]
        """One epoch of the stream; in a DataLoader use batch_size=None."""

        def __iter__(self) -> Iterator[pa.RecordBatch]:
            info = data.get_worker_info()
            mine = stream if info is None else replace(stream, worker=info.id, workers=info.num_workers)
            return iter(mine)

    return Rows()
