"""Derived tables rebuilt from `events` are the same to the type; a lake of an older version is read and written."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema

from tests.golden import lake_files
from tests.pipelines.forgetting import A, a_lake, person
from tests.pipelines.lakes import everything, rows
from tests.pipelines.segments import Story, interleaved, land
from trajlake.pipelines.compaction.compact import compact
from trajlake.pipelines.connect import connect
from trajlake.pipelines.lakehouse import arrow_schema as arrow
from trajlake.pipelines.lakehouse.content_store import ContentStore
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.run_report import CompactOptions
from trajlake.pipelines.upkeep.maintain import MaintainOptions, maintain
from trajlake.schemas.tables import SNAPSHOT_TABLES
from trajlake.schemas.tables import TRAJECTORIES as NOW


def types_of(lake: Path) -> dict[str, set[str]]:
    """Return the physical schema of every table's files."""
    opened = Lake.open(lake)
    return {
        table: {
            str(pq.read_metadata(file.path).schema).split("\n", 1)[1] for file in opened.files(opened.newest(), table)
        }
        for table in SNAPSHOT_TABLES
    }


def test_derived_tables_rebuilt_from_events_have_the_same_rows_and_physical_types(tmp_path: Path) -> None:
    first = [Story(f"t{n}", tenant=f"x{n % 2}").start().say("a", 9) for n in range(4)]
    second = [story.takeover(4 + n, 2).say("b", 4).end() for n, story in enumerate(first)]
    early = interleaved(first, random.Random(1))
    late = [item for story in second for item in story.landed[5:]]
    about = person(tmp_path / "landing", "p", "ada", "ada", "both")
    for number, (writer, items) in enumerate(((A, early), (b"b" * 16, late), (b"c" * 16, about.landed))):
        land(tmp_path / "landing", writer, 0, items)
        for name, derive in (("step by step", True), ("later", False)):
            options = CompactOptions(derive=derive)
            compact(str(tmp_path / "landing"), str(tmp_path / name), options)
        assert Lake.open(tmp_path / "later").newest().number == number + 1
    compact(str(tmp_path / "landing"), str(tmp_path / "later"))
    assert Lake.open(tmp_path / "later").newest().stale == ()
    assert everything(tmp_path / "later") == everything(tmp_path / "step by step")
    assert types_of(tmp_path / "later") == types_of(tmp_path / "step by step")
    for found in types_of(tmp_path / "later").values():
        assert len(found) <= 1


@pytest.fixture
def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lake as a version wrote it that had no `payloads_expired` and no `blobs_expired`."""
    columns = tuple(column for column in NOW.columns if column.name not in ("payloads_expired", "blobs_expired"))
    with monkeypatch.context() as before:
        before.setitem(SNAPSHOT_TABLES, "trajectories", NOW._replace(columns=columns))
        from trajlake.pipelines.derived import carry_over

        before.setattr(carry_over, "NOTED", ("erasure_epoch",))
        a_lake(tmp_path)
    return tmp_path


def columns_of(lake: Path) -> list[str]:
    return [field.name for field in DeltaTable(str(lake / "trajectories")).schema().fields]


def test_a_new_nullable_column_comes_with_the_next_run_and_old_files_read_as_null(older: Path) -> None:
    lake = older / "lake"
    assert "payloads_expired" not in columns_of(lake)
    before = rows(lake, "trajectories")
    assert set(before["payloads_expired"]) == {None}
    land(older / "landing", b"c" * 16, 0, person(older / "landing", "new", "eve").landed)
    compact(str(older / "landing"), str(lake))
    assert columns_of(lake)[-2:] == ["payloads_expired", "blobs_expired"]
    assert Schema.from_arrow(arrow.arrow_schema(NOW)) == DeltaTable(str(lake / "trajectories")).schema()
    after = rows(lake, "trajectories")
    assert after.filter(pl.col("trajectory_id") != "new").to_dicts() == before.to_dicts()
    opened = Lake.open(lake)
    assert rows(lake, "trajectories", opened.snapshot_numbers()[-2]).to_dicts() == before.to_dicts()


def test_sql_reads_files_from_before_and_after_a_new_column_together(older: Path) -> None:
    lake = older / "lake"
    question = "select count(*), count(payloads_expired) from trajectories"
    assert connect(str(lake)).execute(question).fetchone() == (4, 0)
    land(older / "landing", b"c" * 16, 0, person(older / "landing", "new", "eve").landed)
    compact(str(older / "landing"), str(lake))
    assert connect(str(lake)).execute(question).fetchone() == (5, 0)
    maintain(str(lake), MaintainOptions(kept_days=0))
    assert connect(str(lake)).execute(question).fetchone() == (5, 0)


@pytest.mark.parametrize("version", lake_files.VERSIONS)
def test_a_golden_lake_reads_as_it_did_when_it_was_written(tmp_path: Path, version: int) -> None:
    lake = lake_files.unpack(version, tmp_path / "lake")
    wanted: dict[str, list[dict[str, Any]]] = json.loads(lake_files.rows_of(version).read_text())
    found = everything(lake)
    for table, before in wanted.items():
        names = set(before[0]) if before else set()
        assert lake_files.plain([{k: v for k, v in row.items() if k in names} for row in found[table]]) == before, table
        new = {k for row in found[table] for k, v in row.items() if k not in names and v is not None}
        assert new == set() or not before, (table, new)
    store = ContentStore(str(lake))
    for tenant, digest, path, size in rows(lake, "blobs").select("tenant", "sha256", "path", "bytes").iter_rows():
        assert len(store.get(tenant, digest, path)) == size
    assert any("#" in path for path in rows(lake, "blobs")["path"]) is (version == 2), (
        "sources stand in packs from 2 on"
    )


@pytest.mark.parametrize("version", lake_files.VERSIONS)
def test_a_golden_lake_is_written_maintained_and_queried(tmp_path: Path, version: int) -> None:
    lake = lake_files.unpack(version, tmp_path / "lake")
    before = everything(lake)
    land(tmp_path / "landing", b"c" * 16, 0, person(tmp_path / "landing", "new", "eve", "eve").landed)
    compact(str(tmp_path / "landing"), str(lake))
    maintain(str(lake), MaintainOptions(kept_days=0, commits_per_checkpoint=1))
    after = everything(lake)
    for table in SNAPSHOT_TABLES:
        if "trajectory_id" in SNAPSHOT_TABLES[table].column_names:
            assert [row for row in after[table] if row["trajectory_id"] != "new"] == before[table], table
    (count,) = connect(str(lake)).execute("select count(*) from events").fetchone() or (0,)
    assert count == len(before["events"]) + 6
    shutil.rmtree(lake)
