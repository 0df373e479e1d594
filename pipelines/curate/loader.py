"""Rows of a set as Arrow batches: sharded by rank and worker, seeded, resumable at a row, in bounded memory.

`RowStream` is a plain iterable; `as_torch` wraps it as a PyTorch `IterableDataset`, where torch is installed. Memory is
a window of row groups, whatever the size of the set. Same arguments, same rows in the same order, on any machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.lake_errors import LakeError
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
        for number, (window, rows) in enumerate(self._windows()):
            if skip < rows:
                table = self._read(window, number)
                yield from table.slice(skip).combine_chunks().to_batches(max_chunksize=self.batch_rows)
            skip = max(0, skip - rows)

    def __len__(self) -> int:
        """Return the rows of this shard, before `start`."""
        return sum(rows for _, rows in self._windows())

    def after(self, batches: int) -> RowStream:
        """Return the stream that goes on after `batches` of this one's batches. Reads no row."""
        return replace(self, start=self.start + sum(islice(self._batch_sizes(), batches)))

    def _batch_sizes(self) -> Iterator[int]:
        skip = self.start
        for _, rows in self._windows():
            for first in range(skip, rows, self.batch_rows):
                yield min(self.batch_rows, rows - first)
            skip = max(0, skip - rows)

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

    def _windows(self) -> Iterator[tuple[list[_Group], int]]:
        """Yield row groups that are read together, and how many of their rows are this shard's."""
        groups = self._groups()
        if self.seed is not None:
            groups = [groups[place] for place in self._random(0).permutation(len(groups))]
        if not self._by_rows():
            index, count = self._shard()
            groups = groups[index::count]
        for first in range(0, len(groups), WINDOW_GROUPS):
            window = groups[first : first + WINDOW_GROUPS]
            yield window, len(range(self._offset(), sum(group.rows for group in window), self._stride()))

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

    from trajlake.pipelines.lakehouse.parquet_files import read_parquet

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


def as_torch(stream: RowStream, done: int = 0) -> Any:
    """Return a PyTorch `IterableDataset` of Arrow batches; its workers share the stream's shard among them.

    Use it with `batch_size=None`. `done`: a `DataLoader` with as many workers has given so many batches already; this
    one goes on after them, in the same order.
    """
    try:
        import torch.utils.data as data
    except ImportError:
        raise UserError(
            "as_torch: torch is not installed; iterate the RowStream itself", exit_code=EXIT_COULD_NOT_RUN
        ) from None

    class Rows(data.IterableDataset):  # type: ignore[misc, unused-ignore]
        def __iter__(self) -> Iterator[pa.RecordBatch]:
            info = data.get_worker_info()
            if info is None:
                return iter(stream.after(done))
            shares = [replace(stream, worker=n, workers=info.num_workers) for n in range(info.num_workers)]
            given, turn = _given(shares, done)
            mine = (info.id + turn) % len(shares)
            return iter(shares[mine].after(given[mine]))

        def __reduce__(self) -> tuple[Any, ...]:
            # A class in a function has no name that a spawned worker could find.
            return as_torch, (stream, done)

    return Rows()


def _given(shares: Sequence[RowStream], done: int) -> tuple[list[int], int]:
    """Return how many of the first `done` batches came from each share, and whose turn it is after them: a loader takes
    one of each in turn, past those that have no more."""
    left = [sum(1 for _ in share._batch_sizes()) for share in shares]
    given = [0] * len(shares)
    turn = 0
    while done and any(left):
        if left[turn]:
            given[turn] += 1
            left[turn] -= 1
            done -= 1
        turn = (turn + 1) % len(shares)
    return given, turn
