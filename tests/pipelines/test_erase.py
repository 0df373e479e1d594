"""An erasure takes the texts of trajectories from every place, keeps rows, order, hashes, and says what is left."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.forgetting import SECRET, A, B, a_lake, bytes_anywhere, digest_of, person
from tests.pipelines.lakes import everything, rows
from tests.pipelines.segments import Story, land
from trajlake.pipelines.audit.verify import verify_lake
from trajlake.pipelines.compaction.compact import compact
from trajlake.pipelines.forgetting.erase_places import Places
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.lake_errors import LakeMissing
from trajlake.pipelines.lakehouse.pins import Pin, files_to_pin, put_pin, read_pin
from trajlake.pipelines.lakehouse.snapshot import Expired, Snapshot, put_expired
from trajlake.pipelines.lakehouse.standing import read_standing
from trajlake.pipelines.upkeep.erase import EraseReport, Wanted, continue_erasures, erase, what_would_go
from trajlake.pipelines.upkeep.holds import lift, place
from trajlake.pipelines.upkeep.maintain import MaintainOptions, maintain
from trajlake.pipelines.upkeep.retain import retain
from trajlake.pipelines.upkeep.vacuum import what_is_named

ADA = Wanted(tenant="t", subject="ada", because="asked by letter 7")


class Killed(BaseException):
    """Stands for SIGKILL inside one process: nothing in the product catches it."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("made")
    a_lake(home)
    return home


@pytest.fixture
def home(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "home")


def places(home: Path, *, gone: bool = True) -> Places:
    return Places(landings=(str(home / "landing"),), gone=frozenset({"all"} if gone else ()))


def erased(home: Path, wanted: Wanted = ADA, **more: Any) -> EraseReport:
    return erase(str(home / "lake"), wanted, places(home), **more)


def texts_of(home: Path, *ids: str) -> list[Any]:
    events = rows(home / "lake", "events")
    return events.filter(events["trajectory_id"].is_in(ids))["payload"].drop_nulls().to_list()


def check_verified(lake: Path) -> None:
    results = verify_lake(str(lake), blobs=True)
    assert {result.rule: result.found for result in results} == dict.fromkeys((r.rule for r in results), 0)


def test_by_subject_every_text_of_the_person_goes_and_everything_else_stays(home: Path) -> None:
    before = everything(home / "lake")
    report = erased(home)
    assert (report.state, report.left) == ("complete", [])
    assert report.trajectories == [("t", "a1"), ("t", "a2")]
    after = everything(home / "lake")
    kept = ("payload", "salt")
    assert [{k: v for k, v in row.items() if k not in kept} for row in after["events"]] == [
        {k: v for k, v in row.items() if k not in kept} for row in before["events"]
    ]
    assert texts_of(home, "a1", "a2") == []
    assert len(texts_of(home, "b1", "b2")) == 6 + 4 + 1
    by_id = {row["trajectory_id"]: row for row in after["trajectories"]}
    assert [by_id[i]["erasure_epoch"] for i in ("a1", "a2", "b1", "b2")] == [1, 1, None, None]
    assert (by_id["a1"]["task"], by_id["a1"]["status"], by_id["a1"]["subjects"]) == (None, "completed", '["ada"]')
    check_verified(home / "lake")


def test_nothing_on_disk_holds_the_text_once_it_is_complete(home: Path) -> None:
    maintain(str(home / "lake"), MaintainOptions(commits_per_checkpoint=1))
    assert bytes_anywhere(home, f"{SECRET} a1") != []
    assert erased(home).state == "complete"
    assert bytes_anywhere(home, f"{SECRET} a1") == []
    assert bytes_anywhere(home, f"{SECRET} a2") == []
    assert bytes_anywhere(home, "ada looks like this") == []
    assert bytes_anywhere(home, f"{SECRET} b1") != []


def test_a_blob_that_a_live_row_names_stays_and_others_go(home: Path) -> None:
    erased(home)
    assert set(rows(home / "lake", "blobs")["sha256"]) == {digest_of("both"), digest_of("bob")}
    erased(home, Wanted(tenant="t", trajectory_id="b1"))
    assert len(rows(home / "lake", "blobs")) == 0
    assert bytes_anywhere(home / "lake" / "cas", "looks like this") == []


def test_no_version_that_held_the_text_may_be_read_any_more(home: Path) -> None:
    before = Lake.open(home / "lake").snapshot_numbers()
    report = erased(home)
    lake = Lake.open(home / "lake")
    assert lake.snapshot_numbers() == [0, report.snapshot]
    for number in before[1:]:
        with pytest.raises(LakeMissing, match="expired: erasure"):
            lake.snapshot(number)


def test_until_every_writer_is_known_to_hold_nothing_it_is_pending_and_names_them(home: Path) -> None:
    report = erase(str(home / "lake"), ADA, places(home, gone=False))
    assert report.state == "pending"
    assert report.left == [f"writer {A.hex()}: its root was not named; give --journal, or --gone {A.hex()}"]
    (standing,) = read_standing(Lake.open(home / "lake")).erasures
    assert (standing.state, standing.detail["left"]) == ("pending", report.left)
    (again,) = continue_erasures(str(home / "lake"), Places(gone=frozenset({A.hex()})))
    assert again.state == "complete"
    assert continue_erasures(str(home / "lake")) == []


def test_a_segment_shared_with_an_open_trajectory_stays_and_is_named(home: Path) -> None:
    story = person(home / "landing", "a3", "ada")
    other = Story("open").start().say("x", 2)
    land(home / "landing", B, 4, [*story.landed, *other.landed])
    compact(str(home / "landing"), str(home / "lake"))
    report = erased(home)
    assert report.state == "pending"
    assert len(report.left) == 1
    assert "shared with 'open' of tenant t, which is open" in report.left[0]
    done = other.end().landed[-1:]
    land(home / "landing", B, 4 + len(story.landed) + 3, done)
    compact(str(home / "landing"), str(home / "lake"))
    (again,) = continue_erasures(str(home / "lake"), places(home))
    assert again.state == "complete"
    assert bytes_anywhere(home, f"{SECRET} a3") == []


def test_a_held_erasure_is_refused_and_takes_nothing(home: Path) -> None:
    held = place(str(home / "lake"), tenant="t", trajectory_id="a2", because="case 12")
    assert held.status == "confirmed"
    before = everything(home / "lake")
    report = erased(home)
    assert (report.state, report.held) == ("refused", [("t", "a2")])
    assert everything(home / "lake") == before
    lift(str(home / "lake"), held.hold_id, because="settled")
    assert erased(home).state == "complete"
    assert [one.state for one in read_standing(Lake.open(home / "lake")).erasures] == ["refused", "complete"]
    assert place(str(home / "lake"), tenant="t", subject="ada", because="case 13").status == "late"


def test_pins_get_files_without_the_text_and_raise_their_epoch(home: Path) -> None:
    lake = Lake.open(home / "lake")
    at = lake.newest()
    tables = ("events", "trajectories", "blobs")
    pin = put_pin(lake, Pin(name="set", snapshot=at.number, erasure_epoch=0, files=files_to_pin(lake, at, tables),
                            members=[("t", "a1")]))  # fmt: skip
    report = erased(home)
    assert (report.state, report.recut) == ("complete", ["set"])
    new = read_pin(lake, "set")
    assert new.erasure_epoch == 1
    maintain(str(home / "lake"), MaintainOptions(kept_days=0))
    paths = [home / "lake" / path for files in new.files.values() for path in files]
    assert paths
    assert all(path.exists() for path in paths)
    assert bytes_anywhere(home, f"{SECRET} a1") == []
    assert set(pin.files["events"]) & set(new.files["events"])


def test_a_later_copy_and_a_later_trajectory_of_the_person_lose_their_text_in_the_run_that_meets_them(
    home: Path,
) -> None:
    erased(home)
    again = person(home / "landing", "a1", "ada", "ada")
    fresh = person(home / "landing", "a9", "ada", "ada at home")
    land(home / "landing", B, 4, [*again.landed, *fresh.landed])
    report = compact(str(home / "landing"), str(home / "lake"))
    assert report.events_added == len(fresh.landed)
    assert texts_of(home, "a1", "a2", "a9") == []
    events = rows(home / "lake", "events")
    assert len(events.filter(events["trajectory_id"] == "a9")) == len(fresh.landed)
    assert digest_of("ada at home") not in set(rows(home / "lake", "blobs")["sha256"])
    maintain(str(home / "lake"), MaintainOptions(kept_days=0))
    assert bytes_anywhere(home, f"{SECRET} a1") == bytes_anywhere(home, f"{SECRET} a9") == []
    assert bytes_anywhere(home, "ada at home looks like this") == []
    check_verified(home / "lake")


def test_an_event_that_comes_after_the_erasure_stays_canonical_and_has_no_text(home: Path) -> None:
    erased(home, Wanted(tenant="t", trajectory_id="b2"))
    whole = person(home / "landing", "b2", "bob", ended=False)
    known = len(whole.landed)
    before = {r["trajectory_id"]: r for r in everything(home / "lake")["trajectories"]}["b2"]
    later = whole.takeover(known - 1, 2).say(f"{SECRET} later", 2).end()
    land(home / "landing", B, known, later.landed[known:])
    compact(str(home / "landing"), str(home / "lake"))
    assert texts_of(home, "b2") == []
    after = {r["trajectory_id"]: r for r in everything(home / "lake")["trajectories"]}["b2"]
    assert (after["events"], after["status"], after["erasure_epoch"]) == (known + 4, "completed", 1)
    for name in ("model_id", "model_version", "subjects", "kind", "workspace", "started_at"):
        assert after[name] == before[name], name
    check_verified(home / "lake")


@pytest.mark.parametrize("asked_first", [True, False])
def test_an_erased_take_over_that_waits_for_what_is_before_it_finds_its_place(home: Path, asked_first: bool) -> None:
    """Found by racing processes: without its payload a held-back opening was an opening no more."""
    story = person(home / "landing", "late", "eve")
    later = story.takeover(2, 2).say(f"{SECRET} later", 2).end()
    wanted = Wanted(tenant="t", trajectory_id="late")
    if asked_first:
        erased(home, wanted)
    land(home / "landing", B, 4, later.landed[3:])
    compact(str(home / "landing"), str(home / "lake"))
    if not asked_first:
        erased(home, wanted)
    assert len(rows(home / "lake", "quarantine")) == 4
    land(home / "landing", B, 8, story.landed)
    compact(str(home / "landing"), str(home / "lake"))
    events = rows(home / "lake", "events")
    mine = events.filter(events["trajectory_id"] == "late")
    assert list(zip(mine["sequence_number"], mine["fencing_token"], strict=True)) == [
        (0, 1), (1, 1), (2, 1), (3, 2), (4, 2), (5, 2), (6, 2),
    ]  # fmt: skip
    assert rows(home / "lake", "quarantine")["reason"].to_list() == ["superseded", "superseded"]
    assert texts_of(home, "late") == []
    check_verified(home / "lake")


def test_staged_rows_of_a_killed_run_go_with_the_erasure(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by racing processes: a killed compaction left texts in its staging directory."""
    land(home / "landing", B, 4, person(home / "landing", "a1", "ada", "ada").landed)

    def die(step: str, _: int, __: int) -> None:
        if step == "segments read":
            raise Killed

    from trajlake.pipelines.compaction import compact as module
    from trajlake.pipelines.lakehouse import staging

    with monkeypatch.context() as patch:
        patch.setattr(module, "unstage", lambda *_: [])  # a kill leaves no time to tidy up
        with pytest.raises(Killed):
            compact(str(home / "landing"), str(home / "lake"), None, die)
    (staged,) = (home / "lake/_trajlake/staging").iterdir()

    def refuse(folder: str) -> None:
        raise PermissionError(1, "Operation not permitted", folder)

    stays = f"{staged}: staged texts cannot be removed: Operation not permitted"
    with monkeypatch.context() as patch:
        patch.setattr(staging, "remove_tree", refuse)
        report = erased(home)
        assert (report.state, report.left[-1]) == ("pending", stays)
        assert stays in compact(str(home / "landing"), str(home / "lake")).staging_left
    assert erased(home).state == "complete"
    assert not any((home / "lake/_trajlake/staging").iterdir())


def test_an_erasure_of_what_has_not_landed_yet_waits_for_it(home: Path) -> None:
    assert erased(home, Wanted(tenant="t", trajectory_id="late")).state == "complete"
    story = person(home / "landing", "late", "eve", "eve")
    land(home / "landing", B, 4, story.landed)
    compact(str(home / "landing"), str(home / "lake"))
    assert texts_of(home, "late") == []
    assert len(rows(home / "lake", "blobs")) == 3
    check_verified(home / "lake")


def test_what_the_disk_does_not_let_go_keeps_the_erasure_pending_and_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_the_way = home / "landing/checkpoints"
    in_the_way.write_text("no folder")
    kept = home / "lake/_trajlake/curate/k/part-0.parquet"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(SECRET.encode())
    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", refusing(os.unlink))
        report = erased(home)
    assert report.state == "pending"
    assert {line.rpartition(": ")[0].rpartition("/")[0] for line in report.left} >= {str(in_the_way)}
    assert [line for line in report.left if line.startswith("rows that curation keeps")]
    assert kept.exists()
    in_the_way.unlink()
    (done,) = continue_erasures(str(home / "lake"), places(home))
    assert (done.state, done.left, kept.exists()) == ("complete", [], False)


def refusing(unlink: Callable[..., None]) -> Callable[..., None]:
    """An `os.unlink` that takes nothing out of an opened folder, as where rights are missing."""

    def refuse(path: str, *, dir_fd: int | None = None) -> None:
        if dir_fd is not None:
            raise PermissionError(13, "Permission denied", path)
        unlink(path)

    return refuse


def test_a_dry_run_says_what_would_go_and_writes_nothing(home: Path) -> None:
    place(str(home / "lake"), tenant="t", trajectory_id="a2", because="case 12")
    before = sorted(str(p) for p in home.rglob("*"))
    report = what_would_go(str(home / "lake"), ADA)
    assert (report.trajectories, report.held) == ([("t", "a1"), ("t", "a2")], [("t", "a2")])
    assert sorted(str(p) for p in home.rglob("*")) == before


def half_done(home: Path) -> None:
    """A compaction that dies between its commit of `events` and its snapshot."""

    def die(step: str, _: int, __: int) -> None:
        if step == "events committed":
            raise Killed

    with pytest.raises(Killed):
        compact(str(home / "landing"), str(home / "lake"), None, die)


def test_a_dry_run_beside_a_half_done_run_answers_and_still_writes_nothing(home: Path) -> None:
    land(home / "landing", B, 4, person(home / "landing", "next", "eve", "eve").landed)
    half_done(home)
    before = sorted(str(p) for p in home.rglob("*"))
    assert what_would_go(str(home / "lake"), ADA).trajectories == [("t", "a1"), ("t", "a2")]
    assert retain(str(home / "lake"), (), dry_run=True).outcome == "dry_run"
    assert sorted(str(p) for p in home.rglob("*")) == before


def test_a_run_that_comes_between_the_decision_and_the_clearing_is_finished_first(home: Path) -> None:
    """Found by racing processes: the erasure gave up because another launcher was ahead."""
    land(home / "landing", B, 4, person(home / "landing", "a3", "ada", "ada").landed)
    come: list[str] = []

    def progress(step: str, _: int, __: int) -> None:
        if decided(home) and not come:
            come.append(step)
            half_done(home)

    def decided(home: Path) -> bool:
        return Lake.open(home / "lake").newest().kind == "erase"

    report = erased(home, progress=progress)
    assert come
    assert report.state == "complete"
    assert ("t", "a3") in report.trajectories
    assert bytes_anywhere(home, SECRET + " a3") == []


@pytest.fixture
def expired_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshot 1 expires between a look at the list of snapshots and the look into it."""
    real = Lake.snapshot

    def snapshot(lake: Lake, number: int) -> Snapshot:
        if number == 1:
            put_expired(lake.url, Expired(snapshot=1, why="older than the time snapshots are kept", at="2026-12-01"))
        return real(lake, number)

    monkeypatch.setattr(Lake, "snapshot", snapshot)


def test_a_snapshot_that_maintenance_expires_meanwhile_stops_no_erasure(home: Path, expired_meanwhile: None) -> None:
    """Found by racing processes."""
    assert erased(home).state == "complete"
    assert bytes_anywhere(home, f"{SECRET} a1") == []


def test_a_snapshot_that_expires_meanwhile_names_nothing(home: Path, expired_meanwhile: None) -> None:
    lake = Lake.open(home / "lake")
    assert what_is_named(lake) == what_is_named(lake, without=[1])


def test_erasing_twice_changes_nothing_more(home: Path) -> None:
    erased(home)
    before = everything(home / "lake")
    assert erased(home).state == "complete"
    assert everything(home / "lake") == before


def steps_of(home: Path) -> list[str]:
    steps: list[str] = []
    erased(home, progress=lambda step, *_: steps.append(step))
    return steps


def check_killed(made: Path, tmp_path: Path, at: list[int], *, then_compact: bool) -> None:
    wanted = None
    for number in [0, *at]:
        home = shutil.copytree(made, tmp_path / str(number))
        left = [number]

        def progress(step: str, _: int, __: int, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Killed(step)

        try:
            erased(home, progress=progress)
        except Killed as killed:
            print(number, killed)
        if then_compact:
            compact(str(home / "landing"), str(home / "lake"))
        final = erased(home)
        assert final.state == "complete"
        assert bytes_anywhere(home, f"{SECRET} a1") == [], number
        found = everything(home / "lake")
        for row in found["trajectories"]:
            row["erasure_epoch"] = row["erasure_epoch"] and 1
        wanted = wanted or found
        assert found == wanted, number
        shutil.rmtree(home)


def test_killed_halfway_and_run_again_it_ends_the_same(made: Path, tmp_path: Path) -> None:
    total = len(steps_of(shutil.copytree(made, tmp_path / "count")))
    check_killed(made, tmp_path, [total // 2], then_compact=False)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("then_compact", [False, True])
def test_killed_after_every_step_and_run_again_it_ends_the_same(made: Path, tmp_path: Path, then_compact: bool) -> None:
    total = len(steps_of(shutil.copytree(made, tmp_path / "count")))
    check_killed(made, tmp_path, list(range(1, total + 1)), then_compact=then_compact)
