"""A data file that is gone or damaged: named in one line by `verify`, never an answer without its rows, never a bug."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Command
from trajlake.pipelines.audit.verify import verify_lake
from trajlake.pipelines.connect import connect
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.lake_errors import LakeDamaged
from trajlake.runtime.cli_errors import line_and_code

DAMAGE: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "empty": lambda file: file.write_bytes(b""),
    "cut short": lambda file: os.truncate(file, file.stat().st_size // 2),
    "a folder": lambda file: (file.unlink(), file.mkdir()),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damaged")
    (folder / "chat.json").write_text(json.dumps([{"role": "user", "content": "2+2?"}]))
    assert Command(folder)("import", "openai-chat", "chat.json", "--lake", "lake").returncode == 0
    return folder / "lake"


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_data_file_that_cannot_be_read_is_named_and_no_query_goes_without_it(
    made: Path, tmp_path: Path, damage: str
) -> None:
    lake = shutil.copytree(made, tmp_path / "lake")
    (file,) = (Path(one.path) for one in Lake.open(lake).files(Lake.open(lake).newest(), "events"))
    DAMAGE[damage](file)
    with pytest.raises(LakeDamaged, match=rf"names {file}, which cannot be read"):
        verify_lake(lake)
    with pytest.raises(Exception) as failed:
        connect(lake).sql("select sum(length(payload)) from events").fetchall()
    line, code = line_and_code(failed.value, "report")
    assert code == 3
    assert "failed inside" not in line
    assert "LINE 1" not in line


def test_an_empty_entry_of_a_table_s_log_is_refused_for_delta_would_go_without_its_files(
    made: Path, tmp_path: Path
) -> None:
    lake = shutil.copytree(made, tmp_path / "lake")
    newest = max((lake / "trajectories" / "_delta_log").glob("*.json"))
    newest.write_bytes(b"")
    with pytest.raises(LakeDamaged, match=rf"{newest}: is empty"):
        connect(lake).sql("select count(*) from trajectories").fetchall()
