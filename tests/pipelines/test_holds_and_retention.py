"""A hold beats deletion; retention takes blobs, then payloads, then trajectories, and never what says what happened."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.pipelines.forgetting import SECRET, B, a_lake, bytes_anywhere, digest_of, person
from tests.pipelines.lakes import everything, rows
from tests.pipelines.segments import START_US, land
from trajlake.pipelines.audit.verify import verify_lake
from trajlake.pipelines.compaction.compact import compact
from trajlake.pipelines.forgetting.erase_places import Places
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.standing import read_standing
from trajlake.pipelines.upkeep.erase import Wanted, erase
from trajlake.pipelines.upkeep.holds import confirm_all, lift, list_holds, place
from trajlake.pipelines.upkeep.maintain import MaintainOptions, maintain
from trajlake.pipelines.upkeep.retain import RetainReport, retain
from trajlake.pipelines.upkeep.retention_policy import PolicyError, Rule, rules_of

DAY_S = 86_400.0
START_S = START_US / 1e6
IN_100_DAYS = START_S + 100 * DAY_S


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


def rule(what: str, days: int = 90, **more: Any) -> Rule:
    return Rule(what=what, tenant="*", days=days, **more)


def retained(home: Path, *rules: Rule, **more: Any) -> RetainReport:
    return retain(str(home / "lake"), rules, **{"now": IN_100_DAYS, **more})


def by_id(home: Path) -> dict[str, dict[str, Any]]:
    return {row["trajectory_id"]: row for row in rows(home / "lake", "trajectories").to_dicts()}


def texts(home: Path) -> dict[str, int]:
    events = rows(home / "lake", "events").filter(pl.col("payload").is_not_null())
    return dict(events.group_by("trajectory_id").len().sort("trajectory_id").iter_rows())


def check_verified(lake: Path) -> None:
    results = verify_lake(str(lake))
    assert {result.rule: result.found for result in results} == dict.fromkeys((r.rule for r in results), 0)


def test_blobs_go_first_and_events_stay_as_they_are(home: Path) -> None:
    before = everything(home / "lake")
    report = retained(home, rule("blobs"))
    assert (report.outcome, report.blobs_expired, report.payloads_expired) == ("committed", 3, 0)
    after = everything(home / "lake")
    assert after["blobs"] == []
    changed = ("blobs", "trajectories")
    assert {k: v for k, v in after.items() if k not in changed} == {k: v for k, v in before.items() if k not in changed}
    assert [by_id(home)[i]["blobs_expired"] for i in ("a1", "a2", "b1", "b2")] == [1, 1, 2, None]
    maintain(str(home / "lake"), MaintainOptions(kept_days=0))
    assert bytes_anywhere(home / "lake" / "cas", "looks like this") == []


def test_a_copy_that_lands_after_its_blob_expired_does_not_wait_for_it(home: Path) -> None:
    retained(home, rule("blobs"))
    again = person(home / "landing", "a1", "ada", "ada")
    fresh = person(home / "landing", "fresh", "eve")
    shutil.rmtree(home / "landing" / "blobs")
    land(home / "landing", B, 4, [*again.landed, *fresh.landed])
    report = compact(str(home / "landing"), str(home / "lake"))
    assert (report.segments_waiting, report.duplicates, report.events_added) == ([], 6, 5)


def test_a_blob_stays_while_one_trajectory_that_names_it_is_young_or_held(home: Path) -> None:
    place(str(home / "lake"), tenant="t", trajectory_id="a2", because="case 12")
    retained(home, rule("blobs"))
    assert set(rows(home / "lake", "blobs")["sha256"]) == {digest_of("both")}


def test_payloads_go_while_order_hashes_and_status_stay(home: Path) -> None:
    before = everything(home / "lake")
    report = retained(home, rule("payloads"))
    assert report.payloads_expired == 6 + 6 + 7
    assert texts(home) == {"b2": 4}
    after = everything(home / "lake")
    kept = ("payload", "salt")
    assert [{k: v for k, v in row.items() if k not in kept} for row in after["events"]] == [
        {k: v for k, v in row.items() if k not in kept} for row in before["events"]
    ]
    assert [by_id(home)[i]["payloads_expired"] for i in ("a1", "a2", "b1", "b2")] == [6, 6, 7, None]
    assert (by_id(home)["a1"]["status"], by_id(home)["a1"]["subjects"], by_id(home)["a1"]["task"]) == (
        "completed", '["ada"]', None,
    )  # fmt: skip
    check_verified(home / "lake")


def test_a_rule_may_name_types_and_kinds(home: Path) -> None:
    retained(home, rule("payloads", types=frozenset({"MessageAdded"}), kind="live"))
    assert texts(home) == {"a1": 2, "a2": 2, "b1": 2, "b2": 4}
    assert retained(home, rule("payloads", kind="imported")).outcome == "nothing_to_do"


def test_of_a_trajectory_that_is_due_as_a_whole_one_row_stays_and_nothing_comes_back(home: Path) -> None:
    openings = {i: row["openings"] for i, row in by_id(home).items()}
    report = retained(home, rule("trajectories"))
    assert report.trajectories_expired == 3
    for table, found in everything(home / "lake").items():
        if "trajectory_id" in (found[0] if found else {}) and table != "trajectories":
            assert {row["trajectory_id"] for row in found} <= {"b2"}, table
    assert {i: row["status"] for i, row in by_id(home).items()} == {
        "a1": "expired", "a2": "expired", "b1": "expired", "b2": "open",
    }  # fmt: skip
    assert {i: row["openings"] for i, row in by_id(home).items()} == openings
    assert len(rows(home / "lake", "blobs")) == 0
    again = person(home / "landing", "a1", "ada", "ada")
    land(home / "landing", B, 4, again.landed)
    shutil.rmtree(home / "landing" / "blobs")
    back = compact(str(home / "landing"), str(home / "lake"))
    assert (back.expired, back.events_added, back.segments_waiting) == (6, 0, [])
    assert texts(home) == {"b2": 4}
    check_verified(home / "lake")


def test_what_is_open_young_or_held_stays(home: Path) -> None:
    hold = place(str(home / "lake"), tenant="t", subject="ada", because="case 12")
    report = retained(home, rule("trajectories"), rule("payloads", 200))
    assert report.held == [("t", "a1"), ("t", "a2")]
    assert {i for i, row in by_id(home).items() if row["status"] == "expired"} == {"b1"}
    lift(str(home / "lake"), hold.hold_id, because="settled")
    assert retained(home, rule("trajectories")).trajectories_expired == 2
    assert retained(home, rule("trajectories")).outcome == "nothing_to_do"
    assert place(str(home / "lake"), tenant="t", trajectory_id="a1", because="too late").status == "late"


def test_a_dry_run_counts_and_writes_nothing(home: Path) -> None:
    before = sorted(str(p) for p in home.rglob("*"))
    report = retained(home, rule("trajectories"), rule("blobs"), dry_run=True)
    assert (report.outcome, report.trajectories_expired, report.blobs_expired) == ("dry_run", 3, 3)
    assert sorted(str(p) for p in home.rglob("*")) == before


def test_derived_columns_of_expired_payloads_are_carried_over_when_the_trajectory_is_touched(home: Path) -> None:
    story = person(home / "landing", "b1", "bob", "both", "bob")
    retained(home, rule("payloads"))
    before = by_id(home)["b1"]
    known = len(story.landed)
    later = story.takeover(known - 1, 2)
    land(home / "landing", B, 4, later.landed[known:])
    compact(str(home / "landing"), str(home / "lake"))
    after = by_id(home)["b1"]
    assert after["events"] == known + 1
    changed = {"events", "last_sequence", "head_hash", "fencing_token", "openings", "last_event_at"}
    assert {k: v for k, v in after.items() if k not in changed} == {k: v for k, v in before.items() if k not in changed}
    refs = rows(home / "lake", "blob_refs").filter(pl.col("trajectory_id") == "b1")
    assert set(refs["sha256"]) == {digest_of("both"), digest_of("bob")}
    check_verified(home / "lake")


def test_a_hold_killed_between_its_row_and_its_run_holds_all_the_same(home: Path) -> None:
    def die(step: str, _: int, __: int) -> None:
        if step == "hold placed":
            raise Killed

    with pytest.raises(Killed):
        place(str(home / "lake"), tenant="t", trajectory_id="a1", because="case 12", progress=die)
    assert [hold.status for hold in list_holds(str(home / "lake"))] == ["placed"]
    gone = Places(gone=frozenset({"all"}))
    assert erase(str(home / "lake"), Wanted(tenant="t", trajectory_id="a1"), gone).state == "refused"
    assert [hold.status for hold in confirm_all(str(home / "lake"))] == ["confirmed"]
    assert bytes_anywhere(home / "lake", f"{SECRET} a1") != []


def test_a_hold_that_comes_after_the_erasure_run_is_late_and_says_what_is_gone(home: Path) -> None:
    erase(str(home / "lake"), Wanted(tenant="t", trajectory_id="a1"))
    late = place(str(home / "lake"), tenant="t", subject="ada", because="case 12")
    assert (late.status, late.gone) == ("late", ["a1"])
    assert place(str(home / "lake"), tenant="t", trajectory_id="a2", because="case 12").status == "confirmed"


def test_an_erasure_by_id_that_was_applied_covers_later_copies_under_a_late_hold(home: Path) -> None:
    """Found by the model: a hold after the erasure let a copy that was on its way bring the text back."""
    erase(str(home / "lake"), Wanted(tenant="t", trajectory_id="fresh"), Places(gone=frozenset({"all"})))
    hold = place(str(home / "lake"), tenant="t", trajectory_id="fresh", because="case 12")
    assert (hold.status, hold.gone) == ("late", ["fresh"])
    land(home / "landing", B, 4, person(home / "landing", "fresh", "eve").landed)
    compact(str(home / "landing"), str(home / "lake"))
    assert "fresh" not in texts(home)


def test_a_hold_on_a_new_trajectory_beats_an_older_erasure_of_its_subject(home: Path) -> None:
    erase(str(home / "lake"), Wanted(tenant="t", subject="ada"), Places(gone=frozenset({"all"})))
    assert place(str(home / "lake"), tenant="t", trajectory_id="fresh", because="case 12").status == "confirmed"
    land(home / "landing", B, 4, person(home / "landing", "fresh", "ada").landed)
    compact(str(home / "landing"), str(home / "lake"))
    assert texts(home)["fresh"] == 5


def test_an_erasure_asked_for_before_a_retention_run_is_decided_by_it(home: Path) -> None:
    def die(step: str, _: int, __: int) -> None:
        if step == "erasure requested":
            raise Killed

    with pytest.raises(Killed):
        erase(str(home / "lake"), Wanted(tenant="t", trajectory_id="b2"), progress=die)
    retained(home, rule("blobs"))
    assert by_id(home)["b2"]["erasure_epoch"] == 1
    assert [one.state for one in read_standing(Lake.open(home / "lake")).erasures] == ["pending"]


@pytest.mark.parametrize("place_of_kill", [3, 6, 10])
def test_retention_killed_and_run_again_ends_the_same(made: Path, tmp_path: Path, place_of_kill: int) -> None:
    rules = (rule("payloads"), rule("blobs"))
    quiet = shutil.copytree(made, tmp_path / "quiet")
    retained(quiet, *rules)
    home = shutil.copytree(made, tmp_path / "home")
    left = [place_of_kill]

    def progress(*_: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Killed

    with pytest.raises(Killed):
        retained(home, *rules, progress=progress)
    retained(home, *rules)
    assert everything(home / "lake") == everything(quiet / "lake")


def test_policies_are_read_strictly() -> None:
    def read(**tables: Any) -> list[Rule]:
        return rules_of(tables, "p.toml")

    good = {"what": "payloads", "maximum_days": 90, "minimum_days": 30, "types": ["ToolResult"], "tenant": "acme"}
    assert read(keep=[good, {"what": "blobs", "minimum_days": 3}], expire=[{"days": 700}]) == [
        Rule(what="payloads", tenant="acme", days=90, types=frozenset({"ToolResult"})),
        Rule(what="trajectories", tenant="*", days=700),
    ]
    for wrong, named in (
        ({"keep": [{"what": "payloads", "maximum_days": 3, "minimum_days": 4}]}, "above"),
        ({"keep": [{"what": "everything", "maximum_days": 3}]}, "what must be"),
        ({"keep": [{"what": "blobs", "maximum_days": 3, "types": ["ToolResult"]}]}, "types"),
        ({"keep": [{"what": "payloads", "maximum_days": 3, "types": ["NoSuch"]}]}, "types"),
        ({"keep": [{"what": "blobs", "maximum_days": "3"}]}, "whole number"),
        ({"keep": [{"what": "blobs", "maximum_day": 3}]}, "unknown name 'maximum_day'"),
        ({"expire": [{"days": -1}]}, "whole number"),
        ({"expire": {"days": 1}}, r"\[\[expire\]\]"),
        ({"kep": []}, "unknown table"),
        ({}, "says nothing"),
    ):
        with pytest.raises(PolicyError, match=named):
            rules_of(wrong, "p.toml")
