"""Counting tokens: by characters, or by a function of the target's own tokenizer that the policy names."""

from __future__ import annotations

import math
from collections.abc import Callable

from trajlake.runtime.cli_errors import UserError
from trajlake.runtime.named_module import imported

Counter = Callable[[str], int]


def characters_per_token(counter: str) -> float | None:
    """Return N of `characters/N`; None for a function's name."""
    head, slash, tail = counter.partition("/")
    if head != "characters" or not slash:
        return None
    try:
        per = float(tail)
    except ValueError:
        per = 0.0
    if not 0 < per < math.inf:
        raise UserError(f"length.counter: {counter!r}: give characters/N with N above 0, or module:function")
    return per


def counter_of(counter: str) -> Counter:
    """Return the function that counts the tokens of a text."""
    per = characters_per_token(counter)
    if per is not None:
        return lambda text: -(-len(text) // int(per)) if per == int(per) else int(-(-len(text) // per))
    if ":" not in counter:
        raise UserError(f"length.counter: {counter!r}: give characters/N with N above 0, or module:function")
    counted: Counter = imported(counter, "length.counter (characters/N, or module:function)")[1]
    return counted
