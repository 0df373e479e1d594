"""A host is lost with root, blobs and workspace: the landing brings the trajectory back, nothing is done twice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import pytest

from trajlake.runtime.replicas.recover_from import OpenOnes, is_open
from trajlake.schemas.chain import genesis, make_event
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import LeaseAcquired, LeaseReleased, Payload, TaskEnded, TaskStarted

AGENT = """
import os
from pathlib import Path
from trajlake.runtime import Journal
from trajlake.runtime.root import Root

HERE = Path(os.environ["HERE"])
if not os.environ.get("ALONE"):
    Root.open(HERE / "root", stores={"landing": str(HERE / "landing")})

class Policy:
    version = "1"
    checkpoint_every_turns = 2
    def __call__(self, call, state):
        from trajlake.runtime import Allow
        return Allow()

journal = Journal.open(HERE / "root", policy=Policy())

@journal.tool(effect="external")
def pay(n: int) -> int:
    with open(HERE / "paid", "a") as file:
        file.write(f"{n}\\n")
    return n

@journal.tool(effect="local")
def edit(n: int) -> None:
    (HERE / "work" / f"f{n % 3}").write_text(f"turn {n}\\n" * 100)

def work(t):
    for turn in t.turns(max=9):
        turn.call("edit", {"n": turn.number})
        turn.call("pay", {"n": turn.number})
        t.vars["n"] = turn.number
        if turn.number == 4 and os.environ.get("STOP"):
            raise SystemExit
    t.finish(t.vars["n"])

if __name__ == "__main__":
    from agent import journal, work
    try:
        journal.run(work, "t", task="go", workspace=str(HERE / "work"))
    finally:
        journal.close()
"""


@pytest.fixture
def lost(tmp_path: Path) -> Any:
    """Run to turn 4, ship, keep what the folder held, then lose everything but landing and outside world."""
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "start").write_text("was there")
    run(tmp_path, "agent.py", STOP="1")
    done = run(tmp_path, "-m", "trajlake.runtime", "ship", "root", "--to", "landing")
    assert done.returncode == 0, done.stderr
    before = {path.name: path.read_bytes() for path in (tmp_path / "work").iterdir()}
    shutil.rmtree(tmp_path / "root")
    shutil.rmtree(tmp_path / "work")
    return tmp_path, before


def run(folder: Path, *words: str, **env: str) -> Any:
    environ = {**os.environ, "HERE": str(folder), "TRAJLAKE_JOURNAL": str(folder / "root"), **env}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=90, check=False)


def test_recover_from_a_landing_goes_on_with_equal_files_and_does_nothing_twice(lost: Any) -> None:
    folder, before = lost
    landing = str(folder / "landing")
    done = run(
        folder, "-m", "trajlake.runtime", "recover", "agent:work", "--from", landing, "--workspace", "work",
        TRAJLAKE_LANDING=landing,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "t: completed: 8\n"
    assert (folder / "paid").read_text().split() == [str(n) for n in range(9)]
    assert (folder / "work" / "start").read_bytes() == before["start"]
    for name in ("f0", "f1", "f2"):
        assert (folder / "work" / name).read_text().startswith("turn")
    dumped = run(folder, "-m", "trajlake.runtime", "journal", "dump").stdout
    assert "changes applied again" in dumped or "restored" in dumped
    verified = run(folder, "-m", "trajlake.runtime", "journal", "verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_without_recover_a_lost_record_is_refused_and_without_an_arbiter_so_is_recover(lost: Any) -> None:
    folder, _ = lost
    landing = str(folder / "landing")
    command = ("-m", "trajlake.runtime", "recover", "agent:work", "--from", landing, "--workspace", "work")
    done = run(folder, *command, ALONE="1")
    assert done.returncode == 2
    assert "arbiter" in done.stderr
    assert (folder / "paid").read_text().split() == ["0", "1", "2", "3", "4"]
    nowhere = run(
        folder, "-m", "trajlake.runtime", "recover", "agent:work", "--from", "nowhere", TRAJLAKE_LANDING=landing
    )
    assert nowhere.returncode == 2
    assert "no landing here" in nowhere.stderr


def event(payload: Payload, number: int, token: int, prev: bytes) -> Event:
    return make_event(
        payload, tenant="default", trajectory_id="t", sequence_number=number, fencing_token=token, turn=0,
        recorded_at=0, salt=bytes(16), prev=prev,
    )  # fmt: skip


def found_open(events: Iterable[Event]) -> bool:
    found = OpenOnes()
    for one in events:
        found.add(one)
    return found.of("default") == ["t"]


def test_an_end_that_does_not_count_leaves_a_trajectory_open() -> None:
    """Its worker had lost the lease: whoever took over goes on, and recovery must not pass the trajectory by."""
    started = event(TaskStarted(), 0, 1, genesis("default", "t"))
    ended = event(TaskEnded(status="completed"), 1, 1, started.hash)
    after = LeaseAcquired(token=2, after_token=1, after_sequence=0, after_hash=started.hash.hex())
    opening = event(after, 1, 2, started.hash)
    ended_again = event(TaskEnded(status="failed"), 2, 2, opening.hash)
    imported = event(TaskStarted(origin="imported"), 0, 1, genesis("default", "t"))
    other = event(LeaseReleased(token=2), 2, 2, opening.hash)
    late = event(TaskEnded(status="failed"), 3, 2, other.hash)
    for events, opened in (
        ([started, ended], False),
        ([started, ended, opening], True),
        ([started, ended, opening, ended_again], False),
        ([started, ended, opening, other], True),
        ([started, ended, opening, other, late], False),
        ([started, opening, late], True),  # behind a gap it does not count
        ([], False),
        ([imported], False),
        ([imported, opening, other], False),
    ):
        assert is_open(events) == opened
        # However they come, with copies: what is held of many trajectories says the same.
        assert found_open(events) == found_open(reversed(events)) == found_open(events * 2) == opened


def test_of_what_was_imported_nothing_is_held_and_of_the_rest_no_payload() -> None:
    def held(origin: Literal["live", "imported"]) -> int:
        found = OpenOnes()
        tracemalloc.start()
        found.add(event(TaskStarted(origin=origin), 0, 1, genesis("default", "t")))
        for number in range(1, 2000):
            found.add(event(LeaseReleased(token=1), number, 1, bytes(32)))
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert (found.of("default") == ["t"]) == (origin == "live")
        return size

    assert held("imported") < 100_000  # 50 bytes an event
    assert held("live") < 600_000
