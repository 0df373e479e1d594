"""Bodies begin themselves when their intents are durable, and never where nobody waits for them any more."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support.events import event_of, info_of
from trajlake.runtime.agent import driver_async, driver_sync
from trajlake.runtime.agent.requests import NotBegun, Start
from trajlake.runtime.env import REAL_ENV
from trajlake.runtime.root import Root

LONG_S = 60.0


class Barrier:
    """A ticket that is durable when a test says so; `error`: it never will be."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.open = threading.Event()

    def release_when_ended(self, _: Any) -> bool:
        return False

    def wait(self, timeout: float | None = None) -> None:
        assert self.open.wait(LONG_S)
        if self.error is not None:
            raise self.error

    def __await__(self) -> Generator[Any, None, None]:
        while not self.open.is_set():
            yield from asyncio.sleep(0.001).__await__()
        if self.error is not None:
            raise self.error


class Interrupted:
    """A queue whose reader is stopped by Ctrl-C."""

    def get(self, timeout: float | None) -> Any:
        raise KeyboardInterrupt

    def put(self, _: Any) -> None:
        return


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_body_waits_for_its_intent_and_has_all_its_time_after_it() -> None:
    bodies, barrier, ran = driver_sync.Bodies(REAL_ENV), Barrier(), []
    bodies.start(Start(1, lambda: ran.append(barrier.open.is_set()), 0.05, after=barrier))
    threading.Timer(0.2, barrier.open.set).start()
    assert bodies.next().error is None
    assert ran == [True]


def test_a_body_whose_intent_is_lost_is_not_begun() -> None:
    lost, ran = OSError("the disk is gone"), []
    bodies, barrier = driver_sync.Bodies(REAL_ENV), Barrier(lost)
    bodies.start(Start(1, lambda: ran.append(1), LONG_S, after=barrier))
    barrier.open.set()
    done = bodies.next()
    assert isinstance(done.error, NotBegun)
    assert done.error.why is lost
    assert not ran


def test_a_body_is_not_begun_once_its_caller_was_interrupted() -> None:
    bodies, barrier, ran = driver_sync.Bodies(REAL_ENV), Barrier(), []
    bodies.start(Start(1, lambda: ran.append(1), LONG_S, after=barrier))
    bodies._ends = Interrupted()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        bodies.next()
    barrier.open.set()
    until(lambda: bool(bodies._idle))
    assert not ran


def test_under_asyncio_a_body_waits_for_its_intent_and_its_time_begins_then() -> None:
    async def main() -> None:
        bodies, barrier, ran = driver_async.Bodies(), Barrier(), []

        async def quick() -> None:
            ran.append(barrier.open.is_set())

        bodies.start(Start(1, quick, 0.05, is_async=True, after=barrier))
        asyncio.get_running_loop().call_later(0.2, barrier.open.set)
        assert (await bodies.next()).error is None
        assert ran == [True]
        lost = Barrier(OSError("the disk is gone"))
        lost.open.set()
        bodies.start(Start(2, quick, LONG_S, is_async=True, after=lost))
        assert isinstance((await bodies.next()).error, NotBegun)
        assert ran == [True]

    asyncio.run(main())


def test_under_asyncio_a_body_is_not_begun_once_its_caller_was_cancelled() -> None:
    async def main() -> None:
        bodies, barrier, ran = driver_async.Bodies(), Barrier(), []
        bodies.start(Start(1, lambda: asyncio.sleep(0, ran.append(1)), LONG_S, is_async=True, after=barrier))
        caller = asyncio.create_task(bodies.next())
        await asyncio.sleep(0.01)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        barrier.open.set()
        await asyncio.gather(*bodies._tasks.values(), return_exceptions=True)
        assert not ran

    asyncio.run(main())


def test_under_asyncio_each_body_has_a_time_of_its_own() -> None:
    async def main() -> None:
        bodies = driver_async.Bodies()
        for tag, timeout_s in ((1, LONG_S), (2, 0.02), (3, 0.01)):
            bodies.start(Start(tag, lambda: asyncio.sleep(LONG_S), timeout_s, is_async=True))
        for tag in (3, 2):
            done = await bodies.next()
            assert (done.tag, type(done.error)) == (tag, TimeoutError)
        for task in bodies._tasks.values():
            task.cancel()
        assert isinstance((await bodies.next()).error, asyncio.CancelledError)

    asyncio.run(main())


def test_a_lock_is_released_once_when_an_append_has_ended(tmp_path: Path) -> None:
    with Root.open(tmp_path).claim_writer() as writer:
        for number in range(200):
            lock = threading.Lock()
            lock.acquire()
            ticket = writer.append([event_of("t", number)], info_of("t"), lazy=bool(number % 2))
            if number % 3 == 0:
                ticket.wait()
            if ticket.release_when_ended(lock):
                assert lock.acquire(timeout=LONG_S)
            assert ticket.done
            assert not ticket.release_when_ended(lock)
            assert lock.locked()
