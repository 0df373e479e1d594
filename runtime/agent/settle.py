"""Settling: decide an effect in doubt by the same key, a probe, or a person. Source: design/agent.md.

All doubts are settled before any new dispatch. A same-key send is a dispatch: its intent, the opening event and every
frame before are durable first, and the lease is extended as the last step before it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from trajlake.schemas import values
from trajlake.schemas.events import ToolResult, ToolSettled
from trajlake.schemas.state.stages import Facts, decide

from ..leases.generations import gateways_to_announce
from ..tools import NOT_EXECUTED, Executed, InvalidArguments, Tool
from .actions import Action
from .authorize import Verdict, Wanted, call_of
from .decide import Doubt, probe_due_s, settle_step
from .dispatch import cost_of, intend, known, recorded_wanted, result_of_body, send_once
from .mailroom import drain
from .outcome import Waiting
from .requests import Done, Sleep, Steps
from .session import Session
from .texts import DELIVERED_VERSION, delivered

KEY_PAUSE_S = 0.1
"""Wait after the first same-key send without an answer; doubled each time."""


def stage_of(s: Session, action: Action, *, waited: bool = False) -> str:
    """The stage of an action, by the one table that recovery and SQL share. Whoever asks here holds the lease."""
    intent = action.intent
    deadline_at = intent.deadline_at if intent is not None else None
    return decide(
        Facts(
            live=True, authorized=action.decision == "allow", intent=intent is not None, outcome=bool(action.outcome),
            asynchronous=intent is not None and intent.asynchronous,
            deadline=deadline_at is None or s.ports.env.now_us() <= deadline_at, waited=waited,
            loss=0 <= action.authorized_seq < s.loss_seq,
        )
    )  # fmt: skip


def in_doubt(s: Session) -> list[Action]:
    """Actions with an intent, no result, and nobody who waits for one; in log order."""
    return [action for action in s.view.actions.undecided() if stage_of(s, action) == "in_doubt"]


def settle_all(s: Session, *, complete: bool) -> Steps:
    """Settle every doubt; return (ids settled, what a person must say). Gateways learn the token first."""
    doubts = in_doubt(s)
    gateway_of = {
        name: tool.options.gateway for name, tool in s.setup.tools.items() if tool.options.gateway is not None
    }
    gateway: Any
    for gateway in gateways_to_announce([one.tool for one in doubts], gateway_of, log_incomplete=not complete):
        done: Done = yield from s.run_body(
            partial(gateway.announce, s.tenant, s.trajectory_id, s.token), of=gateway.announce
        )
        if done.error is not None:
            raise done.error
    settled: list[str] = []
    open_questions: list[Waiting] = []
    for action in doubts:
        if (yield from settle(s, action.action_id)):
            settled.append(action.action_id)
        else:
            open_questions.append(question(s, action))
    return settled, open_questions


def settle(s: Session, action_id: str) -> Steps:
    """Try to decide one doubt. Returns True once the record holds the decision, False if a person must say."""
    action = s.view.actions.by_id[action_id]
    if action.intent is not None and action.intent.effect == "local":
        yield from _interrupted(s, action)
        return True
    tool, wanted = _callable_again(s, action)
    if tool is None or wanted is None or action.intent is None:
        return False
    options = tool.options
    doubt = Doubt(
        honours_key=tool.honours_key or tool.effect == "read", has_probe=options.probe is not None,
        timeout_s=options.timeout_s,
        settle_after_s=options.settle_after_s or 0.0, acquired_at_s=s.acquired_at_s,
        settle_attempts=options.settle_attempts, last_send_s=s.sends.get(action_id),
    )  # fmt: skip
    answer: Any = None
    while True:
        step = settle_step(doubt, s.ports.now_s())
        if step == "person":
            return False
        if step == "key":
            if (yield from _send_key(s, action, wanted)):
                return True
            yield Sleep(KEY_PAUSE_S * 2**doubt.key_failures)
            doubt = replace(doubt, key_failures=doubt.key_failures + 1, last_send_s=s.sends.get(action_id))
        elif step == "probe":
            doubt, answer = yield from _probe(s, action, wanted, doubt)
        elif step == "wait":
            yield Sleep(max(0.0, probe_due_s(doubt) - s.ports.now_s()))
            yield from drain(s)
            if action.phase == "settled":
                return True
            doubt = replace(doubt, probed="")
        else:
            yield from s.record(_by_probe(action, step, answer))
            return True


def _callable_again(s: Session, action: Action) -> tuple[Tool | None, Wanted | None]:
    tool = s.setup.tools.get(action.tool)
    if tool is None or action.intent is None or action.intent.tool_version != tool.options.version:
        return None, None
    try:
        return tool, recorded_wanted(s, action.intent, tool)
    except InvalidArguments:
        return tool, None


def _send_key(s: Session, action: Action, wanted: Wanted) -> Steps:
    """Send the same key once more. True if the answer settles the action."""
    verdict = Verdict(kind="go", key=action.first_key)
    one = yield from intend(s, wanted, verdict, attempt=action.attempt + 1, settling=True)
    yield from s.intent_barrier((wanted.tool.effect,))
    done: Done = yield from send_once(s, one)
    outcome = known(wanted.tool, done)
    payload: ToolSettled | ToolResult
    if wanted.tool.effect == "read" and outcome != "unknown":
        payload = result_of_body(one, outcome, done, 0.0, cost_of(s, one))
    elif outcome == "ok":
        tree, _ = values.to_tree_lossy(done.value)
        payload = _settled(action, "key", "executed", output=tree, has_output=True)
    elif outcome == "error":
        payload = result_of_body(one, outcome, done, 0.0, cost_of(s, one))
    else:
        return False
    yield from s.record(payload)
    return True


def _interrupted(s: Session, action: Action) -> Steps:
    """A `local` call that a crash cut short ends as any interrupted one does: as an error the agent can look into.

    Tracked files were put back before; else they may hold part of its change.
    """
    tree = s.files.tree if s.files is not None else None
    left = "its change was taken back" if tree is not None else "the workspace may hold part of its change"
    yield from s.record(
        ToolResult(
            action_id=action.action_id, status="error", attempt=action.attempt, tool=action.tool, opaque=tree is None,
            workspace=tree.sha256 if tree is not None else None,
            error=f"interrupted: the worker died during the call; {left}",
        )
    )  # fmt: skip


def _probe(s: Session, action: Action, wanted: Wanted, doubt: Doubt) -> Steps:
    """Ask the probe; return the doubt with its answer. A probe that fails cannot say."""
    probe = wanted.tool.options.probe
    assert probe is not None
    call = call_of(s, wanted, key=action.first_key, attempt=action.attempt)
    done: Done = yield from s.run_body(lambda: probe(call), wanted.tool.options.timeout_s, of=probe)
    if done.error is not None and not isinstance(done.error, Exception):
        raise done.error
    if isinstance(done.value, Executed):
        return replace(doubt, probed="executed"), done.value
    return replace(doubt, probed="not_executed" if done.value is NOT_EXECUTED else "unknown"), None


def _by_probe(action: Action, verdict: str, answer: Any) -> ToolSettled:
    if verdict != "executed":
        return _settled(action, "probe", "not_executed", delivered=delivered("not_executed", None))
    evidence, _ = values.to_tree_lossy(answer.evidence)
    if answer.output is msgspec.UNSET:
        return _settled(action, "probe", "executed", evidence=evidence, delivered=delivered("executed", evidence))
    output, _ = values.to_tree_lossy(answer.output)
    return _settled(action, "probe", "executed", evidence=evidence, output=output, has_output=True)


def _settled(action: Action, how: Any, verdict: Any, **more: Any) -> ToolSettled:
    return ToolSettled(
        action_id=action.action_id, how=how, verdict=verdict, attempt=action.attempt,
        delivered_version=DELIVERED_VERSION, **more,
    )  # fmt: skip


def question(s: Session, action: Action) -> Waiting:
    """The question that only a person can answer about an action in doubt."""
    text = (
        f"was {action.tool} ({action.action_id}, key {action.first_key[:12]}) executed? answer: "
        f"trajlake settle {s.trajectory_id} {action.action_id} --executed|--not-executed --because TEXT --evidence TEXT"
    )
    return Waiting("doubt", action.action_id, action.tool, text, key=action.first_key)
