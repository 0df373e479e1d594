"""The session of a branch: its parent's fold up to the fork, then events of its own. Nothing is copied.

In memory an inherited event has a negative number: n - (fork + 1), so that order and identity hold among plain
numbers. What is written names it as the format does, `[1, n]`; an inherited action is `^1:57.0` in both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trajlake.schemas.context import item_hash
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import (
    Compacted,
    ContextBuilt,
    DriftDetected,
    GoalRevised,
    MessageAdded,
    Payload,
    PlanCommitted,
    ToolIntent,
    ToolResult,
)
from trajlake.schemas.ids import ancestor_action_id
from trajlake.schemas.state import Folder, State
from trajlake.schemas.state.budget import Budget, BudgetFold
from trajlake.schemas.state.inherit import inherit

from .agent.context import Item
from .agent.life import LiveLoop
from .agent.session import Session, Setup
from .agent.view import View

if TYPE_CHECKING:
    from .agent.ports import Ports

REFS: Final[dict[type, tuple[str, ...]]] = {
    ContextBuilt: ("base", "append"), Compacted: ("reply",), GoalRevised: ("replaces",), PlanCommitted: ("replaces",),
    ToolIntent: ("reply", "goal"), ToolResult: ("replays",),
}  # fmt: skip
"""Fields of a payload that name events."""


class Parent:
    """A trajectory up to the fork, as its own fold sees it."""

    def __init__(self, ports: Ports, setup: Setup, events: list[Event], at_turn: int) -> None:
        first = events[0]
        session = Session(ports, setup, first.tenant, first.trajectory_id)
        for event in events:
            session.adopt(event)
        session.learn_roll_backs()
        session.view = session.new_view()
        for event in events:
            session.view.apply(event)
        self.tenant, self.trajectory_id = first.tenant, first.trajectory_id
        self.started, self.last, self.at_turn = first.body, events[-1], at_turn
        self.session, self.view = session, session.view
        self.prologue = session.of_turns(lambda turn: turn == -1)

    @property
    def state(self) -> State:
        return self.view.state


class BranchSession(Session):
    """A live session that begins where its parent stood before turn `parent.at_turn`."""

    def __init__(self, ports: Ports, setup: Setup, parent: Parent, trajectory_id: str) -> None:
        self.parent: Parent | None = None
        super().__init__(ports, setup, parent.tenant, trajectory_id)
        self.parent = parent
        self.shift = parent.last.sequence_number + 1
        self.edits: dict[int, Any] = {}
        self.inherited = BranchView.of(self, parent)
        self.view = self.inherited

    def make(self, payload: Payload, *, turn: int | None = None) -> Event:
        """Build the next event; inherited events are named as the format names an ancestor's."""
        fields = REFS.get(type(payload), ())
        changed = {name: _outward(getattr(payload, name), self.shift) for name in fields}
        return super().make(msgspec.structs.replace(payload, **changed) if changed else payload, turn=turn)

    def drift(self, payload: DriftDetected, event: Event | None = None, wire: Any = None) -> None:
        """A message of the prologue that the code now says otherwise: in a branch the new one takes its place."""
        del payload
        self.edits[-len(self.edits) - 1 if event is None else event.sequence_number] = wire

    def begin_prologue(self) -> None:
        """Make ready to call the agent: its prologue is served from the parent's, on a view of its own."""
        assert self.parent is not None
        parent = self.parent.session
        self.live = False
        self.view = parent.new_view()
        self.open_turn = self.parent.at_turn
        self.enter_turn(-1, self.parent.prologue)

    def raw_of(self, reply: int) -> Any:
        if reply < 0 and self.parent is not None:
            return self.parent.session.raw_of(reply + self.shift)
        return super().raw_of(reply)


class BranchLoop(LiveLoop):
    """`t.turns()` of a branch: it begins, live, at the turn of the fork."""

    def enter(self, s: Any) -> int:
        """Take the inherited view, begin the turn of the fork, and put changed messages in their places."""
        s.check_served()
        number: int = s.parent.at_turn
        s.view = s.inherited
        s.enter_turn(number, [])
        s.go_live(f"turn {number}")
        for place, wire in s.edits.items():
            change_item(s, place - s.shift if place >= 0 else None, wire)
        return number


def change_item(s: BranchSession, ref: int | None, wire: Any) -> None:
    """Record a message of the branch's own, and put it in the place of an inherited item (None: leave it at the end).

    A text takes the place of the item's own text. An item that the parent compacted away before is left: no call
    after the fork is shown it.
    """
    if ref is not None and ref not in s.view.context.refs():
        return
    if isinstance(wire, str):
        assert ref is not None
        wire = with_text(s.view.context.by_ref(ref).wire, wire)
    role = str(wire.get("role", "user"))
    event = s.record_at_once(MessageAdded(role=role, wire=wire, item_hash=item_hash(wire)))
    if ref is not None:
        s.view.context.take_place(ref, event.sequence_number)


def with_text(wire: Any, text: str) -> Any:
    """Return a message with another text; of one with a single block, the block's."""
    blocks = wire.get("content")
    if isinstance(blocks, list) and len(blocks) == 1 and isinstance(blocks[0], dict):
        name = "content" if "content" in blocks[0] else "text"
        return {**wire, "content": [{**blocks[0], name: text}]}
    return {**wire, "content": text}


class BranchView(View):
    """The parent's fold, renumbered, and the branch's own events on it."""

    shift: int

    @classmethod
    def of(cls, s: BranchSession, parent: Parent) -> BranchView:
        """Return the view a branch starts from: what was agreed, done and said; no right, spend or approval."""
        view = cls(s.tenant, s.trajectory_id, inline=s.inline, hash_call=s.hash_of_proposal)
        view._folder = Folder(inherit(parent.state, s.tenant, s.trajectory_id))
        shift = view.shift = s.shift
        before = parent.view
        for item in before.context.items:
            action_id = ancestor_action_id(item.action_id) if item.action_id else ""
            view.context.inherit(Item(item.ref - shift, item.hash, item.wire, action_id))
        if before.context.built is not None:
            built, refs = before.context.built
            view.context.built = built - shift, [ref - shift for ref in refs]
        for action in before.actions.by_id.values():
            moved = replace(
                action, action_id=ancestor_action_id(action.action_id), approval=None,
                reply=None if action.reply is None else action.reply - shift,
            )  # fmt: skip
            view.actions.inherit(moved)
        view.vars, view.constraints = dict(before.vars), dict(before.constraints)
        view.goal_seq = None if before.goal_seq is None else before.goal_seq - shift
        view.plan_seq = None if before.plan_seq is None else before.plan_seq - shift
        view.system_no = before.system_no
        view.budget = BudgetFold(Budget(turn=parent.at_turn - 1))
        return view

    def apply(self, event: Event) -> None:
        """Take in one of the branch's own events."""
        super().apply(_inward(event, self.shift))
        self._unfolded[-1] = event


def _outward(ref: Any, shift: int) -> Any:
    if isinstance(ref, tuple):
        return tuple(_outward(one, shift) for one in ref)
    return (1, ref + shift) if isinstance(ref, int) and ref < 0 else ref


def _inward(event: Event, shift: int) -> Event:
    fields = REFS.get(type(event.body), ())
    changed = {}
    for name in fields:
        value = getattr(event.body, name)
        moved = tuple(_down(one, shift) for one in value) if name == "append" else _down(value, shift)
        if moved != value:
            changed[name] = moved
    if not changed:
        return event
    copy = msgspec.structs.replace(event)
    copy.__dict__["_body"] = msgspec.structs.replace(event.body, **changed)
    return copy


def _down(ref: Any, shift: int) -> Any:
    return ref[1] - shift if isinstance(ref, tuple) else ref
