"""Decisions about outcomes, settling and approvals as pure functions, so that a model checker can drive the very code
that runs. (Tokens, dispatch, acknowledgement and mail have theirs in `runtime.generations`.)

Source: design/agent.md, *Tools and their outcomes* (model-checked). Times in seconds are of this worker's boot-time
clock, which runs on while the machine sleeps; times in µs are wall clock and only expire approvals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..leases.generations import probe_may_conclude_not_executed

Outcome = Literal["ok", "error", "not_executed", "unknown"]


def outcome_of(effect: str, *, raised: bool, not_executed: bool = False, tool_error: bool = False) -> Outcome:
    """What is known after a body ended: an exception of a tool that reaches outside proves nothing."""
    if not raised:
        return "ok"
    if not_executed:
        return "not_executed"
    if tool_error or effect in ("read", "local"):
        return "error"
    return "unknown"


def try_again(effect: str, outcome: Outcome, *, attempt: int, retries: int) -> bool:
    """Whether the same key is sent once more with attempt + 1, as the tool's own `retry` allows.

    An outcome *unknown* is never retried here: a class that honours keys is settled by its key instead.
    """
    if attempt > retries:
        return False
    return outcome == "not_executed" or (outcome == "error" and effect == "read")


def log_suffices(*, complete: bool, held_back: bool, accept_loss: bool = False) -> bool:
    """Whether a worker may go on with the events it found: all of them are here, or a person accepts the loss."""
    return accept_loss or (complete and not held_back)


@dataclass(frozen=True, slots=True)
class Doubt:
    """What is known about one action in doubt, by the worker that must settle it.

    `honours_key`: sending the same key again cannot act twice (class idempotent, or a gateway stands before it).
    `key_failures`: same-key sends of this worker that brought no answer. `probed`: its probe's last answer, if asked.
    """

    honours_key: bool
    has_probe: bool
    timeout_s: float
    settle_after_s: float
    acquired_at_s: float
    key_failures: int = 0
    settle_attempts: int = 3
    probed: Literal["", "executed", "not_executed", "unknown"] = ""
    last_send_s: float | None = None


SettleStep = Literal["key", "probe", "wait", "executed", "not_executed", "person"]


def settle_step(doubt: Doubt, now_s: float) -> SettleStep:
    """The next step: same key, then the probe, then a person.

    `wait`: the probe said *not executed* before its bound passed, which proves nothing; ask it again at `probe_due_s`.
    """
    if doubt.honours_key and doubt.key_failures < doubt.settle_attempts:
        return "key"
    if not doubt.has_probe or doubt.probed == "unknown":
        return "person"
    if doubt.probed == "":
        return "probe"
    if doubt.probed == "executed":
        return "executed"
    believed = probe_may_conclude_not_executed(
        now_s=now_s,
        own_last_send_s=doubt.last_send_s,
        lease_acquired_s=doubt.acquired_at_s,
        timeout_s=doubt.timeout_s,
        settle_after_s=doubt.settle_after_s,
    )
    return "not_executed" if believed else "wait"


def probe_due_s(doubt: Doubt) -> float:
    """When a probe's *not executed* may first be believed."""
    since = doubt.acquired_at_s if doubt.last_send_s is None else max(doubt.last_send_s, doubt.acquired_at_s)
    return since + doubt.timeout_s + doubt.settle_after_s


@dataclass(frozen=True, slots=True)
class Approval:
    """A request and its answer. `posted_at` is when the answer was posted; both times are µs UTC."""

    approval_id: str
    action_id: str
    arguments_hash: str
    requested: int
    decision: Literal["", "granted", "denied"] = ""
    expires_at: int | None = None
    posted_at: int | None = None
    used: bool = False
    because: str = ""


ApprovalState = Literal["none", "pending", "granted", "denied"]


def approval_state(approval: Approval | None, arguments_hash: str, now_us: int) -> ApprovalState:
    """What an approval is worth for these arguments now; `none` means that somebody must be asked (anew).

    Expiry is judged when the answer was posted and again at dispatch; an approval is good for one dispatch.
    """
    if approval is None or approval.arguments_hash != arguments_hash or approval.used:
        return "none"
    expires_at = approval.expires_at
    if approval.decision == "denied":
        return "denied"
    if expires_at is not None and now_us > expires_at:
        return "none"
    if approval.decision == "":
        return "pending"
    if expires_at is not None and approval.posted_at is not None and approval.posted_at > expires_at:
        return "none"
    return "granted"


def repeat_of(earlier_hash: str | None, arguments_hash: str, *, executed: bool) -> Literal["new", "replay", "ask"]:
    """A call whose key already stands in the log: the recorded result, or an approval that names the earlier action."""
    if earlier_hash is None:
        return "new"
    return "replay" if earlier_hash == arguments_hash and executed else "ask"
