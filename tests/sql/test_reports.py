"""The reports: each answers for a lake whose numbers are known, says what its columns mean, and keeps to its range."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.conftest import Command
from tests.pipelines.audit_lakes import make_lake
from tests.sql.lake_rows import empty_lake, insert
from tests.sql.report_expected import EXPECTED
from tests.sql.report_stories import stories
from trajlake.pipelines.commands import report as cli_report
from trajlake.pipelines.connect import connect
from trajlake.pipelines.reports import Report, parse, report, reports, set_range
from trajlake.pipelines.sql_text import sql_files
from trajlake.runtime.cli_errors import UserError
from trajlake.schemas.tables import TABLES

NOW = "timestamptz '2026-11-30 02:01:00+00'"
WITHOUT_RANGE = ("import_losses",)
EACH = pytest.mark.parametrize("one", reports().values(), ids=lambda one: one.name)


@pytest.fixture(scope="module")
def lake_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_lake(tmp_path_factory.mktemp("reports"), stories())


@pytest.fixture(scope="module")
def lake(lake_path: str) -> Iterator[duckdb.DuckDBPyConnection]:
    with connect(lake_path) as connection:
        connection.execute(f"set variable report_now = {NOW}")
        yield connection


def answered(connection: duckdb.DuckDBPyConnection, one: Report) -> list[tuple[Any, ...]]:
    return [tuple(map(plain, row)) for row in connection.execute(one.sql).fetchall()]


def plain(value: Any) -> Any:
    if isinstance(value, dt.date):
        return value.isoformat()
    return round(value, 6) if isinstance(value, float) else value


@EACH
def test_a_report_says_what_the_stories_hold(lake: duckdb.DuckDBPyConnection, one: Report) -> None:
    assert answered(lake, one) == EXPECTED[one.name]


@EACH
def test_its_header_names_every_column_in_order_and_every_table_it_reads(
    lake: duckdb.DuckDBPyConnection, one: Report
) -> None:
    lake.execute(one.sql)
    assert [column[0] for column in lake.description or ()] == [name for name, _ in one.columns]
    lake.fetchall()
    assert all(len(meaning) > 3 for _, meaning in one.columns)
    known = {*TABLES, *sql_files("views")}
    named = set(re.findall(r"(?:from|join)\s+(\w+)", "\n".join(_statement(one)))) & known
    assert named == set(one.inputs)


def _statement(one: Report) -> list[str]:
    return [line for line in one.sql.splitlines() if not line.lstrip().startswith("--")]


@EACH
def test_it_keeps_to_its_range(lake: duckdb.DuckDBPyConnection, one: Report) -> None:
    try:
        set_range(lake, dt.date(2030, 1, 1), None)
        assert answered(lake, one) == []
        set_range(lake, dt.date(2026, 11, 30), dt.date(2026, 12, 2))
        assert answered(lake, one) == EXPECTED[one.name]
        set_range(lake, dt.date(2020, 1, 1), dt.date(2020, 1, 2))
        assert answered(lake, one) == []
    finally:
        for name in ("report_from", "report_to"):
            lake.execute(f"set variable {name} = null")


def test_there_are_twenty_questions_and_more() -> None:
    assert len(reports()) >= 20
    assert set(EXPECTED) == set(reports())


def test_a_range_of_one_day_is_that_day_alone(lake_path: str) -> None:
    with connect(lake_path) as connection:
        set_range(connection, dt.date(2026, 12, 1), dt.date(2026, 12, 1))
        assert [row[1] for row in answered(connection, report("tokens_by_model_day"))] == ["m2"]
        assert [row[0] for row in answered(connection, report("outcomes"))] == ["m2"]


def test_a_tenant_sees_its_own_rows(lake_path: str) -> None:
    with connect(lake_path, tenant="other") as connection:
        assert answered(connection, report("outcomes")) == [("several", 1, 1, 1, 0, 0, 0, 0, None)]


def test_lost_segments_count_their_places_and_show_in_every_range() -> None:
    lake = empty_lake()
    insert(lake, "quarantine", [{"tenant": "*", "reason": "segment_lost", "writer": "aa", "lsn": 10, "last_lsn": 19}])
    set_range(lake, dt.date(2030, 1, 1), None)
    assert answered(lake, report("quarantined")) == [("segment_lost", 1, 0, 1, 10)]


def test_import_losses_add_up_by_format_and_mapping() -> None:
    lake = empty_lake()
    source = {"tenant": "t", "format": "codex", "mapping_version": 2, "trajectories": 1}
    seen = [(10, 6, 3, 1), (10, 9, 0, 1)]
    rows = [
        {**source, "sha256": f"{n}", "bytes": 100, "records_seen": total, "records_mapped": mapped,
         "records_kept_raw": raw, "records_skipped": skipped}
        for n, (total, mapped, raw, skipped) in enumerate(seen)
    ]  # fmt: skip
    insert(lake, "imports", [*rows, {**rows[0], "mapping_version": 1, "sha256": "old"}])
    assert answered(lake, report("import_losses")) == [
        ("codex", 1, 1, 100, 1, 10, 6, 3, 1, 0.6),
        ("codex", 2, 2, 200, 2, 20, 15, 3, 2, 0.75),
    ]


def test_settlements_by_key_and_probe_are_told_apart() -> None:
    lake = empty_lake()
    action = {
        "tenant": "t", "trajectory_id": "x", "tool": "pay", "effect": "external", "stage": "settled", "attempts": 1,
        "started_on": dt.date(2026, 11, 30), "intent_seq": 1,
    }  # fmt: skip
    settled = [("key", "executed"), ("probe", "not_executed"), ("probe", "executed")]
    rows = [
        {**action, "action_id": f"1.{n}", "settled_seq": 2, "settled_how": how, "verdict": verdict}
        for n, (how, verdict) in enumerate(settled)
    ]
    insert(lake, "tool_calls", [*rows, {**action, "action_id": "2.0", "late_seq": 9}])
    assert answered(lake, report("doubts_by_tool")) == [("pay", "external", 4, 0, 1, 2, 0, 2, 1, 1, 0.75)]


def test_a_file_without_its_header_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"x\.sql: header without owner, range, caveats"):
        parse("x", "-- x: why?\n-- grain: a\n-- inputs: b\n-- columns:\n--   c  d\nselect 1 as c\n")


def test_an_unknown_report_is_refused_with_the_nearest_names() -> None:
    with pytest.raises(UserError, match="tool_errors"):
        report("tools_errors")


def test_the_command_lists_and_answers(capsys: pytest.CaptureFixture[str], lake_path: str) -> None:
    cli_report.report(as_json=False)
    assert len(capsys.readouterr().out.splitlines()) == len(reports())
    asked = {"name": "tool_errors", "lake": lake_path, "first": None, "last": None, "tenant": None, "snapshot": None}
    cli_report.report(**asked | {"first": "2026-12-01", "last": "2026-12-01"}, text=False, as_json=False)
    shown = capsys.readouterr().out
    assert shown.startswith("how often does each tool fail?")
    assert "given-up actions count" in shown
    for first, last, says in (("yesterday", None, "not a day"), ("2026-12-02", "2026-12-01", "is after")):
        with pytest.raises(UserError, match=says):
            cli_report.report(**asked | {"first": first, "last": last}, text=False, as_json=False)


@pytest.mark.long
def test_the_statement_it_hands_out_gives_the_same_through_sql(
    trajlake: Command, lake_path: str, tmp_path: Path
) -> None:
    found = trajlake("report", "tool_errors", "--lake", lake_path, "--tenant", "other", "--json")
    assert '"error_share":1.0' in found.stdout
    (tmp_path / "x.sql").write_text(trajlake("report", "tool_errors", "--sql").stdout)
    same = trajlake("sql", "--lake", lake_path, "--tenant", "other", "--json", "-f", "x.sql")
    assert same.stdout == found.stdout
