"""What people ask of the warm tier is answered through indexes: no plan reads a whole table of events."""

from __future__ import annotations

import pytest

from tests.ingest.stores.histories import History, write
from trajlake.ingest.stores.postgres_database import Database
from trajlake.ingest.stores.postgres_warm import PostgresWarmTier
from trajlake.ingest.warm import WarmShipper
from trajlake.runtime.root import Root

pytestmark = pytest.mark.postgres

QUESTIONS = {
    "one trajectory": "select * from events where tenant = 'default' and trajectory_id = 't1' order by sequence_number",
    "its last events": "select * from events where tenant = 'default' and trajectory_id = 't1'"
    " order by sequence_number desc limit 100",
    "the last events of all": "select * from events order by recorded_at desc limit 100",
    "status": "select * from status order by last_recorded_at desc nulls last limit 50",
    "approvals": "select * from approvals_waiting order by requested_at limit 50",
    "doubts": "select * from doubts order by intent_at limit 50",
    "one action": "select * from tool_events where action_id @> '\"57.0\"'",
    "one key": "select * from tool_events where key @> '\"abcd\"'",
    "what does not count": "select * from uncounted_events where tenant = 'default' and trajectory_id = 't1'",
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_question_reads_a_whole_table_of_events(tmp_path, warm, question):
    root = Root.open(str(tmp_path / "journal"))
    history = History("t1")
    history.start()
    history.intent("57.0")
    write(root, history.events)
    WarmShipper(root, PostgresWarmTier(Database(warm.url))).run()
    # So few rows would be read whole; what counts is that there is another way once they are many.
    warm._connection.execute("set enable_seqscan = off")
    plan = "\n".join(row[0] for row in warm.rows(f"explain {QUESTIONS[question]}"))
    assert "Seq Scan on trajectory_events" not in plan, plan
    assert "Seq Scan on trajectory_heads" not in plan, plan
    if "@>" in QUESTIONS[question]:
        assert "Bitmap Index Scan on trajectory_events_" in plan, plan


def test_the_status_page_takes_the_newest_from_its_index_instead_of_sorting_all(tmp_path, warm):
    write(Root.open(str(tmp_path / "journal")), [])
    Database(warm.url).run(lambda c: None)
    warm._connection.execute("set enable_seqscan = off; set enable_sort = off")
    plan = "\n".join(row[0] for row in warm.rows(f"explain {QUESTIONS['status']}"))
    assert "Index Scan using trajectory_heads_recorded_at" in plan, plan
