"""fold(state, events) -> state: pure, no I/O, the same bytes wherever the log is cut.

Source: design/events.md, *State* and *Given up*.

**Roll-backs and the cut.** A fold first asks `given_up` about its events, then makes one pass that leaves those
out (their spend counts). So the state never holds anything given up and keeps nothing to undo with. For every
cut that lies in no roll-back of the suffix, folding the suffix onto the state at the cut gives the bytes of
folding everything. A cut *inside* one, between its `to` and its event, is a state of turns that have since been
given up; a checkpoint there is void. Folding such a suffix raises `RolledBackPast`, which names `to`: take the
checkpoint saved at `to` (it is never void, for a later roll-back covers an earlier one) and the events after
it. That is again one pass, and no state that a roll-back voided can ever be gone on from by mistake.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from ..context import Builds
from ..envelope import Event
from ..errors import InvalidEvent, SchemaError
from ..history import BY_MAIL, RollBack, came_by_mail, given_up, merged, roll_backs
from . import fold_action, fold_intent
from .builder import Builder
from .records import Action, State

Fold = Callable[[Builder, Event], None]

FOLDS: Final[dict[str, Fold]] = {
    "TaskStarted": fold_intent.task_started,
    "LeaseAcquired": fold_intent.lease_acquired,
    "LeaseReleased": fold_intent.lease_released,
    "Resumed": fold_intent.resumed,
    "ResumeRefused": fold_intent.resume_refused,
    "RolledBack": fold_intent.rolled_back,
    "CancelRequested": fold_intent.cancel_requested,
    "TaskEnded": fold_intent.task_ended,
    "Branched": fold_intent.branched,
    "GoalRevised": fold_intent.goal_revised,
    "ConstraintAccepted": fold_intent.constraint_accepted,
    "ConstraintWithdrawn": fold_intent.constraint_withdrawn,
    "AssumptionCommitted": fold_intent.assumption_committed,
    "AssumptionRetracted": fold_intent.assumption_retracted,
    "ObligationOpened": fold_intent.obligation_opened,
    "ObligationDischarged": fold_intent.obligation_discharged,
    "PlanCommitted": fold_intent.plan_committed,
    "ObservationCached": fold_intent.observation_cached,
    "ObservationInvalidated": fold_intent.observation_invalidated,
    "ContextBuilt": fold_action.context_built,
    "ModelReplied": fold_action.model_replied,
    "Compacted": fold_action.compacted,
    "VarSet": fold_action.var_set,
    "AuthorityAcquired": fold_action.authority_acquired,
    "AuthorityEnded": fold_action.authority_ended,
    "Authorized": fold_action.authorized,
    "ApprovalRequested": fold_action.approval_requested,
    "ApprovalResolved": fold_action.approval_resolved,
    "ToolIntent": fold_action.tool_intent,
    "ToolResult": fold_action.tool_result,
    "ToolSettled": fold_action.tool_settled,
    "LateResult": fold_action.late_result,
    "CheckpointSaved": fold_action.checkpoint_saved,
    "DriftDetected": fold_action.drift_detected,
}
NOT_FOLDED: Final = frozenset(
    ("MessageAdded", "InputRead", "BudgetRevised", "RewardAssigned", "Annotated", "SourceKept")
)
"""Types that change no more than number, hash, turn, mail and budget."""


class RolledBackPast(SchemaError):
    """The state is one that a roll-back gave up: fold from the checkpoint saved at `to`, or from an older state."""

    def __init__(self, to: int, sequence_number: int) -> None:
        super().__init__(
            f"state at event {sequence_number} was given up by a roll-back to {to}: fold from the checkpoint at {to}"
        )
        self.to = to
        self.sequence_number = sequence_number


class Folder:
    """An incremental fold: hold one and feed it events as they are served or written. Not for several threads.

    The cost of `apply` and `extend` is that of the new events; `state()` shares what did not change. `ahead` are
    the events after `state` that are known already: fed one by one, they are folded with the roll-backs among
    them in mind. Raises `RolledBackPast` when one of those voids `state`.
    """

    def __init__(self, state: State, ahead: Sequence[Event] = ()) -> None:
        self._builder = Builder(state)
        self._ranges: dict[int, RollBack] = {}
        self._left_out: frozenset[int] = frozenset()
        self._spans: list[tuple[int, int]] = []
        self._expect(ahead)

    @property
    def sequence_number(self) -> int:
        """The last event folded."""
        return self._builder.sequence_number

    @property
    def builds(self) -> Builds:
        """The contexts so far, live: for reading only."""
        return self._builder.context.builds

    def action(self, action_id: str) -> Action | None:
        """Return one action as it stands, without freezing the state."""
        return self._builder.actions.get(action_id)

    def apply(self, event: Event) -> None:
        """Fold the next event. A `RolledBack` that was not `ahead` and gives up applied events raises
        `RolledBackPast`: go on with a folder over the checkpoint at its `to`.
        """
        self.extend((event,))

    def extend(self, events: Sequence[Event]) -> None:
        """Fold canonical events that follow on, with the roll-backs among them.

        Raises `RolledBackPast` (nothing is folded then), `InvalidEvent` for another trajectory's event, a
        number out of order, or a body that is erased or cannot be folded (the folder is then of no more use).
        """
        self._expect(events)
        builder = self._builder
        if not self._spans:
            for event in events:
                _fold_one(builder, event)
            return
        firsts = [first for first, _ in self._spans]
        for event in events:
            number = event.sequence_number
            place = bisect_right(firsts, number) - 1
            inside = place >= 0 and number <= self._spans[place][1]
            _fold_one(builder, event, given_up=number in self._left_out, counted=inside)

    def state(self) -> State:
        """Return the state now. Later events do not change it."""
        return self._builder.frozen()

    def _expect(self, events: Sequence[Event]) -> None:
        """Learn what the roll-backs among `events` give up, unless they are known."""
        fresh = [r for r in roll_backs(events) if r.sequence_number not in self._ranges]
        if not fresh:
            return
        builder = self._builder
        void = [r.to for r in fresh if r.to < builder.sequence_number and r.to < r.last]
        if void:
            raise RolledBackPast(min(void), builder.sequence_number)
        with_intent = {one.action_id for one in builder.actions.read.values() if one.intent is not None}
        self._left_out |= given_up(events, with_intent)
        self._ranges |= {r.sequence_number: r for r in fresh}
        self._spans = merged(self._ranges.values())


def fold(state: State, events: Iterable[Event]) -> State:
    """Return the state after canonical `events`, which follow on `state`. Errors as for `Folder.extend`."""
    folder = Folder(state)
    folder.extend(events if isinstance(events, (list, tuple)) else list(events))
    return folder.state()


def _fold_one(builder: Builder, event: Event, *, given_up: bool = False, counted: bool = False) -> None:
    _follow_on(builder, event)
    builder.budget.apply(event)
    if given_up:
        if event.type == "ToolIntent":
            fold_action.spend_approval(builder, event)
        return
    kind = event.type
    if event.turn > builder.turn and not counted and kind != "RolledBack":
        builder.turn, builder.turn_start = event.turn, event.sequence_number
    if kind in BY_MAIL and came_by_mail(event):
        builder.mail[event.body.mail.mail_id] = event.sequence_number
    folded = FOLDS.get(kind)
    builder.counted = counted
    if folded is not None:
        folded(builder, event)
    elif kind not in NOT_FOLDED:
        raise InvalidEvent(f"event {event.sequence_number}: type {kind!r} is not known to this version")


def _follow_on(builder: Builder, event: Event) -> None:
    number = event.sequence_number
    if number != builder.sequence_number + 1:
        raise InvalidEvent(f"event {number} does not follow event {builder.sequence_number}: fold canonical history")
    if event.trajectory_id != builder.trajectory_id or event.tenant != builder.tenant:
        raise InvalidEvent(
            f"event {number} is of {event.tenant}/{event.trajectory_id}, the state of "
            f"{builder.tenant}/{builder.trajectory_id}"
        )
    if event.payload is None:
        raise InvalidEvent(f"event {number} ({event.type}) of {event.trajectory_id}: erased, it cannot be folded")
    builder.sequence_number, builder.head_hash = number, event.hash
    builder.recorded_at = event.recorded_at


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(State)


def state_bytes(state: State) -> bytes:
    """Return the one JSON text of a state: a function of its value alone."""
    return _encoder.encode(state)


def state_from(text: bytes) -> State:
    """Return the state that `state_bytes` wrote. Raises `InvalidEvent` for other text."""
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidEvent(f"state: {error}") from None


def state_hash(state: State) -> str:
    """Return sha256 (hex) of `state_bytes`."""
    return hashlib.sha256(state_bytes(state)).hexdigest()
