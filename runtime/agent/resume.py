"""Going on with an open trajectory: mail, settling, what has aged or drifted, and the seam. Source: design/agent.md.

No model is called before all of it is done, and every outcome is an event.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from trajlake.schemas import values
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import DriftDetected, ObservationInvalidated, Resumed, TaskStarted, ToolResult
from trajlake.schemas.state.budget import normal

from .authorize import policy_version
from .enter import Known, Order, check_resumable, recorded_outcome, refuse
from .errors import ResumeRefused
from .leave import cancel, let_go, park
from .mailroom import drain
from .outcome import Outcome
from .requests import Done, Steps
from .restore import Restored, restore
from .session import Session
from .settle import settle_all
from .table import AGED


def resume(s: Session, known: Known, order: Order) -> Steps:
    """Mail, checks, settling, then the seam. Returns an `Outcome` when the agent is not to be called."""
    if known.end is not None:
        yield from drain(s, steer=True)
        yield from s.checked_barrier()
        yield from let_go(s, "ended")
        return Outcome(*recorded_outcome(s, known.end))
    why = check_resumable(s, known, order)
    if why is not None:
        yield from refuse(s, why)
    yield from drain(s)
    if s.cancelled():
        return (yield from cancel(s))
    if not known.found.complete or known.history.held_back:
        s.loss_seq = s.next_seq
    try:
        restored = yield from restore(s, order.workspace, roll_back=order.roll_back, because=order.because)
    except ResumeRefused as refused:
        yield from refuse(s, refused)
    settled, questions = yield from settle_all(s, complete=s.loss_seq < 0)
    if questions:
        if s.loss_seq >= 0 or restored.workspace.startswith("r"):
            yield from s.record(_seam(s, known, order, restored, settled, ()))
        return (yield from park(s, tuple(questions)))
    yield from _check_sources(s)
    yield from _note_drift(s, order)
    refreshed = yield from _age(s, known)
    if order.close_turn:
        yield from _close_turn(s, order)
    yield from s.record(_seam(s, known, order, restored, settled, refreshed))
    yield from s.checked_barrier()
    return None


def _seam(
    s: Session, known: Known, order: Order, restored: Restored, settled: Sequence[str], refreshed: Sequence[str]
) -> Resumed:  # fmt: skip
    before = known.history.events[-1]
    return Resumed(
        last_sequence=before.sequence_number,
        checkpoint=restored.checkpoint,
        gap_ms=max(0, s.ports.env.now_us() - before.recorded_at) // 1000,
        workspace=restored.workspace,
        settled=tuple(settled),
        refreshed=tuple(refreshed),
        log_complete=s.loss_seq < 0,
        accept_loss=s.loss_seq >= 0,
        close_turn=order.close_turn,
        because=values.plain_text(order.because),
    )


def _check_sources(s: Session) -> Steps:
    """Ask the resolvers whether the sources of constraints and assumptions are still in force."""
    intent = s.view.state.intent
    in_force = [(one.constraint_id, one.source) for one in intent.constraints.values() if one.withdrawn is None]
    in_force += [(one.assumption_id, one.source) for one in intent.assumptions.values() if one.retracted is None]
    for name, source in in_force:
        ask = next((f for prefix, f in s.setup.resolvers.items() if source and source.startswith(prefix)), None)
        if ask is None:
            continue
        done: Done = yield from s.run_body(partial(ask, source), of=ask)
        if done.error is None and done.value == "in_force":
            continue
        if done.value == "withdrawn":
            yield from refuse(s, ResumeRefused("constraint_withdrawn", f"{name}: {source} was withdrawn; start anew"))
        yield from refuse(s, ResumeRefused("source_unknown", f"{name}: nobody can say whether {source} is in force"))


def _age(s: Session, known: Known) -> Steps:
    """Invalidate observations past their half-life (or all, if the clock ran backwards); return their ids."""
    now_us = s.ports.env.now_us()
    backwards = now_us < known.history.events[-1].recorded_at
    old = [
        one.observation_id
        for one in s.view.state.intent.observations.values()
        if one.invalidated is None
        and one.half_life_s is not None
        and (backwards or now_us - one.observed_at > one.half_life_s * 1e6)
    ]
    for name in old:
        yield from s.record(ObservationInvalidated(observation_id=name, because=AGED))
    return old


def _close_turn(s: Session, order: Order) -> Steps:
    """Leave the open turn as it stands: its unanswered calls are refused, and the next turn begins."""
    for action in list(s.view.actions.by_id.values()):
        if action.reply is not None and not action.outcome and action.intent is None:
            why = f"the turn was closed by a person: {order.because}" if order.because else "the turn was closed"
            yield from s.record(
                ToolResult(
                    action_id=action.action_id, status="refused", tool=action.tool, error=values.plain_text(why),
                    provider_id=action.proposal.provider_id if action.proposal is not None else "",
                )
            )  # fmt: skip
    s.closed_turn = True


def _note_drift(s: Session, order: Order) -> Steps:
    """Record what differs from the start: model, prompt, tools. The new one is used, from the next turn on."""
    started: TaskStarted = s.events[0].body
    model = order.model if order.model != "unknown" else started.model
    compared = (
        ("model", "model", started.model, model),
        ("prompt", "prompt_version", started.prompt_version, order.prompt_version or started.prompt_version),
        ("tool_schema", "tools", started.tool_schema_version, order.tool_schema_version),
        ("contract", "policy", started.policy_version, policy_version(s.setup.policy)),
    )
    budget = {unit: normal(str(amount)) for unit, amount in order.budget.items()}
    offered = ("contract", "budget", started.budget, budget or started.budget)
    for what, component, old, new in (*compared, offered):
        latest = next((e.body.new for e in reversed(s.events) if _is_drift(e, what, component)), old)
        if latest != new:
            switch = what != "contract"
            yield from s.record(
                DriftDetected(
                    what=what,  # type: ignore[arg-type]
                    component=component, old=latest, new=new,
                    choice="recorded" if component == "budget" else "switch",
                    system_no=s.view.system_no + 1 if switch else s.view.system_no,
                )
            )  # fmt: skip


def _is_drift(event: Event, what: str, component: str) -> bool:
    return event.type == "DriftDetected" and (event.body.what, event.body.component) == (what, component)
