"""`replay`: the real harness runs, and everything it asks for is served from the record.

Source: design/agent.md, *Replay*.

Nothing is sent, written or read from outside: no network, no disk, no lease. Warm: one pass through all turns. Cold:
every turn is entered afresh, as after a crash before it, so a local variable carried from turn to turn shows.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from trajlake.schemas import values
from trajlake.schemas.canonical_json import exact_canonical
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import DriftDetected, TaskEnded, TaskStarted
from trajlake.schemas.history import canonical
from trajlake.schemas.versions import readable

from .agent import driver_async, driver_sync
from .agent.errors import AgentError, Diverged, Unwind
from .agent.requests import Request, Steps
from .agent.rolled import left_behind
from .agent.session import Session, Setup

if TYPE_CHECKING:
    from .journal import Journal

Verdict = Literal["same", "differs", "refused"]


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a replay found. `turn`, `operation`, `expected`, `got` and `cause` name the first difference.

    `cause`: extra, missing, changed, or raised (the harness raised what it did not raise before); of a refusal, why.
    """

    verdict: Verdict
    turn: int | None = None
    operation: str = ""
    expected: Any = None
    got: Any = None
    cause: str = ""

    @property
    def same(self) -> bool:
        return self.verdict == "same"


class RecordedModel:
    """Stands for the model of the record where the harness takes the one given to `run`; it is never asked."""

    def __init__(self, name: str, version: str, format_name: str) -> None:
        self.name, self.version, self.format = name, version, format_name

    def request(self, *shown: Any) -> NoReturn:
        raise AssertionError(f"a replay asked a model {len(shown)} things")

    send = request


class EndOfRecord(Unwind):
    """The harness has asked for everything that is recorded, and goes on."""


class TurnOver(Unwind):
    """A cold replay has seen the turn it wanted."""


class ReplaySession(Session):
    """A session that serves and never runs anything."""

    def __init__(self, journal: Journal, events: list[Event], only: int | None) -> None:
        first = events[0]
        setup = Setup(tools=journal.tools, policy=journal.policy, resolvers=journal.resolvers)
        super().__init__(journal.ports_for_reading, setup, first.tenant, first.trajectory_id)
        for event in events:
            self.adopt(event)
        self.learn_roll_backs()
        self.view = self.new_view()
        self.resumed = self.end_shown = True
        self.only = only
        self.by_turn: dict[int, list[Event]] = {}
        for event in events:
            self.by_turn.setdefault(self.left.turn_of(event), []).append(event)
        self.last_turn = self.open_turn
        self.open_turn = self.last_turn if only is None else only
        self.loop = ReplayLoop()
        self.compares_heads = True
        formats = [event.body.format for event in events if event.type == "ModelReplied"]
        started: TaskStarted = events[0].body
        self.model = RecordedModel(started.model, started.model_version, formats[0] if formats else "")
        self.enter_turn(-1, self.of_turn(-1))

    def of_turn(self, turn: int) -> list[Event]:
        """The recorded events of one turn that count."""
        return self.by_turn.get(turn, [])

    def go_live(self, operation: str) -> None:
        """An operation that the record does not hold: the end of an open record, or one too many."""
        if self.turn < self.last_turn or (self.end is not None and self.end.body.status in ("completed", "failed")):
            raise Diverged(self.turn, operation, "nothing", "asked for", "extra")
        self.check_served()
        raise self.unwind(EndOfRecord())

    def drift(self, payload: DriftDetected) -> None:
        """A changed message is a difference, unless the record already says that it drifted so."""
        if all(event.type != "DriftDetected" or event.body != payload for event in self.events):
            raise Diverged(self.turn, f"message {payload.component}", payload.old, payload.new)

    def append(self, payload: Any, *, turn: int | None = None) -> NoReturn:
        """Never: a replay writes nothing."""
        raise AssertionError(f"a replay tried to record {type(payload).__name__} in turn {turn}")


class ReplayLoop:
    """`t.turns()` of a replay."""

    def enter(self, s: Any) -> int:
        """Begin with turn 0, or in a cold replay with the wanted one, all earlier ones applied."""
        s.check_served()
        if s.last_turn < 0:
            return 0
        number = 0 if s.only is None else max(s.only, 0)
        for event in s.of_turns(lambda turn: turn < number):
            if event.sequence_number > s.view.applied:
                s.view.apply(event)
        s.enter_turn(number, s.of_turn(number))
        return number

    def next(self, s: Any, number: int) -> Steps:
        """Begin the next turn, if it is recorded and wanted."""
        s.check_served()
        if s.only is not None and number > s.only:
            raise s.unwind(TurnOver())
        if number > s.last_turn:
            s.go_live(f"turn {number}")
        s.enter_turn(number, s.of_turn(number))
        yield from ()


def replay(agent: Callable[..., Any], events: Iterable[Event], *, journal: Journal, cold: bool = False) -> Report:
    """Run `agent` against recorded events and say whether it asks for the same. See the module for `cold`.

    `events` may be in any order, with copies. The tools of `journal` are never called. A record of a newer schema,
    one with conflicts, or one that is not live is refused by name.
    """
    history = canonical(events)
    refused = _refusal(history.events, bool(history.conflicts))
    if refused is not None:
        return refused
    left = left_behind(history.events)
    last_turn = max(left.turn_of(event) for event in history.events)
    for only in range(max(last_turn, 0) + 1) if cold else (None,):
        report = _one_pass(agent, ReplaySession(journal, history.events, only))
        if not report.same:
            return report
    return Report(verdict="same")


def _refusal(events: list[Event], conflicts: bool) -> Report | None:
    if not events:
        return Report(verdict="refused", cause="no events")
    if conflicts:
        return Report(verdict="refused", cause="two different events stand under one number")
    for event in events:
        if not readable(event.type, event.schema_version):
            cause = f"event {event.sequence_number} has schema version {event.schema_version}: upgrade trajlake"
            return Report(verdict="refused", cause=cause)
        if event.payload is None:
            return Report(verdict="refused", cause=f"event {event.sequence_number} was erased")
    origin = events[0].body.origin
    return None if origin == "live" else Report(verdict="refused", cause=f"the record is {origin}, not live")


def _one_pass(agent: Callable[..., Any], s: ReplaySession) -> Report:
    s.owner_now = lambda: None
    try:
        value = _call(agent, s)
        if s.unwinding is None:
            s.check_served()
            return _compare_end(s, value) if s.turn >= s.last_turn else _ended_early(s)
    except (EndOfRecord, TurnOver):
        pass
    except Diverged as error:
        return _differs(error)
    except AgentError as error:
        return Report(verdict="differs", turn=s.turn, got=str(error), cause="raised")
    except Exception as error:  # noqa: BLE001 - whatever the harness raises is what it did
        return _raised(s, error)
    return Report(verdict="same")


def _call(agent: Callable[..., Any], s: ReplaySession) -> Any:
    if inspect.iscoroutinefunction(agent):
        return asyncio.run(agent(driver_async.Trajectory(s, _refuse_async, _no_spawn, model=s.model)))
    return agent(driver_sync.Trajectory(s, _refuse, _no_spawn, model=s.model))


def _refuse(request: Request) -> NoReturn:
    raise AssertionError(f"a replay asked for {type(request).__name__}")


async def _refuse_async(request: Request) -> NoReturn:
    _refuse(request)


def _no_spawn(*_: Any) -> NoReturn:
    raise AssertionError("a replay ran a child")


def _compare_end(s: ReplaySession, value: Any) -> Report:
    """Compare how the harness ended with the recorded end; an open record ends wherever the harness does."""
    status, result, reason = s.ended or (("failed", None, "no turns left") if s.exhausted else ("completed", value, ""))
    if s.end is None or s.end.body.status == "cancelled":
        return Report(verdict="same")
    recorded: TaskEnded = s.end.body
    got = (status, exact_canonical(values.to_tree(result)), reason)
    expected = (recorded.status, exact_canonical(s.inline(recorded.result)), recorded.reason)
    if got == expected:
        return Report(verdict="same")
    return Report(
        verdict="differs", turn=s.turn, operation="end", expected=(recorded.status, recorded.result, recorded.reason),
        got=(status, result, reason), cause="changed",
    )  # fmt: skip


def _ended_early(s: ReplaySession) -> Report:
    return Report(
        verdict="differs", turn=s.turn, operation="end", expected=f"turn {s.turn + 1}", got="the harness ended",
        cause="missing",
    )  # fmt: skip


def _raised(s: ReplaySession, error: Exception) -> Report:
    """An exception ends a record that stands open there as it did before; anywhere else it is a difference."""
    if s.ended is not None and s.end is not None:
        return _compare_end(s, None)
    if s.end is None and s.turn == s.last_turn and s.table.missing() is None:
        return Report(verdict="same")
    return Report(verdict="differs", turn=s.turn, got=repr(error), cause="raised")


def _differs(error: Diverged) -> Report:
    return Report(
        verdict="differs", turn=error.turn, operation=error.operation, expected=error.recorded, got=error.now,
        cause=error.cause,
    )  # fmt: skip
