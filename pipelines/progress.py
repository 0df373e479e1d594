"""How runs tell how far they are."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Told (step, done, total); a step without a count has total 0. Tests kill the process inside it."""


def no_progress(_: str, __: int, ___: int) -> None:
    """Progress that nobody wants to hear of."""
