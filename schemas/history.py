"""Which events count: canonical history, what a roll-back gave up, and what a branch inherits.

Source: design/events.md, *Canonical history*. Every fold, delivery and derived row starts here, in the
runtime and in the pipeline. All functions are pure and do not depend on the order of their input.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from .envelope import Event
from .errors import SchemaError


class Opening(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first event of a token: its number (`start`), and the event it follows (hash in hex).

    For `TaskStarted`: start 0, `after_token` None, `after_sequence` -1, `after_hash` "".
    """

    token: int
    start: int
    after_token: int | None = None
    after_sequence: int = -1
    after_hash: str = ""


class History(msgspec.Struct, frozen=True, kw_only=True):
    """What `canonical` found. All lists are sorted by (sequence number, token, hash).

    `events` counts, gapless, one per number. `superseded`: off the line, never folded or delivered, but an
    external intent among them must still be settled. `held_back`: waits for a missing opening or a gap.
    `conflicts`: the larger hashes under one number and token; with any, the trajectory is refused by resume
    and curation for good. `duplicates` counts dropped copies. `openings` are all that are known, `line` those
    that count, both by rising token. `rewound`: the line leaves the history that `after` and the given
    openings describe, so a state folded up to there is void and the fold must begin from an older one.
    """

    events: list[Event]
    superseded: list[Event]
    held_back: list[Event]
    conflicts: list[Event]
    duplicates: int
    openings: tuple[Opening, ...]
    line: tuple[Opening, ...]
    rewound: bool = False


LIFE: Final = frozenset(
    (
        "TaskStarted",
        "LeaseAcquired",
        "LeaseReleased",
        "Resumed",
        "ResumeRefused",
        "RolledBack",
        "CancelRequested",
        "TaskEnded",
        "Branched",
    )
)
AUTHORITY: Final = frozenset(
    ("AuthorityAcquired", "AuthorityEnded", "Authorized", "ApprovalRequested", "ApprovalResolved", "BudgetRevised")
)
RESULTS: Final = frozenset(("ToolResult", "ToolSettled", "LateResult"))
BY_MAIL: Final = RESULTS | {"ApprovalResolved", "CancelRequested", "MessageAdded"}
"""Types that can carry a mail stamp."""


class RollBack(msgspec.Struct, frozen=True):
    """One `RolledBack` event at `sequence_number`: it covers the numbers in (to, last]."""

    sequence_number: int
    to: int
    last: int


def canonical(events: Iterable[Event], openings: Iterable[Opening] = (), *, after: int = -1) -> History:
    """Return what counts of one trajectory's events, given in any order, with copies.

    `openings` are those known from elsewhere (a state, a checkpoint, the row in `trajectories`). `after` is
    the last number already folded: canonical events up to it are left out of every list, and the rest must go
    on from there without a gap. Raises nothing for strange histories: they end up held back or in conflict.
    """
    given = {opening.token: opening for opening in openings}
    kept, conflicts, duplicates, found = _one_per_key(events)
    known = _known_openings(given, found)
    line = _highest_line(known)
    rewound = _folded(line, after) != _folded(given.values(), after)
    if rewound:
        after = -1
    spans = {
        opening.token: (opening.start, line[place + 1].start if place + 1 < len(line) else None)
        for place, opening in enumerate(line)
    }
    highest = line[-1].token if line else -1
    counting: list[Event] = []
    superseded: list[Event] = []
    held_back: list[Event] = []
    next_number = after + 1
    for event in kept:
        number, token = event.sequence_number, event.fencing_token
        span = spans.get(token)
        if span is None:
            (held_back if token > highest else superseded).append(event)
        elif number < span[0] or (span[1] is not None and number >= span[1]):
            superseded.append(event)
        elif number == next_number:
            counting.append(event)
            next_number += 1
        elif number > next_number:
            held_back.append(event)
    return History(
        events=counting,
        superseded=superseded,
        held_back=held_back,
        conflicts=conflicts,
        duplicates=duplicates,
        openings=tuple(known[token] for token in sorted(known)),
        line=line,
        rewound=rewound,
    )


def incomplete(history: History) -> str:
    """Return what a whole log lacks, in words, "" if nothing waits: then `events` are all that was recorded."""
    return gap_in_words(len(history.held_back), len(history.events)) if history.held_back else ""


def gap_in_words(held_back: int, next_number: int) -> str:
    """Return the words for a log whose event `next_number` is not there, but later ones are."""
    return f"incomplete: {held_back} events are held back behind a gap at number {next_number}"


def _one_per_key(events: Iterable[Event]) -> tuple[list[Event], list[Event], int, list[Opening]]:
    """Return the events that stay (one per number and token, sorted), conflicts, copies dropped, openings."""
    copies: dict[tuple[int, int, bytes], Event] = {}
    openings: dict[tuple[int, int, bytes], Opening] = {}
    duplicates = 0
    for event in events:
        key = (event.sequence_number, event.fencing_token, event.hash)
        earlier = copies.get(key)
        if earlier is None:
            copies[key] = event
        else:
            duplicates += 1
            # Erasure is not undone by a copy that lands late, whatever the order of arrival.
            if earlier.payload is not None and event.payload is None:
                copies[key] = event
        if event.type == "LeaseAcquired" or event.type == "TaskStarted":
            opening = opening_of(event)
            if opening is not None:
                openings[key] = opening
    kept: list[Event] = []
    conflicts: list[Event] = []
    found: list[Opening] = []
    last: tuple[int, int] | None = None
    for key in sorted(copies):
        if last == key[:2]:
            conflicts.append(copies[key])
            continue
        last = key[:2]
        kept.append(copies[key])
        if key in openings:
            found.append(openings[key])
    return kept, conflicts, duplicates, found


def opening_of(event: Event) -> Opening | None:
    """Return the opening that `event` is, or None (also for an erased `LeaseAcquired`: its row names it)."""
    if event.type == "TaskStarted":
        return Opening(token=event.fencing_token, start=0) if event.sequence_number == 0 else None
    if event.type != "LeaseAcquired" or event.payload is None:
        return None
    body = event.body
    return Opening(
        token=event.fencing_token,
        start=event.sequence_number,
        after_token=body.after_token,
        after_sequence=body.after_sequence,
        after_hash=body.after_hash,
    )


def _known_openings(given: dict[int, Opening], found: list[Opening]) -> dict[int, Opening]:
    """One opening per token: a token's first event, so of two the one that starts lower."""
    known = dict(given)
    for opening in found:
        other = known.get(opening.token)
        if other is None or _order(opening) < _order(other):
            known[opening.token] = opening
    return known


def _folded(openings: Iterable[Opening], after: int) -> set[Opening]:
    """The openings among the numbers up to `after`."""
    return {opening for opening in openings if opening.start <= after}


def _order(opening: Opening) -> tuple[int, int, str]:
    return (opening.start, -1 if opening.after_token is None else opening.after_token, opening.after_hash)


def _highest_line(known: dict[int, Opening]) -> tuple[Opening, ...]:
    """The line of the highest token whose line is present in full, lowest token first; () when there is none."""
    complete: dict[int, bool] = {}
    for token in sorted(known):
        opening = known[token]
        if opening.after_token is None:
            complete[token] = opening.start == 0
            continue
        before = known.get(opening.after_token)
        complete[token] = (
            before is not None
            and before.token < token
            and complete[before.token]
            and before.start < opening.start == opening.after_sequence + 1
        )
    tops = [token for token, whole in complete.items() if whole]
    if not tops:
        return ()
    line = [known[max(tops)]]
    while line[-1].after_token is not None:
        line.append(known[line[-1].after_token])
    return tuple(reversed(line))


def roll_backs(events: Iterable[Event]) -> list[RollBack]:
    """Return the roll-backs among canonical `events`, in their order."""
    return [
        RollBack(event.sequence_number, event.body.to, event.body.from_)
        for event in events
        if event.type == "RolledBack"
    ]


def covered(events: Iterable[Event], ranges: Sequence[RollBack]) -> list[Event]:
    """Return the events whose number lies in one of `ranges`: left behind, though some of them still count."""
    spans = merged(ranges)
    firsts = [first for first, _ in spans]
    return [event for event in events if _inside(event.sequence_number, firsts, spans)]


def merged(ranges: Iterable[RollBack]) -> list[tuple[int, int]]:
    """Return the numbers that `ranges` cover as disjoint, rising (first, last) pairs, both included."""
    spans: list[tuple[int, int]] = []
    for first, last in sorted((r.to + 1, r.last) for r in ranges if r.last > r.to):
        if spans and first <= spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], max(last, spans[-1][1]))
        else:
            spans.append((first, last))
    return spans


def _inside(number: int, firsts: list[int], spans: list[tuple[int, int]]) -> bool:
    place = bisect_right(firsts, number) - 1
    return place >= 0 and number <= spans[place][1]


def given_up(events: Sequence[Event], known_intents: Collection[str] = ()) -> frozenset[int]:
    """Return the sequence numbers, among canonical `events`, that the fold leaves out.

    `known_intents`: ids of actions whose intent lies before `events` (in the state they are folded onto).
    What still counts inside a roll-back: life and authority events (openings among them), events that came by
    mail, and every result or settlement of an action with an earlier intent that is not given up. Spend counts
    always; that is the budget's business (`state.budget`), not this set's.
    """
    ranges = roll_backs(events)
    if not ranges:
        return frozenset()
    behind = covered(events, ranges)
    numbers = {event.sequence_number for event in behind}
    intents: dict[str, int] = {}
    if any(event.type in RESULTS for event in behind):
        for event in events:
            if event.type == "ToolIntent" and event.sequence_number not in numbers:
                intents.setdefault(event.body.action_id, event.sequence_number)
        intents.update(dict.fromkeys(known_intents, -1))
    return frozenset(event.sequence_number for event in behind if not _still_counts(event, intents))


def _still_counts(event: Event, intents: dict[str, int]) -> bool:
    """`intents`: the first standing intent of each action; only one before a result can be what it answers."""
    if event.type in LIFE or event.type in AUTHORITY:
        return True
    if event.type in RESULTS and intents.get(event.body.action_id, event.sequence_number) < event.sequence_number:
        return True
    return event.type in BY_MAIL and came_by_mail(event)


def came_by_mail(event: Event) -> bool:
    """Whether the event carries a mail stamp. Cheap for the long messages that carry none."""
    if event.payload is None or b'"mail"' not in event.payload:
        return False
    return getattr(event.body, "mail", None) is not None


class NoSuchTurn(SchemaError):
    """A branch was asked for at a turn that the trajectory never reached."""


def branch_point(events: Sequence[Event], at_turn: int) -> int:
    """Return the last number that a branch at turn `at_turn` inherits from canonical `events`.

    It is the number before the first event of that turn outside every roll-back. A turn one past the last is
    the end of the log. Raises `NoSuchTurn` for a turn never reached, or before the first event. No roll-back
    behind the point reaches across it, so the events up to it fold by themselves.
    """
    behind = {event.sequence_number for event in covered(events, roll_backs(events))}
    last_turn = -1
    for event in events:
        if event.sequence_number in behind or event.type == "RolledBack":
            continue
        if event.turn >= at_turn and event.sequence_number > 0:
            return event.sequence_number - 1
        last_turn = max(last_turn, event.turn)
    if not events or at_turn != last_turn + 1:
        raise NoSuchTurn(f"turn {at_turn}: the trajectory's last turn is {last_turn}; branch at 0 to {last_turn + 1}")
    return events[-1].sequence_number


def branch_prefix(events: Sequence[Event], at_turn: int) -> list[Event]:
    """Return the events a branch at turn `at_turn` inherits: canonical, not given up, up to `branch_point`."""
    last = branch_point(events, at_turn)
    upto = [event for event in events if event.sequence_number <= last]
    left_out = given_up(upto)
    return [event for event in upto if event.sequence_number not in left_out]
