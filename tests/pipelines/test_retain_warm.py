"""Rows leave PostgreSQL once the lake holds every one of them: never before, and what comes late is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.ingest.stores.histories import NOW_US, History
from tests.support.postgres import schema_url
from trajlake.ingest.landing_store import open_landing
from trajlake.ingest.shipper import Shipper
from trajlake.ingest.stores.postgres_database import VERSION, Database
from trajlake.ingest.stores.postgres_retention import WarmRetention
from trajlake.ingest.stores.postgres_warm import PostgresWarmTier
from trajlake.ingest.warm import WarmShipper
from trajlake.pipelines.commands import retain as cli_retain
from trajlake.pipelines.compaction.compact import compact
from trajlake.pipelines.lakehouse.snapshot import Cursor, LostRange
from trajlake.pipelines.upkeep.retain_warm import WarmReport, in_lake, retain_warm
from trajlake.runtime.cli_errors import UserError
from trajlake.runtime.root import Root
from trajlake.schemas import events as types

pytestmark = pytest.mark.postgres
LATER_S = NOW_US / 1e6 + 86_400


class Place:
    """A root, a landing, a lake and a warm tier, and what is done between them."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url, self.lake, self.landing = url, str(folder / "lake"), str(folder / "landing")
        self.root = Root.open(str(folder / "root"))
        self.connection = psycopg.connect(url, autocommit=True)

    def write(self, *histories: History) -> None:
        writer = self.root.claim_writer()
        for history in histories:
            writer.append(history.events, history.info).wait()
        writer.close()

    def ship_warm(self) -> Any:
        return WarmShipper(self.root, PostgresWarmTier(Database(self.url))).run()

    def compact(self) -> None:
        Shipper(self.root, open_landing(self.landing, self.root.env)).run()
        compact(self.landing, self.lake)

    def leave(self, **more: Any) -> WarmReport:
        return retain_warm(self.lake, self.url, **{"before_s": LATER_S, **more})

    def rows(self, query: str) -> list[Any]:
        return self.connection.execute(query).fetchall()

    def count(self, table: str = "trajectory_events") -> int:
        return int(self.rows(f"select count(*) from {table}")[0][0])


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with schema_url() as url:
        made = Place(tmp_path, url)
        yield made
        made.connection.close()


def ended(name: str) -> History:
    history = History(name)
    history.start()
    history.say(3)
    history.add(types.TaskEnded(status="completed"))
    return history


def test_what_ended_and_lies_in_the_lake_leaves_and_what_is_open_stays(place: Place) -> None:
    running = History("running")
    running.start()
    place.write(ended("done"), running)
    place.ship_warm()
    place.compact()
    report = place.leave()
    assert (report.trajectories, report.rows, report.waiting) == (1, 5, [])
    assert place.rows("select distinct trajectory_id from trajectory_events") == [("running",)]
    assert ("done", "completed") in place.rows("select trajectory_id, status from status")
    again = place.leave()
    assert (again.trajectories, again.rows, again.waiting) == (0, 0, [])


def test_nothing_leaves_before_the_lake_holds_it_or_before_its_time(place: Place) -> None:
    place.write(ended("first"))
    place.ship_warm()
    place.compact()
    assert place.leave(before_s=NOW_US / 1e6 - 1).trajectories == 0
    place.write(ended("second"))  # shipped to the warm tier, not landed
    place.ship_warm()
    report = place.leave()
    assert (report.trajectories, report.waiting) == (1, [("default", "second")])
    assert place.count() == 5


def test_a_dry_run_counts_and_takes_nothing(place: Place) -> None:
    place.write(ended("done"))
    place.ship_warm()
    place.compact()
    assert place.leave(dry_run=True).trajectories == 1
    assert (place.count(), place.count("trajectory_left")) == (5, 0)


def test_a_trajectory_whose_head_differs_from_the_lakes_stays(place: Place) -> None:
    place.write(ended("done"))
    place.ship_warm()
    place.compact()
    place.rows("update trajectory_events set cryptographic_hash = '\\x00' where event_type = 'TaskEnded' returning 1")
    report = place.leave()
    assert (report.trajectories, report.waiting) == (0, [("default", "done")])
    assert place.count() == 5


def test_an_effect_in_doubt_keeps_its_trajectory_where_people_look(place: Place) -> None:
    history = History("doubtful")
    history.start()
    history.intent("1.0")
    history.add(types.TaskEnded(status="failed"))
    place.write(history)
    place.ship_warm()
    place.compact()
    assert place.leave().trajectories == 0
    assert place.count() == 3


def test_a_copy_that_comes_after_it_left_moves_no_head_and_goes_with_the_next_run(place: Place) -> None:
    place.write(ended("done"))
    place.ship_warm()
    place.compact()
    place.leave()
    heads = place.rows("select * from trajectory_heads")
    place.rows("update journal_cursors set next_lsn = 3 returning 1")
    assert place.ship_warm().events == 2
    assert place.rows("select * from trajectory_heads") == heads
    assert place.leave().rows == 2
    assert place.count() == 0


def test_blobs_go_with_the_last_trajectory_that_names_them(place: Place) -> None:
    place.write(ended("done"), ended("other"))
    place.ship_warm()
    place.compact()
    for name, digests in (("done", ("\\x01", "\\x02")), ("running", ("\\x02",))):
        for digest in digests:
            place.rows(f"insert into trajectory_blob_refs values ('default', '{digest}', '{name}') returning 1")
    for digest in ("\\x01", "\\x02"):
        place.rows(f"insert into trajectory_blobs values ('default', '{digest}', 'x') returning 1")
    place.leave()
    assert [bytes(row[0]) for row in place.rows("select sha256 from trajectory_blobs")] == [b"\x02"]


def test_a_journal_counts_as_committed_only_without_a_loss_before_it() -> None:
    from trajlake.ingest.stores.postgres_retention import EndedHere

    one = EndedHere("t", "x", 4, {"aa": 9})
    assert in_lake(one, {"aa": Cursor(next=10)})
    assert not in_lake(one, {"aa": Cursor(next=9)})
    assert not in_lake(one, {"bb": Cursor(next=10)})
    lost = LostRange(first=5, last=6, reason="corrupt")
    assert not in_lake(one, {"aa": Cursor(next=10, lost=(lost,))})


@pytest.mark.parametrize("moved", ["lsn = 100", "writer = 'ff'"])
def test_a_row_that_comes_between_the_look_and_the_leaving_keeps_its_trajectory_here(place: Place, moved: str) -> None:
    place.write(ended("done"))
    place.ship_warm()
    tier = WarmRetention(Database(place.url))
    ((head,),) = place.rows("select encode(cryptographic_hash, 'hex') from trajectory_events where sequence_number = 4")
    (one,) = tier.ended_before(LATER_S)
    place.rows(f"update trajectory_events set {moved} where sequence_number = 2 returning 1")
    assert (tier.leave(one, head, 1), place.count(), place.count("trajectory_left")) == (-1, 5, 0)
    (seen,) = tier.ended_before(LATER_S)
    assert (tier.leave(seen, head, 1), place.count()) == (5, 0)
    tier.close()


def test_a_warm_tier_of_the_version_before_is_brought_up(place: Place) -> None:
    place.write(ended("done"))
    place.ship_warm()
    for undo in ("drop function leave_to_lake", "drop table trajectory_left", "update warm_version set version = 1"):
        place.connection.execute(undo)
    place.compact()
    assert place.leave().rows == 5
    assert place.rows("select max(version) from warm_version") == [(VERSION,)]


def test_the_command_names_what_left(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.write(ended("done"))
    place.ship_warm()
    place.compact()
    how = {"policy": None, "keep_warm": "1d", "lake": place.lake, "dry_run": False, "as_json": False}
    cli_retain.retain(warm=[place.url], **how)  # type: ignore[arg-type]
    assert "1 trajectories, 5 rows" in capsys.readouterr().out
    with pytest.raises(UserError, match="--policy"):
        cli_retain.retain(warm=None, **how)  # type: ignore[arg-type]
