"""The chain as SQL: what passes, and every edit that a rule must name."""

from __future__ import annotations

import duckdb
import pytest

from trajlake.pipelines.audit.verify import RuleResult, verify_connection
from trajlake.schemas import blobs
from trajlake.schemas.events import MessageAdded, TaskStarted, ToolResult, VarSet

from .lake_rows import chain, empty_lake, event_rows, head_row, insert

HOSTILE = "a'b;\"c\\ é 日本"


def filled(**head: object) -> duckdb.DuckDBPyConnection:
    """A lake with two trajectories of five events; ids and texts that a careless formula would trip over."""
    big, _ = blobs.offload_payload(ToolResult(action_id="1.0", status="ok", output="x" * 100_000))
    payloads = [
        TaskStarted(task={"text": "zwölf Boxkämpfer\n\t"}),
        MessageAdded(role="user", wire={"content": "line\nline"}, item_hash="0"),
        VarSet(name="n", value=None),
        big,
        VarSet(name="m", deleted=True),
    ]
    connection = empty_lake()
    for trajectory in ("run 1", HOSTILE):
        events = chain(payloads, trajectory_id=trajectory)
        insert(connection, "events", event_rows(events))
        insert(connection, "trajectories", [head_row(events, **head)])
    return connection


def found(connection: duckdb.DuckDBPyConnection) -> dict[str, list[tuple[str, int]]]:
    """Rule -> (trajectory, sequence number) of its violations, rules without any left out."""
    results: list[RuleResult] = verify_connection(connection)
    return {r.rule: [(v.trajectory_id, v.sequence_number) for v in r.violations] for r in results if r.found}


def test_a_lake_as_written_passes_every_rule() -> None:
    assert found(filled()) == {}


def test_truncated_is_not_applicable_without_an_anchor_and_says_so() -> None:
    last = verify_connection(filled())[-1]
    assert (last.rule, last.verdict) == ("truncated", "not applicable")
    assert "anchor" in last.note


def test_moving_a_blob_touches_no_hash() -> None:
    connection = filled()
    insert(connection, "blobs", [{"tenant": "acme", "sha256": "00", "bytes": 1, "path": "cas/elsewhere", "run": 7}])
    connection.execute("update blobs set path = 'cas/moved'")
    assert found(connection) == {}


def erase(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("update events set payload = null, salt = null where trajectory_id = 'run 1'")


def test_an_erasure_with_its_ledger_row_passes_and_the_chain_still_holds() -> None:
    connection = filled()
    erase(connection)
    insert(
        connection, "erasures", [{"erasure_id": "e", "state": "complete", "tenant": "acme", "trajectory_id": "run 1"}]
    )
    assert found(connection) == {}


def test_an_erasure_by_subject_passes_for_the_trajectories_of_that_subject_only() -> None:
    connection = filled(subjects='["s-1","s-2"]')
    erase(connection)
    insert(connection, "erasures", [{"erasure_id": "e", "state": "pending", "tenant": "acme", "subject": "s-2"}])
    assert found(connection) == {}
    connection.execute("update erasures set subject = 's-3'")
    assert list(found(connection)) == ["payload_missing"]


def test_an_erasure_without_ledger_row_is_found_at_every_row() -> None:
    connection = filled()
    erase(connection)
    assert found(connection) == {"payload_missing": [("run 1", number) for number in range(5)]}


def test_a_refused_erasure_accounts_for_nothing() -> None:
    connection = filled()
    erase(connection)
    insert(
        connection, "erasures", [{"erasure_id": "e", "state": "refused", "tenant": "acme", "trajectory_id": "run 1"}]
    )
    assert list(found(connection)) == ["payload_missing"]


@pytest.mark.parametrize(
    "edit",
    [
        "turn = 9",
        "recorded_at = recorded_at + interval 1 microsecond",
        "event_type = 'ToolResult'",
        "fencing_token = 2",
        "schema_version = 2",
        "commitment = sha256('other')",
        "cryptographic_hash = sha256('other')",
        "commitment = null",
    ],
)
def test_an_edited_envelope_breaks_the_chain(edit: str) -> None:
    connection = filled()
    connection.execute(f"update events set {edit} where trajectory_id = 'run 1' and sequence_number = 2")
    assert ("run 1", 2) in found(connection)["chain"]


def test_an_edited_payload_no_longer_fits_its_commitment() -> None:
    connection = filled()
    connection.execute(
        "update events set payload = replace(payload, 'n', 'N') where trajectory_id = 'run 1' and sequence_number = 2"
    )
    assert found(connection) == {"payload": [("run 1", 2)]}


def test_an_edited_payload_with_a_new_commitment_breaks_the_chain() -> None:
    connection = filled()
    connection.execute(
        "update events set payload = '{}', commitment = sha256(concat(salt, chr(10), '{}')) "
        "where trajectory_id = 'run 1' and sequence_number = 2"
    )
    assert found(connection) == {"chain": [("run 1", 2)]}


@pytest.mark.parametrize("number", [0, 2])
def test_a_dropped_row_is_a_gap(number: int) -> None:
    connection = filled()
    connection.execute(f"delete from events where trajectory_id = 'run 1' and sequence_number = {number}")
    assert found(connection)["gap"] == [("run 1", number + 1)]


def test_a_dropped_last_row_contradicts_the_head_in_trajectories() -> None:
    connection = filled()
    connection.execute("delete from events where trajectory_id = 'run 1' and sequence_number = 4")
    assert found(connection) == {"gap": [("run 1", 3)]}


def test_reordered_rows_break_the_chain() -> None:
    connection = filled()
    connection.execute(
        "update events set sequence_number = 5 - sequence_number "
        "where trajectory_id = 'run 1' and sequence_number in (2, 3)"
    )
    assert ("run 1", 2) in found(connection)["chain"]


def test_an_appended_row_is_found_even_with_a_well_made_hash() -> None:
    connection = filled()
    events = chain([TaskStarted(task={"text": "zwölf Boxkämpfer\n\t"}), *[VarSet(name="x")] * 5])
    row = event_rows(events)[5]
    connection.execute("delete from events where trajectory_id = ?", [HOSTILE])
    connection.execute("delete from trajectories where trajectory_id = ?", [HOSTILE])
    insert(connection, "events", [row])
    violations = found(connection)
    assert violations["chain"] == [("run 1", 5)]
    assert violations["gap"] == [("run 1", 5)]


def test_a_whole_trajectory_that_vanished_is_found_by_its_head() -> None:
    connection = filled()
    connection.execute("delete from events where trajectory_id = 'run 1'")
    assert found(connection) == {"gap": [("run 1", -1)]}
