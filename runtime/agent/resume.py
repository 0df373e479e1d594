"""Going on with an open trajectory: mail, settling, what has aged or drifted, and the seam. Source: design/agent.md.

No model is called before all of it is done, and every outcome is an event.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from trajlake.schemas import values
from trajlake.schemas.events import ObservationInvalidated, Resumed, ToolResult

from .authority import check_authority, principal_of
from .drift import check_context, check_intents, note_drift
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
    lost = not known.complete or bool(known.history.held_back)
    if lost:
        s.loss_seq = s.next_seq
    elif not known.found.complete:
        assert known.loss_accepted is not None
        s.loss_seq = known.loss_accepted.sequence_number
    yield from check_context(s)
    reapproved, asked = yield from check_authority(s, principal_of(order.bearer))
    if asked:
        return (yield from park(s, asked))
    try:
        restored = yield from restore(s, order.workspace, roll_back=order.roll_back, because=order.because)
    except ResumeRefused as refused:
        yield from refuse(s, refused)
    yield from check_intents(s)
    settled, questions = yield from settle_all(s, complete=s.loss_seq < 0 and not order.recovering)
    if questions:
        if lost or restored.workspace.startswith("r"):
            yield from s.record(_seam(s, known, order, restored, settled, (), reapproved, lost=lost))
        return (yield from park(s, tuple(questions)))
    yield from _check_sources(s)
    yield from note_drift(s, order)
    refreshed = yield from _age(s, known)
    if order.close_turn:
        yield from _close_turn(s, order)
    yield from s.record(_seam(s, known, order, restored, settled, refreshed, reapproved, lost=lost))
    yield from s.checked_barrier()
    return None


def _seam(
    s: Session, known: Known, order: Order, restored: Restored, settled: Sequence[str], refreshed: Sequence[str],
    reapproved: Sequence[str], *, lost: bool,
) -> Resumed:  # fmt: skip
    before = known.history.events[-1]
    return Resumed(
        last_sequence=before.sequence_number,
        checkpoint=restored.checkpoint,
        gap_ms=max(0, s.ports.env.now_us() - before.recorded_at) // 1000,
        workspace=restored.workspace,
        settled=tuple(settled),
        refreshed=tuple(refreshed),
        reapproved=tuple(reapproved),
        context="same" if s.view.context.drifted is None else "drift",
        cold_prefill_tokens=_cold_prefill_tokens(s),
        log_complete=not lost,
        accept_loss=lost,
        close_turn=order.close_turn,
        because=values.plain_text(order.because),
    )


def _cold_prefill_tokens(s: Session) -> int | None:
    """The tokens that the next model call reads anew: those of the last call and of its reply, as its provider said."""
    for event in reversed(s.events):
        if event.type == "ModelReplied" and event.sequence_number not in s.left.covered:
            usage = event.body.usage if event.body.status == "kept" else None
            if usage is not None and usage.input_total is not None:
                return int(usage.input_total + (usage.output or 0))
    return None


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
