"""Budget: exact arithmetic on decimal text, and the fold of limits, spend and reservations.

Source: design/agent.md, *Budget*. Spend counts whatever a roll-back gives up, so this part of the fold sees
every canonical event. Limits move only by `TaskStarted` and `BudgetRevised`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from ..envelope import Event
from ..errors import InvalidValue

_AMOUNT: Final = re.compile(r"([0-9]{1,30})(?:\.([0-9]{1,30}))?(?:[eE]([+-]?[0-9]{1,2}))?")

RUNTIME_UNITS: Final = ("turns", "model_calls", "tool_calls", "input_tokens", "output_tokens")
"""Units the fold counts itself; any other comes from a `cost`."""

GRANT: Final = "grant"
SPENT: Final = "spent"
SPAWN: Final = "spawn"
"""Kinds of `InputRead` around a child: what of its parent's budget it may spend, what it spent, how it ended."""

Amounts = dict[str, str]


class Budget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits and spend by unit; `held` = reservations of actions not settled yet, by action id.

    `turn` is the last turn counted in `turns`: a turn done again after a roll-back is spent again.
    """

    limits: Amounts = {}
    spent: Amounts = {}
    held: dict[str, Amounts] = {}
    turn: int = -1

    @property
    def reserved(self) -> Amounts:
        """What all open reservations hold, by unit."""
        return total(self.held.values())

    @property
    def left(self) -> Amounts:
        """What is left of each limited unit: limit - spent - reserved, never below 0."""
        reserved = self.reserved
        return {
            unit: subtract(subtract(limit, self.spent.get(unit, "0")), reserved.get(unit, "0"))
            for unit, limit in self.limits.items()
        }

    def allows(self, asked: Mapping[str, str]) -> str | None:
        """Return the first unit of which less than `asked` is left, or None when all fit."""
        left = self.left
        return next((unit for unit, amount in asked.items() if unit in left and compare(amount, left[unit]) > 0), None)


def _scaled(amount: str) -> tuple[int, int]:
    """(digits, places) with amount = digits / 10 ** places. Raises `InvalidValue` for anything but a decimal >= 0."""
    match = _AMOUNT.fullmatch(amount)
    if match is None:
        raise InvalidValue(f"amount {ascii(amount[:40])}: expected a decimal such as '3' or '0.25', 0 or more")
    fraction = match[2] or ""
    digits, places = int(match[1] + fraction), len(fraction) - int(match[3] or 0)
    if places < 0:
        whole: int = digits * 10**-places
        return whole, 0
    return digits, places


def _text(digits: int, places: int) -> str:
    if places == 0:
        return str(digits)
    text = str(digits).rjust(places + 1, "0")
    return f"{text[:-places]}.{text[-places:]}".rstrip("0").rstrip(".")


def normal(amount: str) -> str:
    """Return the one text of an amount: no exponent, no needless zeros. Raises `InvalidValue`."""
    return _text(*_scaled(amount))


def add(one: str, other: str) -> str:
    """Return the exact sum of two amounts."""
    if len(one) < 30 > len(other) and (one + other).isascii() and one.isdigit() and other.isdigit():
        return str(int(one) + int(other))
    (a, a_places), (b, b_places) = _scaled(one), _scaled(other)
    places = max(a_places, b_places)
    return _text(a * 10 ** (places - a_places) + b * 10 ** (places - b_places), places)


def subtract(one: str, other: str) -> str:
    """Return the exact difference, or "0" where it would be negative."""
    (a, a_places), (b, b_places) = _scaled(one), _scaled(other)
    places = max(a_places, b_places)
    return _text(max(0, a * 10 ** (places - a_places) - b * 10 ** (places - b_places)), places)


def compare(one: str, other: str) -> int:
    """Return -1, 0 or 1 as `one` is less than, equal to or more than `other`."""
    (a, a_places), (b, b_places) = _scaled(one), _scaled(other)
    left, right = int(a * 10**b_places), int(b * 10**a_places)
    return (left > right) - (left < right)


def total(many: Iterable[Mapping[str, str]]) -> Amounts:
    """Return the sum by unit of an iterable of amounts."""
    sums: Amounts = {}
    for amounts in many:
        for unit, amount in amounts.items():
            sums[unit] = add(sums[unit], amount) if unit in sums else normal(amount)
    return sums


def share(amount: str, among: int, unit: str) -> str:
    """Return an equal share of an amount, rounded down: whole where the runtime counts the unit, else to 10^-6."""
    digits, places = _scaled(amount)
    scale = 0 if unit in RUNTIME_UNITS else 6
    return _text(digits * 10**scale // (among * 10**places), scale)


class BudgetFold:
    """The mutable budget inside a fold."""

    def __init__(self, budget: Budget) -> None:
        self.limits = dict(budget.limits)
        self.spent = dict(budget.spent)
        self.held = dict(budget.held)
        self.turn = budget.turn

    def frozen(self) -> Budget:
        return Budget(limits=dict(self.limits), spent=dict(self.spent), held=dict(self.held), turn=self.turn)

    def spend(self, amounts: Mapping[str, str]) -> None:
        for unit, amount in amounts.items():
            self.spent[unit] = add(self.spent.get(unit, "0"), amount)

    def count(self, unit: str, number: int) -> None:
        """Spend a whole number of a unit; its text is a plain integer unless a `cost` named it too."""
        self.spent[unit] = add(self.spent.get(unit, "0"), str(number))

    def limit(self, limits: Mapping[str, str]) -> None:
        for unit, amount in limits.items():
            self.limits[unit] = normal(amount)

    def hold(self, action_id: str, amounts: Mapping[str, str]) -> None:
        """Reserve for one attempt. Attempts of one action are one effect, so they hold the larger, not the sum."""
        if not amounts:
            return
        held = dict(self.held.get(action_id, {}))
        for unit, amount in amounts.items():
            if unit not in held or compare(amount, held[unit]) > 0:
                held[unit] = normal(amount)
        self.held[action_id] = held

    def book(self, action_id: str, cost: Mapping[str, str]) -> None:
        """Release what the action holds and spend its actual cost."""
        self.held.pop(action_id, None)
        self.spend(cost)

    def book_reserved(self, action_id: str) -> None:
        """Spend what the action holds: it was executed, and nothing tells what it cost."""
        self.spend(self.held.pop(action_id, {}))

    def apply(self, event: Event) -> None:
        """Fold one event, given up or not."""
        if event.turn > self.turn:
            self.count("turns", 1)
            self.turn = event.turn
        fold = _FOLDS.get(event.type)
        if fold is not None:
            fold(self, event)


def _replied(budget: BudgetFold, event: Event) -> None:
    body = event.body
    budget.count("model_calls", 1)
    if body.usage is not None:
        budget.count("input_tokens", body.usage.input_total or 0)
        budget.count("output_tokens", body.usage.output or 0)
    budget.spend(body.cost)


def _intended(budget: BudgetFold, event: Event) -> None:
    body = event.body
    if body.attempt == 1:
        budget.count("tool_calls", 1)
    budget.hold(body.action_id, body.reserved)


def _settled(budget: BudgetFold, event: Event) -> None:
    body = event.body
    if body.verdict == "executed":
        budget.book_reserved(body.action_id)
    else:
        budget.book(body.action_id, {})


def _read(budget: BudgetFold, event: Event) -> None:
    """A child: its grant is held until it has ended and what it spent is known."""
    body = event.body
    child = f"{SPAWN}:{event.turn}.{body.name}"
    if body.kind == GRANT and isinstance(body.value, dict):
        budget.hold(child, body.value.get("limits") or {})
    elif body.kind == SPENT and isinstance(body.value, dict):
        budget.book(child, body.value)


_FOLDS: Final[dict[str, Callable[[BudgetFold, Event], None]]] = {
    "TaskStarted": lambda budget, event: budget.limit(event.body.budget),
    "BudgetRevised": lambda budget, event: budget.limit(event.body.limits),
    "ModelReplied": _replied,
    "ToolIntent": _intended,
    "ToolResult": lambda budget, event: budget.book(event.body.action_id, event.body.cost),
    "ToolSettled": _settled,
    "InputRead": _read,
    "LateResult": lambda budget, event: budget.book_reserved(event.body.action_id),
}
