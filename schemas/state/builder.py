"""The mutable state inside a fold: dicts that are copied only when somebody still holds the frozen one."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from ..context import Build
from ..events import ContextBuilt
from .budget import BudgetFold
from .records import ContextState, ExecutionState, InForce, IntentState, State

V = TypeVar("V")

RUN_ITEMS: Final = 1_000
"""A run is closed at this many entries; one of builds counts each build and each item it appended."""


class Entries(Generic[V]):
    """A dict that a frozen state may share: freezing is free, the next change after it copies once."""

    def __init__(self, entries: dict[str, V]) -> None:
        self.read = entries
        self._shared = True

    def frozen(self) -> dict[str, V]:
        self._shared = True
        return self.read

    def __setitem__(self, name: str, value: V) -> None:
        self._own()[name] = value

    def get(self, name: str) -> V | None:
        return self.read.get(name)

    def remove(self, name: str) -> None:
        if name in self.read:
            del self._own()[name]

    def _own(self) -> dict[str, V]:
        if self._shared:
            self.read = dict(self.read)
            self._shared = False
        return self.read


class ContextFold:
    """Contexts inside a fold: closed runs are kept as they are, only the open one is frozen anew."""

    def __init__(self, context: ContextState) -> None:
        self.builds = context.builds()
        self.latest = context.latest
        self.by_purpose = Entries(context.by_purpose)
        self._closed = list(context.runs)
        self._open: list[Build] = []
        if self._closed and _run_items(self._closed[-1]) < RUN_ITEMS:
            self._open = list(self._closed.pop())
        self._open_items = _run_items(self._open)

    def add(self, built: int, event: ContextBuilt) -> None:
        """Fold one `ContextBuilt`. Raises `InvalidEvent` when it keeps more than its base has."""
        build = self.builds.extend(built, event)
        self._open.append(build)
        self._open_items += 1 + len(build.append)
        if self._open_items >= RUN_ITEMS:
            self._closed.append(tuple(self._open))
            self._open, self._open_items = [], 0
        self.latest = InForce(
            built=built,
            purpose=event.purpose,
            length=build.length,
            context_hash=event.context_hash,
            head=event.head,
        )
        self.by_purpose[event.purpose] = self.latest

    def frozen(self) -> ContextState:
        runs = (*self._closed, tuple(self._open)) if self._open else tuple(self._closed)
        return ContextState(runs=runs, latest=self.latest, by_purpose=self.by_purpose.frozen())


def _run_items(run: tuple[Build, ...] | list[Build]) -> int:
    return sum(1 + len(build.append) for build in run)


class Builder:
    """Everything a fold changes. Fields that are replaced whole stand here as they do in the state.

    `counted`: the event being folded lies in a roll-back and still counts; what was proposed there is gone.
    """

    def __init__(self, state: State) -> None:
        intent, execution = state.intent, state.execution
        self.counted = False
        self.tenant, self.trajectory_id = state.tenant, state.trajectory_id
        self.sequence_number, self.head_hash = state.sequence_number, bytes.fromhex(state.head_hash)
        self.recorded_at = state.recorded_at
        self.goal, self.first_goal, self.plan = intent.goal, intent.first_goal, intent.plan
        self.constraints = Entries(intent.constraints)
        self.assumptions = Entries(intent.assumptions)
        self.obligations = Entries(intent.obligations)
        self.observations = Entries(intent.observations)
        self.started, self.branched = execution.started, execution.branched
        self.turn, self.turn_start, self.reply = execution.turn, execution.turn_start, execution.reply
        self.actions = Entries(execution.actions)
        self.approvals = Entries(execution.approvals)
        self.authorities = Entries(execution.authorities)
        self.budget = BudgetFold(execution.budget)
        self.openings, self.tenure = execution.openings, execution.tenure
        self.context = ContextFold(execution.context)
        self.vars = Entries(execution.vars)
        self.mail = Entries(execution.mail)
        self.system_no, self.switches = execution.system_no, execution.switches
        self.compacted, self.checkpoint, self.workspace = (
            execution.compacted,
            execution.checkpoint,
            execution.workspace,
        )
        self.rolled_back, self.resumed = execution.rolled_back, execution.resumed
        self.refused, self.loss_accepted = execution.refused, execution.loss_accepted
        self.cancelled, self.ended = execution.cancelled, execution.ended

    def frozen(self) -> State:
        """Return the state as it is now; the builder can go on."""
        return State(
            tenant=self.tenant,
            trajectory_id=self.trajectory_id,
            sequence_number=self.sequence_number,
            head_hash=self.head_hash.hex(),
            recorded_at=self.recorded_at,
            intent=self._intent(),
            execution=self._execution(),
        )

    def _intent(self) -> IntentState:
        return IntentState(
            goal=self.goal,
            first_goal=self.first_goal,
            constraints=self.constraints.frozen(),
            assumptions=self.assumptions.frozen(),
            obligations=self.obligations.frozen(),
            plan=self.plan,
            observations=self.observations.frozen(),
        )

    def _execution(self) -> ExecutionState:
        return ExecutionState(
            started=self.started,
            branched=self.branched,
            turn=self.turn,
            turn_start=self.turn_start,
            reply=self.reply,
            actions=self.actions.frozen(),
            approvals=self.approvals.frozen(),
            budget=self.budget.frozen(),
            authorities=self.authorities.frozen(),
            openings=self.openings,
            tenure=self.tenure,
            context=self.context.frozen(),
            vars=self.vars.frozen(),
            mail=self.mail.frozen(),
            system_no=self.system_no,
            switches=self.switches,
            compacted=self.compacted,
            checkpoint=self.checkpoint,
            workspace=self.workspace,
            rolled_back=self.rolled_back,
            resumed=self.resumed,
            refused=self.refused,
            loss_accepted=self.loss_accepted,
            cancelled=self.cancelled,
            ended=self.ended,
        )
