"""The handover sheet: what a new operator needs to go on without asking the old one. Pure, of a state alone.

Source: spec B and design/agent.md, *Resume*. Whatever it needs must be in the checkpoint: the sheet of a checkpoint
equals the sheet of the whole log up to it, and a test holds that. It holds no arguments, outputs or credentials: the
state has only references and hashes of them, and authority is named, never carried.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from trajlake.schemas.state import Action, State, stage


def sheet(state: State, now_us: int) -> dict[str, Any]:
    """Return the sheet. Nobody is taken to hold the lease: what is unanswered is waiting or in doubt."""
    execution, intent = state.execution, state.intent
    started = execution.started
    staged = [(action, stage(action, state, now_us, None)) for action in execution.actions.values()]
    return {
        "tenant": state.tenant,
        "trajectory_id": state.trajectory_id,
        "agent": started.agent if started else "",
        "model": f"{started.model}@{started.model_version}" if started and started.model_version else _model(state),
        "policy_version": started.policy_version if started else "",
        "principal": started.principal if started else None,
        "status": _status(state),
        "turn": execution.turn,
        "system_no": execution.system_no,
        "goal": intent.goal.value if intent.goal else None,
        "first_goal": intent.first_goal.value if intent.first_goal else None,
        "goal_set_at_event": intent.goal.at if intent.goal else None,
        "constraints": [_constraint(one) for one in intent.constraints.values() if one.withdrawn is None],
        "assumptions": [_assumption(one) for one in intent.assumptions.values() if one.retracted is None],
        "obligations": [_obligation(one) for one in intent.obligations.values() if one.discharged is None],
        "plan": intent.plan.plan if intent.plan else None,
        "plan_set_at_event": intent.plan.at if intent.plan else None,
        "observations": [_observation(one, now_us) for one in intent.observations.values() if one.invalidated is None],
        "stale": [one.observation_id for one in intent.observations.values() if one.invalidated is not None],
        "questions": [_question(one) for one in execution.approvals.values() if one.decision is None],
        "in_doubt": [_action(one) for one, at in staged if at == "in_doubt"],
        "waiting": [_action(one) for one, at in staged if at == "waiting"],
        "unsent": [_action(one) for one, at in staged if at == "unsent"],
        "effects": [_action(one) for one, _ in staged if one.key and one.effect != "read" and one.outcome is not None],
        "budget_left": execution.budget.left,
        "budget_spent": execution.budget.spent,
        "authorities": [_authority(one) for one in execution.authorities.values() if one.ended is None],
        "vars": sorted(execution.vars),
        "workspace": execution.workspace,
        "seams": len(execution.resumed),
        "switches": [{"what": one.what, "component": one.component, "event": one.at} for one in execution.switches],
        "roll_backs": [{"to": to, "from": last} for _, to, last in execution.rolled_back],
    }


def _model(state: State) -> str:
    return state.execution.started.model if state.execution.started else ""


def _status(state: State) -> str:
    execution = state.execution
    if execution.ended is not None:
        return execution.ended.status
    return "cancelled, not ended" if execution.cancelled is not None else "open"


def _constraint(one: Any) -> dict[str, Any]:
    predicate = None
    if one.predicate is not None:
        predicate = {
            "tool": one.predicate.tool,
            "arguments": one.predicate.arguments,
            "verdict": one.predicate.verdict,
        }
    return {
        "id": one.constraint_id, "text": one.text, "source": one.source, "accepted_at_event": one.accepted,
        "predicate": predicate,
    }  # fmt: skip


def _assumption(one: Any) -> dict[str, Any]:
    return {"id": one.assumption_id, "text": one.text, "source": one.source, "rests_on": list(one.rests_on)}


def _obligation(one: Any) -> dict[str, Any]:
    return {"id": one.obligation_id, "text": one.text, "owed_to": one.owed_to, "due_at": _time(one.due_at)}


def _observation(one: Any, now_us: int) -> dict[str, Any]:
    half_life_s = one.half_life_s
    aged = half_life_s is not None and now_us - one.observed_at > half_life_s * 1e6
    return {
        "id": one.observation_id, "source": one.source, "observed_at": _time(one.observed_at),
        "half_life_s": half_life_s, "aged": aged, "event": one.cached,
    }  # fmt: skip


def _question(one: Any) -> dict[str, Any]:
    return {
        "approval_id": one.approval_id, "action_id": one.action_id, "tool": one.tool, "question": one.question,
        "arguments_hash": one.arguments_hash, "expires_at": _time(one.expires_at), "repeats": one.repeats,
    }  # fmt: skip


def _action(one: Action) -> dict[str, Any]:
    return {
        "action_id": one.action_id, "tool": one.tool, "effect": one.effect, "key": one.key, "status": one.status,
        "attempt": one.attempt, "arguments_hash": one.arguments_hash, "turn": one.turn,
    }  # fmt: skip


def _authority(one: Any) -> dict[str, Any]:
    return {
        "id": one.authority_id, "principal": one.principal, "scope": list(one.scope), "bound_to": one.bound_to,
        "expires_at": _time(one.expires_at), "amount": one.amount,
    }  # fmt: skip


def _time(at_us: int | None) -> str | None:
    return None if at_us is None else datetime.fromtimestamp(at_us / 1e6, UTC).isoformat()
