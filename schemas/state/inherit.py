"""What a branch starts from: its parent's state at the branch point, every reference one level further up.

A branch inherits what was agreed, done and said: intent state, actions, context, variables, turn. It does not
inherit what gives a right to act or tells who acts: approvals, authorities, limits and spend, tenure, openings,
mail, end. A checkpoint is evidence, not a credential, and the branch has its own `TaskStarted`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..context import Build
from ..events import Ref
from ..ids import ancestor_action_id
from .budget import Budget
from .records import Action, ContextState, ExecutionState, InForce, IntentState, State


def inherit(parent: State, tenant: str, trajectory_id: str) -> State:
    """Return the state onto which the events of a branch are folded, from its parent's at the branch point."""
    execution = parent.execution
    return State(
        tenant=tenant,
        trajectory_id=trajectory_id,
        intent=_intent(parent.intent),
        execution=ExecutionState(
            turn=execution.turn,
            turn_start=_up(execution.turn_start),
            reply=_up(execution.reply),
            actions={moved.action_id: moved for moved in map(_action, execution.actions.values())},
            budget=Budget(turn=execution.turn),
            context=_context(execution.context),
            vars={name: _moved(var, "at") for name, var in execution.vars.items()},
            system_no=execution.system_no,
            switches=tuple(_moved(switch, "at") for switch in execution.switches),
            compacted=_up(execution.compacted),
            workspace=execution.workspace,
        ),
    )


def up_by_one(reference: Ref) -> Ref:
    """Return how a branch names what its parent names `reference`."""
    return (1, reference) if isinstance(reference, int) else (reference[0] + 1, reference[1])


def _up(reference: Ref | None) -> Ref | None:
    return None if reference is None else up_by_one(reference)


def _moved(part: Any, *names: str) -> Any:
    return msgspec.structs.replace(part, **{name: _up(getattr(part, name)) for name in names})


def _intent(intent: IntentState) -> IntentState:
    return IntentState(
        goal=None if intent.goal is None else _moved(intent.goal, "at"),
        first_goal=None if intent.first_goal is None else _moved(intent.first_goal, "at"),
        plan=None if intent.plan is None else _moved(intent.plan, "at"),
        constraints={name: _moved(one, "accepted", "withdrawn") for name, one in intent.constraints.items()},
        assumptions={
            name: msgspec.structs.replace(
                _moved(one, "committed", "retracted"), rests_on=tuple(map(up_by_one, one.rests_on))
            )
            for name, one in intent.assumptions.items()
        },
        obligations={name: _moved(one, "opened", "discharged") for name, one in intent.obligations.items()},
        observations={
            name: msgspec.structs.replace(
                _moved(one, "cached", "invalidated"),
                action_id=ancestor_action_id(one.action_id) if one.action_id else "",
            )
            for name, one in intent.observations.items()
        },
    )


def _action(action: Action) -> Action:
    moved: Action = _moved(action, "proposed", "authorized", "intent", "first_intent", "outcome", "replays", "late")
    return msgspec.structs.replace(moved, action_id=ancestor_action_id(action.action_id))


def _context(context: ContextState) -> ContextState:
    return ContextState(
        runs=tuple(tuple(map(_build, run)) for run in context.runs),
        latest=None if context.latest is None else _in_force(context.latest),
        by_purpose={purpose: _in_force(one) for purpose, one in context.by_purpose.items()},
    )


def _build(build: Build) -> Build:
    return Build(up_by_one(build.built), _up(build.base), build.keep, tuple(map(up_by_one, build.append)), build.length)


def _in_force(one: InForce) -> InForce:
    moved: InForce = _moved(one, "built")
    return moved
