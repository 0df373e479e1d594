"""Real events for the agent's models, by small numbers: a state of a model holds numbers, the project's code decides.

An event is written once for the same place in the chain, so equal histories are equal numbers. `canonical`, `fold` and
`make_event` are the project's own; their answers are remembered, because a search asks the same millions of times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trajlake.schemas.chain import genesis, make_event
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import LeaseAcquired, Payload, TaskStarted
from trajlake.schemas.history import History, canonical
from trajlake.schemas.state import State, fold, initial

TENANT, NAME = "default", "t"
NOBODY = -1
"""The event before the first."""

Events = frozenset[int]
NONE: Events = frozenset()


class Book:
    """Every event that a search has met."""

    def __init__(self, canonical: Callable[..., History] = canonical) -> None:
        self._canonical = canonical
        self.events: list[Event] = []
        self._before: list[int] = []
        self._numbers: dict[tuple[int, int, Payload], int] = {}
        self._by_hash: dict[bytes, int] = {}
        self._histories: dict[Events, tuple[int, int, bool]] = {}
        self._states: dict[int, State] = {NOBODY: initial(TENANT, NAME)}
        self._pasts: dict[int, Events] = {NOBODY: NONE}

    def write(self, before: int, token: int, payload: Payload) -> int:
        """The event with `payload` after event `before`, under `token`."""
        named = (before, token, repr(payload))
        number = self._numbers.get(named)  # type: ignore[arg-type]
        if number is None:
            last = self.events[before] if before != NOBODY else None
            event = make_event(
                payload, tenant=TENANT, trajectory_id=NAME,
                sequence_number=0 if last is None else last.sequence_number + 1, fencing_token=token, turn=-1,
                recorded_at=0, salt=bytes(32), prev=genesis(TENANT, NAME) if last is None else last.hash,
            )  # fmt: skip
            number = self._numbers[named] = len(self.events)  # type: ignore[index]
            self.events.append(event)
            self._before.append(before)
            self._by_hash[event.hash] = number
        return number

    def open(self, before: int, token: int, worker: str) -> int:
        """The opening event of a tenure."""
        if before == NOBODY:
            return self.write(before, token, TaskStarted(task=worker))
        last = self.events[before]
        return self.write(
            before, token,
            LeaseAcquired(token=token, after_token=last.fencing_token, after_sequence=last.sequence_number,
                          after_hash=last.hash.hex(), worker=worker),
        )  # fmt: skip

    def read(self, found: Events) -> tuple[int, int, bool]:
        """(Last canonical event, highest token met, whether two events contend for one place) of what was found.

        The last event is NOBODY where nothing counts, and -2 where the canonical events are no chain.
        """
        answer = self._histories.get(found)
        if answer is None:
            history = self._canonical([self.events[number] for number in found])
            last = self._by_hash[history.events[-1].hash] if history.events else NOBODY
            chained = [self._by_hash[event.hash] for event in history.events] == self.line(last)
            top = max((self.events[number].fencing_token for number in found), default=0)
            answer = self._histories[found] = (last if chained else -2, top, bool(history.conflicts))
        return answer

    def held_back(self, found: Events) -> bool:
        """Whether something of it waits for what is missing."""
        return bool(self._canonical([self.events[number] for number in found]).held_back)

    def line(self, last: int) -> list[int]:
        """The events from the first to `last`."""
        found = []
        while last != NOBODY:
            found.append(last)
            last = self._before[last]
        return found[::-1]

    def past(self, last: int) -> Events:
        """The same, as a set."""
        past = self._pasts.get(last)
        if past is None:
            past = self._pasts[last] = frozenset(self.line(last))
        return past

    def state(self, last: int) -> State:
        """The state after `last`."""
        state = self._states.get(last)
        if state is None:
            state = self._states[last] = fold(self.state(self._before[last]), [self.events[last]])
        return state

    def ends(self, last: int) -> bool:
        """Whether the history up to `last` holds an end."""
        return last != NOBODY and self.state(last).execution.ended is not None

    def kind(self, number: int) -> str:
        return self.events[number].type

    def body(self, number: int) -> Any:
        return self.events[number].body
