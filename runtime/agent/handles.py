"""What an agent function is given: the trajectory `t`, without the parts that wait (those are in the drivers).

Everything here is one recorded event, or a read of the view; nothing waits, so it is the same under asyncio.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from trajlake.schemas import values
from trajlake.schemas.events import (
    AssumptionCommitted,
    AssumptionRetracted,
    BudgetRevised,
    ConstraintAccepted,
    ConstraintWithdrawn,
    GoalRevised,
    ObligationDischarged,
    ObligationOpened,
    ObservationCached,
    ObservationInvalidated,
    PlanCommitted,
    Predicate,
    TaskStarted,
)
from trajlake.schemas.state.budget import compare, normal

from ..tools import Retry, Tool
from .errors import Misuse
from .inputs import at_once, compact, message, read_input, set_var
from .model_call import Ask, ToolCall
from .session import Session
from .table import AGED
from .tool_pins import as_recorded

if TYPE_CHECKING:
    from trajlake.schemas.state import IntentState, State


class Context:
    """`t.context`: the items the next model call is shown."""

    def __init__(self, s: Session) -> None:
        self._s = s

    def system(self, text: str) -> None:
        """Add a system message. Every message is recorded once, and served when its turn is entered again."""
        self.add({"role": "system", "content": text})

    def user(self, text: str) -> None:
        """Add a user message."""
        self.add({"role": "user", "content": text})

    def add(self, wire: Mapping[str, Any]) -> None:
        """Add a message in the provider's own shape."""
        message(self._s, str(wire.get("role", "user")), dict(wire))

    @property
    def items(self) -> list[Any]:
        """The items now in force, oldest first, in wire shape."""
        return [item.wire for item in self._s.view.context.items]

    def __len__(self) -> int:
        return len(self._s.view.context.items)


class Vars(MutableMapping[str, Any]):
    """`t.vars`: the only variables that outlive a turn. Values are recorded when they are assigned."""

    def __init__(self, s: Session) -> None:
        self._s = s

    def __getitem__(self, name: str) -> Any:
        return self._s.value(self._s.view.vars[name], f"t.vars[{name!r}]")

    def __setitem__(self, name: str, value: Any) -> None:
        set_var(self._s, name, value)

    def __delitem__(self, name: str) -> None:
        if name not in self._s.view.vars:
            raise KeyError(name)
        set_var(self._s, name, None, deleted=True)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._s.view.vars))

    def __len__(self) -> int:
        return len(self._s.view.vars)


class Goal:
    """`t.goal`: what the work is for."""

    def __init__(self, s: Session) -> None:
        self._s = s

    def revise(self, goal: Any, *, source: str = "", because: str = "") -> None:
        """Commit to a new goal; the one before stays in the log."""
        tree = values.to_tree(goal)
        before = self._s.view.goal_seq
        payload = GoalRevised(goal=tree, source=source, because=because, replaces=before)
        at_once(self._s, "GoalRevised", "", lambda: payload)


class Constraints:
    """`t.constraints`: rules in force. One with a predicate is enforced when a call is authorized."""

    def __init__(self, s: Session) -> None:
        self._s = s

    def accept(
        self, constraint_id: str, text: str, *, source: str = "", tool: str | None = None,
        arguments: Mapping[str, str] | None = None, verdict: str = "deny",
    ) -> None:  # fmt: skip
        """Accept a rule. `tool` (glob), `arguments` (dotted path -> glob): which calls it denies, or asks about."""
        predicate = None
        if tool is not None or arguments:
            if verdict not in ("deny", "ask"):
                raise Misuse(f"t.constraints.accept: verdict {verdict!r} is neither deny nor ask")
            predicate = Predicate(tool=tool or "*", arguments=dict(arguments or {}), verdict=verdict)  # type: ignore[arg-type]
        payload = ConstraintAccepted(constraint_id=constraint_id, text=text, source=source, predicate=predicate)
        at_once(self._s, "ConstraintAccepted", constraint_id, lambda: payload)

    def withdraw(self, constraint_id: str, *, source: str = "", because: str = "") -> None:
        """Take a rule out of force."""
        payload = ConstraintWithdrawn(constraint_id=constraint_id, source=source, because=because)
        at_once(self._s, "ConstraintWithdrawn", constraint_id, lambda: payload)


class Assumptions:
    """`t.assumptions`: what is taken as true, and what it rests on."""

    def __init__(self, s: Session) -> None:
        self._s = s

    def commit(self, assumption_id: str, text: str, *, rests_on: Sequence[int] = (), source: str = "") -> None:
        payload = AssumptionCommitted(assumption_id=assumption_id, text=text, rests_on=tuple(rests_on), source=source)
        at_once(self._s, "AssumptionCommitted", assumption_id, lambda: payload)

    def retract(self, assumption_id: str, *, because: str = "") -> None:
        payload = AssumptionRetracted(assumption_id=assumption_id, because=because)
        at_once(self._s, "AssumptionRetracted", assumption_id, lambda: payload)


class Obligations:
    """`t.obligations`: what is owed to somebody."""

    def __init__(self, s: Session) -> None:
        self._s = s

    def open(self, obligation_id: str, text: str, *, owed_to: str = "", due_at: int | None = None) -> None:
        payload = ObligationOpened(obligation_id=obligation_id, text=text, owed_to=owed_to, due_at=due_at)
        at_once(self._s, "ObligationOpened", obligation_id, lambda: payload)

    def discharge(self, obligation_id: str, *, how: str = "") -> None:
        payload = ObligationDischarged(obligation_id=obligation_id, how=how)
        at_once(self._s, "ObligationDischarged", obligation_id, lambda: payload)


class Plan:
    """`t.plan`: how the goal is to be reached; the one in force after a resume is the recorded one."""

    def __init__(self, s: Session) -> None:
        self._s = s

    def commit(self, plan: Any, *, because: str = "") -> None:
        tree = values.to_tree(plan)
        before = self._s.view.plan_seq
        at_once(self._s, "PlanCommitted", "", lambda: PlanCommitted(plan=tree, replaces=before, because=because))


class Observations:
    """`t.observations`: facts that age."""

    def __init__(self, s: Session) -> None:
        self._s = s

    def cache(self, observation_id: str, value: Any, *, source: str = "", half_life_s: float | None = None) -> None:
        """Record a fact with the time it was observed (now)."""
        tree = values.to_tree(value)
        now_us = self._s.ports.env.now_us
        at_once(
            self._s, "ObservationCached", observation_id,
            lambda: ObservationCached(
                observation_id=observation_id, value=tree, source=source, observed_at=now_us(), half_life_s=half_life_s
            ),
            compare=False,
        )  # fmt: skip

    @property
    def stale(self) -> list[str]:
        """Facts found past their half-life at a resume and not observed again since: fetch them, then plan anew."""
        found = self._s.view.state.intent.observations.values()
        return [one.observation_id for one in found if one.invalidated is not None and one.because == AGED]

    def invalidate(self, observation_id: str, *, because: str = "") -> None:
        payload = ObservationInvalidated(observation_id=observation_id, because=because)
        at_once(self._s, "ObservationInvalidated", observation_id, lambda: payload)


class BudgetHandle:
    """`t.budget`: limits and what is left of them."""

    def __init__(self, s: Session) -> None:
        self._s = s

    @property
    def left(self) -> dict[str, str]:
        """Unit -> decimal text, for the limited units only."""
        return self._s.view.budget.frozen().left

    def revise(self, limits: Mapping[str, Any], *, because: str = "", source: str = "") -> None:
        """Set new limits; the only way one rises. A child cannot raise what its parent granted (`Misuse`)."""
        checked = {unit: normal(str(amount)) for unit, amount in limits.items()}
        started: TaskStarted = self._s.events[0].body
        for unit, amount in checked.items() if started.parent is not None else ():
            if unit in started.budget and compare(amount, started.budget[unit]) > 0:
                raise Misuse(f"t.budget.revise: {unit} was granted by the parent; raise it there, and spawn another")
        at_once(self._s, "BudgetRevised", "", lambda: BudgetRevised(limits=checked, because=because, source=source))


class TrajectoryHandle:
    """The parts of `t` that are the same in plain code and under asyncio."""

    def __init__(self, s: Session, model: Any = None, parameters: Mapping[str, Any] | None = None) -> None:
        self._s, self._model = s, s.pins.get("model") or model
        recorded = s.events[0].body.sampling
        if "sampling" in s.pins:
            parameters = None
        self._parameters = parameters if parameters is not None or recorded is None else s.value(recorded)
        self.context = Context(s)
        self.vars = Vars(s)
        self.goal = Goal(s)
        self.constraints = Constraints(s)
        self.assumptions = Assumptions(s)
        self.obligations = Obligations(s)
        self.plan = Plan(s)
        self.observations = Observations(s)
        self.budget = BudgetHandle(s)
        self.task: Any = s.value(s.events[0].body.task, "its task")

    @property
    def id(self) -> str:
        return self._s.trajectory_id

    @property
    def tenant(self) -> str:
        return self._s.tenant

    @property
    def state(self) -> State:
        """The fold of earlier turns plus what was served or done since this entry; never of the whole log."""
        return self._s.view.state

    @property
    def intent(self) -> IntentState:
        return self._s.view.state.intent


class TurnHandle:
    """The parts of a turn that do not wait."""

    def __init__(self, t: TrajectoryHandle, s: Session, number: int) -> None:
        self._t, self._s, self.number = t, s, number

    def now(self) -> datetime:
        """The time (UTC), recorded: the same when the turn is entered again."""
        found: datetime = read_input(
            self._s, "now", "", lambda: datetime.fromtimestamp(self._s.ports.env.now_us() / 1e6, UTC)
        )
        return found

    def uuid(self) -> str:
        """A random UUID (version 4) as text, recorded."""

        def make() -> str:
            number = int.from_bytes(self._s.ports.env.random_bytes(16))
            number = number & ~(0xF << 76) | 4 << 76
            text = f"{number & ~(0x3 << 62) | 0x2 << 62:032x}"
            return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))

        return str(read_input(self._s, "uuid", "", make))

    def random(self) -> float:
        """A random number in [0, 1), recorded."""
        make = lambda: int.from_bytes(self._s.ports.env.random_bytes(7)) / 2**56  # noqa: E731
        return float(read_input(self._s, "random", "", make))

    def listdir(self, path: str) -> list[str]:
        """The names in a folder, sorted, recorded."""
        names: list[str] = read_input(self._s, "listdir", path, lambda: self._s.ports.env.listdir(path))
        return names

    def compact(self, *, keep: int, summary: Any, trigger: str = "") -> None:
        """Keep the first `keep` items of the context and put `summary` (a reply of this turn, or a text) after them."""
        compact(self._s, keep, summary, trigger)

    def _ask(
        self, model: Any, tools: Sequence[Any] | None, messages: Sequence[Mapping[str, Any]] | None, purpose: str,
        on_delta: Callable[[str], None] | None, retry: Retry, parameters: Mapping[str, Any] | None = None,
    ) -> Ask:  # fmt: skip
        chosen = model if model is not None else self._t._model
        if chosen is None:
            raise Misuse("turn.model: give a model here, or to journal.run")
        registered = self._s.setup.tools
        offered = list(registered.values()) if tools is None else [_tool(one, registered) for one in tools]
        if "tools" in self._s.pins:
            offered = as_recorded(self._s, offered)
        return Ask(
            model=chosen, tools=offered, purpose=purpose, messages=messages, on_delta=on_delta, retry=retry,
            parameters=self._t._parameters if parameters is None else parameters,
        )  # fmt: skip


def _tool(one: Any, registered: Mapping[str, Tool]) -> Tool:
    if isinstance(one, Tool):
        return one
    if one not in registered:
        raise Misuse(f"turn.model: no tool named {one!r} is registered")
    return registered[one]


def call_given(call: Any) -> ToolCall:
    """Return a call of a reply, or raise `Misuse` for anything else."""
    if not isinstance(call, ToolCall):
        raise Misuse(f"turn.tool takes a call of a reply, not {type(call).__name__}; a call of your own is turn.call")
    return call
