"""What a lake's log or a landing says becomes part of paths: nothing outside the lake and the landing is touched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.lakes import rows
from tests.pipelines.segments import Story, land
from trajlake.pipelines.compaction.compact import compact
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.lake_errors import LakeDamaged


@pytest.mark.parametrize("path", ["..%2F..%2Foutside.parquet", "a/%2E%2E/%2E%2E/b.parquet", "%2Fetc%2Fpasswd"])
def test_a_log_that_names_a_file_outside_its_table_is_refused_by_every_reader(tmp_path: Path, path: str) -> None:
    lake = Lake.open(tmp_path / "lake", create=True)
    add = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
    log = tmp_path / "lake/erasures/_delta_log/00000000000000000001.json"
    log.write_text(json.dumps({"add": add}))
    with pytest.raises(LakeDamaged, match="outside the table") as found:
        lake.ledger_data_files("erasures")
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("wrong", [{"tenant": "../../outside"}, {"tenant": ".."}, {"sha256": "../../../outside"}])
def test_a_landed_report_that_names_another_place_is_skipped(tmp_path: Path, wrong: dict[str, Any]) -> None:
    digest = "ab" * 32
    good = {"tenant": "t", "sha256": digest, "mapping_version": 1, "format": "f"}
    folder = tmp_path / "landing/imports" / digest
    folder.mkdir(parents=True)
    (folder / "1.json").write_text(json.dumps(good))
    (folder / "2.json").write_text(json.dumps({**good, "mapping_version": 2, **wrong}))
    land(tmp_path / "landing", b"a" * 16, 0, Story("one").start().landed)
    compact(str(tmp_path / "landing"), str(tmp_path / "lake"))
    found = rows(tmp_path / "lake", "imports")
    assert found.select("tenant", "sha256", "mapping_version").rows() == [("t", digest, 1)]
