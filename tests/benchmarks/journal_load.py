"""Closed-loop load: N agents that each commit an event and wait for it, in threads or asyncio. Stdlib only."""

from __future__ import annotations

import asyncio
import json
import resource
import selectors
import statistics
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

WARM_S = 0.25
"""Left out of the numbers: caches, thread starts, the first segment."""


class Clock:
    """When counting begins and ends; agents ask it after each commit."""

    def __init__(self, seconds: float) -> None:
        self.begin = time.perf_counter() + WARM_S
        self.end = self.begin + seconds
        self.cpu_s = 0.0
        threading.Timer(WARM_S, self._mark).start()

    def _mark(self) -> None:
        self.cpu_s = -cpu_s()

    def stop(self) -> None:
        self.cpu_s += cpu_s()


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def run_threads(agents: int, seconds: float, commit: Callable[[int, int], Any]) -> dict[str, float]:
    """`commit(agent, number)` returns when the event is durable."""
    clock = Clock(seconds)
    taken: list[list[float]] = [[] for _ in range(agents)]

    def work(agent: int) -> None:
        mine, number, now = taken[agent], 0, time.perf_counter()
        while now < clock.end:
            began = now
            commit(agent, number)
            number += 1
            now = time.perf_counter()
            if began >= clock.begin:
                mine.append(now - began)

    threads = [threading.Thread(target=work, args=(agent,)) for agent in range(agents)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    clock.stop()
    return told(taken, seconds, clock)


async def run_tasks(agents: int, seconds: float, commit: Callable[[int, int], Awaitable[Any]]) -> dict[str, float]:
    """The same for coroutines, one task for each agent."""
    clock = Clock(seconds)
    taken: list[list[float]] = [[] for _ in range(agents)]

    async def work(agent: int) -> None:
        mine, number, now = taken[agent], 0, time.perf_counter()
        while now < clock.end:
            began = now
            await commit(agent, number)
            number += 1
            now = time.perf_counter()
            if began >= clock.begin:
                mine.append(now - began)

    await asyncio.gather(*(work(agent) for agent in range(agents)))
    clock.stop()
    return told(taken, seconds, clock)


async def run_open_loop(
    agents: int, per_second: float, seconds: float, commit: Callable[[int, int], Awaitable[Any]]
) -> dict[str, float]:
    """Each agent commits at fixed times, whether or not the one before was done. `planned_p99_us` counts from the
    planned time, so that all the loop does before is in it; `p99_us` from when the agent's timer woke it.
    """
    clock = Clock(seconds)
    taken: list[list[float]] = [[] for _ in range(agents)]
    planned: list[float] = []

    async def work(agent: int) -> None:
        at = clock.begin - WARM_S + (agent / agents) / per_second
        number = 0
        while at < clock.end:
            await asyncio.sleep(max(0.0, at - time.perf_counter()))
            began = time.perf_counter()
            await commit(agent, number)
            number += 1
            if at >= clock.begin:
                ended = time.perf_counter()
                taken[agent].append(ended - began)
                planned.append(ended - at)
            at += 1 / per_second

    await asyncio.gather(*(work(agent) for agent in range(agents)))
    clock.stop()
    planned.sort()
    return {**told(taken, seconds, clock), "planned_p99_us": planned[len(planned) * 99 // 100] * 1e6}


def precise_loop() -> asyncio.AbstractEventLoop:
    """A loop whose timers are on time: those of the usual one, over epoll, count whole milliseconds, rounded up."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


def told(taken: list[list[float]], seconds: float, clock: Clock) -> dict[str, float]:
    """Events per second, p50 and p99 in µs, CPU seconds per second."""
    every = sorted(one for mine in taken for one in mine)
    if len(every) < 2:
        raise RuntimeError("fewer than two commits: the machine is too busy, or the store too slow")
    return {
        "events": len(every), "per_s": len(every) / seconds, "p50_us": statistics.median(every) * 1e6,
        "p99_us": every[min(len(every) - 1, len(every) * 99 // 100)] * 1e6, "cpu": clock.cpu_s / seconds,
    }  # fmt: skip


class BatchingWriter:
    """One thread that takes whatever waits and stores it in one go: the best shape for a store with a costly commit."""

    def __init__(self, store: Callable[[list[bytes]], None]) -> None:
        self._store = store
        self._waiting: list[tuple[bytes, Any]] = []
        self._change = threading.Condition()
        threading.Thread(target=self._run, daemon=True).start()

    def commit(self, payload: bytes) -> None:
        lock = threading.Lock()
        lock.acquire()
        self._add(payload, lock)
        lock.acquire()

    async def acommit(self, payload: bytes) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._add(payload, future)
        await future

    def _add(self, payload: bytes, waiter: Any) -> None:
        with self._change:
            self._waiting.append((payload, waiter))
            self._change.notify()

    def _run(self) -> None:
        while True:
            with self._change:
                while not self._waiting:
                    self._change.wait()
                batch, self._waiting = self._waiting, []
            self._store([payload for payload, _ in batch])
            futures = [waiter for _, waiter in batch if not isinstance(waiter, type(_LOCK))]
            for _, waiter in batch:
                if isinstance(waiter, type(_LOCK)):
                    waiter.release()
            if futures:
                futures[0].get_loop().call_soon_threadsafe(_wake, futures)


_LOCK = threading.Lock()


def _wake(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


def print_result(result: dict[str, float]) -> None:
    print(json.dumps(result))
