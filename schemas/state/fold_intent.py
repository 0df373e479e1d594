"""Fold of life and intent-state events: one function each, of the builder and the event."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from ..envelope import Event
from ..events import Predicate
from ..history import opening_of
from .builder import Builder, Entries
from .records import (
    Assumption,
    BranchedFrom,
    Constraint,
    Ended,
    Goal,
    Obligation,
    Observation,
    Plan,
    Started,
    Tenure,
)

S = TypeVar("S", bound=msgspec.Struct)


def task_started(builder: Builder, event: Event) -> None:
    body = event.body
    builder.started = Started(
        origin=body.origin,
        agent=body.agent,
        model=body.model,
        model_version=body.model_version,
        sampling=body.sampling,
        prompt_version=body.prompt_version,
        tool_schema_version=body.tool_schema_version,
        tools=body.tools,
        policy_version=body.policy_version,
        workspace=body.workspace,
        workspace_snapshot=body.workspace_snapshot,
        replicated=body.replicated,
        principal=body.principal,
        principal_expires_at=body.principal_expires_at,
        subjects=body.subjects,
        parent=body.parent,
        source=body.source,
    )
    builder.workspace = body.workspace_snapshot if builder.workspace is None else builder.workspace
    if builder.first_goal is None:
        # A branch already has its ancestor's goal; one of its own comes as a `GoalRevised`.
        builder.goal = builder.first_goal = Goal(at=event.sequence_number, value=body.task)
    _open(builder, event)
    builder.tenure = Tenure(token=event.fencing_token, opened=event.sequence_number)


def lease_acquired(builder: Builder, event: Event) -> None:
    body = event.body
    _open(builder, event)
    builder.tenure = Tenure(
        token=event.fencing_token,
        opened=event.sequence_number,
        worker=body.worker,
        writer=body.writer,
        host=body.host,
    )


def _open(builder: Builder, event: Event) -> None:
    opening = opening_of(event)
    if opening is not None:
        builder.openings = (*builder.openings, opening)


def lease_released(builder: Builder, event: Event) -> None:
    if builder.tenure is not None and builder.tenure.token == event.fencing_token:
        builder.tenure = msgspec.structs.replace(builder.tenure, released=event.sequence_number)


def resumed(builder: Builder, event: Event) -> None:
    body = event.body
    builder.resumed = (*builder.resumed, event.sequence_number)
    builder.refused = ""
    if body.accept_loss:
        builder.loss_accepted = event.sequence_number


def resume_refused(builder: Builder, event: Event) -> None:
    body = event.body
    builder.refused = body.reason


def rolled_back(builder: Builder, event: Event) -> None:
    body = event.body
    builder.rolled_back = (*builder.rolled_back, (event.sequence_number, body.to, body.from_))
    # Given-up turn numbers are used again, and each use is spent.
    builder.budget.turn = builder.turn


def cancel_requested(builder: Builder, event: Event) -> None:
    if builder.cancelled is None:
        builder.cancelled = event.sequence_number


def task_ended(builder: Builder, event: Event) -> None:
    body = event.body
    builder.ended = Ended(at=event.sequence_number, status=body.status, reason=body.reason)


def branched(builder: Builder, event: Event) -> None:
    body = event.body
    builder.branched = BranchedFrom(
        tenant=body.parent_tenant,
        trajectory_id=body.parent_trajectory_id,
        sequence_number=body.parent_sequence,
        hash=body.parent_hash,
        at_turn=body.at_turn,
    )


def goal_revised(builder: Builder, event: Event) -> None:
    body = event.body
    builder.goal = Goal(at=event.sequence_number, value=body.goal, source=body.source, because=body.because)
    if builder.first_goal is None:
        builder.first_goal = builder.goal


def constraint_accepted(builder: Builder, event: Event) -> None:
    body = event.body
    builder.constraints[body.constraint_id] = Constraint(
        constraint_id=body.constraint_id,
        text=body.text,
        accepted=event.sequence_number,
        source=body.source,
        predicate=None if body.predicate is None else _with_one_default(body.predicate),
    )


def _with_one_default(predicate: Predicate) -> Predicate:
    """The same predicate, its defaults being the declared objects: msgspec leaves out a default by identity."""
    given: dict[str, Any] = {"arguments": predicate.arguments}
    if predicate.tool != "*":
        given["tool"] = predicate.tool
    if predicate.verdict != "deny":
        given["verdict"] = predicate.verdict
    return Predicate(**given)


def constraint_withdrawn(builder: Builder, event: Event) -> None:
    body = event.body
    _close(builder.constraints, body.constraint_id, withdrawn=event.sequence_number, because=body.because)


def assumption_committed(builder: Builder, event: Event) -> None:
    body = event.body
    builder.assumptions[body.assumption_id] = Assumption(
        assumption_id=body.assumption_id,
        text=body.text,
        committed=event.sequence_number,
        rests_on=body.rests_on,
        source=body.source,
    )


def assumption_retracted(builder: Builder, event: Event) -> None:
    body = event.body
    _close(builder.assumptions, body.assumption_id, retracted=event.sequence_number, because=body.because)


def obligation_opened(builder: Builder, event: Event) -> None:
    body = event.body
    builder.obligations[body.obligation_id] = Obligation(
        obligation_id=body.obligation_id,
        text=body.text,
        opened=event.sequence_number,
        owed_to=body.owed_to,
        due_at=body.due_at,
    )


def obligation_discharged(builder: Builder, event: Event) -> None:
    body = event.body
    _close(builder.obligations, body.obligation_id, discharged=event.sequence_number, how=body.how)


def plan_committed(builder: Builder, event: Event) -> None:
    body = event.body
    builder.plan = Plan(at=event.sequence_number, plan=body.plan, because=body.because)


def observation_cached(builder: Builder, event: Event) -> None:
    body = event.body
    builder.observations[body.observation_id] = Observation(
        observation_id=body.observation_id,
        cached=event.sequence_number,
        source=body.source,
        action_id=body.action_id,
        observed_at=body.observed_at,
        half_life_s=body.half_life_s,
    )


def observation_invalidated(builder: Builder, event: Event) -> None:
    body = event.body
    _close(builder.observations, body.observation_id, invalidated=event.sequence_number, because=body.because)


def _close(entries: Entries[S], name: str, **fields: object) -> None:
    """Mark an entry as no longer in force; one never opened has nothing to close."""
    entry = entries.get(name)
    if entry is not None:
        entries[name] = msgspec.structs.replace(entry, **fields)
