"""The pure decisions, as tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trajlake.runtime.agent.decide import (
    Approval,
    Doubt,
    approval_state,
    outcome_of,
    probe_due_s,
    repeat_of,
    settle_step,
    try_again,
)


@pytest.mark.parametrize(
    ("effect", "raised", "not_executed", "tool_error", "outcome"),
    [
        ("external", False, False, False, "ok"),
        ("external", True, True, False, "not_executed"),
        ("external", True, False, True, "error"),
        ("external", True, False, False, "unknown"),
        ("idempotent", True, False, False, "unknown"),
        ("local", True, False, False, "error"),
        ("read", True, False, False, "error"),
        ("read", True, True, False, "not_executed"),
    ],
)
def test_what_is_known_after_a_body(
    effect: str, raised: bool, not_executed: bool, tool_error: bool, outcome: str
) -> None:
    assert outcome_of(effect, raised=raised, not_executed=not_executed, tool_error=tool_error) == outcome


@pytest.mark.parametrize(
    ("effect", "outcome", "attempt", "again"),
    [
        ("external", "not_executed", 1, True),
        ("external", "not_executed", 2, False),
        ("external", "error", 1, False),
        ("external", "unknown", 1, False),
        ("idempotent", "unknown", 1, False),
        ("read", "error", 1, True),
        ("local", "error", 1, False),
        ("read", "ok", 1, False),
    ],
)
def test_when_a_tool_is_tried_again(effect: str, outcome: str, attempt: int, again: bool) -> None:
    assert try_again(effect, outcome, attempt=attempt, retries=1) is again  # type: ignore[arg-type]


DOUBT = Doubt(honours_key=True, has_probe=True, timeout_s=60, settle_after_s=5, acquired_at_s=1000)


def test_settling_goes_from_key_to_probe_to_person() -> None:
    assert settle_step(DOUBT, 1001) == "key"
    spent = replace(DOUBT, key_failures=3)
    assert settle_step(spent, 1001) == "probe"
    assert settle_step(replace(spent, probed="executed"), 1001) == "executed"
    assert settle_step(replace(spent, probed="unknown"), 5000) == "person"
    assert settle_step(replace(spent, has_probe=False), 1001) == "person"
    assert settle_step(replace(DOUBT, honours_key=False, has_probe=False), 1001) == "person"


def test_a_probes_no_counts_from_the_later_of_own_send_and_lease() -> None:
    said_no = replace(DOUBT, honours_key=False, probed="not_executed")
    assert settle_step(said_no, 1064.9) == "wait"
    assert settle_step(said_no, 1065) == "not_executed"
    sent_later = replace(said_no, last_send_s=1050.0)
    assert settle_step(sent_later, 1065) == "wait"
    assert probe_due_s(sent_later) == 1115
    assert settle_step(sent_later, 1115) == "not_executed"


ASKED = Approval("a", "1.0", "hash", requested=5, expires_at=100)


@pytest.mark.parametrize(
    ("approval", "hashed", "now_us", "state"),
    [
        (None, "hash", 1, "none"),
        (ASKED, "hash", 1, "pending"),
        (ASKED, "other", 1, "none"),
        (ASKED, "hash", 101, "none"),
        (replace(ASKED, decision="granted", posted_at=50), "hash", 60, "granted"),
        (replace(ASKED, decision="granted", posted_at=50), "hash", 101, "none"),
        (replace(ASKED, decision="granted", posted_at=101), "hash", 99, "none"),
        (replace(ASKED, decision="granted", posted_at=50, used=True), "hash", 60, "none"),
        (replace(ASKED, decision="granted", posted_at=50), "other", 60, "none"),
        (replace(ASKED, decision="denied", posted_at=50), "hash", 500, "denied"),
    ],
)
def test_what_an_approval_is_worth(approval: Approval | None, hashed: str, now_us: int, state: str) -> None:
    assert approval_state(approval, hashed, now_us) == state


def test_a_repeated_key_is_new_replayed_or_asked_about() -> None:
    assert repeat_of(None, "h", executed=False) == "new"
    assert repeat_of("h", "h", executed=True) == "replay"
    assert repeat_of("h", "h", executed=False) == "ask"
    assert repeat_of("g", "h", executed=True) == "ask"
