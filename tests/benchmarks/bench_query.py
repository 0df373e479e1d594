"""Group `query`: a lake on an open connection against DuckDB's own `read_parquet` over the same files, interleaved.

300,000 events of about 1 KB (`TRAJLAKE_BENCH_EVENTS` sets another size) in 20 files or more. Rates per core are CPU
seconds of one thread, so that neighbours do not count; a gigabyte is 10^9 bytes of payload text, uncompressed.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from tests.benchmarks.measure import Row, interleaved, median_ratio
from tests.benchmarks.pipeline_data import make_landing
from trajlake.pipelines.compaction.compact import compact
from trajlake.pipelines.connect import connect
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.sql_text import literal

EVENTS = int(os.environ.get("TRAJLAKE_BENCH_EVENTS", "300000"))
ROUNDS = 11
PROMOTED = """
select event_type, fencing_token, count(*), min(recorded_at), max(recorded_at), max(sequence_number), max(turn)
from events where turn >= 0 group by event_type, fencing_token
"""
COPY_BYTES = 1 << 28


def rows() -> Iterator[Row]:
    """Measure."""
    with tempfile.TemporaryDirectory(prefix="trajlake-bench-") as folder:
        home = Path(folder)
        made = make_landing(home / "landing", EVENTS)
        compact(str(home / "landing"), str(home / "lake"))
        yield from measured(str(home / "lake"), made)


def measured(lake: str, events: int) -> Iterator[Row]:
    """Measure over a lake that is there."""
    opened = Lake.open(lake)
    files = [file.path for file in opened.files(opened.newest(), "events")]
    opening = [seconds(lambda: connect(lake).close()) for _ in range(5)]
    yield Row("opening a connection", statistics.median(opening), unit="s", note=f"{len(files)} files of events")
    ours, raw = connect(lake), duckdb.connect()
    raw.execute(f"create view events as select * from read_parquet([{', '.join(map(literal, files))}])")
    for what, query in (
        ("sum of a column, against read_parquet", "select sum(lsn) from events"),
        ("payload scan, against read_parquet", "select sum(strlen(payload)) from events"),
    ):
        sides = {"ours": asks(ours, query), "raw": asks(raw, query)}
        found = interleaved(sides, ROUNDS)
        note = f"{shown(found['ours'])} ms against {shown(found['raw'])} ms"
        yield Row(what, median_ratio(found["ours"], found["raw"]), 1.15, "at most", note=note)
    yield from per_core(ours, files, events)
    (one,) = ours.execute("select max(trajectory_id) from events").fetchone() or ("",)
    look_up = [seconds(asks(ours, f"select * from events where trajectory_id = {literal(one)}")) for _ in range(ROUNDS)]
    yield Row("one trajectory by its id", statistics.median(look_up) * 1000, unit="ms", note="500 rows, all columns")


def per_core(ours: duckdb.DuckDBPyConnection, files: list[str], events: int) -> Iterator[Row]:
    """Rates of one thread: bytes and events per second of CPU."""
    ours.execute("set threads = 1")
    (size,) = ours.execute("select sum(strlen(payload)) from events").fetchone() or (0,)
    scan = cpu_s(asks(ours, "select sum(strlen(payload)) from events"))
    plain = cpu_s(lambda: [pq.read_table(file, columns=["payload"], use_threads=False) for file in files])
    source, target = bytearray(COPY_BYTES), bytearray(COPY_BYTES)
    copy = cpu_s(lambda: memoryview(target).__setitem__(slice(None), source))
    note = f"plain Parquet scan (pyarrow) {size / plain / 1e9:.2f}, memory copy {COPY_BYTES / copy / 1e9:.1f} GB/s"
    yield Row("payload scan per core", size / scan / 1e9, unit="GB/s", note=note)
    promoted = events / cpu_s(asks(ours, PROMOTED))
    yield Row(
        "scan with promoted columns, per core", promoted, 200_000, "at least", "ev/s", "filter, group, aggregates"
    )
    whole = events / cpu_s(lambda: ours.sql("select * from events").to_arrow_table())
    yield Row("every column into Arrow, per core", whole, unit="ev/s", note="payload and digests too")
    ours.execute("reset threads")


def asks(connection: duckdb.DuckDBPyConnection, query: str) -> Callable[[], None]:
    def ask() -> None:
        connection.execute(query).fetchall()

    return ask


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def cpu_s(work: Callable[[], object], rounds: int = 5) -> float:
    """Return the median CPU seconds of this process over some rounds, the first one left out."""
    found = []
    for _ in range(rounds + 1):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return statistics.median(found[1:])


def shown(found: list[float]) -> str:
    return f"{statistics.median(found) * 1000:.1f}"
