"""The keeper renews, permits age, and a loss is final."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import pytest

from trajlake.runtime.env import Env
from trajlake.runtime.leases.file_lease import FileLeaseStore
from trajlake.runtime.leases.lease import Claim, Head, LeaseChanged, LeaseLost
from trajlake.runtime.leases.lease_keeper import LeaseKeeper


class SteppedClock(Env):
    """A machine whose boot-time clock also moves when a test says so: a pause of the whole process."""

    def __init__(self) -> None:
        super().__init__()
        self.paused_us = 0

    def boottime_us(self) -> int:
        return super().boottime_us() + self.paused_us


def claim(worker="a") -> Claim:
    return Claim(tenant="default", trajectory_id="t", worker=worker, writer=f"{worker}0", host="h")


@pytest.fixture
def env():
    return SteppedClock()


@pytest.fixture
def store(tmp_path, env):
    return FileLeaseStore(str(tmp_path), env=env, writer_is_dead=lambda writer: False)


@pytest.fixture
def keeper(store, env):
    keeper = LeaseKeeper(store, env=env)
    yield keeper
    keeper.close()


def steal(store, env) -> None:
    """Let the lease run out and take it for another worker; a renewal under way may come between read and take."""
    env.paused_us += 120_000_000
    for _ in range(5):
        found = store.read("default", "t")
        try:
            store.acquire(claim("b"), found.highest_token + 1, expected=found.revision)
            return
        except LeaseChanged:
            env.paused_us += 120_000_000
    raise AssertionError("the lease record changed at every try")


def test_a_lease_outlives_its_duration_while_its_keeper_lives_and_not_after(store, env):
    keeper = LeaseKeeper(store, env=env, duration_s=0.4, renew_every_s=0.1)
    keeper.hold(store.acquire(claim(), 1, expected=None, duration_s=0.4))
    time.sleep(1.0)
    assert store.read("default", "t").holder.worker == "a"
    keeper.close()
    time.sleep(0.5)
    assert store.read("default", "t").holder is None


def test_before_a_send_the_lease_reaches_timeout_and_margin(store, keeper):
    held = keeper.hold(store.acquire(claim(), 1, expected=None))
    assert held.check_for_dispatch(300).good()
    assert store.read("default", "t").free_in_s > 309


def test_a_permit_is_worth_nothing_after_a_pause_of_more_than_a_second(store, keeper, env):
    held = keeper.hold(store.acquire(claim(), 1, expected=None))
    permit = held.check_for_dispatch(60)
    assert permit.good()
    env.paused_us += 1_100_000
    assert not permit.good()
    assert held.check_for_dispatch(60).good()


def test_a_pause_between_the_stores_answer_and_its_use_is_noticed(store, keeper, env, monkeypatch):
    held = keeper.hold(store.acquire(claim(), 1, expected=None))
    extend, pauses = store.extend, []

    def slow(lease, duration_s):
        answer = extend(lease, duration_s)
        if len(pauses) < 2:
            pauses.append(None)
            env.paused_us += 3_000_000
        return answer

    monkeypatch.setattr(store, "extend", slow)
    assert held.check_for_dispatch(60).good()
    assert len(pauses) == 2


def test_a_store_that_always_answers_late_permits_nothing(store, keeper, env, monkeypatch):
    held = keeper.hold(store.acquire(claim(), 1, expected=None))
    extend = store.extend

    def late(lease, duration_s):
        answer = extend(lease, duration_s)
        env.paused_us += 1_500_000
        return answer

    monkeypatch.setattr(store, "extend", late)
    with pytest.raises(LeaseLost, match="too slow"):
        held.check_for_dispatch(60)


def test_after_a_take_over_every_check_fails_and_goes_on_failing(store, keeper, env):
    held = keeper.hold(store.acquire(claim(), 1, expected=None))
    permit = held.check_for_dispatch(1)
    steal(store, env)
    assert not permit.good()
    for _ in range(2):
        with pytest.raises(LeaseLost):
            held.check_for_dispatch()
    assert held.lost
    assert store.read("default", "t").holder.worker == "b"


def test_losing_a_lease_is_told_to_its_owner_without_a_check(store, env):
    told: list[int] = []
    seen = threading.Event()
    keeper = LeaseKeeper(
        store, env=env, duration_s=1.0, renew_every_s=0.3, on_lost=lambda held: (told.append(held.token), seen.set())
    )
    keeper.hold(store.acquire(claim(), 1, expected=None, duration_s=0.2))
    steal(store, env)
    assert seen.wait(5)
    assert told == [1]
    keeper.close()


def test_an_error_of_the_store_is_no_loss_and_no_permit(store, keeper, env, monkeypatch):
    held = keeper.hold(store.acquire(claim(), 1, expected=None))

    def broken(lease, duration_s):
        raise OSError("disk says no")

    with monkeypatch.context() as patch:
        patch.setattr(store, "extend", broken)
        with pytest.raises(OSError, match="disk says no"):
            held.check_for_dispatch(600)
        held.renew()
        assert not held.lost
    assert held.check_for_dispatch(600).good()


def test_release_closes_the_tenure_and_ends_every_permit(store, keeper):
    held = keeper.hold(store.acquire(claim(), 1, expected=None))
    permit = held.check_for_dispatch(1)
    keeper.release(held, Head(4, "cd" * 32))
    assert not permit.good()
    assert store.read("default", "t").ended_at(1)
    with pytest.raises(LeaseLost):
        keeper.release(held)


def test_many_checks_within_a_second_ask_the_store_once(store, keeper, monkeypatch):
    held = keeper.hold(store.acquire(claim(), 1, expected=None))
    held.check_for_dispatch(60)
    before = store.read("default", "t").revision
    for _ in range(20):
        held.check_for_dispatch(60)
    assert int(store.read("default", "t").revision) - int(before) <= 1


def test_the_loop_is_not_blocked_by_a_check(store, keeper, env, monkeypatch):
    held = keeper.hold(store.acquire(claim(), 1, expected=None))
    extend = store.extend
    monkeypatch.setattr(store, "extend", lambda *given: (time.sleep(0.2), extend(*given))[1])

    async def scene() -> int:
        ticks = 0
        check = asyncio.create_task(held.acheck_for_dispatch(900))
        while not check.done():
            await asyncio.sleep(0.01)
            ticks += 1
        assert (await check).good()
        return ticks

    assert asyncio.run(scene()) > 5


def test_a_thousand_leases_are_kept_by_one_thread(tmp_path, keeper, store):
    def keepers() -> int:
        return sum(thread.name == "trajlake-lease-keeper" for thread in threading.enumerate())

    before = keepers()
    for number in range(1000):
        one = Claim(tenant="default", trajectory_id=f"t{number}", worker="a", writer="a0", host="h")
        keeper.hold(store.acquire(one, 1, expected=None))
    assert keepers() == before + 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_holds_nothing(store, keeper):
    held = keeper.hold(store.acquire(claim(), 1, expected=None))
    child = os.fork()
    if child == 0:
        try:
            held.check_for_dispatch()
        except LeaseLost:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert held.check_for_dispatch().good()


def test_a_lease_that_no_thread_could_be_had_for_is_not_held_and_the_next_one_is_renewed(store, env, monkeypatch):
    keeper = LeaseKeeper(store, env=env, duration_s=60.0, renew_every_s=0.05)
    lease = store.acquire(claim(), 1, expected=None)

    def none_left(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        with pytest.raises(RuntimeError):
            keeper.hold(lease)
    assert keeper._held == []
    held = keeper.hold(lease)
    asked = held.renew_at_s
    deadline = time.monotonic() + 30
    while held.renew_at_s == asked and time.monotonic() < deadline:
        time.sleep(0.01)
    assert held.renew_at_s > asked
    keeper.close()


def test_a_keeper_without_a_thread_closes(store, env, monkeypatch):
    keeper = LeaseKeeper(store, env=env)

    def none_left(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none_left)
    with pytest.raises(RuntimeError):
        keeper.hold(store.acquire(claim(), 1, expected=None))
    keeper.close()
