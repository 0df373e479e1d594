"""The loader: every row once over all shards, the same order for the same seed, resumable at any row."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trajlake.pipelines.curate.loader import WINDOW_GROUPS, RowStream, as_torch
from trajlake.runtime.cli_errors import UserError


@pytest.fixture(scope="module")
def rows_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("loader") / "train.parquet"
    table = pa.table({"n": list(range(1003)), "text": [f"row {n}" for n in range(1003)]})
    with pq.ParquetWriter(path, table.schema) as writer:
        for first in range(0, 1003, 20):
            writer.write_table(table.slice(first, 20))
    return str(path)


def numbers(stream: RowStream) -> list[int]:
    return [row["n"] for row in stream.rows()]


def test_the_file_s_order_is_kept_without_a_seed(rows_file: str) -> None:
    assert numbers(RowStream(files=(rows_file,))) == list(range(1003))


@pytest.mark.parametrize(("world", "workers"), [(1, 1), (2, 1), (1, 3), (4, 2), (7, 9)])
@pytest.mark.parametrize("seed", [None, 5])
def test_shards_hold_every_row_once(rows_file: str, world: int, workers: int, seed: int | None) -> None:
    found: list[int] = []
    for rank in range(world):
        for worker in range(workers):
            stream = RowStream(files=(rows_file,), rank=rank, world=world, worker=worker, workers=workers, seed=seed)
            mine = numbers(stream)
            assert len(mine) == len(stream)
            found += mine
    assert sorted(found) == list(range(1003))


def test_a_seed_gives_one_order_and_an_epoch_another(rows_file: str) -> None:
    first = numbers(RowStream(files=(rows_file,), seed=1))
    assert first == numbers(RowStream(files=(rows_file,), seed=1))
    assert first != list(range(1003))
    assert first != numbers(RowStream(files=(rows_file,), seed=1, epoch=1))
    assert first != numbers(RowStream(files=(rows_file,), seed=2))


@pytest.mark.parametrize("start", [0, 1, 79, 80, 81, 500, 1002, 1003, 2000])
def test_it_resumes_at_any_row(rows_file: str, start: int) -> None:
    whole = numbers(RowStream(files=(rows_file,), seed=3))
    assert numbers(RowStream(files=(rows_file,), seed=3, start=start)) == whole[start:]


@pytest.mark.parametrize(("world", "workers"), [(2, 3), (7, 9)])
@pytest.mark.parametrize("seed", [None, 5])
def test_every_shard_resumes_at_its_own_row(rows_file: str, world: int, workers: int, seed: int | None) -> None:
    for rank, worker in [(0, 0), (world - 1, 0), (1, workers - 1)]:
        shard: dict[str, Any] = {"rank": rank, "world": world, "worker": worker, "workers": workers, "seed": seed}
        whole = numbers(RowStream(files=(rows_file,), **shard))
        for start in (1, len(whole) // 2, len(whole) - 1, len(whole)):
            assert numbers(RowStream(files=(rows_file,), start=start, **shard)) == whole[start:]


@pytest.mark.parametrize("seed", [None, 5])
def test_it_goes_on_after_any_batch(rows_file: str, seed: int | None) -> None:
    stream = RowStream(files=(rows_file,), seed=seed, batch_rows=7, rank=1, world=3, start=11)
    whole = list(stream)
    for done in (0, 1, 11, 12, len(whole) - 1, len(whole), len(whole) + 5):
        assert list(stream.after(done)) == whole[done:]


def test_as_a_torch_dataset_each_worker_of_each_rank_gives_its_own_rows(
    rows_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # torch (2 GB with what it brings) is not part of the tests' packages: what `as_torch` calls of it stands in.
    workers: list[SimpleNamespace | None] = [None]
    data = ModuleType("torch.utils.data")
    data.__dict__.update(IterableDataset=object, get_worker_info=lambda: workers[0])
    utils, torch = ModuleType("torch.utils"), ModuleType("torch")
    utils.__dict__.update(data=data)
    torch.__dict__.update(utils=utils)
    for module in (torch, utils, data):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    found: list[int] = []
    for rank in range(2):
        dataset = as_torch(RowStream(files=(rows_file,), rank=rank, world=2, seed=5))
        for worker in range(3):
            workers[0] = SimpleNamespace(id=worker, num_workers=3)
            found += [n for batch in dataset for n in batch.column("n").to_pylist()]
    assert sorted(found) == list(range(1003))
    workers[0] = None
    alone = as_torch(RowStream(files=(rows_file,), rank=1, world=2, seed=5, start=400))
    rest = [n for batch in alone for n in batch.column("n").to_pylist()]
    assert rest == numbers(RowStream(files=(rows_file,), rank=1, world=2, seed=5))[400:]

    def in_turn(done: int) -> list[pa.RecordBatch]:
        """What a DataLoader with three workers gives: a batch of each in turn, past those that have no more."""
        parts = []
        for worker in range(3):
            workers[0] = SimpleNamespace(id=worker, num_workers=3)
            parts.append(iter(list(as_torch(RowStream(files=(rows_file,), seed=5, batch_rows=30), done))))
        missing = object()
        turns = ([next(part, missing) for part in parts] for _ in range(100))
        return [batch for turn in turns for batch in turn if batch is not missing]

    whole = in_turn(0)
    assert len(whole) > 3
    for done in range(len(whole) + 2):
        assert in_turn(done) == whole[done:]


def test_only_a_window_of_row_groups_is_in_memory(rows_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    read = RowStream._read

    def watched(self: RowStream, window: object, number: int) -> pa.Table:
        table = read(self, window, number)  # type: ignore[arg-type]
        seen.append(len(table))
        return table

    monkeypatch.setattr(RowStream, "_read", watched)
    next(iter(RowStream(files=(rows_file,), seed=3)))
    assert seen == [WINDOW_GROUPS * 20]


def test_columns_are_read_as_asked_for_and_batches_are_bounded(rows_file: str) -> None:
    batches = list(RowStream(files=(rows_file,), columns=("n",), batch_rows=7))
    assert {batch.num_columns for batch in batches} == {1}
    assert max(len(batch) for batch in batches) == 7


def test_a_shard_that_cannot_be_is_refused(rows_file: str) -> None:
    with pytest.raises(UserError, match="rank < world"):
        RowStream(files=(rows_file,), rank=2, world=2)


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed here")
def test_without_torch_the_wrapper_says_what_to_do(rows_file: str) -> None:
    with pytest.raises(UserError, match="torch is not installed"):
        as_torch(RowStream(files=(rows_file,)))


torch_only = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed here")


@torch_only
@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_a_torch_dataset_gives_every_row_once(rows_file: str, how: str) -> None:
    import torch.utils.data as data

    dataset = as_torch(RowStream(files=(rows_file,), seed=5))
    loader = data.DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context=how)
    assert sorted(n for batch in loader for n in batch.column("n").to_pylist()) == list(range(1003))


@torch_only
@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_goes_on_after_any_batch(rows_file: str, workers: int) -> None:
    import torch.utils.data as data

    def given(done: int) -> list[list[int]]:
        dataset = as_torch(RowStream(files=(rows_file,), seed=5, batch_rows=30), done)
        loader = data.DataLoader(dataset, batch_size=None, num_workers=workers)
        return [batch.column("n").to_pylist() for batch in loader]

    whole = given(0)
    for done in (1, 2, 7, len(whole) - 1, len(whole)):
        assert given(done) == whole[done:]
