"""What a benchmark gives: one row per measure, both sides measured in the same run, medians of interleaved rounds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

Direction = Literal["at least", "at most", "reported"]


class Row(NamedTuple):
    """One measure. `bar` None: reported only. `note` says what was measured against what, and the spread."""

    measure: str
    value: float
    bar: float | None = None
    direction: Direction = "reported"
    unit: str = "x"
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None without one."""
        if self.bar is None or self.direction == "reported":
            return None
        return self.value >= self.bar if self.direction == "at least" else self.value <= self.bar


def interleaved(sides: Mapping[str, Callable[[], float | None]], rounds: int) -> dict[str, list[float]]:
    """Run every side once per round, in turn; return seconds per side and round.

    A side may return its own seconds (to leave preparation out); returning None means: time the whole call.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            started = time.perf_counter()
            own = side()
            seconds[name].append(time.perf_counter() - started if own is None else own)
    return seconds


def median_ratio(above: list[float], below: list[float]) -> float:
    """Return the median over rounds of above/below: noise that hits a whole round cancels."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))
