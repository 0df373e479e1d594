"""Group `warm`: the warm tier in PostgreSQL. Load against COPY, how soon an event is queryable, queries while loading.

A server of its own with its defaults (fsync on). Rows for the queries: WARM_ROWS (default 1,000,000), of about 300 B.
The bar asks for 10,000,000: five minutes to fill, 7 GB.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from tests.benchmarks.measure import Row, interleaved, median_ratio
from tests.ingest.stores.histories import History, info
from tests.support.postgres import KillableServer, schema_url
from trajlake.ingest.journal_tail import JournalTail
from trajlake.ingest.stores.postgres_database import Database
from trajlake.ingest.stores.postgres_rows import chunks
from trajlake.ingest.stores.postgres_warm import PostgresWarmTier
from trajlake.ingest.stores.sql_text import statement
from trajlake.ingest.warm import WarmShipper
from trajlake.runtime.root import Root
from trajlake.schemas import events as types

EVENTS, TRAJECTORIES, ROUNDS = 100_000, 200, 3
RATE, SECONDS, AGENTS = 1_000, 10, 8
WARM_ROWS = int(os.environ.get("WARM_ROWS", "1000000"))
TEXT = "x" * 900


def rows() -> Iterator[Row]:
    server = KillableServer()
    try:
        with tempfile.TemporaryDirectory() as home:
            yield from load(server, Path(home))
            yield from latency(server, Path(home))
        yield from queries(server)
    finally:
        server.close()


def load(server: KillableServer, home: Path) -> Iterator[Row]:
    root = Root.open(str(home / "load"))
    writer = root.claim_writer()
    for number in range(TRAJECTORIES):
        history = History(f"t{number}")
        history.start()
        for _ in range(EVENTS // TRAJECTORIES - 1):
            history.add(types.VarSet(name="x", value=TEXT))
        ticket = writer.append(history.events, history.info)
    ticket.wait()
    writer.close()
    tail = JournalTail(root.env, root.writer_folder(writer.writer_id), 0)
    frames = []
    while more := tail.read(5_000):
        frames += more
    prepared = list(chunks(writer.writer_id, frames, (), careful=False))

    def copy() -> float:
        with schema_url(server.url) as url:
            Database(url).run(lambda c: None)
            with psycopg.connect(url) as connection:
                started = time.perf_counter()
                with connection.cursor() as cursor, cursor.copy(statement("events_copy")) as into:
                    for chunk in prepared:
                        into.write(chunk)
                connection.commit()
                return time.perf_counter() - started

    def ship() -> float:
        with schema_url(server.url) as url:
            tier = PostgresWarmTier(Database(url))
            tier.cursor("x")
            started = time.perf_counter()
            report = WarmShipper(root, tier).run()
            assert report.events == EVENTS
            return time.perf_counter() - started

    copy()
    seconds = interleaved({"copy": copy, "ship": ship}, ROUNDS)
    yield Row(
        "load: ship --warm against COPY into the same table", median_ratio(seconds["copy"], seconds["ship"]), 0.6,
        "at least", note=f"{EVENTS / statistics.median(seconds['ship']) / 1e3:.1f} k events/s, COPY of ready rows "
        f"{EVENTS / statistics.median(seconds['copy']) / 1e3:.1f} k rows/s",
    )  # fmt: skip


def latency(server: KillableServer, home: Path) -> Iterator[Row]:
    root = Root.open(str(home / "live"))
    acknowledged: dict[tuple[str, int], float] = {}
    seen: dict[tuple[str, int], float] = {}
    stop = threading.Event()
    with schema_url(server.url) as url:
        Database(url).run(lambda c: None)
        shipper = WarmShipper(root, PostgresWarmTier(Database(url)))
        shipping = threading.Thread(target=shipper.follow, args=(stop,))
        shipping.start()
        watching = threading.Thread(target=watch, args=(url, seen, stop))
        watching.start()
        writer = root.claim_writer()
        lives = [History(f"t{number}") for number in range(AGENTS)]
        for history in lives:
            history.start()
            writer.append(history.events, history.info).wait()
        started = time.perf_counter()
        for count in range(RATE * SECONDS):
            history = lives[count % AGENTS]
            event = history.add(types.VarSet(name="x", value=TEXT))
            writer.append([event], info(history.info.trajectory_id)).wait()
            acknowledged[history.info.trajectory_id, event.sequence_number] = time.perf_counter()
            time.sleep(max(0.0, started + count / RATE - time.perf_counter()))
        writer.close()
        ends = time.monotonic() + 30
        while len(seen) < len(acknowledged) and time.monotonic() < ends:
            time.sleep(0.05)
        stop.set()
        shipping.join()
        watching.join()
    waits = sorted(seen.get(key, float("inf")) - at for key, at in acknowledged.items())
    yield Row(
        f"acknowledged to queryable at {RATE:,} events/s, p99", waits[len(waits) * 99 // 100] * 1e3, 1000, "at most",
        "ms", f"p50 {waits[len(waits) // 2] * 1e3:.0f} ms, largest {waits[-1] * 1e3:.0f} ms",
    )  # fmt: skip


def watch(url: str, seen: dict[tuple[str, int], float], stop: threading.Event) -> None:
    """Note when each event is first shown by the view `events`."""
    next_number = dict.fromkeys((f"t{number}" for number in range(AGENTS)), 1)
    with psycopg.connect(url, autocommit=True) as connection:
        while not stop.is_set():
            for name, number in next_number.items():
                found = connection.execute(
                    "select sequence_number from events where tenant = 'default' and trajectory_id = %s"
                    " and sequence_number >= %s", (name, number),
                ).fetchall()  # fmt: skip
                now = time.perf_counter()
                for (one,) in found:
                    seen[name, one] = now
                next_number[name] = number + len(found)
            time.sleep(0.01)


FILL = """
insert into trajectory_events (tenant, trajectory_id, sequence_number, fencing_token, event_type, schema_version, turn,
    recorded_at, payload, salt, commitment, cryptographic_hash, writer, lsn, started_on, model, frame)
select 'default', 'old' || t, n, 1, case n when 0 then 'TaskStarted' else 'VarSet' end, 1, n / 10,
    now() - interval '1 day' + (t * 500 + n) * interval '1 millisecond',
    jsonb_build_object('name', 'x', 'value', repeat('y', 60)), decode(repeat('00', 16), 'hex'),
    sha256(int8send(n)), sha256(int8send(t * 500 + n)), repeat('a', 32), t * 500 + n, '2026-11-29', 'm@2',
    decode(repeat('00', 200), 'hex')
from generate_series(%(first)s::bigint, %(last)s::bigint) as t, generate_series(0::bigint, 499::bigint) as n
"""
FILL_HEADS = """
with made as (
    insert into trajectory_heads
        (tenant, trajectory_id, model, started_on, fencing_token, next_sequence, turn, recorded_at)
    select 'default', 'old' || t, 'm@2', '2026-11-29', 1, 500, 49, now() - interval '1 day' + t * interval '500 ms'
    from generate_series(%(first)s::bigint, %(last)s::bigint) as t
), spans as (
    insert into trajectory_spans
    select 'default', 'old' || t, 1, 0, null from generate_series(%(first)s::bigint, %(last)s::bigint) as t
)
insert into trajectory_open_items
select 'default', 'old' || t, case t %% 2 when 0 then 'approval' else 'intent' end, 'a', '1.0', 1, 1,
    now() - interval '1 day', 'pay', 'external', 1, false, 'e', null, 'Pay?', null
from generate_series(%(first)s::bigint, %(last)s::bigint) as t where t %% 10 < 2
"""
QUESTIONS = {
    "status page": "select * from status order by last_recorded_at desc nulls last limit 50",
    "approval queue": "select * from approvals_waiting order by requested_at limit 50",
    "last 100 events of a trajectory": "select * from events where tenant = 'default' and trajectory_id = 'old7'"
    " order by sequence_number desc limit 100",
    "last 100 events of all": "select * from events order by recorded_at desc limit 100",
}


def queries(server: KillableServer) -> Iterator[Row]:
    with schema_url(server.url) as url, tempfile.TemporaryDirectory() as home:
        database = Database(url)
        database.run(lambda c: None)
        with psycopg.connect(url, autocommit=True) as connection:
            for first in range(0, WARM_ROWS // 500, 200):
                named = {"first": first, "last": min(first + 199, WARM_ROWS // 500 - 1)}
                connection.execute(FILL, named)
                connection.execute(FILL_HEADS, named)
            connection.execute("analyze")
            connection.execute("checkpoint")
        with Loading(Path(home), database):
            for name, query in QUESTIONS.items():
                took = ask(url, query)
                note = f"p50 {took[len(took) // 2] * 1e3:.1f} ms, {len(took)} times"
                measure = f"{name}, {WARM_ROWS:,} rows, while loading, p99"
                yield Row(measure, took[len(took) * 99 // 100] * 1e3, 50, "at most", "ms", note)


class Loading:
    """While this is entered, agents write 1,000 events/s and a shipper brings them in."""

    def __init__(self, home: Path, database: Database) -> None:
        self._root = Root.open(str(home / "busy"))
        self._shipper = WarmShipper(self._root, PostgresWarmTier(database))
        self._stop = threading.Event()
        targets: list[Callable[[], Any]] = [lambda: self._shipper.follow(self._stop), self._write]
        self._threads = [threading.Thread(target=one) for one in targets]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _write(self) -> None:
        writer = self._root.claim_writer()
        lives = [History(f"new{number}") for number in range(AGENTS)]
        for history in lives:
            history.start()
            writer.append(history.events, history.info)
        while not self._stop.is_set():
            for history in lives:
                events = [history.add(types.VarSet(name="x", value=TEXT)) for _ in range(RATE // 100)]
                writer.append(events, history.info).wait()
            time.sleep(AGENTS / 100)
        writer.close()


def ask(url: str, query: str, count: int = 300) -> list[float]:
    took = []
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(count):
            started = time.perf_counter()
            connection.execute(query).fetchall()  # type: ignore[call-overload]
            took.append(time.perf_counter() - started)
            time.sleep(0.01)
    return sorted(took)
