"""What roll-backs left behind, as re-entry and replay need it. Source: design/events.md, *Given up*.

Events inside a roll-back keep their place in the log but belong to no operation any more, whatever turn stands in their
header: they take effect, as far as they still count, in the turn that the roll-back opened again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trajlake.schemas.envelope import Event
from trajlake.schemas.history import RESULTS, covered, given_up, roll_backs


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """`given_up`: numbers the fold leaves out. `covered`: all numbers inside roll-backs, those that count included.

    `turns`: of each covered number, the turn it belongs to now.
    """

    given_up: frozenset[int] = frozenset()
    covered: frozenset[int] = frozenset()
    turns: dict[int, int] = field(default_factory=dict)

    def turn_of(self, event: Event) -> int:
        """The turn in which an event takes effect."""
        return self.turns.get(event.sequence_number, event.turn)

    def answers(self, event: Event) -> bool:
        """Whether an event may still answer an operation: given-up ones never do; of the covered only results."""
        number = event.sequence_number
        if number in self.given_up:
            return False
        return number not in self.covered or event.type in RESULTS


NOTHING = LeftBehind()


def left_behind(events: Sequence[Event]) -> LeftBehind:
    """Return what the roll-backs among all canonical events left behind."""
    ranges = roll_backs(events)
    if not ranges:
        return NOTHING
    turn_of = {event.sequence_number: event.turn for event in events if event.type == "RolledBack"}
    inside = covered(events, ranges)
    turns: dict[int, int] = {}
    for event in inside:
        number = event.sequence_number
        # The last roll-back that covers it decides; its own turn may lie inside an even later one, which covers both.
        turns[number] = next(turn_of[one.sequence_number] for one in reversed(ranges) if one.to < number <= one.last)
    return LeftBehind(given_up(events), frozenset(event.sequence_number for event in inside), turns)
