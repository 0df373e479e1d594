"""Group `query`, in object storage: one trajectory by its id against deltalake's own scan, interleaved, one server.

100,000 events of about 1 KB (a third of `TRAJLAKE_BENCH_EVENTS` where that is set). Both sides have their table open
and return every column of the same 500 rows as Arrow; each round asks for another trajectory.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from tests.benchmarks.measure import Row, interleaved, median_ratio
from tests.benchmarks.pipeline_data import make_landing
from tests.support.object_store import BUCKET, CREDENTIALS, ObjectStore
from trajlake.pipelines.compaction.compact import compact
from trajlake.pipelines.connect import connect
from trajlake.pipelines.lakehouse.lake import Lake

EVENTS = int(os.environ.get("TRAJLAKE_BENCH_EVENTS", "300000")) // 3
ROUNDS = 15
LAKE = f"s3://{BUCKET}/bench/lake"


def rows() -> Iterator[Row]:
    """Start a server, fill it, measure, stop it."""
    with tempfile.TemporaryDirectory(prefix="trajlake-bench-") as folder:
        home = Path(folder)
        (home / "server").mkdir()
        server = ObjectStore(home / "server")
        server.start()
        settings = {**CREDENTIALS, "AWS_ENDPOINT_URL": server.endpoint, "TRAJLAKE_STAGING": str(home / "staging")}
        before = {name: os.environ.get(name) for name in settings}
        os.environ.update(settings)
        try:
            yield from measured(home)
        finally:
            server.kill()
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


def measured(home: Path) -> Iterator[Row]:
    """Measure over a lake that is made here, on a disk and in the store."""
    landing, near = str(home / "landing"), str(home / "lake")
    make_landing(home / "landing", EVENTS)
    # The lakes stand before their first segment lands: what is compared is the work, not their making.
    for place in (near, LAKE):
        Lake.open(place, create=True)
    disk, store = (seconds(lambda place=place: compact(landing, place)) for place in (near, LAKE))
    note = f"{store:.1f} s against {disk:.1f} s"
    yield Row("compaction into object storage, against a disk", store / disk, note=note)
    lake = Lake.open(LAKE)
    snapshot = lake.newest()
    files = lake.files(snapshot, "events")
    opening = [seconds(lambda: connect(LAKE).close()) for _ in range(5)]
    note = f"{len(files)} files of events"
    yield Row("opening a connection in object storage", statistics.median(opening), unit="s", note=note)
    ours, scanned = connect(LAKE), lake.handle("events", snapshot.tables["events"])
    names = [name for (name,) in ours.execute("select trajectory_id from trajectories order by all").fetchall()]
    asked = random.Random(7).choices(names, k=2 * ROUNDS)
    turn = {"ours": iter(asked), "scan": iter(asked)}

    def look_up() -> None:
        query = "select * from events where trajectory_id = ?"
        assert len(ours.sql(query, params=[next(turn["ours"])]).to_arrow_table())

    def scan() -> None:
        assert len(pa.table(scanned.scan(predicate=f"trajectory_id = '{next(turn['scan'])}'")))

    found = interleaved({"ours": look_up, "scan": scan}, ROUNDS)
    note = f"{shown(found['ours'])} ms against {shown(found['scan'])} ms; all columns of one trajectory"
    ratio = median_ratio(found["ours"], found["scan"])
    yield Row("trajectory_id = ? in object storage, against DeltaTable.scan", ratio, 4.0, "at most", note=note)
    whole = [seconds(lambda: ours.execute("select sum(strlen(payload)) from events").fetchall()) for _ in range(5)]
    yield Row("payload scan in object storage", EVENTS / statistics.median(whole), unit="ev/s")


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def shown(found: list[float]) -> str:
    return f"{statistics.median(found) * 1000:.1f}"
