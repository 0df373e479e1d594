"""The ancestors of a branch: each one's events up to where the next begins, root first.

A branch holds its own events only. What it inherits is read from the source that it came from; the hash in `Branched`
says whether that is still the same history.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from trajlake.schemas.envelope import Event
from trajlake.schemas.events import (
    Branched,
    Compacted,
    ContextBuilt,
    GoalRevised,
    MessageAdded,
    PlanCommitted,
    ToolIntent,
    ToolResult,
)

from ..agent.rolled import left_behind
from .record import Record

DEPTH_MAX: Final = 100
"""Ancestors of one branch; more is taken for a damaged record."""


REFS: Final[dict[type, tuple[str, ...]]] = {
    ContextBuilt: ("base", "append"), Compacted: ("reply",), GoalRevised: ("replaces",), PlanCommitted: ("replaces",),
    ToolIntent: ("reply", "goal"), ToolResult: ("replays",), MessageAdded: ("replaces",),
}  # fmt: skip
"""Fields of a payload that name events."""


class LineageBroken(Exception):
    """An ancestor is not here, or is another history than the branch began from: the text says which."""


class OtherTools(Exception):
    """The branch ran with other tools than are registered now: the text names them."""


@dataclass(frozen=True)
class Ancestor:
    """One ancestor: its record, its events up to the fork, and the turn at which its branch begins."""

    record: Record
    events: list[Event]
    at_turn: int

    @property
    def shift(self) -> int:
        """How many numbers of it are inherited."""
        return self.events[-1].sequence_number + 1


def branched(record: Record) -> Branched | None:
    """Return what names the parent of a branch; None for a trajectory that is none."""
    found = record.outline.of_type("Branched")
    body: Any = found[0].body if found else None
    return body  # type: ignore[no-any-return]


def ancestors(record: Record) -> list[Ancestor]:
    """Return the ancestors of a record, root first; none for one that is no branch. Raises `LineageBroken`."""
    found: list[Ancestor] = []
    at = record
    while (link := branched(at)) is not None:
        if len(found) == DEPTH_MAX:
            raise LineageBroken(f"more than {DEPTH_MAX} ancestors")
        parent = _parent(at, link)
        found.append(Ancestor(parent, _prefix(parent, link), link.at_turn))
        at = parent
    return found[::-1]


def _parent(record: Record, link: Branched) -> Record:
    name = link.parent_trajectory_id
    parent = record.find(name) if link.parent_tenant == record.tenant else None
    if parent is None:
        raise LineageBroken(f"its parent {name!r} of tenant {link.parent_tenant!r} is not recorded here")
    if parent.outline.problem:
        raise LineageBroken(f"its parent {name!r}: {parent.outline.problem}")
    return parent


def _prefix(parent: Record, link: Branched) -> list[Event]:
    events = [event for event in parent.read() if event.sequence_number <= link.parent_sequence]
    last = events[-1] if events else None
    if last is None or last.sequence_number != link.parent_sequence or last.hash.hex() != link.parent_hash:
        raise LineageBroken(
            f"its parent {parent.trajectory_id!r} is another history here than the one it began from "
            f"(event {link.parent_sequence})"
        )
    return events


def flat(record: Record) -> Record:
    """Return a record for readers that look at a branch from its root on. Raises `LineageBroken`.

    It begins with what the branch inherited, under negative numbers (`place_of` names them); references between events
    are those numbers too. A record that is no branch is returned as it is.
    """
    lineage = ancestors(record)
    if not lineage:
        return record
    shifts = shifts_of(lineage)

    def read() -> Iterator[Event]:
        for level, one in enumerate(lineage):
            own = shifts_of(lineage[:level])
            given_up = left_behind(one.events).given_up
            by = shifts[len(lineage) - level - 1]
            kept = (event for event in one.events if event.sequence_number not in given_up)
            yield from (_moved(event, own, by) for event in kept)
        for event in record.read():
            yield inward(event, shifts)

    return replace(record, read=read)


def shifts_of(lineage: Sequence[Ancestor]) -> list[int]:
    """How far each ancestor's numbers lie below 0, the parent's first."""
    found: list[int] = []
    for one in reversed(lineage):
        found.append(one.shift + (found[-1] if found else 0))
    return found


def place_of(number: int, shifts: Sequence[int]) -> tuple[int, int]:
    """Return (levels up, number there) of an event in memory; (0, number) for one of its own."""
    if number >= 0:
        return 0, number
    level = next(level for level, shift in enumerate(shifts) if number + shift >= 0)
    return level + 1, number + shifts[level]


def _moved(event: Event, own: Sequence[int], by: int) -> Event:
    """An ancestor's event, itself and its references renumbered."""
    event = inward(event, own)
    body = event.body
    changed = {name: _minus(getattr(body, name), by) for name in REFS.get(type(body), ())}
    copy = msgspec.structs.replace(event, sequence_number=event.sequence_number - by)
    copy.__dict__["body"] = msgspec.structs.replace(body, **changed) if changed else body
    return copy


def _minus(ref: Any, by: int) -> Any:
    if isinstance(ref, tuple):
        return tuple(_minus(one, by) for one in ref)
    return ref - by if isinstance(ref, int) else ref


def outward(ref: Any, shifts: Sequence[int]) -> Any:
    """Return how the format names what memory numbers below 0: (levels up, number)."""
    if isinstance(ref, tuple):
        return tuple(outward(one, shifts) for one in ref)
    return ref if not isinstance(ref, int) or ref >= 0 else place_of(ref, shifts)


def inward(event: Event, shifts: Sequence[int]) -> Event:
    """Return the event with its references as memory numbers them."""
    fields = REFS.get(type(event.body), ())
    changed = {}
    for name in fields:
        value = getattr(event.body, name)
        moved = tuple(_down(one, shifts) for one in value) if name == "append" else _down(value, shifts)
        if moved != value:
            changed[name] = moved
    if not changed:
        return event
    copy = msgspec.structs.replace(event)
    copy.__dict__["body"] = msgspec.structs.replace(event.body, **changed)
    return copy


def _down(ref: Any, shifts: Sequence[int]) -> Any:
    return ref[1] - shifts[ref[0] - 1] if isinstance(ref, tuple) else ref
