"""Failures of other systems in which the record grew with the square of the work, or large values stopped a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from trajlake.runtime import Journal
from trajlake.runtime.env import REAL_ENV
from trajlake.runtime.wal.reader import read_segment
from trajlake.runtime.wal.segment_format import HEADER_SIZE

STEP_BYTES = 2000


def journal_bytes(folder: Path, steps: int) -> tuple[int, int]:
    """Run so many steps of 2 KB of new text; return (bytes of all segments without their headers, events)."""
    journal = Journal.open(folder)

    @journal.tool(effect="read")
    def note(text: str) -> str:
        return text[:1000]

    def agent(t: Any) -> None:
        for turn in t.turns(max=steps):
            turn.call("note", {"text": f"{turn.number:04}" + "x" * 996})
        t.finish()

    with journal:
        journal.run(agent, "long", task={})
    scans = [read_segment(REAL_ENV, str(path)) for path in folder.glob("writers/*/*.seg")]
    return sum(Path(scan.path).stat().st_size - HEADER_SIZE for scan in scans), sum(len(scan.offsets) for scan in scans)


@pytest.mark.parametrize("steps", [60, pytest.param(400, marks=pytest.mark.long)])
def test_a_journal_grows_with_the_new_text_and_not_with_the_state(tmp_path: Path, steps: int) -> None:
    """T22: at most 350 B an event over its new text, and twice the steps are at most 2.1 times the bytes."""
    half, _ = journal_bytes(tmp_path / "half", steps // 2)
    whole, events = journal_bytes(tmp_path / "whole", steps)
    assert (whole - steps * STEP_BYTES) / events <= 350
    assert whole / half <= 2.1


LARGE = """
import sys
import msgspec
from trajlake.runtime import Journal

SIZE = int(sys.argv[2])
journal = Journal.open(sys.argv[1])

@journal.tool(effect="external")
def echo(text: str) -> str:
    return text

def agent(t):
    for turn in t.turns(max=1):
        t.finish(len(turn.call("echo", {"text": "a" * SIZE}).output))

with journal:
    outcome = journal.run(agent, "large", task=1)
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(msgspec.json.encode([outcome.status, outcome.result, int(peak)]).decode())
"""


@pytest.mark.parametrize("mib", [4, pytest.param(64, marks=pytest.mark.long)])
def test_an_argument_and_an_output_of_64_mib_go_beside_the_segments_in_bounded_memory(tmp_path: Path, mib: int) -> None:
    """T23."""
    command = [sys.executable, "-c", LARGE, str(tmp_path / "root"), str(mib << 20)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    status, length, peak_kib = msgspec.json.decode(done.stdout)
    assert (status, length) == ("completed", mib << 20)
    assert peak_kib * 1024 < (160 << 20) + 12 * (mib << 20)
    segments = [read_segment(REAL_ENV, str(path)) for path in (tmp_path / "root").glob("writers/*/*.seg")]
    assert max(len(event.payload or b"") for scan in segments for event in scan.events()) < 10_000
