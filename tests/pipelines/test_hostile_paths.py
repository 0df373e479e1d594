"""What a lake's log or a landing says becomes part of paths: nothing outside the lake and the landing is touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trajlake.pipelines.lake import Lake
from trajlake.pipelines.lake_errors import LakeDamaged


@pytest.mark.parametrize("path", ["..%2F..%2Foutside.parquet", "a/%2E%2E/%2E%2E/b.parquet", "%2Fetc%2Fpasswd"])
def test_a_log_that_names_a_file_outside_its_table_is_refused_by_every_reader(tmp_path: Path, path: str) -> None:
    lake = Lake.open(tmp_path / "lake", create=True)
    add = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
    log = tmp_path / "lake/erasures/_delta_log/00000000000000000001.json"
    log.write_text(json.dumps({"add": add}))
    with pytest.raises(LakeDamaged, match="outside the table") as found:
        lake.ledger_data_files("erasures")
    assert "\n" not in str(found.value)
