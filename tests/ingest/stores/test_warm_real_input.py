"""Real recorded sessions in the warm tier: every event as the journal holds it, every payload queryable."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from trajlake.ingest.import_run import ImportOptions, import_paths
from trajlake.ingest.stores.postgres_database import Database
from trajlake.ingest.stores.postgres_warm import PostgresWarmTier
from trajlake.ingest.warm import WarmShipper
from trajlake.runtime.root import Root
from trajlake.runtime.wal.reader import iter_events
from trajlake.schemas.history import canonical

pytestmark = pytest.mark.postgres
FOLDERS = ("claude-code", "codex", "openai-responses", "pi", "kimi")


def test_real_sessions_are_the_same_in_the_journal_and_in_the_warm_tier(
    tmp_path: Path, shared_data: Path, warm
) -> None:
    root = Root.open(str(tmp_path / "journal"))
    for folder in FOLDERS:
        import_paths(root, [str(shared_data / folder)], ImportOptions())
    WarmShipper(root, PostgresWarmTier(Database(warm.url))).run()
    events = [event for one in root.writers() for event in iter_events(root.env, root.writer_folder(one))]
    assert len(events) > 1_000
    names = {event.trajectory_id for event in events}
    expected = {
        (event.trajectory_id, event.sequence_number): event
        for name in names
        for event in canonical(event for event in events if event.trajectory_id == name).events
    }
    rows = warm.rows("select trajectory_id, sequence_number, cryptographic_hash, commitment, payload::text from events")
    assert len(rows) == len(expected)
    for trajectory_id, number, digest, commitment, payload in rows:
        event = expected[trajectory_id, number]
        assert digest == event.hash.hex()
        assert len(commitment) == 64
        assert msgspec.json.decode(payload) == msgspec.json.decode(event.payload)
    assert warm.value("select count(*) from trajectory_events where payload ? '$not_jsonb'") == 0
    assert warm.rows("select distinct kind from trajectories") == [("imported",)]
    assert warm.rows("select * from doubts") == [], "an import is never in doubt"
