"""The views: each shows exactly the rows that its header promises, by the words that the tables really hold."""

from __future__ import annotations

import datetime as dt
from typing import Any, get_args

import duckdb
import pytest

from trajlake.schemas.events import MessageAdded, ModelReplied, TaskStarted, ToolResult, ToolSettled
from trajlake.schemas.state.stages import Stage

from .lake_rows import DAY, START_US, chain, empty_lake, event_rows, insert

PAST = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
FUTURE = dt.datetime(2120, 1, 1, tzinfo=dt.UTC)
KEY = {"tenant": "acme", "trajectory_id": "run 1"}
PARTITION = {"started_on": DAY, "model": "m@1"}


def action(action_id: str, stage: str, deadline: dt.datetime | None = None) -> dict[str, Any]:
    more = {"attempts": 1, "lossy": False, "system_no": 0, "given_up": False, "turn": 0}
    return {**KEY, **PARTITION, **more, "action_id": action_id, "stage": stage, "deadline_at": deadline}


@pytest.fixture
def lake() -> duckdb.DuckDBPyConnection:
    return empty_lake()


def test_doubts_are_actions_in_doubt_and_those_past_their_deadline(lake: duckdb.DuckDBPyConnection) -> None:
    stages = get_args(Stage)
    insert(lake, "tool_calls", [action(f"1.{n}", stage) for n, stage in enumerate(stages)])
    insert(lake, "tool_calls", [action(f"2.{n}", stage, PAST) for n, stage in enumerate(stages)])
    insert(lake, "tool_calls", [action(f"3.{n}", stage, FUTURE) for n, stage in enumerate(stages)])
    found = {row[0] for row in lake.sql("select action_id from doubts").fetchall()}
    doubt, flight, waiting = (stages.index(stage) for stage in ("in_doubt", "in_flight", "waiting"))
    assert found == {f"1.{doubt}", f"2.{doubt}", f"3.{doubt}", f"2.{flight}", f"2.{waiting}"}


def test_turns_count_calls_errors_and_doubts_of_each_turn(lake: duckdb.DuckDBPyConnection) -> None:
    insert(lake, "events", event_rows(chain([TaskStarted(), MessageAdded(role="user", wire={}, item_hash="")])))
    insert(lake, "tool_calls", [action("1.0", "in_doubt"), {**action("1.1", "settled"), "status": "error"}])
    found = lake.sql("select turn, events, tool_calls, tool_errors, in_doubt from turns order by turn").fetchall()
    assert found == [(-1, 1, 0, 0, 0), (0, 1, 2, 1, 1)]


def test_approvals_waiting_leaves_out_what_is_answered_expired_or_given_up(lake: duckdb.DuckDBPyConnection) -> None:
    def approval(name: str, **more: Any) -> dict[str, Any]:
        return {**KEY, "approval_id": name, "state": "waiting", "uses": 0, "given_up": False, **more}

    insert(
        lake,
        "approvals",
        [
            approval("open"),
            approval("later", expires_at=FUTURE),
            approval("expired", expires_at=PAST),
            approval("granted", state="granted"),
            approval("left", given_up=True),
        ],
    )
    found = lake.sql("select approval_id from approvals_waiting order by 1").fetchall()
    assert found == [("later",), ("open",)]


def test_messages_show_items_in_order_with_their_words(lake: duckdb.DuckDBPyConnection) -> None:
    body = '{"choices":[{"message":{"role":"assistant","content":"four"}}]}'
    payloads = [
        TaskStarted(),
        MessageAdded(role="user", wire={"role": "user", "content": "2+2?"}, item_hash="a"),
        ModelReplied(raw="{}", status="retried"),
        ModelReplied(raw=body, wire_pointer="/choices/0/message", item_hash="b"),
        ToolResult(action_id="3.0", status="ok", output="out"),
        ToolSettled(action_id="3.1", how="person", verdict="executed", delivered="it happened"),
    ]
    insert(lake, "events", event_rows(chain(payloads)))
    found = lake.sql("select item_no, role, text, action_id from messages order by item_no").fetchall()
    assert found == [
        (0, "user", "2+2?", None),
        (1, "assistant", "four", None),
        (2, "tool", "out", "3.0"),
        (3, "tool", "it happened", "3.1"),
    ]


def test_usage_is_by_served_model_and_utc_day_and_null_where_nobody_reports(lake: duckdb.DuckDBPyConnection) -> None:
    moment = dt.datetime.fromtimestamp(START_US / 1e6, dt.UTC)
    call = {**KEY, **PARTITION, "turn": 0, "attempt": 1, "calls": 0, "given_up": False, "recorded_at": moment}
    insert(
        lake,
        "model_calls",
        [
            {**call, "sequence_number": 1, "status": "kept", "system_no": 0, "served_model": "a", "input_tokens": 3},
            {**call, "sequence_number": 2, "status": "retried", "system_no": 0, "served_model": "a"},
            {**call, "sequence_number": 3, "status": "kept", "system_no": 1, "served_model": "a"},
            {**call, "sequence_number": 4, "status": "kept", "system_no": 0},
        ],
    )
    found = lake.sql(
        "select served_model, system_no, model_calls, not_kept, input_tokens, day from usage_by_model_day order by all"
    ).fetchall()
    day = moment.date()
    assert found == [("a", 0, 2, 1, 3, day), ("a", 1, 1, 0, None, day), ("unknown", 0, 1, 0, None, day)]
