"""Derived columns of erased events are carried over when the trajectory goes on: nothing but texts is lost."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.pipelines.lakes import rows
from tests.pipelines.segments import land
from tests.pipelines.test_derive import random_story
from trajlake.pipelines.compaction.compact import compact
from trajlake.pipelines.forgetting.erase_places import Places
from trajlake.pipelines.forgetting.forget import erasable
from trajlake.pipelines.upkeep.erase import Wanted, erase
from trajlake.schemas.tables import SNAPSHOT_TABLES

A = b"a" * 16
LIFE = (
    "kind", "agent", "model_id", "model_version", "workspace", "started_at", "events", "model_calls", "fencing_token",
    "openings", "last_sequence", "head_hash",
)  # fmt: skip


def columns(lake: Path, table: str, *without: str) -> list[str]:
    texts = erasable(SNAPSHOT_TABLES[table])
    return [name for name in rows(lake, table).columns if name not in (*texts, *without)]


@pytest.mark.parametrize("seed", range(4))
def test_what_was_told_before_the_erasure_stands_after_more_events_have_come(tmp_path: Path, seed: int) -> None:
    story = random_story(seed)
    cut = random.Random(seed).randrange(len(story.landed) // 2, len(story.landed) - 1)
    print("seed", seed, "cut", cut, "of", len(story.landed))
    land(tmp_path / "quiet-landing", A, 0, story.landed)
    compact(str(tmp_path / "quiet-landing"), str(tmp_path / "quiet"))
    landing, lake = tmp_path / "landing", tmp_path / "lake"
    land(landing, A, 0, story.landed[:cut])
    compact(str(landing), str(lake))
    wanted = Wanted(tenant="t", trajectory_id=story.info.trajectory_id)
    erase(str(lake), wanted, Places(gone=frozenset({"all"})))
    land(landing, A, cut, story.landed[cut:])
    compact(str(landing), str(lake))
    for table in ("model_calls", "checkpoints"):
        names = [
            name for name in rows(lake, table).columns if name not in (*erasable(SNAPSHOT_TABLES[table]), "given_up")
        ]
        assert rows(lake, table).select(names).equals(rows(tmp_path / "quiet", table).select(names)), table
    (before,), (after,) = rows(tmp_path / "quiet", "trajectories").to_dicts(), rows(lake, "trajectories").to_dicts()
    assert {name: after[name] for name in LIFE} == {name: before[name] for name in LIFE}
    then = {row["action_id"]: row for row in rows(tmp_path / "quiet", "tool_calls").to_dicts()}
    now = {row["action_id"]: row for row in rows(lake, "tool_calls").to_dicts()}
    assert set(now) >= {action for action, row in then.items() if (row["proposed_seq"] or 0) < cut}
    untouched = [action for action, row in then.items()
                 if max(row[n] or 0 for n in row if n.endswith("_seq")) < cut and not row["given_up"]]  # fmt: skip
    names = [
        n for n in rows(lake, "tool_calls").columns if n not in (*erasable(SNAPSHOT_TABLES["tool_calls"]), "stage")
    ]
    for action in untouched:
        assert {n: now[action][n] for n in names} == {n: then[action][n] for n in names}, action
