"""Fencing tokens and the decisions that keep them apart. Source: design/agent.md, *Lease, fencing, gateway*.

Everything above the line "Arbiters" is pure: the runtime and the model checker in tests call the same functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, Protocol

import msgspec

from trajlake.schemas.ids import GENERATION, generation_of, token

DISPATCH_MARGIN_S: Final = 10.0
"""A lease reaches this far beyond the timeout of the call that it covers."""

ANSWER_AGE_MAX_S: Final = 1.0
"""Oldest answer of the lease store, by the boot-time clock, on which a dispatch may still rely."""

GENERATION_MAX: Final = 2**31 - 1
"""Highest generation whose tokens fit an int64."""


class TokenExhausted(ValueError):
    """A generation has handed out its 2**32 - 1 tokens, or all generations are taken: go on in a branch."""


class UseToken(msgspec.Struct, frozen=True):
    """Take the lease with this token; the record's generation stands."""

    token: int


class TakeGeneration(msgspec.Struct, frozen=True):
    """First create the lowest free generation, not lower than `at_least`, in the arbiter; its first token is yours."""

    at_least: int


class RecordLost(msgspec.Struct, frozen=True):
    """The store has no record of a trajectory that has events: stop; only `recover --from` may go on."""


Decision = UseToken | TakeGeneration | RecordLost


def next_token(
    record_token: int | None, seen_tokens: Iterable[int] = (), *, has_events: bool = False, recovering: bool = False
) -> Decision:
    """Decide how a new tenure gets its token.

    `record_token`: highest token in the lease record, None if the store has no record of the trajectory.
    `seen_tokens`: highest tokens found in its events and told by the gateways asked. `has_events`: any event of it
    was found anywhere. `recovering`: a person runs `recover --from`. Raises `TokenExhausted`.
    """
    seen = max(seen_tokens, default=0)
    if record_token is None:
        if (has_events or seen) and not recovering:
            return RecordLost()
        return TakeGeneration(generation_of(seen) + 1 if seen else 0)
    if recovering or generation_of(record_token) < generation_of(seen):
        return TakeGeneration(max(generation_of(record_token), generation_of(seen)) + 1)
    following = max(record_token, seen) + 1
    if generation_of(following) != generation_of(record_token):
        raise TokenExhausted(f"generation {generation_of(record_token)} has no token left: go on in a branch")
    return UseToken(following)


def first_token(generation: int) -> int:
    """Return the first token of a generation that was just created in the arbiter."""
    return token(generation, 1)


def may_dispatch(*, held_until_s: float, timeout_s: float, answered_at_s: float, now_s: float) -> bool:
    """Say whether an effect may be sent now. All four by the same boot-time clock.

    `held_until_s` is how far the store's last answer guarantees the lease, `answered_at_s` a moment not later than
    that answer. Ask again when this says no: nothing was sent yet.
    """
    fresh = 0.0 <= now_s - answered_at_s <= ANSWER_AGE_MAX_S
    return fresh and held_until_s >= answered_at_s + timeout_s + DISPATCH_MARGIN_S


def must_stop(own_token: int, seen_tokens: Iterable[int]) -> bool:
    """Who meets an event with a token above its own stops, whatever its lease says."""
    return max(seen_tokens, default=0) > own_token


def may_delete_mail(*, event_durable: bool, replica_acknowledged: bool | None, lease_checked_after: bool) -> bool:
    """Say whether an item may go: its event durable, at the replica too (None: no replica), then a lease check."""
    return event_durable and replica_acknowledged is not False and lease_checked_after


def may_acknowledge(*, durable: bool, replica_acknowledged: bool | None, lease_checked_after: bool) -> bool:
    """Say whether a reply, result or outcome may be returned; if not, the caller answers `Busy`."""
    return durable and replica_acknowledged is not False and lease_checked_after


def probe_may_conclude_not_executed(
    *, now_s: float, own_last_send_s: float | None, lease_acquired_s: float, timeout_s: float, settle_after_s: float
) -> bool:
    """Say whether a probe's *not executed* counts; earlier it is *unknown*. Times by this worker's boot-time clock."""
    since = lease_acquired_s if own_last_send_s is None else max(own_last_send_s, lease_acquired_s)
    return now_s - since >= timeout_s + settle_after_s


def gateways_to_announce(
    in_doubt_tools: Iterable[str], gateway_of: dict[str, object], *, log_incomplete: bool
) -> list[object]:
    """List the gateways that must learn the token before anything is settled or dispatched, each once.

    `gateway_of` maps every registered tool that has one. With a complete log it is those of the actions in doubt;
    after `--accept-loss`, `recover` or any incomplete log, those of every registered tool.
    """
    tools = list(gateway_of) if log_incomplete else [name for name in in_doubt_tools if name in gateway_of]
    distinct: list[object] = []
    for name in tools:
        if not any(gateway_of[name] is known for known in distinct):
            distinct.append(gateway_of[name])
    return distinct


# -- What a gateway does with a token and a key ------------------------------------------------------------------------

KeyState = Literal["", "started", "done", "not_executed"]
"""What a gateway knows of a key; "" for one it never saw."""


def gateway_refuses(token: int, highest: int) -> bool:
    """Whether a call or verdict comes from a worker that was superseded: a higher token was announced or seen."""
    return token < highest


def gateway_answer(known: KeyState, *, is_running: bool) -> Literal["run", "wait", "kept", "unknown"]:
    """What a call with this key meets: it runs once, waits for the one that runs, or is answered."""
    if known == "started":
        return "wait" if is_running else "unknown"
    return "kept" if known == "done" else "run"


def gateway_believes_not_executed(known: KeyState, *, is_running: bool) -> bool:
    """Whether a verdict *not executed* may free a key to run once more."""
    return known == "not_executed" or (known == "started" and not is_running)


# -- Arbiters ---------------------------------------------------------------------------------------------------------


class Arbiter(Protocol):
    """The one place, named by `root.json`, that creates `generations/<key>/<g>.json` only if absent."""

    def create(self, key: str, generation: int, body: bytes) -> bool:
        """Create the marker durably; False if it exists (whatever it holds). Errors mean: unknown, take another."""
        ...


def take_generation(arbiter: Arbiter, key: str, at_least: int, body: bytes = b"{}\n") -> int:
    """Create and return the lowest free generation from `at_least` on. Raises `TokenExhausted`."""
    generation = at_least
    while generation <= GENERATION_MAX:
        if arbiter.create(key, generation, body):
            return generation
        generation += 1
    raise TokenExhausted(f"trajectory {key}: every generation from {at_least} is taken")


assert token(GENERATION_MAX, GENERATION - 1) < 2**63
