"""Retention of the warm tier against a lake: rows leave PostgreSQL once a snapshot holds every one of them.

Nothing is lost by it: a trajectory leaves only when it has ended, has nothing open, its last event is the lake's last
event by number and hash, and every journal that its rows came from is committed beyond them. Its head stays, so that
`status` still lists it and a late copy changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.table_files import read_columns
from trajlake.schemas.tables import SNAPSHOT_TABLES

if TYPE_CHECKING:
    from trajlake.ingest.stores.postgres_retention import EndedHere
    from trajlake.pipelines.lakehouse.snapshot import Cursor


class WarmReport(msgspec.Struct, kw_only=True):
    """What left one warm tier. `waiting`: ended long enough ago, and not (or not so) in the lake yet."""

    warm: str
    snapshot: int
    trajectories: int = 0
    rows: int = 0
    waiting: list[tuple[str, str]] = []


def retain_warm(lake: str, url: str, *, before_s: float, dry_run: bool = False) -> WarmReport:
    """Let what ended before `before_s` (seconds since 1970) leave the warm tier at `url`; see the head of this file.

    May be killed at any moment and run again: each trajectory leaves in a transaction of its own.
    """
    from trajlake.ingest.stores.postgres_database import Database
    from trajlake.ingest.stores.postgres_retention import WarmRetention

    opened = Lake.open(lake)
    snapshot = opened.newest()
    files = opened.files(snapshot, "trajectories")
    known = read_columns(
        files, SNAPSHOT_TABLES["trajectories"], ("tenant", "trajectory_id", "last_sequence", "head_hash")
    )
    heads = {(tenant, name): (last, head) for tenant, name, last, head in known.iter_rows()}
    tier = WarmRetention(Database(url))
    report = WarmReport(warm=tier.url, snapshot=snapshot.number)
    try:
        for one in tier.ended_before(before_s):
            last, head = heads.get((one.tenant, one.trajectory_id), (-1, ""))
            gone = -1
            if last == one.last_sequence and in_lake(one, snapshot.cursors):
                gone = 0 if dry_run else tier.leave(one, head, snapshot.number)
            if gone < 0:
                report.waiting.append((one.tenant, one.trajectory_id))
                continue
            report.trajectories += 1
            report.rows += gone
    finally:
        tier.close()
    return report


def in_lake(one: EndedHere, cursors: Mapping[str, Cursor]) -> bool:
    """Tell whether every journal that its rows came from is committed beyond them, with nothing lost before."""
    for writer, lsn in one.journals.items():
        cursor = cursors.get(writer)
        if cursor is None or cursor.next <= lsn or any(lost.first <= lsn for lost in cursor.lost):
            return False
    return True
