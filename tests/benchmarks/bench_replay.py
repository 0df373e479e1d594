"""Group `replay`: events per second through a trivial harness, against decoding and folding the same events; a suite
of 1,000 trajectories; twenty trajectories of 50,000 events beside each other.

CPU seconds of the processes that do the work, so that other load on the machine does not count.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.measure import Row, interleaved, median_ratio
from tests.support.recorded import journal_of, long_agent, long_model, look_tool, put_into_root, record_agent
from trajlake.runtime import replay
from trajlake.runtime.replaying.record import record_of
from trajlake.schemas.context import ITEMS_START, context_hash, extend_items_hash, item_hash
from trajlake.schemas.envelope import Event
from trajlake.schemas.history import canonical
from trajlake.schemas.state import fold, initial

TURNS = 1_500
ROUNDS = 5
SUITE, SUITE_TURNS = 1_000, 50
LONG_TURNS, BESIDE = 8_200, 20
PROJECT = Path(__file__).resolve().parents[2]


def rows() -> Iterator[Row]:
    """Yield the measures."""
    events = record_agent(long_agent(TURNS), "long", tools=look_tool(), model=long_model())
    journal = journal_of(look_tool())
    seconds = interleaved(
        {
            "replay": lambda: cpu(lambda: replay(long_agent(TURNS), record_of(fresh(events)), journal=journal)),
            "plain": lambda: cpu(lambda: plain(fresh(events))),
        },
        ROUNDS,
    )
    rates = sorted(len(events) / one for one in seconds["replay"])
    yield Row("events per second and core, trivial harness", rates[ROUNDS // 2], 5_000, "at least", "1/s")
    ratio = median_ratio(seconds["replay"], seconds["plain"])
    note = f"{len(events)} events; plain: decode, canonical, fold, context hash"
    yield Row("replay against decode, canonical, fold and context hash", ratio, 10, "at most", "x", note)
    with tempfile.TemporaryDirectory() as home:
        yield suite_row(Path(home))
        yield from long_rows(Path(home))


def fresh(events: list[Event]) -> list[Event]:
    """The events as they come from the disk: not decoded yet."""
    for event in events:
        event.__dict__.pop("body", None)
    return events


def plain(events: list[Event]) -> str:
    """Decode, order, fold, and hash every context as the log builds it."""
    history = canonical(events)
    fold(initial("default", "long"), history.events)
    hashes: dict[int, str] = {}
    built: list[int] = []
    digest = ""
    for event in history.events:
        body = event.body
        if event.type == "MessageAdded":
            hashes[event.sequence_number] = item_hash(body.wire)
        elif event.type in ("ModelReplied", "ToolResult", "Compacted"):
            hashes[event.sequence_number] = item_hash({"content": str(getattr(body, "output", None) or "")})
        elif event.type == "ContextBuilt":
            built = [*(built[: body.keep] if body.base is not None else []), *body.append]
            running = extend_items_hash(ITEMS_START, (hashes[ref] for ref in built))
            digest = context_hash(body.head, running)
    return digest


def cpu(work: object) -> float:
    """CPU seconds of one call."""
    started = time.process_time()
    work()  # type: ignore[operator]
    return time.process_time() - started


def suite_row(home: Path) -> Row:
    """1,000 trajectories of 50 turns through `trajlake replay --all` on two processes."""
    model = long_model()
    agent = long_agent(SUITE_TURNS, keep=200)
    name = "tests.benchmarks.replay_side:agent"
    made = (
        record_agent(agent, f"t{n}", tools=look_tool(), model=model, agent_name=name) for n in range(SUITE)
    )  # fmt: skip
    put_into_root(home / "suite", made)
    command = [sys.executable, "-m", "trajlake.runtime", "replay", "--all", "--journal", "suite", "--jobs", "2"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run(command, cwd=home, env=environment(home), capture_output=True, text=True, check=False)
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if f"{SUITE} same" not in done.stdout:
        raise RuntimeError(done.stdout + done.stderr)
    used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    note = f"half of {used:.1f} CPU seconds in two processes; wall {wall:.1f} s on a machine with other load"
    return Row("1,000 trajectories of 50 turns, seconds on two cores", used / 2, 60, "at most", "s", note)


def long_rows(home: Path) -> Iterator[Row]:
    """Twenty trajectories of 50,000 events at once, in one process each; the memory of one, long against short."""
    peaks = {}
    for turns in (LONG_TURNS // 10, LONG_TURNS):
        root = home / f"long{turns}"
        events = record_agent(long_agent(turns), "long", tools=look_tool(), model=long_model(width=1_000))
        put_into_root(root, [events])
        size = sum(len(event.payload or b"") for event in events)
        command = [sys.executable, "-m", "tests.benchmarks.replay_side", str(root), str(turns)]
        count = BESIDE if turns == LONG_TURNS else 1
        sides = [
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(home)) for _ in range(count)
        ]
        told = [side.communicate()[0].split() for side in sides]
        if any(one[:1] != ["same"] for one in told):
            raise RuntimeError(str(told))
        peaks[turns] = max(int(one[1]) for one in told) / 1024, len(events), size / 2**20
    small, large = peaks[LONG_TURNS // 10], peaks[LONG_TURNS]
    note = f"{large[1]} events of {large[2]:.0f} MiB, {BESIDE} at once, each the same; {small[0]:.0f} MiB at a tenth"
    yield Row("peak memory of one replay of 50,000 events", large[0], None, "reported", "MiB", note)


def environment(home: Path) -> dict[str, str]:
    """What the processes of the other side need."""
    import os

    return {**os.environ, "PYTHONPATH": str(PROJECT), "REPLAY_BENCH_ROOT": str(home / "bench-journal")}
