"""The session of a replay: it serves what is recorded, turn by turn, judges what it serves, and never runs anything.

An entry is one call of the agent, from its first line. Warm, one entry goes through all turns; a cold replay enters
every turn afresh, and so does any replay behind a turn that a person closed. What was folded in one entry is kept for
the next: a cold replay is as linear as a warm one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NoReturn

from trajlake.schemas.envelope import Event
from trajlake.schemas.events import DriftDetected, TaskStarted

from ..agent.errors import BudgetExhausted, Unwind
from ..agent.ports import Ports
from ..agent.requests import Steps
from ..agent.session import Session, Setup, serves
from ..agent.table import Table, operation_of
from ..agent.tool_pins import pinned_tools
from ..agent.view import View
from .explain import Difference, context_difference, telling
from .judge import Judge
from .record import Record

FOLD_EVERY: Final = 256
"""Applied events that wait to be folded into the state, at most about so many across turns: memory stays bounded."""


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
    """This entry has seen the turns it wanted; the next one begins at `ReplaySession.next_turn`."""


class ReplayEnv:
    """What a replay gives for the host: the recorded time of the event at hand, and nothing else."""

    clock_us = 0

    def now_us(self) -> int:
        return self.clock_us

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(f"a replay asked its host for {name}")


class RecordedBlobs:
    """Bulk of the record, read-only."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def get(self, tenant: str, sha256: str) -> bytes:
        del tenant
        return self._record.blob(sha256)


def recorded_ports(env: ReplayEnv, record: Record) -> Ports:
    """What the core may ask of the world while it is replayed: bulk and recorded times."""
    nothing: Any = None
    return Ports(
        env=env, log=nothing, blobs=RecordedBlobs(record), leases=nothing, keeper=nothing,  # type: ignore[arg-type]
        arbiter=nothing, mail=nothing, worker="", host="",
    )  # fmt: skip


class ReplaySession(Session):
    """Serves one record. `cold`: every turn in an entry of its own."""

    def __init__(self, setup: Setup, record: Record, *, cold: bool) -> None:
        self.env = ReplayEnv()
        self._whole: list[Event] = []
        super().__init__(recorded_ports(self.env, record), setup, record.tenant, record.trajectory_id)
        self.record_read, self.outline, self.cold = record, record.outline, cold
        self.events = [record.outline.notable[0]]
        self.left = record.outline.left
        self._whole = list(record.read()) if self.left.covered else []
        started: TaskStarted = self.events[0].body
        self.principal = started.principal
        self.end = next(iter(record.outline.of_type("TaskEnded")), None)
        self.drifts = [event.body for event in record.outline.of_type("DriftDetected")]
        if any((one.what, one.choice) == ("tool_schema", "pin") for one in self.drifts):
            self.pins["tools"] = pinned_tools(self, reversed(list(record.read()))) or {}
        self.closed = {event.turn for event in record.outline.of_type("Resumed") if event.body.close_turn}
        first = record.outline.first_reply
        self.model = RecordedModel(started.model, started.model_version, first.body.format if first else "")
        self.resumed = self.end_shown = True
        self.intercepted = record.outline.intercepted
        self.compares_heads = True
        self.last_turn = self.open_turn = record.outline.last_turn
        self.loop = ReplayLoop()
        self.judge = Judge(self)
        self.stored: dict[str, Any] = {}
        self.skipped: Event | None = None
        self._token = self.events[0].fencing_token
        self._turns: Iterator[tuple[int, list[Event]]] = record.turns()
        self._prologue = next(self._turns)[1]
        self._ahead = next(self._turns, None)
        self._near: dict[int, Event] = {}
        self._waiting: dict[int, Event] = {}
        self._begins: deque[Event] = deque()
        self.next_turn = 0
        self.folded = self.view = self.new_view()
        self.begin_entry()

    # -- entries and turns -----------------------------------------------------------------------------------------

    def begin_entry(self) -> None:
        """Make ready to call the agent from its first line; the loop will begin at `next_turn`."""
        self.unwinding = self.ended = None
        self.exhausted = False
        self.skipped = None
        if self.next_turn > 0:
            self.apply_rest()
            self.folded, self.view = self.view, self.new_view()
        self.enter_turn(-1, self._prologue)

    def of_turn(self, turn: int) -> list[Event]:
        """The recorded events of one turn; turns are asked for in rising order."""
        if self._ahead is None or self._ahead[0] != turn:
            return []
        events = self._ahead[1]
        self._ahead = next(self._turns, None)
        return events

    def enter_turn(self, turn: int, events: list[Event]) -> None:
        """Begin to serve one turn; what the last one left unapplied takes effect first."""
        self.apply_rest()
        self.turn, self.begun = turn, False
        if turn >= 0:
            self.view.context.forget_asides()
            if self.view.unfolded > FOLD_EVERY:
                _ = self.view.state
        served = [event for event in events if serves(event) and self.left.answers(event)]
        numbers = {event.sequence_number for event in served}
        self.table = Table(served)
        self._near = {event.sequence_number: event for event in (*self._prologue, *events)}
        self._waiting = {event.sequence_number: event for event in events}
        self._begins = deque(_first_events(served))
        self._runtime = [event for event in events if event.sequence_number not in numbers]
        first = served[0].sequence_number if served else None
        while self._runtime and (first is None or self._runtime[0].sequence_number < first):
            self.apply(self._runtime.pop(0))

    def apply_rest(self) -> None:
        """Apply the events of the turn that were not served: the runtime's own at its end."""
        for event in list(self._waiting.values()):
            self.apply(event)

    def apply(self, event: Event) -> None:
        """Take one event into the view, once."""
        if self._waiting.pop(event.sequence_number, None) is None:
            return
        if event.type == "ContextBuilt":
            self.stored |= event.body.stored
        self.view.apply(event)

    def new_view(self) -> View:
        """Return an empty view; one with roll-backs ahead must know all events."""
        events, self.events = self.events, self._whole or self.events
        try:
            return super().new_view()
        finally:
            self.events = events

    # -- serving ---------------------------------------------------------------------------------------------------

    def serve(self, events: list[Event]) -> None:
        """Apply the recorded events of an operation in log order, each judged before it takes effect."""
        self.begun = True
        if not events:
            return
        self._note_order(events)
        last = max(event.sequence_number for event in events)
        before = [event for event in self._runtime if event.sequence_number < last]
        self._runtime = self._runtime[len(before) :]
        batch = sorted([*before, *events], key=_number) if before or len(events) > 1 else events
        for event in batch:
            self.env.clock_us, self._token = event.recorded_at, event.fencing_token
            # What a roll-back gave up is applied in its place, but this harness is not asked for it again.
            if self.left.answers(event):
                self.judge.at(event)
            self.apply(event)

    def _note_order(self, events: list[Event]) -> None:
        """Find out whether the operation was asked for in its turn, or before an earlier recorded one."""
        served = {event.sequence_number for event in events}
        if self.skipped is not None and self.skipped.sequence_number in served:
            raise Difference(self, self.skipped, "asked for later in the turn", "reordered")
        while self._begins and self._begins[0].sequence_number in served:
            self._begins.popleft()
        first = min(served)
        if self._begins and self._begins[0].sequence_number < first:
            self.skipped = self.skipped or self._begins[0]
            self._begins = deque(event for event in self._begins if event.sequence_number not in served)

    def go_live(self, operation: str) -> None:
        """An operation that the record does not hold: the end of an open record, a turn closed, or one too many."""
        if operation.startswith("model "):
            budget = self.view.budget.frozen()
            short = budget.allows({"model_calls": "1", "input_tokens": "1", "output_tokens": "1"})
            if short is not None:
                raise BudgetExhausted(short, budget.left[short])
        if self.turn in self.closed:
            self.next_turn = self.turn + 1
            raise self.unwind(TurnOver())
        if self.turn < self.last_turn or (self.end is not None and self.end.body.status in ("completed", "failed")):
            if self.skipped is not None:
                raise Difference(self, self.skipped, "not asked for", "missing")
            unsaid = self.asked is None or operation.partition(" ")[0] in ("turn", "end", "read", "spawn", "tools")
            got = operation if unsaid or self.asked is None else telling(self, self.asked())
            raise Difference(self, self._begins[0] if self._begins else None, got, "extra", operation=operation)
        self.check_served()
        raise self.unwind(EndOfRecord())

    def check_served(self) -> None:
        """Raise where the turn is left although a recorded operation of it was not asked for."""
        if self.turn in self.closed:
            return
        missing = self.table.missing()
        if missing is not None:
            raise Difference(self, missing[1], "not asked for", "missing")

    def drift(self, payload: DriftDetected, event: Event | None = None, wire: Any = None) -> None:
        """A changed message is a difference, unless the record already says that it drifted so."""
        if payload not in self.drifts:
            cause = "extra" if event is None else "changed"
            raise Difference(self, event, wire, cause, operation=f"message {payload.component}")

    def context_differs(self, operation: str, built: Event, head: Any, stored: Any, items: Any) -> NoReturn:
        raise context_difference(self, operation, built, head, stored, items)

    # -- what a live session has, and a replay reads from the record -------------------------------------------------

    @property
    def token(self) -> int:
        return self._token

    def event_at(self, sequence_number: int) -> Event:
        event = self._near.get(sequence_number)
        if event is None:
            found = (one for one in self.record_read.read() if one.sequence_number == sequence_number)
            event = self._near[sequence_number] = next(found)
        return event

    def append(self, payload: Any, *, turn: int | None = None) -> NoReturn:
        """Never: a replay writes nothing."""
        raise AssertionError(f"a replay tried to record {type(payload).__name__} in turn {turn}")


class ReplayLoop:
    """`t.turns()` of a replay."""

    def enter(self, s: Any) -> int:
        """Begin with the turn this entry wants, all earlier ones applied."""
        s.check_served()
        number: int = s.next_turn
        if number > 0:
            s.apply_rest()
            s.view = s.folded
        if s.last_turn < 0:
            return 0
        s.enter_turn(number, s.of_turn(number))
        return number

    def next(self, s: Any, number: int) -> Steps:
        """Begin the next turn, if it is recorded and wanted."""
        s.check_served()
        if number > s.last_turn:
            s.go_live(f"turn {number}")
        if s.cold or s.turn in s.closed:
            s.next_turn = number
            raise s.unwind(TurnOver())
        s.enter_turn(number, s.of_turn(number))
        yield from ()


def _first_events(served: list[Event]) -> Iterator[Event]:
    """The first event of each operation; each call of a reply counts as one."""
    actions = set()
    for event in served:
        action_id = getattr(event.body, "action_id", "")
        if not action_id:
            if operation_of(event) is not None:
                yield event
        elif action_id not in actions and event.type != "ToolSettled":
            actions.add(action_id)
            yield event


def _number(event: Event) -> int:
    return event.sequence_number
