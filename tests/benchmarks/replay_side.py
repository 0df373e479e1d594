"""The other side of `bench_replay`: the agent of its suite, and one replay from a root that tells its peak memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.support.recorded import journal_of, long_agent, look_tool
from trajlake.runtime import Journal, replay
from trajlake.runtime.replaying.sources import RootSource
from trajlake.runtime.root import Root

journal = Journal.open(os.environ.get("REPLAY_BENCH_ROOT", "bench-journal"))
journal.tools.update(look_tool())
agent = long_agent(50, keep=200)


def main(root: str, turns: int) -> None:
    """Replay the one trajectory of a root; print the verdict and the peak of resident memory in KiB."""
    record = RootSource(Root.open(Path(root), create=False), "default").record("long")
    assert record is not None
    report = replay(long_agent(turns), record, journal=journal_of(look_tool()))
    sys.stdout.write(f"{report.verdict} {peak_kib()}\n")


def peak_kib() -> int:
    """The peak of this process's own memory; `ru_maxrss` would begin with that of the process that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
