"""The re-entry table: which recorded events answer which operation of one turn. Source: design/agent.md, *Re-entry*.

An operation is named (turn, kind, name, n-th such in the turn), a tool call by its action id. Events that the runtime
adds itself (mail, leases, settling by a person) are no operations: they take effect where they stand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from trajlake.schemas.envelope import Event
from trajlake.schemas.events import (
    AssumptionCommitted,
    AssumptionRetracted,
    Authorized,
    BudgetRevised,
    Compacted,
    ConstraintAccepted,
    ConstraintWithdrawn,
    ContextBuilt,
    GoalRevised,
    InputRead,
    MessageAdded,
    ObligationDischarged,
    ObligationOpened,
    ObservationCached,
    ObservationInvalidated,
    PlanCommitted,
    VarSet,
)

AGED = "past its half-life at a resume"
"""Why the runtime itself invalidates an observation; no operation of the agent says this."""

RESUME: Final = "trajlake:resume"
"""The tool that an approval of a resume names: no operation of the agent asks for it."""

Name = tuple[str, str]
"""(kind, name) of an operation."""

INTENT_KINDS: Final[dict[type, str]] = {
    GoalRevised: "",
    PlanCommitted: "",
    BudgetRevised: "",
    ConstraintAccepted: "constraint_id",
    ConstraintWithdrawn: "constraint_id",
    AssumptionCommitted: "assumption_id",
    AssumptionRetracted: "assumption_id",
    ObligationOpened: "obligation_id",
    ObligationDischarged: "obligation_id",
    ObservationCached: "observation_id",
    ObservationInvalidated: "observation_id",
}
"""Types of the intent state (and the budget), and the field that names one of them."""


def operation_of(event: Event) -> Name | None:
    """Return the operation that this event begins, or None: the runtime's own, or a later event of one."""
    body = event.body
    if isinstance(body, MessageAdded):
        return None if body.origin in ("steer", "branch") else ("message", body.role)
    if isinstance(body, ContextBuilt):
        return "model", body.purpose
    if isinstance(body, InputRead):
        return "read", f"{body.kind}:{body.name}" if body.name else body.kind
    if isinstance(body, VarSet):
        return "var", body.name
    if isinstance(body, Compacted):
        return "compact", ""
    if isinstance(body, Authorized):
        proposed_here = body.action_id.partition(".")[0] == str(event.sequence_number)
        return ("call", body.tool) if proposed_here else None
    field = INTENT_KINDS.get(type(body))
    if field is None or (isinstance(body, ObservationCached) and body.action_id):
        return None
    if isinstance(body, ObservationInvalidated) and body.because == AGED:
        return None
    return type(body).__name__, getattr(body, field) if field else ""


class Table:
    """The recorded events of one turn, found by operation; each operation is served once."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.events = list(events)
        self._begun: dict[Name, list[Event]] = defaultdict(list)
        self._replies: dict[int, list[Event]] = defaultdict(list)
        self._actions: dict[str, list[Event]] = defaultdict(list)
        self._asked: dict[Name, int] = defaultdict(int)
        self._called: set[str] = set()
        for event in self.events:
            self._file(event)

    def _file(self, event: Event) -> None:
        name = operation_of(event)
        if name is not None:
            self._begun[name].append(event)
        if event.type == "ModelReplied":
            self._replies[event.body.context].append(event)
        elif event.type in ("Authorized", "ApprovalRequested", "ToolIntent", "ToolResult", "ToolSettled"):
            self._actions[event.body.action_id].append(event)

    def take(self, kind: str, name: str) -> tuple[int, Event | None]:
        """Count one more operation of this name; return which one it is (from 0) and its first event, if recorded."""
        asked = self._asked[kind, name]
        self._asked[kind, name] = asked + 1
        begun = self._begun.get((kind, name), ())
        return asked, begun[asked] if asked < len(begun) else None

    def begun(self, kind: str, name: str) -> list[Event]:
        """The first events of all recorded operations of this name."""
        return list(self._begun.get((kind, name), ()))

    def operations(self) -> Iterable[Name]:
        """The names of the recorded operations, each once."""
        return self._begun.keys()

    def clear(self) -> None:
        """Forget what was recorded: nothing more is served."""
        self._begun.clear()
        self._actions.clear()

    def replies(self, context: int) -> list[Event]:
        """The recorded attempts of the model call whose `ContextBuilt` has this number."""
        return self._replies.get(context, [])

    def action(self, action_id: str) -> list[Event]:
        """The recorded events of an action, in log order; the action counts as asked for."""
        self._called.add(action_id)
        return self._actions.get(action_id, [])

    def missing(self) -> tuple[Name, Event] | None:
        """The first recorded operation that was not asked for, or None."""
        for name, begun in self._begun.items():
            if self._asked[name] < len(begun):
                return name, begun[self._asked[name]]
        for action_id, events in self._actions.items():
            if action_id not in self._called and events[0].type != "ToolSettled":
                return ("tool", f"{events[0].body.action_id}"), events[0]
        return None
