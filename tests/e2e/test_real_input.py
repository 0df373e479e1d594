"""Real recorded sessions, from files to SQL: every call, argument text, output and message is there, once."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.conftest import Command
from trajlake.pipelines import connect
from trajlake.pipelines.lakehouse.content_store import ContentStore
from trajlake.pipelines.reports import reports

FORMATS = ("claude-code", "openai-chat", "tau-bench")


def import_into(folder: Path, *paths: Path) -> dict[str, Any]:
    done = Command(folder)("import", "auto", *map(str, paths), "--lake", "lake", "--json", timeout_s=120)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, shared_data: Path) -> Path:
    folder = tmp_path_factory.mktemp("real")
    import_into(folder, *(shared_data / name for name in FORMATS))
    return folder


@pytest.fixture(scope="module")
def lake(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with connect(folder / "lake") as connection:
        yield connection


def test_every_call_of_tau_bench_is_its_own_action_with_its_own_result(
    lake: duckdb.DuckDBPyConnection, shared_data: Path
) -> None:
    runs = json.loads((shared_data / "tau-bench" / "gpt-4o-airline.json").read_text())
    calls = [call for run in runs for message in run["traj"] for call in message.get("tool_calls") or ()]
    outputs = [message["content"] for run in runs for message in run["traj"] if message["role"] == "tool"]
    found = lake.sql("""
        select arguments, provider_id, stage, output_sha256
        from tool_calls join trajectories using (tenant, trajectory_id)
        where source_format = 'tau-bench'
    """).fetchall()
    assert len(found) == len(calls) == 1164
    assert Counter(row[0] for row in found) == Counter(call["function"]["arguments"] for call in calls)
    assert Counter(row[1] for row in found) == Counter(call["id"] for call in calls)
    assert {row[2] for row in found} == {"recorded"}
    results = lake.sql("""
        select payload ->> 'output' from events
        join trajectories using (tenant, trajectory_id)
        where source_format = 'tau-bench' and event_type = 'ToolResult'
    """).fetchall()
    assert Counter(row[0] for row in results) == Counter(outputs)


def test_every_message_of_tau_bench_is_a_context_item_in_its_order(
    lake: duckdb.DuckDBPyConnection, shared_data: Path
) -> None:
    runs = json.loads((shared_data / "tau-bench" / "gpt-4o-airline.json").read_text())
    wanted = Counter(tuple(message["role"] for message in run["traj"]) for run in runs)
    found = lake.sql("""
        select list(role order by item_no) from messages
        join trajectories using (tenant, trajectory_id)
        where source_format = 'tau-bench' group by tenant, trajectory_id
    """).fetchall()
    assert Counter(tuple(roles) for (roles,) in found) == wanted


def test_arguments_and_outputs_of_the_chat_file_come_back_byte_for_byte(
    lake: duckdb.DuckDBPyConnection, folder: Path, shared_data: Path
) -> None:
    document = json.loads((shared_data / "openai-chat" / "nilenso_ask_github_gc.json").read_text())
    messages = document if isinstance(document, list) else document["messages"]
    calls = [call["function"]["arguments"] for message in messages for call in message.get("tool_calls") or ()]
    outputs = [message["content"] for message in messages if message["role"] == "tool"]
    tables = "from tool_calls join trajectories using (tenant, trajectory_id) where source_format = 'openai-chat'"
    assert Counter(row[0] for row in lake.sql(f"select arguments {tables}").fetchall()) == Counter(calls)
    inline = lake.sql("""
        select payload ->> 'output' from events join trajectories using (tenant, trajectory_id)
        where source_format = 'openai-chat' and event_type = 'ToolResult'
            and json_type(payload, '$.output') = 'VARCHAR'
    """).fetchall()
    bulk = lake.sql(f"select output_sha256 {tables} and output_sha256 is not null").fetchall()
    store = ContentStore(str(folder / "lake"))
    paths = dict(lake.sql("select sha256, path from blobs").fetchall())
    texts = [row[0] for row in inline] + [store.get("default", key, path=paths[key]).decode() for (key,) in bulk]
    assert bulk, "this file holds an output over the inline limit"
    assert Counter(texts) == Counter(outputs)


def test_claude_code_counts_are_the_manifests(lake: duckdb.DuckDBPyConnection) -> None:
    turns_and_calls = lake.sql("""
        select sum(turns), sum(tool_calls) from trajectories where source_format = 'claude-code'
    """).fetchall()
    assert turns_and_calls == [(230, 114)]


def test_claude_code_usage_is_counted_once_per_reply(lake: duckdb.DuckDBPyConnection, shared_data: Path) -> None:
    once: dict[str, int] = {}
    for path in sorted((shared_data / "claude-code").glob("*.jsonl")):
        if path.name == "cclog-1.7.0__assistant__thinking.jsonl":
            continue  # one reply that nothing follows: held back until the file grows or the caller says --ended
        for line in path.read_text().splitlines():
            record = json.loads(line)
            message = record.get("message") if isinstance(record, dict) else None
            if (
                isinstance(message, dict)
                and message.get("usage")
                and message.get("id")
                and "trimmed" not in message["id"]
            ):
                once[message["id"]] = message["usage"]["output_tokens"]
    found = lake.sql("""
        select response_id, model_calls.output_tokens, trajectory_id
        from model_calls join trajectories using (tenant, trajectory_id)
        where source_format = 'claude-code' and response_id is not null
    """).fetchall()
    counted = {key: tokens for key, tokens, _ in found if key in once}
    assert len(once) > 5
    assert counted == once
    per_session = Counter((key, trajectory) for key, _, trajectory in found if key in once)
    assert set(per_session.values()) == {1}


def rows_hash(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Table -> hash of its rows, without where and when a row was read."""
    places = "exclude (writer, lsn)"
    return {
        name: hashlib.sha256(
            repr(connection.sql(f"select * {places if name == 'events' else ''} from {name} order by all").fetchall())
            .encode()
        ).hexdigest()
        for name in ("events", "trajectories", "model_calls", "tool_calls", "blob_refs")
    }  # fmt: skip


def test_importing_again_and_in_another_order_gives_the_same_rows(
    lake: duckdb.DuckDBPyConnection, tmp_path: Path, shared_data: Path
) -> None:
    files = sorted(path for name in FORMATS for path in (shared_data / name).iterdir())
    import_into(tmp_path, *reversed(files[: len(files) // 2]))
    import_into(tmp_path, *reversed(files))
    with connect(tmp_path / "lake") as other:
        assert rows_hash(other) == rows_hash(lake)


def test_a_grown_session_adds_its_tail_and_a_copy_of_it_adds_nothing(tmp_path: Path, shared_data: Path) -> None:
    whole = (shared_data / "claude-code" / "hive__cb6aa757-c24a-4950-b034-131e5c6acfd5.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    session = tmp_path / "session.jsonl"
    session.write_bytes(b"".join(lines[: len(lines) // 2]))
    import_into(tmp_path, session)
    with connect(tmp_path / "lake") as half:
        before = dict(half.sql("select sequence_number, cryptographic_hash from events").fetchall())
    session.write_bytes(whole)
    import_into(tmp_path, session)
    shutil.copy(session, tmp_path / "resumed-copy.jsonl")
    import_into(tmp_path, tmp_path / "resumed-copy.jsonl")
    with connect(tmp_path / "lake") as grown:
        after = dict(grown.sql("select sequence_number, cryptographic_hash from events").fetchall())
    assert len(after) > len(before)
    assert before.items() <= after.items()
    assert sorted(after) == list(range(len(after)))


def test_every_report_answers_over_real_sessions(lake: duckdb.DuckDBPyConnection) -> None:
    answers = {name: lake.execute(one.sql).fetchall() for name, one in reports().items()}
    (actions,) = lake.execute("select count(*) from tool_calls").fetchone() or (0,)
    assert sum(row[2] for row in answers["tool_errors"]) == actions
    (tokens,) = lake.execute("select sum(output_tokens) from model_calls").fetchone() or (0,)
    assert sum(row[7] or 0 for row in answers["tokens_by_model_day"]) == tokens
    assert {row[0] for row in answers["import_losses"]} >= {"claude-code", "tau-bench"}
