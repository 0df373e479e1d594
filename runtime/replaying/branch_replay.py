"""Replay of a branch: its ancestors' records up to the fork give what it started from, its own is served from there.

The prologue is the root's. What the change put in the place of inherited items stands as recorded; what the harness's
own prologue says otherwise than the root's must be what it said when the branch ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trajlake.schemas.context import item_hash
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import Branched, DriftDetected, TaskStarted

from ..agent.rolled import NOTHING
from ..agent.session import Setup
from ..agent.view import View
from ..branches.branch_run import parsed_place
from ..branches.branch_session import BranchView, Inherits, Parent
from .explain import Difference
from .lineage import Ancestor, OtherTools, inward
from .record import Record
from .serve import ReplayEnv, ReplayLoop, ReplaySession, recorded_ports


class BranchReplaySession(ReplaySession, Inherits):
    """Serves the record of a branch. Raises `OtherTools`."""

    def __init__(self, setup: Setup, record: Record, lineage: Sequence[Ancestor], *, cold: bool) -> None:
        setup = _as_at_the_fork(setup, record.outline.notable[0].body)
        self.parent = Parent.of(recorded_ports(ReplayEnv(), record), setup, lineage)
        self.shifts = self.parent.shifts
        self.link: Branched = record.outline.of_type("Branched")[0].body
        self.edits: dict[Any, Any] = {}
        self._began = False
        super().__init__(setup, record, cold=cold)
        self.intercepted = lineage[0].record.outline.intercepted
        self.loop = BranchReplayLoop()

    def new_view(self) -> View:
        """Return a view that stands where the branch begins."""
        events, self.events = self.events, self._whole or self.events
        try:
            return BranchView.of(self, self.parent)
        finally:
            self.events = events

    def begin_entry(self) -> None:
        """Make ready to call the agent: the root's prologue is served, on a view of its own."""
        self.unwinding = self.ended = None
        self.exhausted, self.skipped, self.edits = False, None, {}
        if self._began:
            self.apply_rest()
            self.folded = self.view
        else:
            self._began, self.next_turn = True, self.link.at_turn
            self.last_turn = max(self.last_turn, self.next_turn - 1)
            self.open_turn = max(self.last_turn, self.next_turn)
            for event in self._prologue:
                self.folded.apply(event)
        left, self.left = self.left, NOTHING
        self.view = self.parent.root.session.new_view()
        self.enter_turn(-1, self.parent.root.prologue)
        self.left = left

    def drift(self, payload: DriftDetected, event: Event | None = None, wire: Any = None) -> None:
        """A message of the prologue that the code says otherwise than the root's record: judged at the fork."""
        del payload
        self.edits[("new", len(self.edits)) if event is None else self.of_root(event.sequence_number)] = wire

    def raw_of(self, reply: int) -> Any:
        return self.inherited_raw(reply) if reply < 0 else super().raw_of(reply)

    def event_at(self, sequence_number: int) -> Event:
        return self.inherited_event(sequence_number) if sequence_number < 0 else super().event_at(sequence_number)

    def judge_edits(self, events: Sequence[Event]) -> None:
        """Compare the prologue's other messages with those recorded at the fork. Raises `Difference`."""
        at = self.view.context.now_at
        told = self.link.change.get("messages") if isinstance(self.link.change, dict) else None
        by_change = {at(_in_memory(name, self.shifts)) for name in (told if isinstance(told, dict) else ())}
        put = [event for event in events if event.type == "MessageAdded" and event.body.origin == "branch"]
        placed = {inward(event, self.shifts).body.replaces: event for event in put}
        added = [event for event in put if event.body.replaces is None]
        for place, wire in self.edits.items():
            ref = at(place) if isinstance(place, int) else None
            if isinstance(place, int) and (ref is None or self.view.context.by_ref(ref).hash == item_hash(wire)):
                continue
            event = placed.pop(ref, None) if ref is not None else (added.pop(0) if added else None)
            if event is None or event.body.item_hash != item_hash(wire):
                raise self._other(event, wire, "extra" if event is None else "changed")
        for ref, event in placed.items():
            if ref is not None and ref not in by_change:
                raise self._other(event, "the message as the parent recorded it", "changed")
        if added:
            raise self._other(added[0], "not asked for", "missing")

    def _other(self, event: Event | None, wire: Any, cause: str) -> Difference:
        role = event.body.role if event is not None else str(wire.get("role", "user"))
        return Difference(self, event, wire, cause, operation=f"message {role}")


class BranchReplayLoop(ReplayLoop):
    """`t.turns()` of a replayed branch: it begins at the fork."""

    def enter(self, s: Any) -> int:
        """Begin with the turn this entry wants, all earlier ones applied."""
        s.check_served()
        s.apply_rest()
        number: int = s.next_turn
        s.view = s.folded
        if s.last_turn < number:
            s.turn = s.last_turn
            return number
        events = s.of_turn(number)
        s.turn = number
        if number == s.link.at_turn:
            s.judge_edits(events)
        s.enter_turn(number, events)
        return number


def _in_memory(name: str, shifts: Sequence[int]) -> int:
    place = parsed_place(name)
    up, number = place if isinstance(place, tuple) else (1, place)
    return number - shifts[up - 1]


def _as_at_the_fork(setup: Setup, started: TaskStarted) -> Setup:
    """The registered tools with the effect classes that their stand-ins had. Raises `OtherTools`."""
    tools = dict(setup.tools)
    other = sorted(
        name for name, told in started.tools.items() if name not in tools or tools[name].schema_hash != told.schema_hash
    )
    if other:
        raise OtherTools(f"the branch ran with other schemas of {', '.join(other)}: replay it with a journal of those")
    for name, told in started.tools.items():
        effect: Any = told.effect
        tools[name] = replace(tools[name], options=replace(tools[name].options, effect=effect))
    return Setup(tools=tools, policy=setup.policy, resolvers=setup.resolvers)
