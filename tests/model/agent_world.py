"""The world of the agent's effects: its state, its bounds, and the product's decisions that move it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.model.agent_book import NOBODY, NONE, Events
from trajlake.runtime.agent import decide
from trajlake.runtime.leases import generations
from trajlake.runtime.mailbox.mail_events import event_of
from trajlake.schemas.history import canonical
from trajlake.schemas.state import stage


class Rules(NamedTuple):
    """The product's decisions, and the order of steps where a rule is an order."""

    canonical: Callable[..., Any] = canonical
    next_token: Callable[..., Any] = generations.next_token
    may_dispatch: Callable[..., bool] = generations.may_dispatch
    must_stop: Callable[..., bool] = generations.must_stop
    may_acknowledge: Callable[..., bool] = generations.may_acknowledge
    gateways_to_announce: Callable[..., list[object]] = generations.gateways_to_announce
    gateway_refuses: Callable[..., bool] = generations.gateway_refuses
    gateway_answer: Callable[..., str] = generations.gateway_answer
    gateway_believes: Callable[..., bool] = generations.gateway_believes_not_executed
    settle_step: Callable[..., str] = decide.settle_step
    outcome_of: Callable[..., str] = decide.outcome_of
    try_again: Callable[..., bool] = decide.try_again
    event_of: Callable[..., Any] = event_of
    stage: Callable[..., str] = stage
    barrier_before_send: bool = True
    barrier_before_check: bool = True
    barrier_before_key: bool = True
    replica_before_send: bool = True
    local_before_send: bool = True
    replica_read: bool = True
    copies_unsealed: bool = True
    opens_after_end: bool = True
    keeps_key: bool = True
    tells_gateway_verdicts: bool = True
    reads_after_lease: bool = True


class Bounds(NamedTuple):
    """How large a world. `tools`: one call each, of gateway, key, probe or neither; `hosts`: one worker on each."""

    tools: tuple[str, ...] = ("gateway",)
    hosts: tuple[int, ...] = (0, 0)
    replica: bool = False
    takes: int = 2
    kills: int = 0
    powers: int = 0
    expiries: int = 1
    losses: int = 0
    timeouts: int = 0
    gateway_deaths: int = 0
    window: bool = False
    accept_loss: bool = False
    retries: int = 1


class Left(NamedTuple):
    """What may still go wrong."""

    takes: int
    kills: int
    powers: int
    expiries: int
    losses: int
    timeouts: int
    gateway_deaths: int


class Worker(NamedTuple):
    """`last`: the newest event it stands on. `wrote`: an operation in this tenure. Ages in ticks, `held` since its
    lease, `sent` since its own last send (-1: none). `stale`: its last answer of the lease store is old.
    """

    at: str = "idle"
    call: int = -1
    token: int = 0
    last: int = NOBODY
    queued: Events = NONE
    cached: Events = NONE
    durable: Events = NONE
    wrote: bool = False
    held: int = 0
    sent: int = -1
    stale: bool = False
    failures: int = 0


class Message(NamedTuple):
    call: int
    token: int
    attempt: int
    to: int
    kind: str
    age: int


class World(NamedTuple):
    """`record`: (highest token, worker, "held" | "out" | "released"). `ran`: how often each effect happened.

    `rows` and `highest` are the gateway's (`rows` also a keyed tool's). `asked`, `answered`: the attempt that a person
    was asked about, and (attempt, verdict). `shown`: ends that were returned. `wrong`: the promise a step broke.
    """

    workers: tuple[Worker, ...]
    record: tuple[int, int, str]
    net: tuple[Message, ...]
    ran: tuple[int, ...]
    rows: tuple[str, ...]
    highest: int
    replica: Events
    asked: tuple[int, ...]
    answered: tuple[tuple[int, str] | None, ...]
    shown: Events
    left: Left
    wrong: str = ""


def first(bounds: Bounds) -> World:
    calls = len(bounds.tools)
    left = Left(bounds.takes, bounds.kills, bounds.powers, bounds.expiries, bounds.losses, bounds.timeouts,
                bounds.gateway_deaths)  # fmt: skip
    return World(
        (Worker(),) * len(bounds.hosts), (0, -1, "released"), (), (0,) * calls, ("",) * calls, 0, NONE, (0,) * calls,
        (None,) * calls, NONE, left,
    )  # fmt: skip


def put(row: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*row[:place], value, *row[place + 1 :])


Steps = Iterator[tuple[str, World]]
