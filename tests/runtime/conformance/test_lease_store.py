"""What every lease store promises (`runtime.lease.LeaseStore`)."""

from __future__ import annotations

import threading
import time

import pytest

from trajlake.runtime.leases.lease import (
    Claim,
    Head,
    LeaseBusy,
    LeaseChanged,
    LeaseLost,
    LeaseStore,
    RecordMissing,
    take_lease,
)
from trajlake.schemas.ids import GENERATION, trajectory_key

SHORT_S = 0.15


def claim(worker: str = "a", trajectory_id: str = "order-7", first_lsn: int = 0) -> Claim:
    return Claim(
        tenant="default", trajectory_id=trajectory_id, worker=worker, writer=f"{worker}0", host="h", first_lsn=first_lsn
    )


def revision(store: LeaseStore) -> str:
    record = store.read("default", "order-7")
    assert record is not None
    return record.revision


def run_out(backend) -> None:
    """Wait until a lease of SHORT_S has run out by the store's clock."""
    time.sleep(SHORT_S * 1.5 + (backend.clock_step_s and backend.clock_step_s + 1))


def take(backend, worker="a", **more):
    return take_from(backend.leases(), backend.arbiter(), worker, **more)


def take_from(leases, arbiter, worker, **more):
    return take_lease(leases, arbiter, claim(worker), trajectory_key("default", "order-7").hex(), **more)


def test_an_unknown_trajectory_has_no_record(backend):
    assert backend.leases().read("default", "order-7") is None
    assert list(backend.leases().records()) == []


def test_a_granted_lease_is_seen_by_every_other_process_with_its_tenure(backend):
    lease = backend.leases().acquire(claim(first_lsn=41), 1, expected=None)
    record = backend.leases().read("default", "order-7")
    assert (record.highest_token, record.holder.worker, record.holder.writer) == (1, "a", "a0")
    assert record.tenures[0].first_lsn == 41
    assert 50 < record.free_in_s <= 60 + backend.clock_step_s
    assert lease.held_until_s - lease.answered_at_s == pytest.approx(60)
    assert [found.trajectory_id for found in backend.leases().records()] == ["order-7"]


def test_only_the_first_of_two_creations_succeeds(backend):
    backend.leases().acquire(claim("a"), 1, expected=None)
    with pytest.raises(LeaseChanged):
        backend.leases().acquire(claim("b"), 1, expected=None)


def test_a_held_lease_is_refused_to_everybody_its_holder_included(backend):
    store = backend.leases()
    store.acquire(claim("a"), 1, expected=None)
    for worker in ("a", "b"):
        with pytest.raises(LeaseBusy) as refusal:
            store.acquire(claim(worker), 2, expected=revision(store))
        assert refusal.value.worker == "a"
        assert refusal.value.free_in_s > 50


def test_a_lease_that_ran_out_is_free_and_the_old_holder_has_lost_it_once_taken(backend):
    old = backend.leases().acquire(claim("a"), 1, expected=None, duration_s=SHORT_S)
    run_out(backend)
    other = backend.leases()
    assert other.read("default", "order-7").holder is None
    other.acquire(claim("b"), 2, expected=revision(other))
    with pytest.raises(LeaseLost):
        backend.leases().extend(old)
    with pytest.raises(LeaseLost):
        backend.leases().release(old)
    assert backend.leases().read("default", "order-7").holder.worker == "b"


def test_a_lease_that_ran_out_but_was_not_taken_can_still_be_extended(backend):
    old = backend.leases().acquire(claim("a"), 1, expected=None, duration_s=SHORT_S)
    run_out(backend)
    assert backend.leases().extend(old, 60).token == 1
    assert backend.leases().read("default", "order-7").holder.worker == "a"


def test_extending_reaches_at_least_as_far_as_asked_and_never_shortens(backend):
    store = backend.leases()
    lease = store.acquire(claim(), 1, expected=None, duration_s=30)
    far = store.extend(lease, 300)
    assert far.held_until_s >= far.answered_at_s + 300
    near = store.extend(far, 1)
    assert near.held_until_s >= far.held_until_s - 1
    assert store.read("default", "order-7").free_in_s > 290


def test_an_acquisition_from_an_older_reading_is_refused(backend):
    store = backend.leases()
    store.release(store.acquire(claim("a"), 1, expected=None))
    seen = revision(store)
    store.release(store.acquire(claim("b"), 2, expected=seen))
    with pytest.raises(LeaseChanged):
        store.acquire(claim("c"), 3, expected=seen)
    assert store.read("default", "order-7").highest_token == 2


def test_a_token_that_is_not_above_the_highest_is_refused(backend):
    store = backend.leases()
    store.release(store.acquire(claim(), 7, expected=None))
    for token in (1, 7):
        with pytest.raises(ValueError, match="not above"):
            store.acquire(claim(), token, expected=revision(store))


def test_a_released_tenure_shows_its_head_and_is_free_at_once(backend):
    store = backend.leases()
    store.release(store.acquire(claim("a"), 1, expected=None), Head(9, "ab" * 32))
    record = store.read("default", "order-7")
    assert (record.holder, record.free_in_s) == (None, 0)
    assert record.tenures[-1].released_head == Head(9, "ab" * 32)
    assert record.ended_at(1)
    assert not record.ended_at(2)


def test_letting_go_without_a_head_leaves_the_tenure_open(backend):
    store = backend.leases()
    store.release(store.acquire(claim("a"), 1, expected=None))
    assert not store.read("default", "order-7").ended_at(1)


def test_release_and_acquisition_by_the_same_worker_is_a_new_token_and_the_old_lease_is_dead(backend):
    first, _ = take(backend)
    backend.leases().release(first, Head(3, "00" * 32))
    second, before = take(backend)
    assert (first.token, second.token) == (1, 2)
    assert before.highest_token == 1
    with pytest.raises(LeaseLost):
        backend.leases().extend(first)
    assert [tenure.token for tenure in backend.leases().read("default", "order-7").tenures] == [1, 2]


def test_the_first_tenure_takes_generation_0_and_a_token_seen_elsewhere_is_passed(backend):
    lease, before = take(backend)
    assert (lease.token, before) == (1, None)
    backend.leases().release(lease)
    later, _ = take(backend, seen=lambda: (True, [1, 5]))
    assert later.token == 6


def test_a_store_whose_record_is_of_a_lower_generation_takes_a_new_one(backend):
    lease, _ = take(backend)
    backend.leases().release(lease)
    later, _ = take(backend, seen=lambda: (True, [3 * GENERATION + 9]))
    assert later.token == 4 * GENERATION + 1


def test_events_without_a_record_stop_everybody_but_recover(backend):
    with pytest.raises(RecordMissing, match="recover"):
        take(backend, seen=lambda: (True, [2]))
    assert backend.leases().read("default", "order-7") is None
    lease, _ = take(backend, seen=lambda: (True, [2]), recovering=True)
    assert lease.token == GENERATION + 1


def test_sixteen_racing_workers_get_the_lease_one_after_another_under_distinct_tokens(backend):
    tokens: list[int] = []
    gate = threading.Barrier(16)

    def work(number: int) -> None:
        leases, arbiter = backend.leases(), backend.arbiter()  # one process has one of each, however often it tries
        gate.wait()
        for _ in range(400):
            try:
                lease, _ = take_from(leases, arbiter, f"w{number}")
            except LeaseBusy:
                time.sleep(0.002)
                continue
            tokens.append(lease.token)
            leases.release(lease)
            return

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tokens) == len(set(tokens)) == 16
    assert tokens == sorted(tokens)


def test_tenants_and_ids_that_look_alike_do_not_share_a_record(backend):
    store = backend.leases()
    store.acquire(claim(trajectory_id="a/../b"), 1, expected=None)
    store.acquire(claim(trajectory_id="b"), 1, expected=None)
    store.acquire(claim(trajectory_id="B"), 1, expected=None)
    assert store.read("other", "b") is None
    assert {record.trajectory_id for record in store.records()} == {"a/../b", "b", "B"}
