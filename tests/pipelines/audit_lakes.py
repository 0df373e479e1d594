"""Real lakes for the audits' tests: stories land as sealed segments and are compacted by the project's own code."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.pipelines.segments import Landed, land
from tests.sql.audit_fixture_stories import BLOBS
from tests.sql.audit_story import START, Story, blob_bytes, blob_hash
from trajlake.pipelines.compaction.compact import compact
from trajlake.runtime.wal.frame import TrajectoryInfo

WRITER = bytes(range(16))


def landed(stories: Iterable[Story]) -> list[Landed]:
    """Return the events of stories as frames in one journal, strays after all others."""
    frames = []
    for story in stories:
        info = TrajectoryInfo(
            tenant=story.tenant,
            trajectory_id=story.trajectory_id,
            model=story.model,
            model_version="",
            started_on=story.started_on.isoformat(),
        )
        frames += [Landed(event, info) for event in (*story.events, *story.astray)]
    return frames


def make_lake(folder: Path, stories: Iterable[Story]) -> str:
    """Compact `stories` into a new lake below `folder` and return its path.

    Stories of a newer schema version are left out: no lake of this version takes them.
    """
    known = [story for story in stories if story.schema_version == 1]
    land(folder / "landing", WRITER, 0, landed(known))
    for story in known:
        for name in BLOBS:
            digest = blob_hash(name)
            path = folder / "landing" / "blobs" / story.tenant / digest[:2] / digest
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(blob_bytes(name))
    report = compact(str(folder / "landing"), str(folder / "lake"))
    assert report.segments_taken == 1, report
    return str(folder / "lake")


__all__ = ["START", "landed", "make_lake"]
