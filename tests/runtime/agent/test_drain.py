"""SIGTERM drains: the turn is ended, a checkpoint is saved, the lease is let go of, and another process goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from trajlake.runtime.agent.errors import Busy

from .conftest import Bench


def test_a_drained_trajectory_stops_at_the_end_of_its_turn_and_goes_on_elsewhere(bench: Bench) -> None:
    begun: list[int] = []
    ended: list[int] = []

    def agent(t: Any) -> None:
        for turn in t.turns(max=4):
            begun.append(turn.number)
            turn.uuid()
            if turn.number == 1:
                bench.journals[-1].drain()
            t.vars["n"] = turn.number
            ended.append(turn.number)
        t.finish(t.vars["n"])

    journal = bench.fresh()
    outcome = journal.run(agent, "t", task=1)
    assert (outcome.status, [one.kind for one in outcome.waiting_for]) == ("parked", ["move"])
    assert begun == ended == [0, 1]
    last = bench.events()[-2:]
    assert [event.type for event in last] == ["CheckpointSaved", "LeaseReleased"]
    assert (last[0].body.cause, last[1].body.reason) == ("move", "moved")
    with pytest.raises(Busy, match="to end"):
        journal.run(agent, "other", task=1)
    bench.fresh()
    begun.clear()
    journal = bench.journals[-1]
    journal.drain = lambda: None  # type: ignore[method-assign]
    assert journal.run(agent, "t").result == 3
    assert begun == [1, 2, 3], "the open turn is entered again, what it recorded is served"
    assert bench.bodies("Resumed")[0].checkpoint == last[0].sequence_number


SLOW = """
import os, sys, time
from trajlake.runtime import Journal
journal = Journal.open(os.environ["TRAJLAKE_TEST_ROOT"])

def work(t):
    for turn in t.turns(max=200):
        turn.uuid()
        time.sleep(float(t.task))
        t.vars["n"] = turn.number
    t.finish(t.vars["n"])
"""


def started(folder: Path, pause_s: float, grace_s: float) -> subprocess.Popen[str]:
    """`trajlake resume` of a trajectory whose turns last `pause_s`."""
    (folder / "slow.py").write_text(SLOW)
    env = {**os.environ, "TRAJLAKE_TEST_ROOT": str(folder / "root"), "TRAJLAKE_JOURNAL": str(folder / "root")}
    begin = (
        "import slow\n"
        f"def first(t):\n    for turn in t.turns():\n        turn.uuid()\n        raise SystemExit\n"
        f"try:\n    slow.journal.run(first, 't', task={pause_s})\nexcept SystemExit:\n    slow.journal.close()\n"
    )
    subprocess.run([sys.executable, "-c", begin], cwd=folder, env=env, check=True, timeout=60)
    command = [sys.executable, "-m", "trajlake.runtime", "resume", "t", "slow:work", "--grace", str(grace_s)]
    process = subprocess.Popen(command, cwd=folder, env=env, text=True, stdout=-1, stderr=-1)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not any(
        b"VarSet" in path.read_bytes() or b'"name":"n"' in path.read_bytes() for path in folder.rglob("*.seg")
    ):
        time.sleep(0.1)
    return process


def test_sigterm_drains_a_command(tmp_path: Path) -> None:
    process = started(tmp_path, 0.05, 20)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 1, err
    assert "trajlake resume t" in out


def test_what_does_not_end_within_the_grace_time_is_left_as_by_a_crash(tmp_path: Path) -> None:
    process = started(tmp_path, 3, 0.3)
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 143
    assert time.monotonic() - begun < 2.5
