"""`trajlake sql` reads: no statement changes a file of the lake, results can be exported, and a pipe is a shell."""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from tests.pipelines.curate.runs import Run, lake_of
from trajlake.pipelines.commands.sql import run
from trajlake.pipelines.connect import connect
from trajlake.pipelines.sql_guard import lock
from trajlake.runtime.cli_errors import UserError

WRITES = [
    "insert into events select * from events",
    "update events set model = 'x'",
    "delete from events",
    "attach '{lake}/new.db' as y",
    "export database '{lake}/dump'",
    "copy events to '{lake}/events/x.parquet'",
    "copy events to '{file}' (format parquet)",
    "copy (select 1) to 'file://{lake}/x.csv'",
    'copy (select 1) to "{lake}/x.csv"',
    "copy (select 1) to $${lake}/x.csv$$",
    "copy (select 1) to ('{lake}' || '/x.csv')",
    "copy (select 'a' as a) to /* 'x' */ '{folder}/linked/x.csv' -- 'x'",
    "copy (select 1 as a, 2 as b) to '{folder}' (format csv, partition_by (a), overwrite)",
    "copy (select 1 as a, 2 as b) to '{folder}/d' (format csv, partition_by (a), filename_pattern '../../x')",
    "explain analyze copy (select 1) to '{lake}/x.csv'",
    "prepare p as copy (select 1) to '{lake}/x.csv'; execute p",
    "set log_query_path = '{lake}/log'",
    "select * from enable_logging(storage = 'file', storage_path = '{lake}/log')",
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("guard")
    made = lake_of(folder, [Run("one").simple()])
    os.symlink(made, folder / "linked")
    return made


def files(lake: str) -> dict[str, str]:
    return {str(one): sha256(one.read_bytes()).hexdigest() for one in Path(lake).rglob("*") if one.is_file()}


@pytest.mark.parametrize("text", WRITES)
def test_no_statement_changes_the_lake(lake: str, text: str) -> None:
    before = files(lake)
    (file, *_) = [name for name in before if "/events/" in name and name.endswith(".parquet")]
    connection = connect(lake)
    lock(connection)
    with pytest.raises(UserError, match="sql: "):
        run(connection, text.format(lake=lake, file=file, folder=Path(lake).parent), False, sys.stdout, lake)
    assert files(lake) == before


def test_results_are_exported_to_a_file_outside(lake: str, tmp_path: Path) -> None:
    connection = connect(lake)
    lock(connection)
    words = "set variable one = 1; copy (select 'to' as a, getvariable('one') as b) to"
    run(connection, f"{words} '{tmp_path}/it''s.csv'", False, sys.stdout, lake)
    assert (tmp_path / "it's.csv").read_text() == "a,b\nto,1\n"


def test_a_pipe_takes_statements_and_dot_commands(lake: str) -> None:
    text = ".tables\nselect count(*) as n\nfrom trajectories;\n.columns turns\n.quit\nnonsense"
    command = [sys.executable, "-m", "trajlake.runtime", "sql", "--lake", lake]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "trajectories" in done.stdout.splitlines()[0]
    assert "1 row" in done.stdout
    assert "model_calls  " in done.stdout
