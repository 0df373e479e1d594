"""The session of a branch: its ancestors' fold up to the fork, then events of its own. Nothing is copied.

In memory an inherited event has a negative number: the parent's event n is n - (fork + 1), and so on upwards, so that
order and identity hold among plain numbers. What is written names it as the format does, `[1, n]` of the parent,
`[2, n]` of its parent; an inherited action is `^1:57.0` in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from trajlake.schemas.context import item_hash
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import DriftDetected, MessageAdded, Payload, TaskStarted
from trajlake.schemas.ids import ancestor_action_id
from trajlake.schemas.state import Folder, State
from trajlake.schemas.state.budget import Budget, BudgetFold
from trajlake.schemas.state.inherit import inherit

from ..agent.context import Item
from ..agent.errors import Diverged
from ..agent.life import LiveLoop
from ..agent.rolled import NOTHING
from ..agent.session import Session, Setup
from ..agent.view import View
from ..replaying.lineage import REFS, Ancestor, inward, outward

if TYPE_CHECKING:
    from ..agent.ports import Ports


class Parent:
    """A trajectory up to the fork, as its own fold sees it; `above`: what it is itself a branch of."""

    def __init__(self, ports: Ports, setup: Setup, events: Sequence[Event], at_turn: int, above: Parent | None) -> None:
        first = events[0]
        self.above = above
        self.root: Parent = self if above is None else above.root
        if above is None:
            session = Session(ports, setup, first.tenant, first.trajectory_id)
        else:
            session = BranchSession(ports, setup, above, first.trajectory_id)
        for event in events:
            session.adopt(event)
        session.learn_roll_backs()
        session.view = session.new_view()
        for event in events:
            session.view.apply(event)
        self.tenant, self.trajectory_id = first.tenant, first.trajectory_id
        self.started: TaskStarted = first.body
        self.last, self.at_turn = events[-1], at_turn
        self.session, self.view = session, session.view
        self.prologue = session.of_turns(lambda turn: turn == -1)
        self.shifts = [self.last.sequence_number + 1]
        self.shifts += [self.shifts[0] + more for more in (above.shifts if above is not None else ())]

    @property
    def state(self) -> State:
        return self.view.state

    @classmethod
    def of(cls, ports: Ports, setup: Setup, lineage: Sequence[Ancestor]) -> Parent:
        """Return the last of the ancestors, each folded onto the one above it."""
        made: Parent | None = None
        for one in lineage:
            made = cls(ports, setup, one.events, one.at_turn, made)
        assert made is not None
        return made


class Inherits:
    """What every session of a branch does alike, live or replayed: it sees its ancestors' events beside its own."""

    parent: Parent
    shifts: list[int]

    def inherited_raw(self, reply: int) -> Any:
        """The raw text of an inherited reply, by its number in memory."""
        return self.parent.session.raw_of(reply + self.shifts[0])

    def inherited_event(self, number: int) -> Event:
        """An inherited event, by its number in memory."""
        return self.parent.session.event_at(number + self.shifts[0])

    def of_root(self, number: int) -> int:
        """The number in memory of an event of the root."""
        return number - self.shifts[-1]


class BranchSession(Session, Inherits):
    """A live session that begins where its parent stood before turn `parent.at_turn`."""

    is_branch = True

    def __init__(self, ports: Ports, setup: Setup, parent: Parent, trajectory_id: str) -> None:
        self.parent, self.shifts = parent, parent.shifts
        super().__init__(ports, setup, parent.tenant, trajectory_id)
        self.edits: dict[Any, Any] = {}

    def fresh(self) -> Session:
        return BranchSession(self.ports, self.setup, self.parent, self.trajectory_id)

    def new_view(self) -> View:
        """Return a view that stands where the branch begins."""
        return BranchView.of(self, self.parent)

    def make(self, payload: Payload, *, turn: int | None = None) -> Event:
        """Build the next event; inherited events are named as the format names an ancestor's."""
        fields = REFS.get(type(payload), ())
        changed = {name: outward(getattr(payload, name), self.shifts) for name in fields}
        return super().make(msgspec.structs.replace(payload, **changed) if changed else payload, turn=turn)

    def drift(self, payload: DriftDetected, event: Event | None = None, wire: Any = None) -> None:
        """A message of the prologue that the code now says otherwise: in a branch the new one takes its place."""
        del payload
        place = ("new", len(self.edits)) if event is None else self.of_root(event.sequence_number)
        self.edits[place] = wire

    def begin_prologue(self) -> None:
        """Make ready to call the agent: its prologue is served from the root's, on a view of its own."""
        root, left = self.parent.root, self.left
        self.live = False
        self.open_turn = max(self.open_turn, self.parent.at_turn)
        self.view, self.left = root.session.new_view(), NOTHING
        self.enter_turn(-1, root.prologue)
        self.left = left

    def raw_of(self, reply: int) -> Any:
        return self.inherited_raw(reply) if reply < 0 else super().raw_of(reply)

    def event_at(self, sequence_number: int) -> Event:
        return self.inherited_event(sequence_number) if sequence_number < 0 else super().event_at(sequence_number)


class BranchLoop(LiveLoop):
    """`t.turns()` of a branch: it begins at the turn of the fork, or at its open turn."""

    def enter(self, s: Any) -> int:
        """Take the inherited view and what the branch did since; begin the turn, and put changed messages in place."""
        s.check_served()
        number: int = s.open_turn
        s.view = s.new_view()
        for event in s.of_turns(lambda turn: turn < number):
            s.view.apply(event)
        if s.ports.checkpoints is not None:
            s.saving.turn_stands(s.view)
        s.enter_turn(number, s.of_turns(lambda turn: turn >= number))
        nothing = s.table.missing() is None
        if nothing:
            s.go_live(f"turn {number}")
        if number == s.parent.at_turn:
            for place, wire in s.edits.items():
                change_item(s, place, wire, recorded=not nothing)
        return number


def change_item(s: Any, place: Any, wire: Any, *, recorded: bool) -> None:
    """Record a message of the branch's own, and put it in the place of an inherited item (None: leave it at the end).

    A text takes the place of the item's own text. Left out is what stands there already, and an item that was
    compacted away before: no call after the fork is shown it. `recorded`: the turn went on without it.
    """
    ref = s.view.context.now_at(place) if isinstance(place, int) else None
    if isinstance(place, int) and ref is None:
        return
    if ref is not None:
        wire = with_text(s.view.context.by_ref(ref).wire, wire) if isinstance(wire, str) else wire
    digest = item_hash(wire)
    if digest == (s.view.context.by_ref(ref).hash if ref is not None else None) or (ref is None and _added(s, digest)):
        return
    role = str(wire.get("role", "user"))
    if recorded:
        raise Diverged(s.turn, f"message {role}", "nothing", wire, "extra")
    s.record_at_once(MessageAdded(role=role, wire=wire, item_hash=digest, origin="branch", replaces=ref))


def _added(s: Any, digest: str) -> bool:
    """Whether an earlier entry of this branch added this message already."""
    return any(
        event.type == "MessageAdded" and event.body.origin == "branch" and event.body.item_hash == digest
        for event in s.events
    )


def with_text(wire: Any, text: str) -> Any:
    """Return a message with another text; of one with a single block, the block's."""
    blocks = wire.get("content")
    if isinstance(blocks, list) and len(blocks) == 1 and isinstance(blocks[0], dict):
        name = "content" if "content" in blocks[0] else "text"
        return {**wire, "content": [{**blocks[0], name: text}]}
    return {**wire, "content": text}


class BranchView(View):
    """The parent's fold, renumbered, and the branch's own events on it."""

    shifts: list[int]

    @classmethod
    def of(cls, s: Any, parent: Parent) -> BranchView:
        """Return the view a branch starts from: what was agreed, done and said; no right, spend or approval."""
        view = cls(s.tenant, s.trajectory_id, inline=s.inline, hash_call=s.hash_of_proposal, left=s.left)
        view._folder = Folder(inherit(parent.state, s.tenant, s.trajectory_id), s.events if s.left.covered else ())
        view.shifts = parent.shifts
        shift = parent.shifts[0]
        before = parent.view
        for item in before.context.items:
            action_id = ancestor_action_id(item.action_id) if item.action_id else ""
            view.context.inherit(Item(item.ref - shift, item.hash, item.wire, action_id))
        view.context.replaced = {ref - shift: by - shift for ref, by in before.context.replaced.items()}
        if before.context.built is not None:
            built, refs = before.context.built
            view.context.built = built - shift, [ref - shift for ref in refs]
        for action in before.actions.by_id.values():
            done = bool(action.outcome)
            moved = msgspec.structs.replace(
                action, action_id=ancestor_action_id(action.action_id), approval=None,
                reply=None if action.reply is None else action.reply - shift,
                authorized_seq=action.authorized_seq if done else -1, intent=action.intent if done else None,
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
        super().apply(inward(event, self.shifts))
        self._unfolded[-1] = event
