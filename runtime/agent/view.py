"""What the agent sees: the fold of earlier turns, and of what was served or done since it was entered.

Source: design/agent.md, *Re-entry*. The view never runs ahead of the code: an event of the open turn is applied when
its operation is served, or when it is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from trajlake.schemas.envelope import Event
from trajlake.schemas.events import (
    ConstraintAccepted,
    ConstraintWithdrawn,
    ContextBuilt,
    DriftDetected,
    GoalRevised,
    PlanCommitted,
    VarSet,
)
from trajlake.schemas.state.budget import Budget, BudgetFold

from .actions import ACTION_TYPES, Actions, HashCall
from .context import CONTEXT_TYPES, ContextList, Inline, Item
from .rolled import NOTHING, LeftBehind

if TYPE_CHECKING:
    from trajlake.schemas.state import Folder, State


class View:
    """State, context, variables, actions and budget as of the events applied so far."""

    def __init__(
        self,
        tenant: str,
        trajectory_id: str,
        *,
        inline: Inline,
        hash_call: HashCall,
        left: LeftBehind = NOTHING,
        ahead: Sequence[Event] = (),
        bases: Sequence[State] = (),
        made: dict[int, Item] | None = None,
    ) -> None:
        self._left = left
        self._ahead = ahead
        self.bases = bases
        self.context = ContextList(inline, made)
        self.actions = Actions(hash_call)
        self.budget = BudgetFold(Budget())
        self.vars: dict[str, Any] = {}
        self.constraints: dict[str, ConstraintAccepted] = {}
        self.goal_seq: int | None = None
        self.plan_seq: int | None = None
        self.system_no = 0
        self.stored: set[str] = set()
        self.applied = -1
        self._identity = tenant, trajectory_id
        self._folder: Folder | None = None
        self._unfolded: list[Event] = []

    @property
    def unfolded(self) -> int:
        """How many applied events wait for `state`."""
        return len(self._unfolded)

    @property
    def state(self) -> State:
        """The fold of the applied events; it is brought up to date when it is asked for."""
        from trajlake.schemas.state import Folder, initial

        events, self._unfolded = self._unfolded, []
        if self._folder is None:
            usable = [base for base in self.bases if base.sequence_number <= self.applied]
            start = max([*usable, initial(*self._identity)], key=lambda base: base.sequence_number)
            events = [event for event in events if event.sequence_number > start.sequence_number]
            ahead = [event for event in self._ahead if event.sequence_number > start.sequence_number]
            self._folder = Folder(start, ahead if self._left.covered else ())
        self._folder.extend(events)
        return self._folder.state()

    def apply(self, event: Event) -> None:
        """Take in the next event."""
        self.applied = event.sequence_number
        self._unfolded.append(event)
        self.budget.apply(event)
        left = self._left
        if left is not NOTHING and event.sequence_number in left.given_up:
            self.actions.gave_up(event)
            return
        kind = event.type
        if kind in ACTION_TYPES:
            self.actions.apply(event, known_only=event.sequence_number in left.covered)
        if kind in CONTEXT_TYPES:
            self.context.apply(event, self.actions.by_id.get(event.body.action_id) if kind in _OUTCOMES else None)
        if kind in _NOTED:
            self._note(event)

    def _note(self, event: Event) -> None:
        body = event.body
        if isinstance(body, VarSet):
            if body.deleted:
                self.vars.pop(body.name, None)
            else:
                self.vars[body.name] = body.value
        elif isinstance(body, ConstraintAccepted):
            self.constraints[body.constraint_id] = body
        elif isinstance(body, ConstraintWithdrawn):
            self.constraints.pop(body.constraint_id, None)
        elif isinstance(body, ContextBuilt):
            self.stored.update(body.stored)
        elif isinstance(body, DriftDetected):
            self.system_no = max(self.system_no, body.system_no)
        elif isinstance(body, GoalRevised):
            self.goal_seq = event.sequence_number
        elif isinstance(body, PlanCommitted):
            self.plan_seq = event.sequence_number


_NOTED: Final = frozenset(
    "VarSet ConstraintAccepted ConstraintWithdrawn ContextBuilt DriftDetected GoalRevised PlanCommitted".split()
)
"""What `_note` takes in: most events are none of these."""
_OUTCOMES: Final = frozenset(("ToolResult", "ToolSettled"))
