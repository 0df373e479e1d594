"""What the core asks of its driver. The core is one generator per operation: it yields these, and is sent the answers.

| request | answer | blocking driver | asyncio driver |
|---|---|---|---|
| `Wait(ticket)` | None once durable | ticket.wait() | await ticket |
| `Block(call)` | call() | in place | in a worker thread |
| `Sleep(seconds)` | None | sleeps | asyncio.sleep |
| `Start(body, after)` | None: it runs beside us, once `after` is durable | worker thread | task, or worker thread |
| `Next()` | a `Done`, of whichever body ended | queue | queue |

A driver throws into the core what a request raised; it never retries one.
"""

from __future__ import annotations

from _thread import LockType
from collections.abc import Callable, Generator
from typing import Any, Protocol

import msgspec


class Ticket(Protocol):
    """Durability of what was appended so far (`runtime.writer.Ticket`)."""

    def wait(self, timeout: float | None = None) -> Any: ...

    def release_when_ended(self, lock: LockType) -> bool:
        """Have a held lock released when `wait` would return. False: it will not be released, use `wait`."""
        ...

    def __await__(self) -> Generator[Any, None, Any]: ...


class Wait(msgspec.Struct, frozen=True):
    ticket: Ticket


class Block(msgspec.Struct, frozen=True):
    call: Callable[[], Any]


class Sleep(msgspec.Struct, frozen=True):
    seconds: float


class Start(msgspec.Struct, frozen=True):
    """Run `call()` within `timeout_s`; `Next` brings its end. `is_async`: it returns an awaitable, made in the loop.

    `after`: it begins, and its time, when that is durable; whoever waits there need not wake us first. Where it fails,
    or where nobody waits for the body any more, the body is never begun (`NotBegun`).
    """

    tag: int
    call: Callable[[], Any]
    timeout_s: float | None = None
    is_async: bool = False
    after: Ticket | None = None


class Next(msgspec.Struct, frozen=True):
    """Wait for one of the started bodies to end."""


class NotBegun(Exception):
    """A body was never begun, because of the exception that `why` holds."""

    def __init__(self, why: BaseException) -> None:
        super().__init__(repr(why))
        self.why = why


class Done(msgspec.Struct, frozen=True):
    """How a body ended: its value, or what it raised (`TimeoutError` once its time is over, though it may run on)."""

    tag: int
    value: Any = None
    error: BaseException | None = None


Request = Wait | Block | Sleep | Start | Next
Steps = Generator[Request, Any, Any]
"""An operation of the core. Its return value is the operation's."""
