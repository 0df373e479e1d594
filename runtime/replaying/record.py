"""One recorded trajectory, read turn by turn and again from the start, in bounded memory; and where such come from.

A `Record` never holds all events: `read()` streams the canonical ones in order. What must be known before the first
turn (its `Outline`) is found in one pass before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from trajlake.schemas.envelope import Event
from trajlake.schemas.history import canonical, incomplete
from trajlake.schemas.versions import CURRENT, UPCASTS, Upcast, readable, upcast

from ..agent.rolled import NOTHING, LeftBehind, left_behind

NOTABLE: Final = frozenset(
    {"TaskStarted", "TaskEnded", "DriftDetected", "RolledBack", "Resumed", "Branched", "CheckpointSaved"}
)
"""Types whose events are kept at hand: few in any trajectory."""


@dataclass(frozen=True, kw_only=True)
class Outline:
    """What is known of a record before it is gone through. `problem`: why it cannot be replayed, "" if it can.

    `gap`: what is missing of a log whose later events are held back. `left`: what roll-backs left behind.
    `intercepted`: clock and chance were recorded too while it ran.
    """

    count: int = 0
    last_turn: int = -1
    notable: tuple[Event, ...] = ()
    first_reply: Event | None = None
    left: LeftBehind = NOTHING
    intercepted: bool = False
    problem: str = ""
    gap: str = ""

    def of_type(self, name: str) -> list[Event]:
        """The notable events of one type."""
        return [event for event in self.notable if event.type == name]


def found_nowhere(trajectory_id: str) -> None:
    """Return None: this record came alone."""
    del trajectory_id


@dataclass(frozen=True, kw_only=True)
class Record:
    """One trajectory. `read()` streams its canonical events in order, each once, and may be called again.

    `find` returns another one of the same tenant from the same source: the parent of a branch.
    """

    tenant: str
    trajectory_id: str
    read: Callable[[], Iterator[Event]]
    blob: Callable[[str], bytes]
    outline: Outline
    find: Callable[[str], Record | None] = found_nowhere

    def turns(self) -> Iterator[tuple[int, list[Event]]]:
        """Stream (turn, events), the turn in which each takes effect; the prologue (-1) comes first."""
        turn_of = self.outline.left.turn_of
        turn: int = -1
        events: list[Event] = []
        for event in self.read():
            if turn_of(event) > turn:
                yield turn, events
                turn, events = turn_of(event), []
            events.append(event)
        yield turn, events


class Source(Protocol):
    """Trajectories of one tenant, read-only: a root, a lake, a list of events."""

    def trajectory_ids(self) -> list[str]:
        """Return every id, sorted; judgements are no trajectories."""
        ...

    def record(self, trajectory_id: str) -> Record | None:
        """Return one trajectory, None if nothing is recorded under the id."""
        ...


def no_blob(sha256: str) -> bytes:
    """Raise LookupError: this record came without its bulk."""
    raise LookupError(f"blob {sha256} is not at hand")


def record_of(
    events: Iterable[Event], blob: Callable[[str], bytes] = no_blob,
    find: Callable[[str], Record | None] = found_nowhere,
) -> Record:  # fmt: skip
    """Return the record of events in memory, given in any order, with copies."""
    history = canonical(events)
    found = [as_current(event) for event in history.events]
    look = Looker()
    for event in found:
        look.at(event)
    outline = look.outline(found, conflicts=bool(history.conflicts), gap=incomplete(history))
    first = found[0] if found else None
    return Record(
        tenant=first.tenant if first else "", trajectory_id=first.trajectory_id if first else "",
        read=lambda: iter(found), blob=blob, outline=outline, find=find,
    )  # fmt: skip


@dataclass
class Looker:
    """Sees every event once, with its payload, in any order, and keeps what an outline needs."""

    notable: dict[bytes, Event] = field(default_factory=dict)
    first_reply: Event | None = None
    intercepted: bool = False
    erased: set[int] = field(default_factory=set)
    unreadable: dict[int, str] = field(default_factory=dict)

    def at(self, event: Event) -> None:
        """Take note of one event."""
        if not readable(event.type, event.schema_version):
            self.unreadable[event.sequence_number] = (
                f"event {event.sequence_number} ({event.type}) has schema version {event.schema_version}, "
                f"this trajlake reads up to {CURRENT}: upgrade trajlake"
            )
        elif event.payload is None:
            self.erased.add(event.sequence_number)
        elif event.type in NOTABLE:
            self.notable[event.hash] = event
        elif event.type == "ModelReplied" and self.first_reply is None:
            self.first_reply = event
        elif event.type == "InputRead" and event.turn < 0 and event.body.kind == "intercepted":
            self.intercepted = True

    def outline(self, events: list[Event], *, conflicts: bool, gap: str = "") -> Outline:
        """Return the outline of the canonical `events`. Without a roll-back among them their payloads may be gone.

        `gap`: what `schemas.history.incomplete` says, for a prefix passes for a log that was cut short.
        """
        notable = tuple(self.notable[event.hash] for event in events if event.hash in self.notable)
        rolled = any(event.type == "RolledBack" for event in notable)
        left = left_behind(events) if rolled else NOTHING
        last_turn = max((left.turn_of(event) for event in events), default=-1)
        numbers = {event.sequence_number for event in events}
        problem = gap or self._problem(numbers, notable, conflicts=conflicts)
        return Outline(
            count=len(events), last_turn=last_turn, notable=notable, first_reply=self.first_reply, left=left,
            problem=problem, intercepted=self.intercepted, gap=gap,
        )  # fmt: skip

    def _problem(self, numbers: set[int], notable: tuple[Event, ...], *, conflicts: bool) -> str:
        unreadable = min((number for number in self.unreadable if number in numbers), default=None)
        if unreadable is not None:
            return self.unreadable[unreadable]
        if not numbers:
            return "no events"
        if conflicts:
            return "two different events stand under one number"
        erased = min((number for number in self.erased if number in numbers), default=None)
        if erased is not None:
            return f"event {erased} was erased"
        if not notable or notable[0].type != "TaskStarted":
            return "its first event is missing"
        return ""


def as_current(event: Event, *, current: int = CURRENT, steps: Mapping[tuple[str, int], Upcast] = UPCASTS) -> Event:
    """Return an event of an older schema as today's code reads it; hash and envelope stay. Newer ones stay as is."""
    if event.schema_version >= current or event.payload is None:
        return event
    body: dict[str, Any] = msgspec.json.decode(event.payload)
    newer = upcast(event.type, event.schema_version, body, current=current, steps=steps)
    if newer is body:
        return event
    return msgspec.structs.replace(event, payload=msgspec.json.encode(newer))
