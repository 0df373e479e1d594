"""Tails (what a `replicated` journal puts between two segments) are rows at once, move no cursor and double nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipelines.lakes import everything, rows
from tests.pipelines.s3_lakes import Bucket
from tests.pipelines.segments import Landed, Story, interleaved, land
from trajlake.ingest.stores.object_replica import ObjectReplica, tail_bytes
from trajlake.pipelines.compaction.compact import compact
from trajlake.pipelines.compaction.small_work import nothing_new
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.run_report import CompactOptions
from trajlake.runtime.replicas.replica import Frame, frames_of

A = b"a" * 16


def frames(landed: list[Landed], first_lsn: int) -> list[Frame]:
    return [frame for n, one in enumerate(landed, first_lsn) for frame in frames_of([one.event], [n], one.info)]


def put_tail(landing: Path, landed: list[Landed], first_lsn: int) -> Path:
    """Put a tail where a replica would."""
    path = landing / "tails" / A.hex() / f"{first_lsn:020d}-{first_lsn + len(landed) - 1:020d}.seg"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tail_bytes(A.hex(), frames(landed, first_lsn)))
    return path


def two_stories() -> list[Landed]:
    import random

    return interleaved([Story("t").start().say("a", 9), Story("u").start().say("b", 9).end()], random.Random(3))


def test_rows_of_tails_are_there_at_once_and_the_segment_that_covers_them_doubles_nothing(tmp_path: Path) -> None:
    landing, lake, whole = tmp_path / "landing", str(tmp_path / "lake"), two_stories()
    land(landing, A, 0, whole[:6])
    put_tail(landing, whole[4:9], 4)  # begins below the segment's end, as one put before it was sealed
    put_tail(landing, whole[9:14], 9)
    report = compact(str(landing), lake)
    assert (report.segments_taken, report.tails_read, report.events_added) == (1, 2, 14)
    assert Lake.open(lake).newest().cursors[A.hex()].next == 6
    assert len(rows(tmp_path / "lake", "events")) == 14
    again = compact(str(landing), lake)
    assert (again.outcome, again.events_added) == ("nothing_to_do", 0)
    land(landing, A, 6, whole[6:])
    report = compact(str(landing), lake)
    assert (report.segments_taken, report.tails_read, report.events_added) == (1, 0, len(whole) - 14)
    assert Lake.open(lake).newest().cursors[A.hex()].next == len(whole)
    land(tmp_path / "plain", A, 0, whole)
    compact(str(tmp_path / "plain"), str(tmp_path / "other"))
    assert everything(lake) == everything(tmp_path / "other")


@pytest.mark.long
def test_a_tail_beyond_a_gap_is_held_back_until_the_gap_is_filled(tmp_path: Path) -> None:
    landing, lake, whole = tmp_path / "landing", tmp_path / "lake", two_stories()
    land(landing, A, 0, whole[:4])
    put_tail(landing, whole[10:], 10)
    compact(str(landing), str(lake))
    assert len(rows(lake, "events")) == 4
    assert set(rows(lake, "quarantine")["reason"]) == {"held_back"}
    put_tail(landing, whole[4:10], 4)
    assert nothing_new(str(landing), str(lake)) is None
    compact(str(landing), str(lake))
    assert len(rows(lake, "events")) == len(whole)
    assert len(rows(lake, "quarantine")) == 0
    assert Lake.open(lake).newest().cursors[A.hex()].next == 4


def test_a_damaged_tail_is_listed_and_loses_no_lsn(tmp_path: Path) -> None:
    landing, lake, whole = tmp_path / "landing", tmp_path / "lake", two_stories()
    land(landing, A, 0, whole[:6])
    bad = put_tail(landing, whole[6:9], 6)
    bad.write_bytes(bad.read_bytes()[:-40])
    assert compact(str(landing), str(lake), CompactOptions(dry_run=True)).tails_read == 1
    report = compact(str(landing), str(lake))
    assert [name for name, _ in report.segments_corrupt] == [f"tails/{A.hex()}/{6:020d}-{8:020d}"]
    cursor = Lake.open(lake).newest().cursors[A.hex()]
    assert (cursor.next, cursor.lost) == (6, ())
    land(landing, A, 6, whole[6:])
    assert compact(str(landing), str(lake)).segments_corrupt == []
    assert len(rows(lake, "events")) == len(whole)


@pytest.mark.s3
@pytest.mark.long
def test_what_a_replica_in_object_storage_acknowledged_is_in_the_lake_before_any_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket, whole = Bucket(monkeypatch, tmp_path / "staging"), two_stories()
    replica = ObjectReplica(bucket.client("landing"))
    for first in range(0, len(whole), 4):
        replica.append(A.hex(), frames(whole[first : first + 4], first))
    report = compact(bucket.landing, bucket.lake)
    assert (report.tails_read, report.events_added) == (5 + (len(whole) > 20), len(whole))
    land(tmp_path / "landing", A, 0, whole)
    bucket.ship(tmp_path / "landing")
    assert compact(bucket.landing, bucket.lake).events_added == 0
    compact(str(tmp_path / "landing"), str(tmp_path / "lake"))
    assert everything(bucket.lake) == everything(tmp_path / "lake")
