"""Where the canonical history of a trajectory ends, kept up event by event. Pure; the rule is `canonical`.

An event that continues the line where it ends is followed as it comes. Whatever else arrives (a number that is not
the next one, a token off the line, a roll-back, anything while something is held back or in conflict) asks for a
recount: `canonical` itself over every row of the trajectory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from trajlake.runtime.replicas.replica import Frame
from trajlake.schemas.envelope import Event
from trajlake.schemas.history import Opening, canonical, given_up

from .open_items import Closing, OpenItem, change_of

NO_TOKEN: Final = -1
READ_TYPES: Final = (
    "TaskStarted", "TaskEnded", "RolledBack", "ToolIntent", "ToolResult", "ToolSettled", "LateResult",
    "ApprovalRequested", "ApprovalResolved",
)  # fmt: skip
"""Types whose payload a recount reads."""
_MOVES_MORE: Final = frozenset((*READ_TYPES, "LeaseAcquired", "LeaseReleased"))
"""Types that may change more of a head than where it ends."""


class Span(msgspec.Struct, frozen=True):
    """The numbers in [start, stop) belong to this token; stop None: no end yet."""

    token: int
    start: int
    stop: int | None = None


class Placed(msgspec.Struct, frozen=True):
    """An open item and the event that opened it."""

    item: OpenItem
    sequence_number: int
    fencing_token: int
    recorded_at_us: int


class Head(msgspec.Struct, kw_only=True):
    """One trajectory's row in `trajectory_heads`, and what a batch changes beside it.

    `next_sequence` is the first number that does not count yet. `changes` are spans and items in the order they came;
    `needs_recount` makes them void.
    """

    tenant: str
    trajectory_id: str
    kind: str = "live"
    fencing_token: int = NO_TOKEN
    next_sequence: int = 0
    turn: int = -1
    recorded_at_us: int | None = None
    ended: str | None = None
    released: bool = False
    superseded: int = 0
    held_back: int = 0
    conflicts: int = 0
    duplicates: int = 0
    model: str = ""
    started_on: str = ""
    needs_recount: bool = False
    changes: list[Span | Placed | Closing] = []
    _ended_before: str | None = None  # an erased end tells no status any more

    def follow(self, frame: Frame) -> None:
        """Take in one new event, in the order of its journal."""
        if self.needs_recount:
            return
        header, event_type = frame.header, frame.type
        in_order = header.sequence_number == self.next_sequence and not (self.held_back or self.conflicts)
        on_line = header.fencing_token == self.fencing_token
        if in_order and on_line and event_type not in _MOVES_MORE:
            self.next_sequence += 1
            self.turn = max(self.turn, header.turn)
            self.recorded_at_us = header.recorded_at
            self.released = False
        elif not in_order or event_type == "RolledBack" or not (on_line or self._opens(frame)):
            self.needs_recount = True
        else:
            self._count(
                event_type, header.sequence_number, header.fencing_token, header.turn, header.recorded_at, frame.payload
            )

    def _opens(self, frame: Frame) -> bool:
        """Whether the event opens a token that continues the line; if so the line is longer by one span."""
        number, token = frame.header.sequence_number, frame.header.fencing_token
        opening = opening_in(frame.type, number, token, frame.payload)
        if opening is None or token < self.fencing_token:
            return False
        if opening.after_token is None:
            if self.fencing_token != NO_TOKEN or opening.start != 0:
                return False
        else:
            if opening.after_token != self.fencing_token or opening.after_sequence != number - 1:
                return False
            self.changes.append(Span(self.fencing_token, -1, number))
        self.changes.append(Span(token, number))
        self.fencing_token = token
        return True

    def _count(
        self, event_type: str, number: int, token: int, turn: int, recorded_at_us: int, payload: bytes | str | None
    ) -> None:
        self.next_sequence = number + 1
        self.turn = max(self.turn, turn)
        self.recorded_at_us = recorded_at_us
        self.released = event_type == "LeaseReleased"
        if event_type == "TaskStarted" and payload is not None:
            self.kind = _told(payload).origin
        elif event_type == "TaskEnded":
            self.ended = _told(payload).status or self._ended_before or "completed"
        change = change_of(event_type, recorded_at_us, payload)
        if isinstance(change, OpenItem):
            self.changes.append(Placed(change, number, token, recorded_at_us))
        elif change is not None:
            self.changes.append(change)

    def recount(self, rows: Sequence[Event]) -> None:
        """Begin anew from every row of the trajectory (openings with their payload, see `row_event`)."""
        history = canonical(rows)
        self.superseded, self.held_back = len(history.superseded), len(history.held_back)
        self.conflicts = len(history.conflicts)
        self.changes = _spans(history.line)
        self.fencing_token = history.line[-1].token if history.line else NO_TOKEN
        self._ended_before = self.ended
        self.next_sequence, self.turn, self.ended, self.released = 0, -1, None, False
        left_out = given_up(history.events)
        for event in history.events:
            payload = None if event.sequence_number in left_out else event.payload
            self._count(event.type, event.sequence_number, event.fencing_token, event.turn, event.recorded_at, payload)


class _Told(msgspec.Struct, frozen=True):
    origin: Literal["live", "imported", "judgement"] = "live"
    status: str = ""


class _Opened(msgspec.Struct, frozen=True):
    after_token: int
    after_sequence: int
    after_hash: str


_told_decoder: Final = msgspec.json.Decoder(_Told)
_opened_decoder: Final = msgspec.json.Decoder(_Opened)


def opening_in(event_type: str, number: int, token: int, payload: bytes | None) -> Opening | None:
    """Return the opening that an event is, None if it is none."""
    if event_type == "TaskStarted":
        return Opening(token=token, start=0) if number == 0 else None
    if event_type != "LeaseAcquired" or payload is None:
        return None
    try:
        found = _opened_decoder.decode(payload)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    return Opening(
        token=token, start=number, after_token=found.after_token, after_sequence=found.after_sequence,
        after_hash=found.after_hash,
    )  # fmt: skip


def opening_payload(opening: Opening) -> bytes:
    """Return the part of a `LeaseAcquired` that makes it an opening, for a row whose payload may be erased."""
    return msgspec.json.encode(
        {"token": opening.token, "after_token": opening.after_token, "after_sequence": opening.after_sequence,
         "after_hash": opening.after_hash}
    )  # fmt: skip


def _told(payload: bytes | str | None) -> _Told:
    if payload is None:
        return _Told()
    try:
        return _told_decoder.decode(payload)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return _Told()


def _spans(line: Sequence[Opening]) -> list[Span | Placed | Closing]:
    stops = [*(opening.start for opening in line[1:]), None]
    return [Span(opening.token, opening.start, stop) for opening, stop in zip(line, stops, strict=False)]
