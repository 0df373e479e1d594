"""Who may do what, under which policy, with how much left."""

from __future__ import annotations

from typing import Literal

import msgspec

from ._base import Amounts, Json, MailStamp, Payload

Decision = Literal["allow", "deny", "ask"]


class AuthorityAcquired(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """A right named by reference; a credential itself never enters an event. Times are µs UTC."""

    authority_id: str
    principal: str = ""
    scope: tuple[str, ...] = ()
    bound_to: str = ""
    expires_at: int | None = None
    amount: Amounts = msgspec.field(default_factory=dict)


class AuthorityEnded(Payload, frozen=True, kw_only=True, omit_defaults=True):
    authority_id: str
    because: str = ""


class Authorized(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """The decision on one action, before its intent. `budget_left` holds the limited units only.

    `step` as in the intent, where the caller named one: a denied call has no intent, yet counts in keys.
    """

    action_id: str
    tool: str
    decision: Decision
    arguments_hash: str
    step: str = ""
    policy_version: str = ""
    reason: str = ""
    budget_left: Amounts = msgspec.field(default_factory=dict)
    approval: str = ""


class ApprovalRequested(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """A question to a person about exactly this action and these arguments. `approval_id` is unique per trajectory."""

    approval_id: str
    action_id: str
    tool: str
    arguments_hash: str
    requester: str | None = None
    question: str = ""
    expires_at: int | None = None
    single_use: bool = True
    repeats: str = ""


class ApprovalResolved(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """The answer. `repeats` of the request names the earlier action that an approval of a repeat is about."""

    approval_id: str
    action_id: str
    decision: Literal["granted", "denied"]
    approver: str
    approver_known_by: str = ""
    arguments_hash: str = ""
    because: str = ""
    mail: MailStamp | None = None


class BudgetRevised(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """New limits; units not named keep theirs. The only way a limit rises."""

    limits: Amounts
    because: str = ""
    source: str = ""
    detail: Json = None
