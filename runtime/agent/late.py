"""What a worker that was taken over still knows: results of calls that its successor may hold in doubt, sent as mail.

Its own events no longer count. A result by mail is keyed by its action: it closes one that is still open, and is kept
as refused where something else decided meanwhile (`mail_events`).
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

from trajlake.schemas import values
from trajlake.schemas.envelope import Event
from trajlake.schemas.history import canonical

from ..leases.lease import LeaseError
from ..mailbox.mail import MailError, MailItem
from ..wal.journal_errors import JournalError
from .ports import Found
from .requests import Block, Steps
from .session import Session


def hand_over(s: Session) -> Steps:
    """Post the results that this worker has and the record lacks. Does nothing where nobody came after it.

    Best effort: what cannot be read or posted is settled as if this worker had died.
    """
    with contextlib.suppress(JournalError, LeaseError, MailError, OSError):
        yield from _hand_over(s)


def _hand_over(s: Session) -> Steps:
    held = s.held
    mine = [event for event in s.events if held is not None and _is_own_answer(s, event, held.token)]
    if held is None or not mine:
        return
    record = yield Block(partial(s.ports.leases.read, s.tenant, s.trajectory_id))
    if record is None or record.highest_token <= held.token:
        return
    found: Found = yield Block(partial(s.ports.log.read, s.tenant, s.trajectory_id, record))
    events = canonical(found.events).events
    sent = {event.body.action_id for event in events if event.type == "ToolIntent"}
    decided = {event.body.action_id for event in events if event.type in ("ToolResult", "ToolSettled")}
    for event in mine:
        if event.body.action_id in sent - decided:
            yield Block(partial(s.ports.mail.post, _item(s, event)))


def _is_own_answer(s: Session, event: Event, token: int) -> bool:
    """Whether an event is the answer of a call that this worker sent out, and that reaches outside."""
    if event.type != "ToolResult" or event.fencing_token != token or event.body.status not in ("ok", "error"):
        return False
    tool = s.setup.tools.get(event.body.tool)
    return event.body.action_id in s.sends and tool is not None and tool.effect in ("idempotent", "external")


def _item(s: Session, event: Event) -> MailItem:
    answer = event.body
    body: dict[str, Any] = {"status": "ok", "output": s.inline(answer.output)}
    if answer.status == "error":
        body = {"status": "error", "error": s.inline(answer.error)}
    return MailItem(
        id=s.ports.env.random_bytes(16).hex(), tenant=s.tenant, trajectory_id=s.trajectory_id, kind="result",
        subject=answer.action_id, body=body, actor=values.plain_text(s.ports.worker),
        actor_known_by="the worker that sent the call", posted_at=s.ports.env.now_us(),
    )  # fmt: skip
