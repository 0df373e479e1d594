"""The frozen structs of a state. They hold references and hashes, never argument or output bytes.

A reference (`Ref`) is a sequence number, or in a branch (up, sequence number) for an ancestor's event.
All dicts are in log order: insertion order is part of the value and of its bytes. msgspec leaves a field out
when its value *is* the default, so defaults here are only values of which Python has one: None, "", small
integers, (), booleans, and empty dicts. A test holds that.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import msgspec

from ..context import Build, Builds
from ..events import (
    ContextHead,
    Decision,
    Effect,
    EndStatus,
    ImportSource,
    Json,
    Origin,
    ParentAction,
    Predicate,
    Ref,
    ToolDeclaration,
)
from ..history import Opening
from .budget import Budget


class _Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Options that all parts of a state share."""


class Goal(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """A goal and the event that set it (`TaskStarted` for the first)."""

    at: Ref
    value: Json = None
    source: str = ""
    because: str = ""


class Constraint(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """In force while `withdrawn` is null."""

    constraint_id: str
    text: str
    accepted: Ref
    source: str = ""
    predicate: Predicate | None = None
    withdrawn: Ref | None = None
    because: str = ""


class Assumption(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """In force while `retracted` is null."""

    assumption_id: str
    text: str
    committed: Ref
    rests_on: tuple[Ref, ...] = ()
    source: str = ""
    retracted: Ref | None = None
    because: str = ""


class Obligation(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """Open while `discharged` is null."""

    obligation_id: str
    text: str
    opened: Ref
    owed_to: str = ""
    due_at: int | None = None
    discharged: Ref | None = None
    how: str = ""


class Plan(_Part, frozen=True, kw_only=True, omit_defaults=True):
    at: Ref
    plan: Json = None
    because: str = ""


class Observation(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """A fact that ages; its value stands in the event `cached`. In the working set while `invalidated` is null."""

    observation_id: str
    cached: Ref
    source: str = ""
    action_id: str = ""
    observed_at: int = 0
    half_life_s: float | None = None
    invalidated: Ref | None = None
    because: str = ""


class IntentState(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """What was agreed: the contract a run works under."""

    goal: Goal | None = None
    first_goal: Goal | None = None
    constraints: dict[str, Constraint] = {}
    assumptions: dict[str, Assumption] = {}
    obligations: dict[str, Obligation] = {}
    plan: Plan | None = None
    observations: dict[str, Observation] = {}


class Action(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """One action from proposal to outcome, by `action_id`.

    `proposed` to `outcome` are the events; `intent` is that of the latest attempt, `first_intent` of the first.
    `outcome` answers the latest intent (a new intent clears it): `outcome_kind` tells which event it is,
    `status` its status (for a settlement or late result `ok` or `not_executed`), `how` who settled. `late` is a
    result that came after the outcome. `by` is `model` for a call in a reply, `harness` for one made by the code.
    """

    action_id: str
    tool: str
    proposed: Ref
    turn: int
    by: Literal["model", "harness"]
    step: str = ""
    provider_id: str = ""
    authorized: Ref | None = None
    decision: Decision | None = None
    arguments_hash: str = ""
    intent: Ref | None = None
    first_intent: Ref | None = None
    intent_token: int = -1
    intent_at: int = 0
    attempt: int = 0
    settling: bool = False
    tool_version: str = ""
    key: str = ""
    effect: Effect | None = None
    timeout_s: float | None = None
    settle_after_s: float | None = None
    deadline_at: int | None = None
    asynchronous: bool = False
    approval: str = ""
    outcome: Ref | None = None
    outcome_kind: Literal["result", "settled", "late"] | None = None
    status: str = ""
    how: str = ""
    replays: Ref | None = None
    item_hash: str = ""
    late: Ref | None = None

    @property
    def inherited(self) -> bool:
        """Whether an ancestor of this branch proposed it: never settled or sent here."""
        return self.action_id.startswith("^")

    @property
    def executed(self) -> bool:
        """Whether the record says the effect happened (a tool that ran and failed included)."""
        return self.outcome is not None and self.status in ("ok", "error")


class Approval(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """A question to a person and its answer. `used` is the intent that spent it."""

    approval_id: str
    action_id: str
    tool: str
    arguments_hash: str
    requested: Ref
    requester: str | None = None
    question: str = ""
    expires_at: int | None = None
    single_use: bool = True
    repeats: str = ""
    resolved: Ref | None = None
    decision: Literal["granted", "denied"] | None = None
    approver: str = ""
    approver_known_by: str = ""
    resolved_hash: str = ""
    posted_at: int | None = None
    used: Ref | None = None


class Authority(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """A right by reference, in force while `ended` is null and `expires_at` has not passed."""

    authority_id: str
    acquired: Ref
    principal: str = ""
    scope: tuple[str, ...] = ()
    bound_to: str = ""
    expires_at: int | None = None
    amount: dict[str, str] = {}
    ended: Ref | None = None


class Started(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """What `TaskStarted` recorded; the task itself is `intent.first_goal`."""

    origin: Origin
    model: str
    agent: str = ""
    model_version: str = ""
    sampling: Json = None
    prompt_version: str = ""
    tool_schema_version: str = ""
    tools: dict[str, ToolDeclaration] = {}
    policy_version: str = ""
    workspace: Literal["none", "tracked", "untracked"]
    workspace_snapshot: str | None = None
    replicated: tuple[str, ...] = ()
    principal: str | None = None
    principal_expires_at: int | None = None
    subjects: tuple[str, ...] = ()
    parent: ParentAction | None = None
    source: ImportSource | None = None


class Tenure(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """The latest tenure. Released while `released` is not null: nobody holds the lease by the log."""

    token: int
    opened: Ref
    worker: str = ""
    writer: str = ""
    host: str = ""
    released: Ref | None = None


class Ended(_Part, frozen=True, kw_only=True, omit_defaults=True):
    at: Ref
    status: EndStatus
    reason: str = ""


class Checkpoint(_Part, frozen=True, kw_only=True, omit_defaults=True):
    at: Ref
    covers: int
    root: str
    workspace_snapshot: str | None = None


class Switch(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """A drift that was answered by a switch: from the turn after it, `system_no` is in force."""

    at: Ref
    what: str
    system_no: int
    component: str = ""


class BranchedFrom(_Part, frozen=True, kw_only=True, omit_defaults=True):
    tenant: str
    trajectory_id: str
    sequence_number: int
    hash: str
    at_turn: int


class Var(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """A variable's value tree (bulk by blob reference) and the event that set it."""

    at: Ref
    value: Json = None


class InForce(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """The context last built for one purpose, or at all."""

    built: Ref
    purpose: str
    length: int
    context_hash: str
    head: ContextHead


class ContextState(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """Every context by reference: `runs` of builds in log order, each closed at 1,000 items; see `schemas.context`."""

    runs: tuple[tuple[Build, ...], ...] = ()
    latest: InForce | None = None
    by_purpose: dict[str, InForce] = {}

    def builds(self) -> Builds:
        """Return the builds for look-ups: `builds().items(reference)` is the list in force at an event."""
        return Builds(build for run in self.runs for build in run)


class ExecutionState(_Part, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """What was done. `turn` is the open turn, `turn_start` its first event. `reply` is the last kept one.

    `openings` is the line of the folded events, for `canonical`. `system_no` is that of the open turn's next
    model call. `loss_accepted`: the last `Resumed` that accepted loss; authorized actions without intent
    before it are in doubt.
    """

    started: Started | None = None
    branched: BranchedFrom | None = None
    turn: int = -1
    turn_start: Ref | None = None
    reply: Ref | None = None
    actions: dict[str, Action] = {}
    approvals: dict[str, Approval] = {}
    budget: Budget = msgspec.field(default_factory=Budget)
    authorities: dict[str, Authority] = {}
    openings: tuple[Opening, ...] = ()
    tenure: Tenure | None = None
    context: ContextState = msgspec.field(default_factory=ContextState)
    vars: dict[str, Var] = {}
    mail: dict[str, Ref] = {}
    system_no: int = 0
    switches: tuple[Switch, ...] = ()
    compacted: Ref | None = None
    checkpoint: Checkpoint | None = None
    workspace: str | None = None
    rolled_back: tuple[tuple[int, int, int], ...] = ()
    resumed: tuple[Ref, ...] = ()
    refused: str = ""
    loss_accepted: Ref | None = None
    cancelled: Ref | None = None
    ended: Ended | None = None

    @cached_property
    def by_key(self) -> dict[str, str]:
        """Results by key: idempotency key -> id of the earliest action whose intent carries it. Built on first use."""
        index: dict[str, str] = {}
        for action in self.actions.values():
            if action.key:
                index.setdefault(action.key, action.action_id)
        return index


class State(_Part, frozen=True, kw_only=True, omit_defaults=True):
    """The fold of a trajectory's canonical events up to `sequence_number` (-1: none). Hashes are hex.

    `recorded_at` is the last event's time (µs UTC), for gaps between tenures only, never for order.
    """

    tenant: str
    trajectory_id: str
    sequence_number: int = -1
    head_hash: str = ""
    recorded_at: int = 0
    intent: IntentState = msgspec.field(default_factory=IntentState)
    execution: ExecutionState = msgspec.field(default_factory=ExecutionState)


def initial(tenant: str, trajectory_id: str) -> State:
    """Return the state before the first event."""
    return State(tenant=tenant, trajectory_id=trajectory_id)
