"""From a durable intent to a recorded result: the one place where effects leave the host."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from trajlake.schemas import values
from trajlake.schemas.events import Cut, ObservationCached, ToolIntent, ToolResult
from trajlake.schemas.state.budget import normal

from ..tools import CutText, NotExecuted, Tool, ToolError
from .arguments import arguments_of_text
from .authorize import Verdict, Wanted, call_of, reserved
from .decide import Outcome, outcome_of, try_again
from .files import Recorded, record_change
from .requests import Done, Next, NotBegun, Sleep, Start, Steps, Ticket, Wait
from .session import Session

_sorted: Any = msgspec.json.Encoder(order="sorted").encode


class PermitAged(Exception):
    """Leave to send was too old when the send was due: nothing was sent, ask again."""


class Dispatch(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt whose intent is recorded."""

    wanted: Wanted
    verdict: Verdict
    tool: Tool
    attempt: int = 1


def intend(s: Session, wanted: Wanted, verdict: Verdict, *, attempt: int = 1, settling: bool = False) -> Steps:
    """Record the intent of one attempt. It is durable after the next barrier, which comes before any send."""
    s.ports.log.refuse_if_full()
    options = wanted.tool.options
    same = wanted.text is not None and _says_the_same(wanted)
    deadline_at = None
    if options.asynchronous and options.deadline_s is not None:
        deadline_at = s.ports.env.now_us() + round(options.deadline_s * 1e6)
    payload = ToolIntent(
        action_id=wanted.action_id,
        tool=wanted.tool.name,
        arguments_hash=wanted.hash,
        key=verdict.key,
        effect=options.effect,
        attempt=attempt,
        tool_version=options.version,
        step=wanted.step,
        provider_id=wanted.provider_id,
        arguments=msgspec.UNSET if same else wanted.tree,
        reply=wanted.reply,
        same_as=verdict.same_as,
        timeout_s=options.timeout_s,
        settle_after_s=options.settle_after_s,
        deadline_at=deadline_at,
        asynchronous=options.asynchronous,
        goal=s.view.goal_seq,
        approval=verdict.approval,
        reserved=reserved(wanted.tool) if options.cost is not None else {},
        system_no=s.view.system_no,
        settling=settling,
    )
    yield from s.record(payload)
    return Dispatch(wanted=wanted, verdict=verdict, tool=wanted.tool, attempt=attempt)


def run_batch(s: Session, batch: list[Dispatch], limit: int) -> Steps:
    """Run calls whose intents are recorded, under one barrier; record each result as it comes.

    Returns the ids of the actions whose outcome is unknown, in call order. `local` tools run one at a time and in
    call order, since each owns its change of the workspace; the others beside each other, up to `limit`. Each body but
    a `read` begins itself when the intents are durable: that is one hand-over less than to be told, and to begin it.
    """
    intents = s.intent_ticket(one.tool.effect for one in batch if one.tool.effect != "read")
    waiting = list(batch)
    running: dict[int, Dispatch] = {}
    doubts: list[str] = []
    while waiting or running:
        one = _startable(waiting, running, limit)
        if one is not None:
            waiting.remove(one)
            running[(yield from _start(s, one, intents))] = one
            continue
        done: Done = yield Next()
        one = running.pop(done.tag)
        if isinstance(done.error, NotBegun):
            raise done.error.why
        again = yield from _ended(s, one, done, doubts)
        if again is not None:
            if again.tool.effect != "read":
                intents = None  # they are durable: this one was begun
            waiting.insert(0, again)
    return sorted(doubts, key=[one.wanted.action_id for one in batch].index) if doubts else doubts


def send_once(s: Session, one: Dispatch) -> Steps:
    """Send one attempt whose intent is durable, and return its `Done`; asks for leave again while it is too old."""
    while True:
        tag = yield from _start(s, one, None)
        done: Done = yield Next()
        assert done.tag == tag
        if not isinstance(done.error, PermitAged):
            return done


def _startable(waiting: list[Dispatch], running: dict[int, Dispatch], limit: int) -> Dispatch | None:
    if not waiting or len(running) >= limit:
        return None
    workspace_taken = bool(running) and any(one.tool.effect == "local" for one in running.values())
    for one in waiting:
        if one.tool.effect != "local":
            return one
        if not workspace_taken:
            return one
        workspace_taken = True
    return None


def _start(s: Session, one: Dispatch, intents: Ticket | None) -> Steps:
    """Start a body; return its tag. It waits for `intents` (None: durable already) unless it is a `read`."""
    tool, timeout_s = one.tool, one.tool.options.timeout_s
    if tool.effect == "read":
        intents = None
    elif intents is None or not _may_send(s, timeout_s):
        if intents is not None:
            yield Wait(intents)
        yield from s.check_lease(timeout_s)
        intents = None
    s.tags += 1
    yield Start(s.tags, partial(_send, s, one), timeout_s, tool.is_async, intents)
    return s.tags


def _may_send(s: Session, timeout_s: float) -> bool:
    return s.held is not None and s.held.may_send(timeout_s)


def _send(s: Session, one: Dispatch) -> Any:
    """The effect itself, where its body runs. The last step before it is the look at the lease."""
    tool, timeout_s = one.tool, one.tool.options.timeout_s
    if tool.effect != "read" and not _may_send(s, timeout_s):
        raise PermitAged
    wanted = one.wanted
    arguments = wanted.values
    if tool.takes_call:
        deadline = s.ports.env.now_us() / 1e6 + timeout_s
        call = call_of(s, wanted, key=one.verdict.key, attempt=one.attempt, deadline=deadline)
        arguments = {**arguments, "call": call}
    s.sends[wanted.action_id] = s.ports.now_s()
    return tool.function(**arguments)


def _ended(s: Session, one: Dispatch, done: Done, doubts: list[str]) -> Steps:
    """Record what is known after a body ended; return the attempt to make next, if any."""
    if isinstance(done.error, PermitAged):
        return one
    outcome = known(one.tool, done)
    if outcome == "unknown":
        doubts.append(one.wanted.action_id)
        return None
    if one.tool.options.asynchronous and outcome == "ok":
        return None
    elapsed_ms = _elapsed_ms(s, one)
    changed: Recorded | None = None
    if one.tool.effect == "local":
        changed = yield from record_change(s.files, opaque=one.tool.options.opaque)
    yield from s.record(result_of_body(one, outcome, done, elapsed_ms, cost_of(s, one), changed))
    retry = one.tool.options.retry
    if try_again(one.tool.effect, outcome, attempt=one.attempt, retries=retry.n):
        yield Sleep(retry.pause_s(one.attempt))
        again = yield from intend(s, one.wanted, one.verdict, attempt=one.attempt + 1)
        if one.tool.effect != "read":
            yield from s.intent_barrier((one.tool.effect,))
        return again
    if outcome == "ok" and one.tool.options.half_life_s is not None:
        yield from s.record(_observation(s, one))
    return None


def known(tool: Tool, done: Done) -> Outcome:
    """What is known after a body of this tool ended so."""
    error = done.error
    return outcome_of(
        tool.effect,
        raised=error is not None,
        not_executed=isinstance(error, NotExecuted),
        tool_error=isinstance(error, ToolError),
    )


def result_of_body(
    one: Dispatch, outcome: Outcome, done: Done, duration_ms: float, cost: dict[str, str],
    changed: Recorded | None = None,
) -> ToolResult:  # fmt: skip
    """Return the result event of an attempt with a known outcome; `changed`: what a `local` one did to the files."""
    common: dict[str, Any] = {
        "action_id": one.wanted.action_id, "attempt": one.attempt, "tool": one.tool.name,
        "provider_id": one.wanted.provider_id, "duration_ms": duration_ms,
        **(changed.fields() if changed is not None else {}),
    }  # fmt: skip
    if outcome == "ok" and isinstance(done.value, CutText):
        text = done.value
        return ToolResult(
            status="ok", output=values.to_tree(text.delivered), full_output=values.to_tree(text.full), cost=cost,
            cut=Cut(head=text.head, tail=text.tail, total=len(text.full)), **common,
        )  # fmt: skip
    if outcome == "ok":
        tree, lossy = values.to_tree_lossy(done.value)
        return ToolResult(status="ok", output=tree, lossy=lossy, cost=cost, **common)
    assert outcome != "unknown"
    assert done.error is not None
    return ToolResult(status=outcome, error=error_words(done.error), cost=cost if outcome == "error" else {}, **common)


def error_words(error: BaseException) -> str:
    """Return what a model is told of an exception: the tool's own words, else type and message."""
    own = isinstance(error, NotExecuted | ToolError)
    text = str(error) if own else f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return values.plain_text(text)


def recorded_wanted(s: Session, intent: ToolIntent, tool: Tool) -> Wanted:
    """Return the call of a recorded intent with its recorded arguments: the model is not asked again.

    Raises `InvalidArguments` when the tool as it is now cannot take them.
    """
    if intent.arguments is msgspec.UNSET:
        action = s.view.actions.by_id[intent.action_id]
        assert action.proposal is not None
        assert action.reply is not None
        given = arguments_of_text(s.text_of(action.proposal, action.reply))
    else:
        given = s.value(intent.arguments, f"arguments of {intent.tool} ({intent.action_id})")
    bound = tool.bind(given)
    return Wanted(
        tool=tool, values=bound, tree=values.to_tree(bound), hash=intent.arguments_hash, action_id=intent.action_id,
        step=intent.step, provider_id=intent.provider_id, reply=intent.reply if isinstance(intent.reply, int) else None,
    )  # fmt: skip


def _says_the_same(wanted: Wanted) -> bool:
    assert wanted.text is not None
    return bool(_sorted(values.to_tree(arguments_of_text(wanted.text))) == _sorted(wanted.tree))


def cost_of(s: Session, one: Dispatch) -> dict[str, str]:
    """What a call that ran costs, as its tool's `cost` tells."""
    cost = one.tool.options.cost
    if cost is None:
        return {}
    call = call_of(s, one.wanted, key=one.verdict.key, attempt=one.attempt)
    return {unit: normal(str(amount)) for unit, amount in cost(call).items()}


def _elapsed_ms(s: Session, one: Dispatch) -> float:
    return round((s.ports.now_s() - s.sends[one.wanted.action_id]) * 1000, 3)


def _observation(s: Session, one: Dispatch) -> ObservationCached:
    return ObservationCached(
        observation_id=f"{one.tool.name}:{one.wanted.hash[:16]}",
        source=one.tool.name,
        action_id=one.wanted.action_id,
        observed_at=s.ports.env.now_us(),
        half_life_s=one.tool.options.half_life_s,
    )
