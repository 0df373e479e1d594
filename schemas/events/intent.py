"""Intent state: the contract a run works under. Source: design/agent.md and spec B."""

from __future__ import annotations

from typing import Literal

import msgspec

from ._base import Json, Payload, Ref


class Predicate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a constraint forbids or demands: glob over the tool's name, glob per argument (dotted path)."""

    tool: str = "*"
    arguments: dict[str, str] = msgspec.field(default_factory=dict)
    verdict: Literal["deny", "ask"] = "deny"


class GoalRevised(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """A new goal; `replaces` is the sequence number of the one before (absent for the first revision)."""

    goal: Json
    source: str = ""
    because: str = ""
    replaces: Ref | None = None


class ConstraintAccepted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """A rule accepted from `source`; the point of acceptance is the event itself."""

    constraint_id: str
    text: str
    source: str = ""
    predicate: Predicate | None = None


class ConstraintWithdrawn(Payload, frozen=True, kw_only=True, omit_defaults=True):
    constraint_id: str
    source: str = ""
    because: str = ""


class AssumptionCommitted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """Something taken as true; `rests_on` names the events it rests on, `source` what a resolver can ask."""

    assumption_id: str
    text: str
    rests_on: tuple[Ref, ...] = ()
    source: str = ""


class AssumptionRetracted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    assumption_id: str
    because: str = ""


class ObligationOpened(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """Something owed to somebody; open at the end of a task it is an audit finding."""

    obligation_id: str
    text: str
    owed_to: str = ""
    due_at: int | None = None


class ObligationDischarged(Payload, frozen=True, kw_only=True, omit_defaults=True):
    obligation_id: str
    how: str = ""


class PlanCommitted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    plan: Json
    replaces: Ref | None = None
    because: str = ""


class ObservationCached(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """A fact that ages. `observed_at` is µs UTC; older than `half_life_s` it is fetched again at resume."""

    observation_id: str
    value: Json = None
    source: str = ""
    action_id: str = ""
    observed_at: int = 0
    half_life_s: float | None = None


class ObservationInvalidated(Payload, frozen=True, kw_only=True, omit_defaults=True):
    observation_id: str
    because: str = ""
