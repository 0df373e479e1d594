"""The main job, end to end, as a newcomer runs it: real processes, a real kill, a real lake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.e2e.notebook import run_notebook
from trajlake.pipelines.connect import connect
from trajlake.pipelines.reports import reports

TIMEOUT_S = 240
"""Twice what the README promises for the demo after set-up: this machine may be busy."""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Folder, and what the demo said."""
    folder = tmp_path_factory.mktemp("demo")
    done = Command(folder)("demo", timeout_s=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def rows(folder: Path, query: str) -> list[dict[str, object]]:
    done = Command(folder)("sql", "--lake", "trajlake-demo/lake", "--json", query)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


def test_the_demo_tells_the_whole_story_and_ends_with_how_to_import(told: tuple[Path, str]) -> None:
    _, said = told
    assert "SIGKILL" in said
    assert "The shop was asked 2 times and charged 1 time." in said
    assert "trajlake import auto" in said.splitlines()[-1]


def test_the_demo_stays_in_its_folder(told: tuple[Path, str]) -> None:
    folder, _ = told
    assert [entry.name for entry in folder.iterdir()] == ["trajlake-demo"]
    assert {"journal", "landing", "lake", "workspace"} <= {entry.name for entry in (folder / "trajlake-demo").iterdir()}


def test_the_charge_in_doubt_is_one_action_with_two_intents_under_one_key(told: tuple[Path, str]) -> None:
    folder, _ = told
    assert rows(
        folder,
        "select attempts, settled_how, verdict, stage from tool_calls "
        "where trajectory_id = 'order-1001' and tool = 'charge'",
    ) == [{"attempts": 2, "settled_how": "key", "verdict": "executed", "stage": "settled"}]
    assert rows(
        folder,
        "select count(*) as intents, count(distinct payload ->> 'key') as keys from events "
        "where trajectory_id = 'order-1001' and event_type = 'ToolIntent' and payload ->> 'tool' = 'charge'",
    ) == [{"intents": 2, "keys": 1}]


def test_every_trajectory_ended_and_no_number_is_missing(told: tuple[Path, str]) -> None:
    folder, _ = told
    assert rows(folder, "select status, count(*) as n from trajectories group by all") == [
        {"status": "completed", "n": 13}
    ]
    assert rows(folder, "select * from doubts") == []
    done = Command(folder)("verify", "--lake", "trajlake-demo/lake")
    assert done.returncode == 0, done.stdout


def test_messages_are_the_context_items_in_order(told: tuple[Path, str]) -> None:
    folder, _ = told
    found = rows(folder, "select role, text from messages where trajectory_id = 'order-1001' order by item_no")
    assert [row["role"] for row in found] == [
        "system", "user", "assistant", "tool", "assistant", "tool", "assistant", "tool", "assistant",
    ]  # fmt: skip
    assert found[-1]["text"] == "order-1001 is charged and its receipt is written."


def test_the_demo_may_be_run_again_but_not_over_a_folder_that_is_no_demo(
    told: tuple[Path, str], tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    done = Command(tmp_path)("demo", "--dir", "mine")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


def test_every_trajectory_of_the_demo_replays_the_same_from_root_and_lake(told: tuple[Path, str]) -> None:
    folder, _ = told
    for source in (("--journal", "trajlake-demo/journal"), ("--lake", "trajlake-demo/lake")):
        for how in ((), ("--cold",)):
            done = Command(folder)("replay", "--all", *source, *how, "--jobs", "1")
            assert done.returncode == 0, done.stdout + done.stderr
            assert done.stdout.startswith("13 same, 0 differs, 0 refused"), done.stdout


def test_the_replay_notebook_runs_over_the_demos_lake(told: tuple[Path, str], project: Path) -> None:
    folder, _ = told
    run_notebook(project / "notebooks" / "03_debug_by_replay.py", folder / "trajlake-demo" / "lake")


def test_the_first_notebook_runs_over_the_demos_lake(told: tuple[Path, str], project: Path) -> None:
    folder, _ = told
    run_notebook(project / "notebooks" / "01_tour_of_a_trajectory.py", folder / "trajlake-demo" / "lake")


def test_every_report_answers_over_the_demos_lake(told: tuple[Path, str]) -> None:
    folder, _ = told
    with connect(folder / "trajlake-demo" / "lake") as connection:
        answers = {name: connection.execute(one.sql).fetchall() for name, one in reports().items()}
    by_key = {row[0]: row[4] for row in answers["doubts_by_tool"]}
    assert by_key["charge"] == 1
    assert sum(row[2] for row in answers["outcomes"]) == 13


def test_the_lake_of_the_demo_passes_every_control_that_applies(told: tuple[Path, str]) -> None:
    folder, _ = told
    done = Command(folder)("audit", "--lake", "trajlake-demo/lake", "--no-ledger", timeout_s=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = {line.split()[0]: line[6:22].strip() for line in done.stdout.splitlines() if line[:1] in "QX"}
    assert len(verdicts) == 30
    assert set(verdicts.values()) == {"pass", "not applicable"}
    unasked = {"Q13", "Q14", "Q16b", "Q20", "Q24", "X05"}
    assert {name for name, verdict in verdicts.items() if verdict != "pass"} <= unasked
