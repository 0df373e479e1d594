"""Wrong below the agent: barriers that do not wait, so that effects leave before their intents are durable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fresh_key import agent as agent
from fresh_key import journal as journal
from fresh_key import model as model

from trajlake.runtime.agent.session import Session


def no_barrier(self: Session) -> Iterator[Any]:
    self.ticket = None
    yield from ()


Session.barrier = no_barrier  # type: ignore[assignment,method-assign]
Session.intent_ticket = lambda self, effects: None  # type: ignore[assignment,method-assign]
