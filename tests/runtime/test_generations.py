"""Tokens and the decisions around them: each clause of design/agent.md as a case, and no token twice at random."""

from __future__ import annotations

import random

import pytest

from trajlake.runtime.leases.generations import (
    GENERATION_MAX,
    RecordLost,
    TakeGeneration,
    TokenExhausted,
    UseToken,
    first_token,
    gateways_to_announce,
    may_acknowledge,
    may_delete_mail,
    may_dispatch,
    must_stop,
    next_token,
    probe_may_conclude_not_executed,
    take_generation,
)
from trajlake.schemas.ids import GENERATION


class Markers:
    """An arbiter in memory."""

    def __init__(self) -> None:
        self.taken: set[int] = set()

    def create(self, key: str, generation: int, body: bytes) -> bool:
        fresh = generation not in self.taken
        self.taken.add(generation)
        return fresh


@pytest.mark.parametrize(
    ("record", "seen", "has_events", "recovering", "decision"),
    [
        (None, [], False, False, TakeGeneration(0)),
        (None, [], True, False, RecordLost()),
        (None, [4], False, False, RecordLost()),  # a gateway remembers it
        (None, [4], True, True, TakeGeneration(1)),
        (None, [], True, True, TakeGeneration(0)),
        (4, [], True, False, UseToken(5)),
        (4, [9], True, False, UseToken(10)),
        (4, [GENERATION + 1], True, False, TakeGeneration(2)),
        (2 * GENERATION + 3, [GENERATION + 8], True, False, UseToken(2 * GENERATION + 4)),
        (4, [4], True, True, TakeGeneration(1)),
    ],
)
def test_the_next_token_by_what_store_log_and_gateways_know(record, seen, has_events, recovering, decision):
    assert next_token(record, seen, has_events=has_events, recovering=recovering) == decision


def test_a_generation_without_tokens_left_is_refused_not_overrun():
    with pytest.raises(TokenExhausted):
        next_token(GENERATION - 1)
    with pytest.raises(TokenExhausted):
        take_generation(Markers(), "k", GENERATION_MAX + 1)


def test_the_lowest_free_generation_is_taken():
    markers = Markers()
    assert [take_generation(markers, "k", 0) for _ in range(3)] == [0, 1, 2]
    assert take_generation(markers, "k", 5) == 5
    assert take_generation(markers, "k", 0) == 3


@pytest.mark.parametrize("seed", range(40))
def test_no_token_is_given_twice_whatever_stores_are_lost_and_whatever_has_landed(seed):
    """Three roots with stores of their own and one arbiter; a store restored from a backup counts as lost."""
    chance = random.Random(seed)
    markers, stores, given = Markers(), [None, None, None], []
    for _ in range(80):
        place = chance.randrange(3)
        if chance.random() < 0.2:
            stores[place] = None
        seen = [token for token in given if chance.random() < 0.4]  # events that have landed and can be read here
        decision = next_token(stores[place], seen, has_events=bool(seen))
        if isinstance(decision, RecordLost):
            decision = next_token(stores[place], seen, has_events=True, recovering=True)
        if isinstance(decision, UseToken):
            token = decision.token
        else:
            token = first_token(take_generation(markers, "k", decision.at_least))
        assert token not in given, f"seed {seed}"
        assert token > max([stores[place] or 0, *seen]), f"seed {seed}"
        given.append(token)
        stores[place] = token


@pytest.mark.parametrize(
    ("held_until", "now", "allowed"),
    [(170.0, 100.0, True), (170.0, 101.0, True), (170.0, 101.001, False), (169.9, 100.0, False), (170.0, 99.0, False)],
)
def test_a_dispatch_needs_the_whole_reach_and_a_fresh_answer(held_until, now, allowed):
    assert may_dispatch(held_until_s=held_until, timeout_s=60, answered_at_s=100, now_s=now) is allowed


def test_whoever_meets_a_higher_token_stops():
    assert must_stop(3, [1, 4])
    assert not must_stop(3, [1, 3])
    assert not must_stop(3, [])


def test_mail_goes_and_answers_leave_only_after_barrier_replica_and_a_lease_check_in_that_order():
    for decide in (
        lambda *facts: may_delete_mail(
            event_durable=facts[0], replica_acknowledged=facts[1], lease_checked_after=facts[2]
        ),
        lambda *facts: may_acknowledge(durable=facts[0], replica_acknowledged=facts[1], lease_checked_after=facts[2]),
    ):
        assert decide(True, True, True)
        assert decide(True, None, True)
        assert not decide(False, True, True)
        assert not decide(True, False, True)
        assert not decide(True, True, False)


def test_a_probe_is_believed_only_after_the_bound_since_the_later_of_own_send_and_lease():
    def believed(now: float, sent: float | None) -> bool:
        return probe_may_conclude_not_executed(
            now_s=now, own_last_send_s=sent, lease_acquired_s=100, timeout_s=60, settle_after_s=30
        )

    assert not believed(189, None)
    assert believed(190, None)
    assert not believed(190, 150)
    assert believed(240, 150)
    assert believed(190, 40)


def test_the_gateways_of_doubts_are_told_and_of_every_tool_when_the_log_may_lack_events():
    shared, other = object(), object()
    registered = {"pay": shared, "refund": shared, "mail": other}
    assert gateways_to_announce(["pay", "refund", "local_edit"], registered, log_incomplete=False) == [shared]
    assert gateways_to_announce([], registered, log_incomplete=False) == []
    assert gateways_to_announce([], registered, log_incomplete=True) == [shared, other]
