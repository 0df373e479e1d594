"""The table descriptions are whole and make sound Arrow and Delta schemas."""

from __future__ import annotations

from urllib.parse import unquote

from trajlake.pipelines.lakehouse.arrow_schema import arrow_schema, file_schema, partition_columns, stats_columns
from trajlake.pipelines.lakehouse.partitions import encoded, model_partition, partition_path
from trajlake.schemas.tables import LEDGERS, PARTITION_BY, SNAPSHOT_TABLES, TABLES


def test_the_tables_are_those_of_the_design() -> None:
    names = "events trajectories model_calls tool_calls quarantine judgements imports blobs blob_refs approvals"
    assert list(SNAPSHOT_TABLES) == [*names.split(), "checkpoints"]
    assert [ledger.name for ledger in LEDGERS] == "holds erasures exports anchors secrets audit_findings runs".split()
    assert all(table.ledger == (table in LEDGERS) for table in TABLES.values())


def test_every_column_has_a_meaning_and_every_payload_text_is_erasable() -> None:
    for table in TABLES.values():
        assert len(set(table.column_names)) == len(table.columns), table.name
        assert set(table.sort_by) <= set(table.column_names), table.name
        for column in table.columns:
            assert column.meaning, (table.name, column.name)
            if column.erasable:
                assert column.nullable, (table.name, column.name)
    for name in ("events", "quarantine"):
        assert set(TABLES[name].erasable) == {"payload", "salt"}


def test_no_type_is_nested_or_a_view_and_partition_columns_stay_outside_files() -> None:
    for table in TABLES.values():
        assert "view" not in str(arrow_schema(table))
        outside = partition_columns(table, PARTITION_BY)
        assert set(file_schema(table, PARTITION_BY).names) == set(table.column_names) - set(outside)
        assert not set(stats_columns(table, PARTITION_BY)) & set(outside)
        assert "payload" not in stats_columns(table, PARTITION_BY)


def test_any_partition_value_makes_one_safe_component_and_comes_back() -> None:
    for value in ("a/b", "..", "é 🦀", "%2F", "__HIVE_DEFAULT_PARTITION__", "=", "a\nb"):
        path = partition_path(["model"], {"model": value})
        assert path.count("/") == 0
        assert unquote(path.removeprefix("model=")) == value
    assert encoded("__HIVE_DEFAULT_PARTITION__") != "__HIVE_DEFAULT_PARTITION__"


def test_model_names_are_cut_to_a_file_name_and_stay_apart() -> None:
    assert model_partition("m", "1") == "m@1"
    assert model_partition("m", "") == "m"
    assert model_partition("", "") == "unknown"
    long = {model_partition("é🦀" * 200 + str(n), "1") for n in range(50)}
    assert len(long) == 50
    assert all(len(f"model={encoded(name)}") < 255 for name in long)
