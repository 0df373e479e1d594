"""How a run ended, and what a parked trajectory waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["completed", "failed", "cancelled", "parked"]


@dataclass(frozen=True, slots=True)
class Waiting:
    """One thing a parked trajectory waits for, and the one question to answer.

    `kind`: approval, doubt (a person must say whether it happened), job (an answer is still to come), child.
    `key` is the idempotency key of a doubtful call; `until` (µs UTC) when a job becomes doubtful.
    """

    kind: str
    action_id: str
    tool: str
    question: str
    approval_id: str = ""
    key: str = ""
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended. `result`: of a completed task its result, of a failed or cancelled one the reason.

    `waiting_for`: what a parked trajectory waits for, one question each.
    """

    status: Status
    result: Any = None
    waiting_for: tuple[Waiting, ...] = ()
