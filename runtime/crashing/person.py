"""The person whom a parked trajectory waits for: says yes, delivers `null`, settles doubts by what the tools saw."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from trajlake.schemas import values
from trajlake.schemas.state import Action

from ..env import REAL_ENV
from ..mailbox.posting import Postman
from ..root import Root
from ..root_view import RootView, status_row
from .ledger import Visit, visits_of
from .places import Place

if TYPE_CHECKING:
    from trajlake.schemas.state import State

    from ..root_view import StatusRow

NAME: Final = "crashtest"
BECAUSE: Final = "the ledger of the tools says so"


def answer(place: Place, answered: set[tuple[str, str]]) -> int:
    """Answer what can be answered in the root of a place; return how many answers were posted.

    `answered` is added to: what was answered before and is asked again stays open.
    """
    view = RootView(Root.open(place.root, create=False))
    visits = visits_of(place.lines())
    before = len(answered)
    for one in view.trajectories():
        if one.state is not None and one.state.execution.ended is None:
            postman = Postman(view.mail, one.tenant, actor=NAME, known_by=NAME, env=REAL_ENV)
            row = status_row(one, REAL_ENV.now_us())
            for subject in _answers(postman, one.trajectory_id, row, one.state, visits, answered):
                answered.add((one.trajectory_id, subject))
    return len(answered) - before


def _answers(
    postman: Postman, trajectory_id: str, row: StatusRow, state: State, visits: list[Visit],
    answered: set[tuple[str, str]],
) -> Iterator[str]:  # fmt: skip
    for question in row.approvals:
        if (trajectory_id, question["approval_id"]) not in answered:
            postman.approve(trajectory_id, question["approval_id"], BECAUSE)
            yield question["approval_id"]
    doubts = {one["action_id"] for one in row.doubts}
    for action in state.execution.actions.values():
        if (trajectory_id, action.action_id) in answered or action.intent is None or action.outcome is not None:
            continue
        if action.effect not in ("idempotent", "external"):
            continue
        mine = [
            one for one in visits if (one.enter.trajectory_id, one.enter.action) == (trajectory_id, action.action_id)
        ]
        if action.asynchronous and any(one.done for one in mine):
            postman.deliver(trajectory_id, action.action_id, None)
            yield action.action_id
        elif (action.asynchronous or action.action_id in doubts) and _settle(postman, trajectory_id, action, mine):
            yield action.action_id


def _settle(postman: Postman, trajectory_id: str, action: Action, mine: list[Visit]) -> bool:
    """Post a verdict where the ledger has one. A body that was cut short, or raised, leaves it open."""
    done = next((one for one in mine if one.done), None)
    if done is not None:
        assert done.leave is not None
        output = values.from_tree(done.leave.output)
        postman.settle(trajectory_id, action.action_id, executed=True, because=BECAUSE, output=output)
        return True
    if all(one.leave is not None and one.leave.ended == "not_executed" for one in mine):
        postman.settle(trajectory_id, action.action_id, executed=False, because=BECAUSE)
        return True
    return False
