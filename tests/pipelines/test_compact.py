"""Landing to lake: every canonical row once, whatever lands when, and everything else in its place with a reason."""

from __future__ import annotations

import hashlib
import itertools
import random
from pathlib import Path

import msgspec
import polars as pl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.pipelines.lakes import events_of, everything, rows
from tests.pipelines.segments import Landed, Story, interleaved, land
from trajlake.pipelines.compaction.compact import BUCKETS_MAX, buckets_for, compact
from trajlake.pipelines.lakehouse.content_store import ContentStore
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.lake_errors import LakeMissing
from trajlake.pipelines.lakehouse.landing import DeclaredLost
from trajlake.pipelines.lakehouse.run_report import CompactOptions, RunReport
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import InputRead, MessageAdded, ToolResult
from trajlake.schemas.history import canonical
from trajlake.schemas.tables import SNAPSHOT_TABLES, TABLES

A, B = b"a" * 16, b"b" * 16
PHYSICAL_TYPES = {
    "string", "large_string", "int64", "int32", "double", "bool", "date32[day]", "timestamp[us, tz=UTC]"
}  # fmt: skip


def run(tmp: Path, **options: object) -> RunReport:
    return compact(str(tmp / "landing"), str(tmp / "lake"), CompactOptions(**options))  # type: ignore[arg-type]


def keys(events: list[Event]) -> list[tuple[str, str, int, int, str]]:
    return sorted((e.tenant, e.trajectory_id, e.sequence_number, e.fencing_token, e.hash.hex()) for e in events)


def events(*stories: Story) -> list[Event]:
    return [event for story in stories for event, _ in story.landed]


def test_every_event_of_landed_segments_is_a_row_with_its_exact_payload(tmp_path: Path) -> None:
    stories = [Story(f"t{n}", tenant=f"x{n % 2}", model=f"m{n % 3}").start().say("é🦀", 5).end() for n in range(9)]
    land(tmp_path / "landing", A, 0, interleaved(stories, random.Random(1)))
    report = run(tmp_path)
    assert (report.outcome, report.events_added, report.snapshot) == ("committed", 63, 1)
    assert events_of(tmp_path / "lake") == keys(events(*stories))
    found = dict(rows(tmp_path / "lake", "events").select("cryptographic_hash", "payload").iter_rows())
    assert all(found[e.hash.hex()] == (e.payload or b"").decode() for e in events(*stories))


def test_a_second_run_over_the_same_landing_changes_nothing(tmp_path: Path) -> None:
    land(tmp_path / "landing", A, 0, Story("t").start().say("x", 3).landed)
    run(tmp_path)
    before = sorted(p for p in (tmp_path / "lake").rglob("*") if p.is_file())
    assert run(tmp_path).outcome == "nothing_to_do"
    assert sorted(p for p in (tmp_path / "lake").rglob("*") if p.is_file()) == before


def test_a_segment_behind_a_gap_waits_is_listed_and_is_taken_when_the_gap_closes(tmp_path: Path) -> None:
    story = Story("t").start().say("x", 9)
    land(tmp_path / "landing", A, 0, story.landed[:3])
    land(tmp_path / "landing", A, 6, story.landed[6:])
    report = run(tmp_path)
    assert report.events_added == 3
    assert [why for _, why in report.segments_waiting] == ["lsn 3 to 5 of the writer have not landed"]
    land(tmp_path / "landing", A, 3, story.landed[3:6])
    assert run(tmp_path).segments_waiting == []
    assert events_of(tmp_path / "lake") == keys(events(story))


@pytest.mark.parametrize("order", list(itertools.permutations(range(4)))[::9])
@pytest.mark.parametrize("together", [False, True])
def test_rows_do_not_depend_on_the_order_of_landing(tmp_path: Path, order: tuple[int, ...], together: bool) -> None:
    first = Story("t").start().say("a", 5)
    second = first.takeover(3, 2).say("b", 3)
    other = Story("u").start().say("u", 4).end()
    mine = first.landed
    its = second.landed[4:]
    parts = [
        (A, 0, mine[:3] + other.landed[:2]),
        (A, 5, mine[3:] + other.landed[2:]),
        (B, 0, mine[2:4] + its[:2]),  # copies, as a successor makes them, then its opening event
        (B, 4, its[2:]),
    ]
    for n in order:
        land(tmp_path / "landing", *parts[n])
        if not together:
            run(tmp_path)
    run(tmp_path)
    want = canonical([e for e, _ in mine + its])
    assert events_of(tmp_path / "lake") == keys([*want.events, *events(other)])
    aside = rows(tmp_path / "lake", "quarantine")
    assert sorted(aside["cryptographic_hash"]) == sorted(e.hash.hex() for e in want.superseded)
    assert set(aside["reason"]) == {"superseded"}
    table = rows(tmp_path / "lake", "trajectories")
    assert table.select("trajectory_id", "events", "superseded", "held_back", "fencing_token").to_dicts() == [
        {"trajectory_id": "t", "events": 8, "superseded": 2, "held_back": 0, "fencing_token": 2},
        {"trajectory_id": "u", "events": 6, "superseded": 0, "held_back": 0, "fencing_token": 1},
    ]


def test_held_back_rows_wait_in_quarantine_and_return_with_the_opening_event(tmp_path: Path) -> None:
    first = Story("t").start().say("a", 2)
    second = first.takeover(2, 2).say("b", 2)
    land(tmp_path / "landing", B, 0, second.landed[4:])
    assert run(tmp_path).held_back == 2
    assert events_of(tmp_path / "lake") == []
    assert set(rows(tmp_path / "lake", "quarantine")["reason"]) == {"held_back"}
    land(tmp_path / "landing", A, 0, second.landed[:4])
    run(tmp_path)
    assert events_of(tmp_path / "lake") == keys(events(second))
    assert len(rows(tmp_path / "lake", "quarantine")) == 0


@pytest.mark.parametrize("newer_first", [False, True])
def test_a_newer_mapping_replaces_an_import_whole_and_moves_it_to_its_partition(
    tmp_path: Path, newer_first: bool
) -> None:
    older, newer = Story("t", model="unknown"), Story("t", model="real", day="2026-11-29", seed=1)
    older.token, newer.token = 0, 1
    older.start(origin="imported").say("a", 4)
    newer.start(origin="imported").say("b", 2)
    parts = [(A, 0, older.landed), (B, 0, newer.landed)]
    for part in reversed(parts) if newer_first else parts:
        land(tmp_path / "landing", *part)
        run(tmp_path)
    assert events_of(tmp_path / "lake") == keys(events(newer))
    assert len(rows(tmp_path / "lake", "quarantine")) == 5
    lake = Lake.open(tmp_path / "lake")
    for table in ("events", "trajectories"):
        places = [file.partition for file in lake.files(lake.newest(), table)]
        assert places == [{"tenant": "t", "started_on": "2026-11-29", "model": "real@1"}]
    assert rows(tmp_path / "lake", "trajectories")["superseded"].to_list() == [5]


def test_a_conflict_keeps_the_smaller_hash_in_any_order_and_marks_the_trajectory(tmp_path: Path) -> None:
    left, right = Story("t").start().say("a", 2), Story("t").start().say("a", 2)
    twins = [Story("t", seed=s) for s in (1, 2)]
    pair = [twin.add(MessageAdded(role="user", wire=n, item_hash=""), number=3) for n, twin in enumerate(twins)]
    land(tmp_path / "landing", A, 0, [*left.landed, Landed(pair[0], left.info)])
    run(tmp_path)
    land(tmp_path / "landing", B, 0, [Landed(pair[1], right.info)])
    assert run(tmp_path).conflicts == 1
    low, high = sorted(event.hash.hex() for event in pair)
    assert rows(tmp_path / "lake", "events")["cryptographic_hash"].to_list().count(low) == 1
    assert rows(tmp_path / "lake", "quarantine").select("cryptographic_hash", "reason").rows() == [(high, "conflict")]
    assert rows(tmp_path / "lake", "trajectories")["conflicts"].to_list() == [1]


def test_a_corrupt_segment_is_named_and_stops_nothing_and_good_bytes_mend_it_later(tmp_path: Path) -> None:
    one, two = Story("t").start().say("a", 5), Story("u").start().say("b", 5)
    land(tmp_path / "landing", A, 0, one.landed[:3])
    bad = land(tmp_path / "landing", A, 3, one.landed[3:])
    land(tmp_path / "landing", A, 6, two.landed)
    good = bad.read_bytes()
    bad.write_bytes(good[:5000] + b"\xff" + good[5001:])
    report = run(tmp_path)
    assert [name for name, _ in report.segments_corrupt] == [str(bad.relative_to(tmp_path / "landing"))]
    assert report.events_added == 9
    lost = rows(tmp_path / "lake", "quarantine").select("reason", "writer", "lsn", "last_lsn").rows()
    assert lost == [("segment_lost", A.hex(), 3, 5)]
    assert run(tmp_path).outcome == "nothing_to_do"
    bad.write_bytes(good)
    assert run(tmp_path).events_added == 3
    assert events_of(tmp_path / "lake") == keys(events(one, two))
    assert len(rows(tmp_path / "lake", "quarantine")) == 0


def test_a_range_declared_lost_closes_the_gap_and_its_bytes_are_taken_if_they_land_after_all(tmp_path: Path) -> None:
    one, two = Story("t").start().say("a", 1), Story("u").start().say("b", 2)
    land(tmp_path / "landing", A, 2, two.landed)
    assert run(tmp_path).outcome == "nothing_to_do"
    report = run(tmp_path, declare_lost=(DeclaredLost(A.hex(), 0, 1, "disk died"),))
    assert (report.events_added, report.segments_waiting) == (3, [])
    assert "disk died" in rows(tmp_path / "lake", "quarantine")["detail"][0]
    land(tmp_path / "landing", A, 0, one.landed)
    assert run(tmp_path).events_added == 2
    assert len(rows(tmp_path / "lake", "quarantine")) == 0


def test_a_segment_whose_blob_is_missing_waits_and_the_blob_ends_in_the_content_store(tmp_path: Path) -> None:
    data = b"big output " * 5000
    digest = hashlib.sha256(data).hexdigest()
    story = Story("t").start()
    reference = {"$blob": digest, "bytes": len(data), "kind": "text", "head": "big"}
    story.add(ToolResult(action_id="0.0", status="ok", output=reference))
    other = Story("u").start().say("later", 2)
    land(tmp_path / "landing", A, 0, story.landed)
    land(tmp_path / "landing", A, 2, other.landed)
    land(tmp_path / "landing", B, 0, Story("v").start().landed)
    report = run(tmp_path)
    assert report.events_added == 1
    assert report.blobs_missing == [("t", digest)]
    assert len(report.segments_waiting) == 2
    blob = tmp_path / "landing" / "blobs" / "t" / digest[:2] / digest
    blob.parent.mkdir(parents=True)
    blob.write_bytes(data)
    assert run(tmp_path).blobs_stored == 1
    assert events_of(tmp_path / "lake") == keys([*events(story, other), *events(Story("v").start())])
    row = rows(tmp_path / "lake", "blobs").to_dicts()[0]
    assert ContentStore(str(tmp_path / "lake")).get("t", digest, row["path"]) == data
    place = rows(tmp_path / "lake", "blob_refs").select("sequence_number", "place", "sha256", "bytes").rows()
    assert place == [(1, "/output", digest, len(data))]
    blob.unlink()
    land(tmp_path / "landing", B, 1, [story.landed[1]])
    assert run(tmp_path).segments_waiting == []  # the lake holds the blob: landing may have dropped it


def test_hostile_names_stay_names(tmp_path: Path) -> None:
    ids = ["../../etc/passwd", "a/b\\c", "%2e%2e", "'; drop table events;--", "=?&#*[x]{y}", "ü" * 128]
    models = ["../m", "a b/c=d", "__HIVE_DEFAULT_PARTITION__", "x" * 400, "%41", "*[0-9]?"]
    stories = [
        Story(i, tenant=t, model=m).start().say("x", 2)
        for i, m, t in zip(ids, models, ["...", ".a", "-", "_", "A", "a"], strict=True)
    ]
    land(tmp_path / "landing", A, 0, interleaved(stories, random.Random(2)))
    run(tmp_path)
    assert events_of(tmp_path / "lake") == keys(events(*stories))
    assert sorted(set(rows(tmp_path / "lake", "trajectories")["model_id"])) == sorted(models)
    outside = [p for p in tmp_path.iterdir() if p.name not in ("landing", "lake")]
    assert outside == []


def test_files_hold_plain_strings_and_tables_stay_at_reader_1_writer_2(tmp_path: Path) -> None:
    first = Story("t").start().say("a", 3)
    land(tmp_path / "landing", A, 0, first.landed)
    run(tmp_path)
    land(tmp_path / "landing", B, 0, first.takeover(1, 2).say("b", 1).landed[2:])
    run(tmp_path)
    for name in TABLES:
        protocol = DeltaTable(str(tmp_path / "lake" / name)).protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
    files = list((tmp_path / "lake").rglob("*.parquet"))
    assert len(files) > 5
    for file in files:
        assert {str(field.type) for field in pq.read_schema(file)} <= PHYSICAL_TYPES, file
    found = DeltaTable(str(tmp_path / "lake" / "events")).to_pyarrow_table(filters=[("event_type", "=", "TaskStarted")])
    assert found.num_rows == 1


def test_statistics_let_a_reader_prune_by_trajectory(tmp_path: Path) -> None:
    for n, name in enumerate(("aaa", "mmm", "zzz")):
        land(tmp_path / "landing", bytes([n]) * 16, 0, Story(name).start().say("x", 2).landed)
        run(tmp_path)
    lake = Lake.open(tmp_path / "lake")
    files = lake.files(lake.newest(), "events")
    bounds = [(file.minimum["trajectory_id"], file.maximum["trajectory_id"], file.rows) for file in files]
    assert sorted(bounds) == [("aaa", "aaa", 3), ("mmm", "mmm", 3), ("zzz", "zzz", 3)]


def test_live_trajectories_are_taken_unless_only_settled_ones_are_asked_for(tmp_path: Path) -> None:
    ended, live = Story("t").start().say("a", 2).end(), Story("u").start().say("b", 2)
    land(tmp_path / "landing", A, 0, interleaved([ended, live], random.Random(3)))
    assert run(tmp_path, settle_after_s=0).events_added == 4
    assert events_of(tmp_path / "lake") == keys(events(ended))
    assert Lake.open(tmp_path / "lake").newest().cursors.get(A.hex()) is None or (
        Lake.open(tmp_path / "lake").newest().cursors[A.hex()].next == 0
    )
    run(tmp_path)
    assert events_of(tmp_path / "lake") == keys(events(ended, live))


def test_derived_tables_left_out_are_stale_and_rebuilt_to_the_same_rows(tmp_path: Path) -> None:
    stories = [Story(f"t{n}").start().say("x", 4).end() for n in range(6)]
    for n, story in enumerate(stories):
        land(tmp_path / "landing", bytes([n]) * 16, 0, story.landed)
    compact(str(tmp_path / "landing"), str(tmp_path / "one"))
    run(tmp_path, derive=False)
    lake = Lake.open(tmp_path / "lake")
    assert "trajectories" in lake.newest().stale
    assert len(rows(tmp_path / "lake", "trajectories")) == 0
    assert run(tmp_path).outcome == "committed"
    assert lake.newest().stale == ()
    assert everything(tmp_path / "lake") == everything(tmp_path / "one")


def test_small_buckets_give_the_same_rows_as_one(tmp_path: Path) -> None:
    stories = [Story(f"t{n}").start().say("x" * 300, 60).end() for n in range(20)]
    land(tmp_path / "landing", A, 0, interleaved(stories, random.Random(5)))
    run(tmp_path, bucket_bytes=1 << 16)
    compact(str(tmp_path / "landing"), str(tmp_path / "one"))
    assert everything(tmp_path / "lake") == everything(tmp_path / "one")


def test_dry_run_says_what_it_would_read_and_makes_no_lake(tmp_path: Path) -> None:
    land(tmp_path / "landing", A, 0, Story("t").start().landed)
    report = run(tmp_path, dry_run=True)
    assert (report.outcome, report.segments_taken) == ("dry_run", 1)
    assert not (tmp_path / "lake").exists()


def test_a_wrong_landing_is_refused_before_a_lake_is_made(tmp_path: Path) -> None:
    with pytest.raises(LakeMissing, match="no landing there"):
        run(tmp_path)
    assert not (tmp_path / "lake").exists()


def test_every_snapshot_can_still_be_read_after_later_runs(tmp_path: Path) -> None:
    story = Story("t").start().say("x", 5)
    for n in range(3):
        land(tmp_path / "landing", A, 2 * n, story.landed[2 * n : 2 * n + 2])
        run(tmp_path)
    counts = [len(rows(tmp_path / "lake", "events", snapshot)) for snapshot in range(4)]
    assert counts == [0, 2, 4, 6]
    assert [len(rows(tmp_path / "lake", "trajectories", n)) for n in range(4)] == [0, 1, 1, 1]


def test_payloads_that_are_not_what_their_type_promises_stop_no_run(tmp_path: Path) -> None:
    """They come from no writer of ours; the event stays, columns taken from it are null."""
    story = Story("t").start()
    kinds = ("ToolIntent", "ModelReplied", "ToolResult", "CheckpointSaved", "RewardAssigned", "ApprovalRequested",
             "TaskEnded", "LeaseAcquired", "RolledBack", "Branched", "ToolSettled")  # fmt: skip
    for text in (b'{"action_id":[],"calls":7,"covers":"x","token":"y","to":{}}', b"[]", b"no json", b"{}"):
        for kind in kinds:
            event = msgspec.structs.replace(
                story.landed[0].event, sequence_number=len(story.landed), type=kind, payload=text,
                hash=hashlib.sha256(f"{kind} {text!r}".encode()).digest(), recorded_at=2**62,
            )  # fmt: skip
            story.landed.append(Landed(event, story.info))
    land(tmp_path / "landing", A, 0, story.landed)
    land(tmp_path / "landing", B, 0, Story("good").start().say("x", 2).landed)
    report = run(tmp_path)
    assert report.segments_corrupt == []
    assert len(rows(tmp_path / "lake", "trajectories").filter(pl.col("trajectory_id") == "good")) == 1
    assert len(rows(tmp_path / "lake", "events")) == len(story.landed) + 3


def test_an_empty_payload_field_of_every_type_survives(tmp_path: Path) -> None:
    story = Story("t").start()
    story.add(InputRead(kind=""))
    land(tmp_path / "landing", A, 0, story.landed)
    run(tmp_path)
    frame = rows(tmp_path / "lake", "events")
    assert frame.filter(pl.col("event_type") == "InputRead")["payload"].to_list() == ['{"kind":""}']
    assert set(SNAPSHOT_TABLES) <= set(TABLES)


def test_workers_get_a_multiple_of_their_number_of_buckets_where_each_is_worth_its_files() -> None:
    def buckets(mib: int, *flags: str) -> int:
        return buckets_for(mib << 20, CompactOptions(beam_options=flags))

    two, three = "--direct_num_workers=2", "--parallelism=3"
    assert [buckets(mib) for mib in (0, 384, 385, 1150)] == [1, 1, 2, 3]
    assert [buckets(mib, two) for mib in (0, 127, 128, 385, 1150, 1 << 20)] == [1, 1, 2, 2, 6, BUCKETS_MAX]
    assert [buckets(mib, "--streaming", three) for mib in (191, 192, 1150, 1160)] == [1, 3, 3, 6]
    eight = "--direct_num_workers=8"  # on this host, so that each reduces an eighth of what may be in memory at once
    assert [buckets(mib, eight) for mib in (1024, 1536)] == [16, 24]
