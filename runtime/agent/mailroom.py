"""Mail at operation boundaries: each item becomes its event once, and is deleted only when that is safe."""

from __future__ import annotations

from functools import partial

import msgspec

from trajlake.schemas.events import CancelRequested, Payload, ToolSettled
from trajlake.schemas.values import plain_text

from ..leases.generations import may_delete_mail
from ..mailbox.mail import MailItem
from ..mailbox.mail_events import Drop, event_of
from .errors import Cancelled
from .requests import Block, Steps
from .session import Session
from .texts import DELIVERED_VERSION, delivered


def boundary(s: Session, operation: str) -> Steps:
    """Where an operation that runs begins: everything recorded is served, then the mail is read.

    Raises `Cancelled` when somebody asked to stop.
    """
    s.go_live(operation)
    if s.ancestors:
        yield from _cancelled_above(s)
    if not _is_surely_empty(s):
        yield from _take_in(s, steer=False)
    if s.cancelled():
        raise s.unwind(Cancelled(f"trajectory {s.trajectory_id!r}: cancelled"))


def drain(s: Session, *, steer: bool = False) -> Steps:
    """Turn waiting items into events, make them durable, check the lease, then delete the items. Returns how many.

    A steer stays where it is unless `steer`: it is read only where a turn begins.
    """
    if s.ancestors:
        yield from _cancelled_above(s)
    if _is_surely_empty(s):
        return 0
    return (yield from _take_in(s, steer=steer))


def _take_in(s: Session, *, steer: bool) -> Steps:
    items: list[MailItem] = yield Block(lambda: s.ports.mail.waiting(s.tenant, s.trajectory_id))
    taken = [item for item in items if steer or item.kind != "steer"]
    if not taken:
        return 0
    for item in taken:
        payload = _event_of(s, item)
        if payload is not None:
            yield from s.record(payload)
    yield from s.checked_barrier()
    assert may_delete_mail(event_durable=True, replica_acknowledged=None, lease_checked_after=True)
    for item in taken:
        yield Block(partial(s.ports.mail.delete, item))
    return len(taken)


def _is_surely_empty(s: Session) -> bool:
    """Look before asking: a store that can tell in no time says `is_empty`, so no operation waits for a thread."""
    is_empty = getattr(s.ports.mail, "is_empty", None)
    return is_empty is not None and bool(is_empty(s.tenant, s.trajectory_id))


def _cancelled_above(s: Session) -> Steps:
    """A child that runs within its parent's turn reads the parent's mail for a request to stop: nobody else can."""
    for ancestor in () if s.cancelled() else s.ancestors:
        items: list[MailItem] = yield Block(partial(s.ports.mail.waiting, s.tenant, ancestor))
        request = next((item for item in items if item.kind == "cancel"), None)
        if request is not None:
            because = str(request.body.get("because") or "")
            yield from s.record(CancelRequested(because=plain_text(because or f"trajectory {ancestor} is cancelled")))
            return


def _event_of(s: Session, item: MailItem) -> Payload | None:
    """Return the event that an item becomes, with what only this worker knows; None if it is dropped."""
    may = not getattr(s.setup.policy, "approver_not_principal", False)
    payload = event_of(item, s.view.state, approver_may_be_principal=may)
    if isinstance(payload, Drop):
        return None
    if isinstance(payload, ToolSettled) and not payload.has_output:
        text = delivered(payload.verdict, payload.evidence, payload.because)
        return msgspec.structs.replace(payload, delivered=text, delivered_version=DELIVERED_VERSION)
    return payload
