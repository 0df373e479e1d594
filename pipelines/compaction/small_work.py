"""The last step of `import --lake`: compact the inbox, without loading the engines where nothing new has landed.

An unchanged folder that is imported again must answer at once; Polars and Delta take longer to load than the whole
look. `nothing_new` only says yes where a full run would find nothing: every landed segment lies below the cursors of
the newest snapshot, nothing is stale or lost, and no import report is younger than that snapshot.
"""

from __future__ import annotations

import os
from typing import Any

from trajlake.pipelines.lakehouse.landing import TAILS, list_segments
from trajlake.pipelines.lakehouse.places import entries, is_remote, store_errors
from trajlake.pipelines.lakehouse.snapshot import read_snapshot, snapshot_numbers, snapshot_path


def commit(landing: str, lake: str) -> dict[str, Any]:
    """Take what has landed into the lake and return the run's report; see `compact`."""
    number = nothing_new(landing, lake)
    if number is not None:
        return {"outcome": "nothing_to_do", "snapshot": number}
    from trajlake.pipelines.compaction.compact import compact
    from trajlake.pipelines.lakehouse.run_report import CompactOptions

    # A lake in object storage has its inbox on a host, for one import: see `staging.inbox`.
    if is_remote(lake):
        note_inbox(lake, os.path.dirname(landing))
    return compact(landing, lake, CompactOptions(landing_stays=not is_remote(lake))).as_json()


def note_inbox(lake: str, folder: str) -> None:
    """Make the lake where there is none, and say in it where texts of it stand until they are in."""
    from trajlake.pipelines.lakehouse.lake import Lake
    from trajlake.pipelines.lakehouse.staging import note

    with store_errors(lake):
        note(Lake.open(lake, create=True), folder)


def nothing_new(landing: str, lake: str) -> int | None:
    """Return the newest snapshot's number where a run would find nothing to do, else None."""
    folder = os.path.abspath(lake)
    numbers = [] if "://" in lake or "://" in landing else snapshot_numbers(folder)
    if not numbers:
        return None
    newest = read_snapshot(folder, numbers[-1])
    segments, strangers = list_segments(landing)
    if newest.stale or strangers or entries(os.path.join(landing, TAILS)):
        return None
    for segment in segments:
        cursor = newest.cursors.get(segment.writer)
        if cursor is None or cursor.lost or segment.last >= cursor.next:
            return None
    taken_at = os.stat(snapshot_path(folder, numbers[-1])).st_mtime_ns
    return None if _has_younger(os.path.join(landing, "imports"), taken_at) else numbers[-1]


def _has_younger(folder: str, moment_ns: int) -> bool:
    for path, _, names in os.walk(folder):
        if any(os.stat(os.path.join(path, name)).st_mtime_ns >= moment_ns for name in names):
            return True
    return False
