"""Several waits for the disk at once, where threads can be had."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

THREADS: Final = 8
"""Objects saved beside each other: their barriers share the disk's."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(do: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Return `do` of each item, in their order; raises what the first to fail raised.

    Once the main thread has ended no pool takes work, while threads of agents still go on: then one after another.
    `do` may be called twice for an item whose first result nobody saw.
    """
    every = list(items)
    if not every:
        return []
    with ThreadPoolExecutor(min(THREADS, len(every))) as pool:
        try:
            started = [pool.submit(do, item) for item in every]
        except RuntimeError:
            started = []
        if started:
            return [one.result() for one in started]
    return [do(item) for item in every]
