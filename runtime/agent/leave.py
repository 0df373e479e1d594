"""Letting go of a trajectory: the end, a pause, or a failure of the agent's code."""

from __future__ import annotations

import contextlib
from typing import Any

from trajlake.schemas import values
from trajlake.schemas.events import EndStatus, LeaseReleased, TaskEnded

from ..leases.lease import Head, LeaseLost
from .errors import Busy, Misuse
from .outcome import Outcome, Waiting
from .requests import Block, Steps
from .saving import checkpoint, forget_old
from .session import Session
from .settle import in_doubt


def end_task(s: Session) -> Steps:
    """Write the end that the agent asked for (`s.ended`), durable and shown only after a lease check."""
    assert s.ended is not None
    if s.end is not None:
        if not s.end_shown:
            raise Busy(f"trajectory {s.trajectory_id!r}: its end could not be shown to be ours; run it again to see")
        return
    status, result, reason = s.ended
    s.check_served()
    s.go_live("end")
    if status == "completed" and in_doubt(s):
        s.ended = None
        raise Misuse(f"trajectory {s.trajectory_id!r}: an effect is in doubt; settle it before the task is completed")
    yield from checkpoint(s, "end")
    yield from s.record(
        TaskEnded(status=_status(status), result=values.to_tree(result), reason=values.plain_text(reason))
    )
    yield from s.checked_barrier()
    s.end_shown = True
    yield from forget_old(s)


def let_go(s: Session, reason: str | None) -> Steps:
    """Write `LeaseReleased`, wait until it is durable, and release the lease; `reason` None: no event was written."""
    held = s.held
    if held is None or held.lost:
        return
    head: Head | None = None
    if reason is not None:
        # Also where the agent raised in its prologue, on re-entry: the event stands after those of the open turn.
        event = s.append(
            LeaseReleased(token=s.token, reason=values.plain_text(reason)[:500]), turn=max(s.turn, s.open_turn)
        )
        yield from s.barrier()
        head = Head(sequence_number=event.sequence_number, hash=event.hash.hex())
    s.held = None
    with contextlib.suppress(LeaseLost):  # taken over meanwhile: what was shown was shown before
        yield Block(lambda: s.ports.keeper.release(held, head))


def abandon(s: Session) -> None:
    """Whatever happened: stop renewing a lease that was not released. It runs out, or falls with this process."""
    held, s.held = s.held, None
    if held is not None and not held.lost:
        s.ports.keeper.forget(held)


def ask_for_end(s: Session, status: str, result: Any, reason: str) -> None:
    """Note the end that the agent asks for. Raises `InvalidValue` for a result that cannot be recorded."""
    s.check_usable("finish" if status == "completed" else "fail")
    values.to_tree(result)
    s.ended = status, result, reason


def park(s: Session, waits: tuple[Waiting, ...]) -> Steps:
    """Release the worker: everything is durable, the lease is let go; mail, time or a person brings it on."""
    yield from checkpoint(s, "pause")
    yield from s.checked_barrier()
    yield from forget_old(s)
    yield from let_go(s, "parked")
    return Outcome("parked", None, waits)


def move(s: Session) -> Steps:
    """Let go of a trajectory that another worker is to go on with; it stands at the end of a turn."""
    yield from s.checked_barrier()
    yield from forget_old(s)
    yield from let_go(s, "moved")
    return Outcome("parked", None, (Waiting("move", "", "", f"trajlake resume {s.trajectory_id}"),))


def cancel(s: Session) -> Steps:
    """End as cancelled, with the reason of whoever asked."""
    from .spawn import cancel_children  # which reads mail, which is what ends here

    request = next((event.body.because for event in reversed(s.events) if event.type == "CancelRequested"), "")
    yield from cancel_children(s, request)
    s.live = True
    s.table.clear()
    s.ended = ("cancelled", None, request)
    yield from end_task(s)
    yield from let_go(s, "ended")
    return Outcome("cancelled", request)


def _status(status: str) -> EndStatus:
    assert status in ("completed", "failed", "cancelled")
    return status  # type: ignore[return-value]
