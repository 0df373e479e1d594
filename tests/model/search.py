"""Breadth-first search over the states of a model: the shortest way to a broken promise, or how many states hold."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

State = Any
Step = tuple[str, State]


class Found(NamedTuple):
    """`broken`: what failed first, None where all hold; `path`: the shortest way there; `stuck`: states with no way on.

    `whole` is False where the limit cut the search.
    """

    states: int
    broken: str | None
    path: list[str]
    stuck: int
    whole: bool


def search(
    first: Hashable,
    steps: Callable[[State], Iterable[Step]],
    broken: Callable[[State], str | None],
    goal: Callable[[State], bool] | None = None,
    limit: int = 1_000_000,
) -> Found:
    """Visit every state that can be reached from `first`, up to `limit` of them.

    With `goal`, a state from which no goal can be reached any more counts as stuck.
    """
    came: dict[State, tuple[State, str] | None] = {first: None}
    back: dict[State, list[State]] = {}
    queue: deque[State] = deque([first])
    while queue:
        state = queue.popleft()
        problem = broken(state)
        if problem:
            return Found(len(came), problem, _path(came, state), 0, True)
        for label, following in steps(state):
            if goal is not None:
                back.setdefault(following, []).append(state)
            if following not in came:
                if len(came) >= limit:
                    return Found(len(came), None, [], 0, False)
                came[following] = (state, label)
                queue.append(following)
    if goal is None:
        return Found(len(came), None, [], 0, True)
    alive = {state for state in came if goal(state)}
    queue = deque(alive)
    while queue:
        for before in back.get(queue.popleft(), ()):
            if before not in alive:
                alive.add(before)
                queue.append(before)
    stuck = [state for state in came if state not in alive]
    return Found(len(came), None, _path(came, stuck[0]) if stuck else [], len(stuck), True)


def _path(came: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    labels = []
    step = came[state]
    while step is not None:
        state, label = step
        labels.append(label)
        step = came[state]
    return labels[::-1]
