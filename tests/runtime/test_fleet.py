"""`trajlake plan --fleet`: sums by hand, names refused by name, and the page that shows what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trajlake.runtime.cli_errors import UserError
from trajlake.runtime.commands.fleet import page, size_fleet
from trajlake.runtime.fleet import Fleet, Workload, rates_of, size
from trajlake.runtime.fleet_rates import RATES


def figure(fleet: Fleet, section: str, name: str) -> float:
    return next(line.value for line in fleet.sections[section] if line.name == name)


def limit(fleet: Fleet, name: str) -> float:
    return next(one.used for one in fleet.limits if one.name == name)


def test_events_bytes_and_cores_are_the_sums_that_their_lines_state() -> None:
    work = Workload(trajectories=864, turns=10, peak=2, cold_days=100, scans_per_day=0)
    rates = rates_of(
        {
            "events_per_turn": 9, "events_per_trajectory": 10, "frame_bytes": 1000, "blobs_per_1000_events": 10,
            "blob_bytes": 100_000, "lake_share": 0.25, "append_events_s": 10, "usd_object_gb_month": 1,
        }
    )  # fmt: skip
    fleet = size(work, rates)
    assert figure(fleet, "a day", "events") == pytest.approx(0.0864)  # 864 x (10 x 9 + 10) = 86,400
    assert figure(fleet, "a day", "events/s, peak") == pytest.approx(2)
    assert figure(fleet, "a day", "blobs") == pytest.approx(864)
    assert figure(fleet, "a day", "journal") == pytest.approx(0.0864 + 0.0864)  # frames, and 864 blobs of 100 kB
    assert figure(fleet, "a day", "lake") == pytest.approx(0.0432)
    assert figure(fleet, "cores", "append") == pytest.approx(0.2)
    assert figure(fleet, "kept", "lake") == pytest.approx(4.32)
    assert figure(fleet, "USD a month", "object storage") == pytest.approx(4.32 + 7 * 0.1728)
    assert limit(fleet, "one journal process") == pytest.approx(0.2)


def test_the_sum_of_money_is_the_sum_of_its_lines() -> None:
    lines = size(Workload(), rates_of()).sections["USD a month"]
    assert lines[-1].name == "sum"
    assert lines[-1].value == pytest.approx(sum(line.value for line in lines[:-1]))


def test_limits_come_nearest_first_and_move_with_what_they_are_about() -> None:
    before, after = size(Workload(), rates_of()), size(Workload(models=50), rates_of())
    for fleet in (before, after):
        used = [one.used for one in fleet.limits]
        assert used == sorted(used, reverse=True)
    assert limit(after, "live files of one table") == pytest.approx(10 * limit(before, "live files of one table"))
    assert after.limits[0].name == "live files of one table"
    assert limit(after, "rows of one PostgreSQL") == limit(before, "rows of one PostgreSQL")


def test_twice_the_trajectories_are_twice_the_events_bytes_and_rows() -> None:
    one, two = size(Workload(), rates_of()), size(Workload(trajectories=100_000), rates_of())
    for section, name in (("a day", "events"), ("a day", "journal"), ("kept", "warm tier"), ("cores", "append")):
        assert figure(two, section, name) == pytest.approx(2 * figure(one, section, name))


def test_every_rate_has_a_unit_or_is_a_share_and_says_where_it_comes_from() -> None:
    for name, rate in RATES.items():
        assert rate.value > 0, name
        assert rate.unit or name.endswith("_share"), name
        assert len(rate.source) > 5, name


def test_rates_of_ones_own_replace_the_measured_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.toml").write_text("frame_bytes = 2224\nlake_share = 0.18\n")
    size_fleet(["trajectories=25_000", "lake_share=0.36"], tmp_path / "mine.toml", True)
    tree = json.loads(capsys.readouterr().out)
    assert tree["workload"]["trajectories"] == 25_000
    assert tree["rates"]["frame_bytes"] == {"value": 2224.0, "unit": "bytes/event", "source": "given"}
    assert tree["rates"]["lake_share"]["value"] == 0.36
    assert tree["rates"]["segment_bytes"]["source"] == RATES["segment_bytes"].source


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        (["trajektories=1"], "no such number"),
        (["turns"], "NAME=NUMBER"),
        (["turns=many"], "NAME=NUMBER"),
        (["turns=0"], "above 0"),
        (["turns=2.5"], "whole number"),
        (["frame_bytes=-1"], "above 0"),
    ],
)
def test_a_number_that_is_none_is_refused(numbers: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        size_fleet(numbers, None, False)


@pytest.mark.parametrize(
    ("text", "says"), [("nonsense = 1", "no such rate"), ("frame_bytes = 'x'", "above 0"), ("= 3", "not TOML")]
)
def test_a_file_of_rates_that_cannot_be_used_is_refused_by_its_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "rates.toml").write_text(text)
    with pytest.raises(UserError, match=says):
        size_fleet([], tmp_path / "rates.toml", False)
    with pytest.raises(UserError, match="No such file"):
        size_fleet([], tmp_path / "absent.toml", False)


def test_the_page_on_scale_shows_what_the_command_prints(project: Path) -> None:
    text = (project / "pipelines" / "SCALE.md").read_text()
    shown = text.split("```text\n", 1)[1].split("```", 1)[0]
    assert shown == page(Workload(), size(Workload(), rates_of())) + "\n", "run 'trajlake plan --fleet' and paste it"


def test_a_figure_that_rests_on_an_assumed_rate_is_marked_until_the_rate_is_given(trajlake):
    text = trajlake("plan", "--fleet").stdout
    marked = {line[2:28].strip() for line in text.splitlines() if line.startswith("  ") and "* " in line[28:46]}
    assert {"agents at work, mean", "warm tier", "puts into one bucket", "sum"} <= marked
    assert marked.isdisjoint({"events", "lake", "compact", "segments", "rows of one PostgreSQL"})
    assert "* rests on rates that are assumed, not measured (turn_s, " in text
    given = [f"--set={name}={rate.value}" for name, rate in RATES.items() if rate.source.startswith("assumed")]
    assert "*" not in trajlake("plan", "--fleet", *given).stdout
    tree = json.loads(trajlake("plan", "--fleet", "--json", *given[1:]).stdout)
    found = {line["name"] for lines in tree["sections"].values() for line in lines if line["assumed"]}
    assert found == {"agents at work, mean"}
