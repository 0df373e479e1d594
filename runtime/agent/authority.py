"""Authority at a resume: a checkpoint is evidence, not a credential. Source: design/agent.md, *Resume*.

Crossed, and so to be approved again by a person: the principal's expiry has passed; the session it was bound to is not
known to be there any more (a resolver for its prefix says so, or nobody can); with `policy.resume_authority` "always",
any of the budget was spent. Whoever runs the trajectory may instead present the same principal anew. Budget never comes
back. That the policy in force denies or asks, and that an unused approval expired, is found when a call is dispatched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final

from trajlake.schemas.events import ApprovalRequested, AuthorityAcquired, AuthorityEnded
from trajlake.schemas.keys import arguments_hash
from trajlake.schemas.state import Authority

from .enter import refuse
from .errors import Misuse, ResumeRefused
from .outcome import Waiting
from .requests import Done, Steps
from .session import Session
from .table import RESUME

PRINCIPAL: Final = "principal"
"""The authority that the principal itself brings."""


@dataclass(frozen=True, slots=True)
class Principal:
    """In whose name a trajectory runs. `expires_at` is µs UTC; `session` what the authority is bound to."""

    id: str | None = None
    expires_at: int | None = None
    session: str = ""


def principal_of(given: Any) -> Principal:
    """Return what `principal=` of `run` says: a name, or {"id", "expires_at", "session"}. Never a credential."""
    if given is None or isinstance(given, str):
        return Principal(given)
    if isinstance(given, Principal):
        return given
    if not isinstance(given, Mapping) or not isinstance(given.get("id"), str) or set(given) - _FIELDS:
        raise Misuse("journal.run: principal is a name, or a mapping of id, expires_at and session")
    at = given.get("expires_at")
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise Misuse("journal.run: principal expires_at needs a time zone")
        at = round(at.timestamp() * 1e6)
    elif isinstance(at, int | float):
        at = round(at * 1e6)
    return Principal(given["id"], at, str(given.get("session") or ""))


_FIELDS: Final = {"id", "expires_at", "session"}


def acquire(s: Session, principal: Principal) -> Steps:
    """Record the authority that a principal brings, where it ends by itself: by time, or with a session."""
    if principal.id is None or (principal.expires_at is None and not principal.session):
        return
    yield from s.record(
        AuthorityAcquired(
            authority_id=PRINCIPAL, principal=principal.id, bound_to=principal.session, expires_at=principal.expires_at
        )
    )


def check_authority(s: Session, principal: Principal) -> Steps:
    """Return (ids of approvals that a person gave for this resume, what a person must say first)."""
    held = s.view.state.execution.authorities
    known = held.get(PRINCIPAL)
    if known is not None and known.principal == principal.id and _is_new(known, principal):
        yield from s.record(AuthorityEnded(authority_id=PRINCIPAL, because="presented anew"))
        yield from acquire(s, principal)
        held = s.view.state.execution.authorities
    why: list[str] = []
    for authority in held.values():
        if authority.ended is None:
            why += yield from _crossed(s, authority)
    if s.rules.always_asks and s.view.budget.frozen().spent:
        why.append("some of the budget was spent")
    if not why:
        return (), ()
    return (yield from _ask(s, "; ".join(why)))


def _is_new(known: Authority, principal: Principal) -> bool:
    later = principal.expires_at is not None and (known.expires_at or 0) < principal.expires_at
    return later or (bool(principal.session) and principal.session != known.bound_to)


def _crossed(s: Session, authority: Authority) -> Steps:
    name = f"{authority.authority_id} {authority.principal}".strip()
    if authority.expires_at is not None and s.ports.env.now_us() > authority.expires_at:
        return [f"{name}: its authority has expired"]
    if not authority.bound_to:
        return []
    ask = next((f for prefix, f in s.setup.resolvers.items() if authority.bound_to.startswith(prefix)), None)
    if ask is not None:
        done: Done = yield from s.run_body(partial(ask, authority.bound_to), of=ask)
        if done.error is None and done.value == "in_force":
            return []
    return [f"{name}: the session it was bound to is gone"]


def _ask(s: Session, why: str) -> Steps:
    """Find a person's answer for this resume, or put the question (once)."""
    spent = {one for event in s.events if event.type == "Resumed" for one in event.body.reapproved}
    asked = [one for one in s.view.state.execution.approvals.values() if one.tool == RESUME]
    latest = asked[-1] if asked else None
    if latest is not None and latest.approval_id not in spent:
        if latest.decision == "granted":
            return (latest.approval_id,), ()
        if latest.decision == "denied":
            yield from refuse(s, ResumeRefused("authority", f"a person denied it: {why}"))
        approval_id, action_id = latest.approval_id, latest.action_id
    else:
        action_id = f"{s.next_seq}.0"
        approval_id = f"resume:{s.next_seq}"
        yield from s.record(
            ApprovalRequested(
                approval_id=approval_id, action_id=action_id, tool=RESUME,
                arguments_hash=arguments_hash({"why": why}), requester=s.principal, question=f"may it go on? {why}",
            )
        )  # fmt: skip
    text = f"may it go on? {why}; answer: trajlake approve|deny {s.trajectory_id} {approval_id}"
    return (), (Waiting("approval", action_id, RESUME, text, approval_id),)
