"""Group `journal`: the hot path against the raw barrier and its peers, interleaved, medians of rounds.

`TRAJLAKE_BENCH_SECONDS` and `_ROUNDS` set how long. Peers need `make bench-peers`; one that is not there is named.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator

from tests.benchmarks.journal_sides import Quiet, Told, ours, ours_in_processes, peer, postgres_url, raw
from tests.benchmarks.measure import Row

SECONDS = float(os.environ.get("TRAJLAKE_BENCH_SECONDS", "1.0"))
ROUNDS = int(os.environ.get("TRAJLAKE_BENCH_ROUNDS", "3"))
SWITCH_US = 500
"""The documented setting for a process with CPU-bound threads: sys.setswitchinterval(0.0005)."""


class Sides:
    """Results of every side, one per round, in the order of rounds."""

    def __init__(self, sides: dict[str, Callable[[], Told | None]], rounds: int = ROUNDS) -> None:
        self.found: dict[str, list[Told]] = {name: [] for name in sides}
        self.absent: list[str] = []
        for _ in range(rounds):
            for name, side in sides.items():
                told = None if name in self.absent else side()
                if told is not None:
                    self.found[name].append(told)
                elif name not in self.absent:
                    self.absent.append(name)

    def ratio(self, above: str, below: str, field: str) -> float | None:
        """Median over rounds of one side's field by another's; None if a side is not installed."""
        if above in self.absent or below in self.absent:
            return None
        pairs = zip(self.found[above], self.found[below], strict=True)
        return statistics.median(a[field] / b[field] for a, b in pairs)

    def median(self, name: str, field: str) -> float:
        return statistics.median(told[field] for told in self.found[name])

    def row(self, measure: str, above: str, below: str, bar: float | None, field: str = "per_s") -> Row:
        """The ratio of two sides as a row."""
        ratio = self.ratio(above, below, field)
        if ratio is None:
            return Row(f"{measure}: SKIPPED", 0.0, note=f"not installed: {', '.join(self.absent)}; make bench-peers")
        unit = "us" if field.endswith("_us") else "/s"
        note = f"{self.median(above, field):,.0f} against {self.median(below, field):,.0f} {unit}"
        if bar is None:
            return Row(measure, ratio, note=note)
        return Row(measure, ratio, bar, "at most" if field.endswith("_us") else "at least", "x", note)


def rows() -> Iterator[Row]:
    """Measure all, the bars of the issue in their order."""
    for part in (alone, eight, many, open_loop, effects, stretched, processes, beside_a_hog):
        yield from part()
    yield Row("sides that started on a busy machine", Quiet.busy, unit="sides", note=f"of {Quiet.sides}")


def alone() -> Iterator[Row]:
    kinds = ("plain", "sqlite", "rocksdb", "lmdb", "postgres", "langgraph", "dbos")
    with postgres_url() as url:
        sides = Sides({
            "raw": lambda: raw(SECONDS),
            "threads": lambda: ours("threads", 1, SECONDS),
            "asyncio": lambda: ours("asyncio", 1, SECONDS),
            "two calls": lambda: ours("threads", 1, SECONDS, two_calls=1),
            "window": lambda: ours("threads", 1, SECONDS, window_ms=2, batch=64),
            **{kind: _peer(kind, 1, url) for kind in kinds},
        })  # fmt: skip
    yield sides.row("commit p50, one agent, threads, by the raw barrier", "threads", "raw", 1.6, "p50_us")
    yield sides.row("commit p50, one agent, asyncio, by the raw barrier", "asyncio", "raw", 2.3, "p50_us")
    yield sides.row("  the same with write and fdatasync as two calls", "two calls", "raw", None, "p50_us")
    yield sides.row("  the document's window, W = 2 ms, B = 64: p50", "window", "raw", None, "p50_us")
    for kind in kinds:
        yield sides.row(f"  {kind}, one agent: p50 by the raw barrier", kind, "raw", None, "p50_us")
    yield _device_bytes(sides, 1, None)


def eight() -> Iterator[Row]:
    sides = Sides({
        "threads": lambda: ours("threads", 8, SECONDS), "asyncio": lambda: ours("asyncio", 8, SECONDS),
        "sqlite": _peer("sqlite", 8), "sqlite asyncio": _peer("sqlite", 8, world="asyncio"),
    })  # fmt: skip
    yield sides.row("events/s, 8 agents, threads, against batched SQLite", "threads", "sqlite", 1.3)
    yield sides.row("events/s, 8 agents, asyncio, against batched SQLite", "asyncio", "sqlite", 1.7)
    yield sides.row("  asyncio against it under asyncio", "asyncio", "sqlite asyncio", None)
    yield _device_bytes(sides, 8, None)


def many() -> Iterator[Row]:
    with postgres_url() as url:
        sides = Sides({
            "threads": lambda: ours("threads", 64, SECONDS), "asyncio": lambda: ours("asyncio", 64, SECONDS),
            "window": lambda: ours("asyncio", 64, SECONDS, window_ms=2, batch=64),
            "sqlite": _peer("sqlite", 64), "sqlite asyncio": _peer("sqlite", 64, world="asyncio"),
            "rocksdb": _peer("rocksdb", 64), "rocksdb asyncio": _peer("rocksdb", 64, world="asyncio"),
            "asyncio 256": lambda: ours("asyncio", 256, SECONDS),
            "rocksdb 256": _peer("rocksdb", 256), "rocksdb asyncio 256": _peer("rocksdb", 256, world="asyncio"),
            "langgraph": _peer("langgraph", 64), "dbos": _peer("dbos", 64, url),
            "plain": _peer("plain", 64), "lmdb": _peer("lmdb", 64), "postgres": _peer("postgres", 64, url),
        })  # fmt: skip
    for world, bar in (("threads", 1.3), ("asyncio", 3.5)):
        for kind in ("sqlite", "rocksdb"):
            yield sides.row(f"events/s, 64 agents, {world}, against batched {kind}", world, kind, bar)
    for kind in ("sqlite", "rocksdb"):
        yield sides.row(f"  asyncio against {kind} under asyncio", "asyncio", f"{kind} asyncio", None)
    yield sides.row("events/s, 256 asyncio, against RocksDB WriteBatch", "asyncio 256", "rocksdb 256", 4.5)
    yield sides.row("  against it under asyncio", "asyncio 256", "rocksdb asyncio 256", None)
    yield sides.row("events/s, 64 threads, against LangGraph SqliteSaver", "threads", "langgraph", 10)
    yield sides.row("events/s, 64 threads, against DBOS step", "threads", "dbos", 80)
    for kind in ("plain", "lmdb", "postgres"):
        yield sides.row(f"  64 threads against {kind}", "threads", kind, None)
    yield sides.row("  no window against W = 2 ms, B = 64, 64 asyncio", "asyncio", "window", None)
    yield _device_bytes(sides, 64, 1.3)


def open_loop() -> Iterator[Row]:
    """Counted from the planned time, by a load whose timers are on time; and from when the agent was woken."""
    seconds = max(3.0, SECONDS)
    sides = Sides({
        "raw": lambda: raw(SECONDS), "ours": lambda: ours("asyncio", 1000, seconds, open_loop=3),
        "coarse": lambda: ours("asyncio", 1000, seconds, open_loop=3, coarse=1),
    })  # fmt: skip
    for told in sides.found["raw"]:
        told["planned_p99_us"] = told["p99_us"]
    measure = "open loop, 1,000 asyncio agents at 3/s: p99 by the raw barrier's p99"
    yield sides.row(measure, "ours", "raw", 3, "planned_p99_us")
    yield Row("  its CPU", sides.median("ours", "cpu"), 0.3, "at most", "cores", "load generator included")
    p99_ms, p50_us = sides.median("ours", "planned_p99_us") / 1000, sides.median("ours", "p50_us")
    yield Row("  its p99 beside the document's 0.5 ms", p99_ms, unit="ms", note=f"p50 {p50_us:.0f} us")
    yield sides.row("  its p99 from when the agent's timer woke it", "ours", "raw", None, "p99_us")
    measure = "  its p99 with asyncio's own timers, up to 1 ms late, from the planned time"
    yield sides.row(measure, "coarse", "raw", None, "planned_p99_us")
    yield sides.row("  the same from when the agent was woken", "coarse", "raw", None, "p99_us")


def effects() -> Iterator[Row]:
    def side(world: str, agents: int) -> Callable[[], Told]:
        return lambda: ours(world, agents, max(2.0, SECONDS), side="journal_effect_side")

    sides = Sides({
        "raw": lambda: raw(SECONDS), "one": side("threads", 1), "32 threads": side("threads", 32),
        "32 tasks": side("asyncio", 32), "64 tasks": side("asyncio", 64),
    })  # fmt: skip
    yield sides.row("whole durable effect, one thread, by the raw barrier", "one", "raw", 3.5, "p50_us")
    for name, bar in (("32 threads", 2.5), ("32 tasks", 6.0), ("64 tasks", 8.0)):
        yield sides.row(f"durable effects/s, {name}, against one thread", name, "one", bar)
    cpu_us = statistics.median(told["cpu"] / told["per_s"] for told in sides.found["32 threads"]) * 1e6
    yield Row("  CPU of one effect, 32 threads", cpu_us, unit="us", note="authorization, 3 events, state, thread hops")


def stretched() -> Iterator[Row]:
    for stretch_ms in (2, 15):
        for world, bar in (("threads", 32), ("asyncio", 56)):
            told = ours(world, 64, max(2.0, SECONDS), stretch_ms=stretch_ms)
            note = f"p50 {told['p50_us'] / 1000 / stretch_ms:.2f} barriers"
            measure = f"events per barrier of {stretch_ms} ms, 64 agents, {world}"
            yield Row(measure, told["events_per_barrier"], bar, "at least", "events", note)


def processes() -> Iterator[Row]:
    for agents, bar in ((1, 2.5), (8, None)):
        pairs = [(ours_in_processes(8, agents, SECONDS), ours_in_processes(1, agents, SECONDS)) for _ in range(ROUNDS)]
        many, one = statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)
        note = f"{many:,.0f} against {one:,.0f} /s"
        ratio, direction = statistics.median(a / b for a, b in pairs), "reported" if bar is None else "at least"
        yield Row(f"8 processes against 1, {agents} agents in each", ratio, bar, direction, "x", note)


def beside_a_hog() -> Iterator[Row]:
    sides = Sides({
        "raw": lambda: raw(SECONDS),
        "set": lambda: ours("threads", 1, SECONDS, hog=1, switch_us=SWITCH_US),
        "as it comes": lambda: ours("threads", 1, SECONDS, hog=1),
    })  # fmt: skip
    measure = "p50 beside a CPU-bound thread, switch interval 0.5 ms, by the raw barrier"
    yield sides.row(measure, "set", "raw", 35, "p50_us")
    yield sides.row("  with Python's own 5 ms", "as it comes", "raw", None, "p50_us")


def _peer(kind: str, agents: int, url: str = "", world: str = "threads") -> Callable[[], Told | None]:
    return lambda: peer(kind, world, agents, SECONDS, url)


def _device_bytes(sides: Sides, agents: int, bar: float | None) -> Row:
    measure = f"device bytes per journal byte, {agents} agents"
    told = [one["device_bytes"] / one["journal_bytes"] for one in sides.found["threads"] if "device_bytes" in one]
    if not told:
        return Row(f"{measure}: SKIPPED", 0.0, note="the system counts no bytes for this disk")
    note = "least of the rounds (others write too); filling segments with zeros ahead of use adds 1 for each byte used"
    return Row(measure, min(told), bar, "reported" if bar is None else "at most", "x", note)
