"""One `run` from start to outcome, around the call of the agent: `prepare`, then the agent, then `conclude`."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

from trajlake.schemas.envelope import Event

from ..leases.lease import LeaseError
from ..wal.journal_errors import JournalError
from .authority import acquire, principal_of
from .enter import Known, Order, adopt_history, begin, check_order, look, recorded_outcome, see_all, take
from .errors import Busy, Cancelled, Misuse, Moved, Parked, Unwind
from .from_checkpoint import view_from
from .late import hand_over
from .leave import cancel, end_task, let_go, move, park
from .mailroom import drain
from .outcome import Outcome, Waiting
from .requests import Block, Steps
from .resume import resume
from .saving import checkpoint, forget_old, is_due
from .session import Session
from .settle import stage_of

_logger = logging.getLogger("trajlake")


def prepare(s: Session, order: Order) -> Steps:
    """Take the trajectory in hand. Returns None when the agent is to be called, else the `Outcome` without it."""
    s.loop = LiveLoop()
    known: Known = yield from look(s)
    check_order(s, known, order)
    if known.history.events and not order.close_turn:
        early = yield from _without_lease(s, known)
        if early is not None:
            return early
    known = yield from take(s, known, recovering=order.recovering)
    try:
        check_order(s, known, order)
    except BaseException:
        yield from let_go(s, None)
        raise
    s.live = True
    yield from begin(s, known, order)
    if not s.resumed:
        yield from acquire(s, principal_of(order.bearer))
    else:
        outcome = yield from resume(s, known, order)
        if outcome is not None:
            return outcome
        _reset(s)
    return None


def _without_lease(s: Session, known: Known) -> Steps:
    """The outcome that stands already, where the lease record shows that nobody came after it."""
    last: Event = known.history.events[-1]
    if known.record is None or not known.record.ended_at(last.fencing_token):
        return None
    if (yield Block(lambda: s.ports.mail.waiting(s.tenant, s.trajectory_id))):
        return None
    if known.end is not None:
        return Outcome(*recorded_outcome(s, known.end))
    if last.type != "LeaseReleased" or last.body.reason != "parked":
        return None
    seen = s.fresh()
    adopt_history(seen, known)
    see_all(seen)
    waits = _still_waiting(seen)
    return Outcome("parked", None, waits) if waits else None


def _still_waiting(s: Session) -> tuple[Waiting, ...]:
    """What a parked trajectory waits for that only mail or time can bring; () if there is something to try."""
    waits: list[Waiting] = []
    for action in s.view.actions.by_id.values():
        if action.phase == "open":
            if stage_of(s, action) != "waiting":
                return ()
            waits.append(Waiting("job", action.action_id, action.tool, "has not answered yet"))
        elif action.decision == "ask" and action.phase == "authorized" and action.approval is not None:
            approval = action.approval
            expired = approval.expires_at is not None and s.ports.env.now_us() > approval.expires_at
            if approval.decision or expired:
                return ()
            text = f"may {action.tool} ({action.action_id}) run? answer: trajlake approve|deny"
            waits.append(
                Waiting("approval", action.action_id, action.tool, f"{text} {s.trajectory_id} {approval.approval_id}",
                        approval.approval_id)
            )  # fmt: skip
    return tuple(waits)


def _reset(s: Session) -> None:
    """Make ready for re-entry: the agent sees nothing yet, its recorded operations are served."""
    s.live = False
    s.view = s.new_view()
    s.enter_turn(-1, s.of_turns(lambda turn: turn == -1))
    if s.open_turn < 0 and not any(True for _ in s.table.operations()):
        s.go_live("prologue")


class LiveLoop:
    """`t.turns()` of a run."""

    def enter(self, s: Session) -> int:
        """Begin: apply all earlier turns, and serve the open one. Returns the number of the first turn."""
        if s.turn >= 0:
            raise Misuse("t.turns() can be gone through once: keep one loop over the turns")
        if s.open_turn < 0:
            s.check_served()
            return 0
        if s.closed_turn:
            return self._after_closed(s)
        s.view = view_from(s, before_turn=s.open_turn) or s.view
        for event in s.of_turns(lambda turn: turn < s.open_turn):
            if event.sequence_number > s.view.applied:
                s.view.apply(event)
        if s.ports.checkpoints is not None:
            s.saving.turn_stands(s.view)
        s.enter_turn(s.open_turn, s.of_turns(lambda turn: turn >= s.open_turn))
        return s.open_turn

    def _after_closed(self, s: Session) -> int:
        for event in s.events:
            if event.sequence_number > s.view.applied:
                s.view.apply(event)
        s.enter_turn(s.open_turn, [])
        s.go_live(f"turn {s.open_turn + 1}")
        return s.open_turn + 1

    def next(self, s: Session, number: int) -> Steps:
        """Begin a new turn: everything recorded of the last one must have been asked for; then the mail is read."""
        s.check_usable(f"turn {number}")
        s.check_served()
        s.go_live(f"turn {number}")
        if s.ports.draining():
            yield from checkpoint(s, "move")
            raise s.unwind(Moved(f"trajectory {s.trajectory_id!r}: this process is to end"))
        s.saving.turn_begins(s.ports.now_s())
        if is_due(s):
            yield from checkpoint(s, "interval")
            yield from s.checked_barrier()
            yield from forget_old(s)
        if s.ports.checkpoints is not None:
            s.saving.turn_stands(s.view)
        s.enter_turn(number, [])
        yield from drain(s, steer=True)
        if s.cancelled():
            raise s.unwind(Cancelled(f"trajectory {s.trajectory_id!r}: cancelled"))


def conclude(s: Session, value: Any, error: BaseException | None) -> Steps:
    """The agent returned `value` or raised `error`: write what follows, let go, and return the `Outcome`."""
    if isinstance(s.unwinding, Unwind) or error is None:
        error = s.unwinding or error
    if isinstance(error, Parked):
        return (yield from park(s, tuple(error.args[0])))
    if isinstance(error, Cancelled):
        return (yield from cancel(s))
    if isinstance(error, Moved):
        return (yield from move(s))
    if isinstance(error, Busy):
        yield from hand_over(s)
    if error is not None and not s.end_shown:
        # Where an end is recorded but was not shown, nothing more is written: another worker may have gone on.
        if not isinstance(error, Busy) and s.end is None:
            with contextlib.suppress(JournalError, LeaseError):  # what the agent raised tells more
                yield from let_go(s, f"error: {type(error).__name__}")
        raise error
    if error is not None:
        _logger.warning("trajectory %s: the agent raised %s after its end", s.trajectory_id, type(error).__name__)
    if s.ended is None:
        s.ended = ("failed", None, "no turns left") if s.exhausted else ("completed", value, "")
    try:
        yield from end_task(s)
    except Exception as failed:
        if not isinstance(failed, Busy) and s.end is None:
            yield from let_go(s, f"error: {type(failed).__name__}")
        raise
    status, result, reason = s.ended
    yield from let_go(s, "ended")
    return Outcome(status, result if status == "completed" else reason)  # type: ignore[arg-type]
