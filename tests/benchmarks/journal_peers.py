"""Peers doing the same work: `python journal_peers.py KIND WORLD AGENTS SECONDS FOLDER [URL]`, about 1 KB per event.

Runs under build/bench-venv, where the peers are, so it imports nothing but the standard library and the one peer.
Every peer is durable on return: SQLite WAL with synchronous=FULL, RocksDB sync, LMDB sync, PostgreSQL as it comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import sqlite3
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from journal_load import BatchingWriter, print_result, run_tasks, run_threads, told  # beside this file

SIZE_BYTES = 1152
"""A payload of 1 KB and 128 bytes of what goes with it."""
PAYLOAD = os.urandom(SIZE_BYTES // 2).hex().encode()
Commit = Callable[[int, int], Any]
Acommit = Callable[[int, int], Awaitable[Any]]


def raw_barrier(folder: str, url: str) -> tuple[Commit, Acommit | None]:
    """One pwritev with RWF_DSYNC into a zero-filled file: the physical floor."""
    fd = _zero_filled(f"{folder}/raw", 64 << 20)
    place = [0]

    def commit(agent: int, number: int) -> None:
        os.pwritev(fd, (PAYLOAD,), place[0], os.RWF_DSYNC)
        place[0] = (place[0] + SIZE_BYTES) % (63 << 20)

    return commit, None


def plain_fsync(folder: str, url: str) -> tuple[Commit, Acommit | None]:
    """One shared file under a lock, write + fsync for each event."""
    fd = os.open(f"{folder}/plain", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    lock = threading.Lock()

    def commit(agent: int, number: int) -> None:
        with lock:
            os.write(fd, PAYLOAD)
            os.fsync(fd)

    return commit, lambda agent, number: asyncio.to_thread(commit, agent, number)


def sqlite_batched(folder: str, url: str) -> tuple[Commit, Acommit | None]:
    """WAL, FULL, one writer thread, one transaction for all that waits."""
    connection = sqlite3.connect(f"{folder}/sqlite.db", check_same_thread=False, isolation_level=None)
    connection.execute("pragma journal_mode=wal")
    connection.execute("pragma synchronous=full")
    connection.execute("create table events (id integer primary key, payload blob)")

    def store(batch: list[bytes]) -> None:
        connection.execute("begin")
        connection.executemany("insert into events (payload) values (?)", [(payload,) for payload in batch])
        connection.execute("commit")

    return _batched(store)


def rocksdb_batched(folder: str, url: str) -> tuple[Commit, Acommit | None]:
    """Sync writes, one writer thread, one WriteBatch for all that waits."""
    from rocksdict import Options, Rdict, WriteBatch, WriteOptions

    options = Options(raw_mode=True)
    options.create_if_missing(True)
    database = Rdict(f"{folder}/rocks", options)
    sync = WriteOptions()
    sync.sync = True
    count = [0]

    def store(batch: list[bytes]) -> None:
        writes = WriteBatch(raw_mode=True)
        for payload in batch:
            count[0] += 1
            writes.put(count[0].to_bytes(8, "big"), payload)
        database.write(writes, sync)

    return _batched(store)


def lmdb_each(folder: str, url: str) -> tuple[Commit, Acommit | None]:
    """A synchronous write transaction for each event (LMDB lets one write at a time)."""
    import lmdb

    environment = lmdb.open(f"{folder}/lmdb", map_size=8 << 30)
    lock, count = threading.Lock(), [0]

    def commit(agent: int, number: int) -> None:
        with lock, environment.begin(write=True) as transaction:
            count[0] += 1
            transaction.put(count[0].to_bytes(8, "big"), PAYLOAD, append=True)

    return commit, lambda agent, number: asyncio.to_thread(commit, agent, number)


def postgres(folder: str, url: str) -> tuple[Commit, Acommit | None]:
    """An insert in a transaction of its own, a connection for each agent."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table if not exists events (id bigserial primary key, payload bytea)")
    local = threading.local()
    insert = "insert into events (payload) values (%s)"

    def commit(agent: int, number: int) -> None:
        if not hasattr(local, "connection"):
            local.connection = psycopg.connect(url, autocommit=True)
        local.connection.execute(insert, (PAYLOAD,), prepare=True)

    opened: dict[int, Any] = {}

    async def acommit(agent: int, number: int) -> None:
        if agent not in opened:
            opened[agent] = await psycopg.AsyncConnection.connect(url, autocommit=True)
        await opened[agent].execute(insert, (PAYLOAD,), prepare=True)

    return commit, acommit


def langgraph(folder: str, url: str) -> tuple[Commit, Acommit | None]:
    """`SqliteSaver.put` of a checkpoint that holds the event."""
    from langgraph.checkpoint.base import empty_checkpoint
    from langgraph.checkpoint.sqlite import SqliteSaver

    saver = SqliteSaver(sqlite3.connect(f"{folder}/langgraph.db", check_same_thread=False))
    saver.setup()
    text = PAYLOAD.decode()

    def commit(agent: int, number: int) -> None:
        config: Any = {"configurable": {"thread_id": str(agent), "checkpoint_ns": ""}}
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"event": text}
        saver.put(config, checkpoint, {"step": number}, {})

    return commit, lambda agent, number: asyncio.to_thread(commit, agent, number)


def run_dbos(agents: int, seconds: float, folder: str, url: str) -> dict[str, float]:
    """Workflows of steps that return the event: DBOS records each step's result before the next begins."""
    from dbos import DBOS

    DBOS(config={
        "name": "bench", "system_database_url": url or f"sqlite:///{folder}/dbos.sqlite", "run_admin_server": False,
        "log_level": "ERROR",
    })  # fmt: skip
    text = PAYLOAD.decode()
    results: queue.Queue[list[float]] = queue.Queue()

    @DBOS.step()
    def step(number: int) -> str:
        return text

    @DBOS.workflow()
    def workflow(begin: float, end: float) -> int:
        mine, number = [], 0
        while (began := time.perf_counter()) < end:
            step(number)
            number += 1
            if began >= begin:
                mine.append(time.perf_counter() - began)
        results.put(mine)
        return number

    DBOS.launch()
    begin = time.perf_counter() + 1.0
    handles = [DBOS.start_workflow(workflow, begin, begin + seconds) for _ in range(agents)]
    for handle in handles:
        handle.get_result()
    taken = [results.get() for _ in handles]
    DBOS.destroy()

    class NoClock:
        cpu_s = 0.0

    return told(taken, seconds, NoClock())  # type: ignore[arg-type]


def _batched(store: Callable[[list[bytes]], None]) -> tuple[Commit, Acommit]:
    writer = BatchingWriter(store)
    return lambda agent, number: writer.commit(PAYLOAD), lambda agent, number: writer.acommit(PAYLOAD)


def _zero_filled(path: str, size: int) -> int:
    fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    for offset in range(0, size, 1 << 20):
        os.pwrite(fd, bytes(1 << 20), offset)
    os.fsync(fd)
    return fd


KINDS = {
    "raw": raw_barrier, "plain": plain_fsync, "sqlite": sqlite_batched, "rocksdb": rocksdb_batched, "lmdb": lmdb_each,
    "postgres": postgres, "langgraph": langgraph,
}  # fmt: skip


def main() -> None:
    kind, world, agents, seconds, folder, *rest = sys.argv[1:]
    url = rest[0] if rest else ""
    if kind == "dbos":
        print_result(run_dbos(int(agents), float(seconds), folder, url))
        return
    commit, acommit = KINDS[kind](folder, url)
    if world == "threads":
        print_result(run_threads(int(agents), float(seconds), commit))
    else:
        assert acommit is not None
        print_result(asyncio.run(run_tasks(int(agents), float(seconds), acommit)))
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    os._exit(0)  # some peers keep threads


if __name__ == "__main__":
    main()
