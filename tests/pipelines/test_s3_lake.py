"""A lake in object storage is the lake on a disk: same rows, same verbs, on a real server."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command
from tests.pipelines.forgetting import a_lake
from tests.pipelines.lakes import everything
from tests.pipelines.s3_lakes import Bucket
from tests.pipelines.segments import Story, interleaved, land
from trajlake.pipelines.audit.verify import verify_lake
from trajlake.pipelines.compaction.compact import compact
from trajlake.pipelines.connect import connect
from trajlake.pipelines.forgetting.erase_places import Places
from trajlake.pipelines.lakehouse.arrow_dataset import dataset_of
from trajlake.pipelines.lakehouse.commit import head_handle
from trajlake.pipelines.lakehouse.content_objects import verify_objects
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.lake_errors import LakeError, LakeMissing, LakeUnreachable
from trajlake.pipelines.upkeep.erase import Wanted, erase
from trajlake.pipelines.upkeep.maintain import MaintainOptions, maintain
from trajlake.schemas.tables import SNAPSHOT_TABLES

pytestmark = pytest.mark.s3
A, B = b"a" * 16, b"b" * 16


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bucket:
    return Bucket(monkeypatch, tmp_path / "staging")


def first_landing(home: Path) -> list[Any]:
    """Land the beginning of four trajectories (models with odd names); return the first and what is still to land."""
    first = Story("t").start().say("a", 6)
    others = [Story(f"u{n}", tenant="x", model=f"m é%/{n}").start().say("u", 5) for n in range(3)]
    early = interleaved([first, *others], random.Random(1))
    land(home / "landing", A, 0, early[:18])
    return [first, early[18:]]


def second_landing(home: Path, first: Story, rest: list[Any]) -> None:
    """Land a tail, a take-over that supersedes committed rows, and a new trajectory."""
    land(home / "landing", A, 18, rest)
    second = first.takeover(3, 2).say("b", 4).end()
    land(home / "landing", B, 0, [*second.landed[4:], *Story("new", tenant="x").start().say("n", 3).landed])


@pytest.mark.long
def test_two_runs_give_the_rows_of_a_disk_and_connect_answers_the_same(bucket: Bucket, tmp_path: Path) -> None:
    home = tmp_path / "home"
    left = first_landing(home)
    for more in (lambda: None, lambda: second_landing(home, *left)):
        more()
        bucket.ship(home / "landing")
        report = compact(bucket.landing, bucket.lake)
        assert report.outcome == compact(str(home / "landing"), str(home / "lake")).outcome == "committed"
    assert everything(bucket.lake) == everything(home / "lake")
    assert compact(bucket.landing, bucket.lake).outcome == "nothing_to_do"
    assert not list((tmp_path / "staging").glob("*/*")), "staged rows stay behind"
    far, near = connect(bucket.lake), connect(home / "lake")
    for query in (
        "select tenant, trajectory_id, sequence_number, payload, model, started_on from events order by all",
        "select * exclude (tenant) from events where trajectory_id = 'u1' and started_on = '2026-11-30' order by all",
        "select count(*), max(recorded_at) from events where model = 'm é%/2@1'",
        "select trajectory_id from trajectories where parent_tenant is null order by all",
        "select * from turns order by all",
        "select * from messages order by all",
        "select kind, outcome, snapshot from runs order by all",
        "select * from doubts",
    ):
        assert far.execute(query).fetchall() == near.execute(query).fetchall(), query
    counted = "select count(*) from events"
    assert connect(bucket.lake, tenant="x").execute(counted).fetchall() != far.execute(counted).fetchall()
    assert connect(bucket.lake, 1, tenant="t").execute(counted).fetchall() == [(5,)]
    only_keys = set(bucket.keys()) - {f"landing/{key}" for key in bucket.keys("landing")}
    assert all(key.startswith("lake/") for key in only_keys), "something was written outside the lake"
    assert not [key for key in only_keys if "/probe/" in key or ".tmp" in key]


def test_a_look_for_one_trajectory_opens_only_the_files_that_may_hold_it(bucket: Bucket, tmp_path: Path) -> None:
    left = first_landing(tmp_path)
    second_landing(tmp_path, *left)
    bucket.ship(tmp_path / "landing")
    compact(bucket.landing, bucket.lake)
    lake = Lake.open(bucket.lake)
    files = lake.files(lake.newest(), "events")
    dataset = dataset_of(SNAPSHOT_TABLES["events"], lake.path("events"), files)
    import pyarrow.dataset as ds

    wanted = list(dataset.get_fragments(filter=ds.field("trajectory_id") == "u1"))
    assert len(files) == 5
    assert ["u1" in str(fragment.partition_expression) for fragment in wanted] == [True]


def test_a_server_that_ignores_conditions_is_refused_by_name_before_anything_is_written(
    bucket: Bucket, tmp_path: Path
) -> None:
    land(tmp_path / "landing", A, 0, Story("t").start().say("a", 2).landed)
    with (
        bucket.through("unconditional", methods=["PUT"]),
        pytest.raises(LakeUnreachable, match=rf"^{bucket.lake}: this server ignores conditional puts \(If-None-Match"),
    ):
        compact(str(tmp_path / "landing"), bucket.lake)
    assert bucket.keys("lake") == []
    compact(str(tmp_path / "landing"), bucket.lake)
    land(tmp_path / "landing", A, 3, Story("u").start().say("a", 2).landed)
    with bucket.through("unconditional", methods=["PUT"]), pytest.raises(LakeUnreachable, match="conditional puts"):
        compact(str(tmp_path / "landing"), bucket.lake)
    assert Lake.open(bucket.lake).snapshot_numbers() == [0, 1]


@pytest.mark.long
def test_expired_credentials_are_one_line_and_exit_3_and_a_later_run_goes_through(
    bucket: Bucket, tmp_path: Path, trajlake: Command
) -> None:
    land(tmp_path / "landing", A, 0, Story("t").start().say("a", 2).landed)
    staging = {"TRAJLAKE_STAGING": str(tmp_path / "staging")}
    run = ["compact", "--landing", "landing", "--lake", bucket.lake, "--runner", "none"]
    with bucket.through("expired"):
        refused = trajlake(*run, env=staging)
    assert (refused.returncode, refused.stdout) == (3, "")
    assert len(refused.stderr.splitlines()) == 1
    assert refused.stderr.startswith(f"trajlake: {bucket.lake}: the server says ExpiredToken")
    assert trajlake(*run, env=staging).returncode == 0
    with bucket.through("expired"):
        asked = trajlake("sql", "--lake", bucket.lake, "select 1")
    assert (asked.returncode, len(asked.stderr.splitlines())) == (3, 1)
    assert "credentials have expired" in asked.stderr


def test_places_that_are_none_are_refused_in_one_line(bucket: Bucket) -> None:
    for url in ("s3://lake", "s3://key:secret@lake/x", f"{bucket.lake}?endpoint_url=http://h", "gs://bucket/lake"):
        with pytest.raises(LakeError, match="s3://"):
            Lake.open(url)
    with pytest.raises(LakeMissing, match="no lake there"):
        Lake.open(bucket.lake)
    with pytest.raises(LakeMissing, match="no landing there"):
        compact(bucket.landing, bucket.lake)
    bucket.client("lake").put("somebody.txt", b"1")
    with pytest.raises(LakeError, match="not empty and no lake"):
        Lake.open(bucket.lake, create=True)


@pytest.mark.long
def test_of_two_runs_on_one_handle_the_second_is_refused_by_the_store(bucket: Bucket, tmp_path: Path) -> None:
    left = first_landing(tmp_path)
    bucket.ship(tmp_path / "landing")
    compact(bucket.landing, bucket.lake)
    lake = Lake.open(bucket.lake)
    stale = head_handle(lake, lake.newest())
    second_landing(tmp_path, *left)
    bucket.ship(tmp_path / "landing")
    compact(bucket.landing, bucket.lake)
    from trajlake.pipelines.lakehouse import commit
    from trajlake.pipelines.lakehouse.snapshot import read_run

    with pytest.raises(Exception, match=r"(?i)concurrent|conflict|transaction"):
        commit._commit(stale, "events", read_run(lake.url, lake.newest().run))


@pytest.mark.long
def test_erasure_maintenance_and_verification_leave_what_they_leave_on_a_disk(bucket: Bucket, tmp_path: Path) -> None:
    a_lake(tmp_path)
    bucket.ship(tmp_path / "landing")
    compact(bucket.landing, bucket.lake)
    compact(str(tmp_path / "landing"), str(tmp_path / "whole"))
    wanted = Wanted(tenant="t", subject="ada", because="letter")
    objects = len(bucket.keys("lake/cas"))
    for lake, landing in ((bucket.lake, bucket.landing), (str(tmp_path / "whole"), str(tmp_path / "landing"))):
        report = erase(lake, wanted, Places(landings=(landing,), gone=frozenset({"all"})))
        assert (report.state, report.left, len(report.trajectories)) == ("complete", [], 2)
        maintain(lake, MaintainOptions(kept_days=0, commits_per_checkpoint=1))
        assert {result.found for result in verify_lake(lake, blobs=True)} == {0}
        assert verify_objects(lake).problems == []
        assert len(Lake.open(lake).snapshot_numbers()) == 1
    assert everything(bucket.lake) == everything(tmp_path / "whole")
    assert len(bucket.keys("lake/cas")) == objects - 1
    assert [key for key in bucket.keys("lake") if key.endswith(".checkpoint.parquet")]
    left = {key.split("/")[1] for key in bucket.keys("landing") if key.startswith("writers/")}
    assert left == {name.name for name in (tmp_path / "landing" / "writers").iterdir() if any(name.iterdir())}
