"""`turn.tools`, `turn.tool`, `turn.call`: proposals to settled results, under one barrier for all their intents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from trajlake.schemas import values
from trajlake.schemas.errors import InvalidValue
from trajlake.schemas.events import ApprovalRequested, ToolResult, ToolSettled

from ..tools import InvalidArguments, Result, Tool
from .actions import Action
from .arguments import arguments_of_text
from .authorize import Verdict, Wanted, authorize, want
from .decide import try_again
from .dispatch import Dispatch, intend, recorded_wanted, run_batch
from .errors import Diverged, Misuse, Parked
from .mailroom import boundary
from .model_call import ToolCall
from .outcome import Waiting
from .requests import Done, Steps
from .saving import checkpoint
from .session import Session
from .settle import question, settle, stage_of
from .texts import result_text


@dataclass(slots=True)
class Entry:
    """One call of the operation: proposed by a reply (`call`), or wanted by the harness."""

    action_id: str
    call: ToolCall | None = None
    wanted: Wanted | None = None


def run_tools(s: Session, calls: Sequence[ToolCall], limit: int) -> Steps:
    """Run the calls of a reply; return their `Result`s in call order, all settled.

    Parks (`Parked`) when a person or a late answer is needed; the siblings are settled before.
    """
    operation = "tools " + ",".join(call.action_id for call in calls)
    s.check_usable(operation)
    if limit < 1:
        raise Misuse(f"turn.tools: limit {limit} must be at least 1")
    if len({call.action_id for call in calls}) != len(calls):
        raise Misuse("turn.tools: the same call is given twice; ask the model, or use turn.call for another one")
    entries = [Entry(call.action_id, call) for call in calls]
    s.serve([event for entry in entries for event in s.table.action(entry.action_id)])
    return (yield from _run(s, entries, limit, operation))


def run_call(s: Session, name: str, arguments: Mapping[str, Any], step: str) -> Steps:
    """Make a call of the harness's own; return its `Result`."""
    tool = s.setup.tools.get(name)
    if tool is None:
        raise Misuse(f"turn.call: no tool named {name!r} is registered")
    operation = f"call {name}"
    s.check_usable(operation)
    wanted = want(tool, tool.bind(arguments), step="" if step == name else step)
    s.asked = lambda: wanted.tree
    nth, begun = s.table.take("call", name)
    entry = Entry("", wanted=wanted)
    if begun is not None:
        if begun.body.arguments_hash != wanted.hash:
            raise Diverged(s.turn, f"{operation} #{nth}", begun.body.arguments_hash[:12], wanted.tree)
        entry.action_id = begun.body.action_id
        entry.wanted = s.wanted = replace(wanted, action_id=entry.action_id)
        s.serve(s.table.action(entry.action_id))
    results: list[Result] = yield from _run(s, [entry], 1, f"{operation} #{nth}")
    return results[0]


def _run(s: Session, entries: list[Entry], limit: int, operation: str) -> Steps:
    if not _are_final(s, entries):
        yield from boundary(s, operation)
        while True:
            waits = yield from _round(s, entries, limit)
            if waits:
                raise s.unwind(Parked(waits))
            if _are_final(s, entries):
                break
    by_id = s.view.actions.by_id
    return [result_of(s, by_id[entry.action_id]) for entry in entries]


def _are_final(s: Session, entries: list[Entry]) -> bool:
    for entry in entries:  # noqa: SIM110 - a generator costs more than what it would go through
        if not _is_final(s, entry.action_id):
            return False
    return True


def _is_final(s: Session, action_id: str) -> bool:
    """Whether the action has an outcome and no attempt is left that its tool's `retry` allows."""
    action = s.view.actions.by_id.get(action_id)
    if action is None or not action.outcome:
        return False
    return action.outcome not in ("error", "not_executed") or not _retries(s, action)


def _retries(s: Session, action: Action) -> bool:
    tool = s.setup.tools.get(action.tool)
    if tool is None or action.intent is None:
        return False
    outcome: Any = action.outcome
    return try_again(tool.effect, outcome, attempt=action.attempt, retries=tool.options.retry.n)


def _round(s: Session, entries: list[Entry], limit: int) -> Steps:
    """Authorize, dispatch and settle what can be; return what only a person, or mail, can bring on."""
    batch: list[Dispatch] = []
    waits: list[Waiting] = []
    asks: list[tuple[Wanted, Verdict]] = []
    if s.rules.before_effect and any(_cannot_be_undone(s, entry) for entry in entries):
        yield from checkpoint(s, "before_effect")
    for entry in entries:
        if entry.action_id and _is_final(s, entry.action_id):
            continue
        yield from _prepare(s, entry, batch, waits, asks)
    sent = batch
    if s.superseded_keys:
        sent = [one for one in batch if not _maybe_sent(s, one)]
    doubts: list[str] = yield from run_batch(s, sent, limit)
    if sent is not batch:
        doubts += [one.wanted.action_id for one in batch if one not in sent]
    for action_id in doubts:
        settled = yield from settle(s, action_id)
        if not settled:
            waits.append(question(s, s.view.actions.by_id[action_id]))
    outside = False
    for one in batch:
        outside = outside or one.tool.effect in ("external", "local")
        if one.tool.options.asynchronous and _is_waiting(s, one.wanted.action_id):
            waits.append(_job(s, one))
    for wanted, verdict in asks:
        waits.append((yield from _ask(s, wanted, verdict)))
    if outside or doubts or asks:
        yield from s.checked_barrier()
    return waits


def _cannot_be_undone(s: Session, entry: Entry) -> bool:
    """Whether a call that is still to be made has an effect that the log cannot reproduce or undo."""
    name = entry.wanted.tool.name if entry.wanted is not None else entry.call.tool if entry.call is not None else ""
    tool = s.setup.tools.get(name)
    if tool is None or (entry.action_id and _is_final(s, entry.action_id)):
        return False
    return tool.effect in ("idempotent", "external") or tool.options.opaque


def _maybe_sent(s: Session, one: Dispatch) -> bool:
    """Whether a superseded worker recorded an intent with this key: it may have sent it, so it is settled first."""
    outside = one.tool.effect == "external" and not one.tool.honours_key
    return outside and one.attempt == 1 and one.verdict.key in s.superseded_keys


def _prepare(
    s: Session, entry: Entry, batch: list[Dispatch], waits: list[Waiting], asks: list[tuple[Wanted, Verdict]]
) -> Steps:
    """Bring one call to its intent, or to the reason why it has none."""
    action = s.view.actions.by_id.get(entry.action_id)
    if action is not None and action.phase == "open":
        waits.append(_open(s, action))
        return
    if action is not None and action.phase == "settled":
        batch.append((yield from _next_attempt(s, action)))
        return
    wanted = entry.wanted
    if wanted is None:
        assert entry.call is not None
        assert action is not None
        try:
            wanted = wanted_of(s, entry.call, action)
        except (InvalidArguments, InvalidValue) as error:
            yield from _refuse(s, entry.action_id, entry.call.tool, entry.call.provider_id, str(error))
            return
    wanted, verdict = yield from authorize(s, wanted)
    entry.action_id, entry.wanted = wanted.action_id, wanted
    if verdict.kind == "go":
        batch.append((yield from intend(s, wanted, verdict)))
    elif verdict.kind == "ask":
        asks.append((wanted, verdict))
    elif verdict.kind == "replay":
        yield from _replay(s, wanted, verdict)
    else:
        yield from _refuse(s, wanted.action_id, wanted.tool.name, wanted.provider_id, verdict.text)


def wanted_of(s: Session, call: ToolCall, action: Action) -> Wanted:
    """Return a reply's call as it would be passed to its tool. Raises `InvalidArguments`, `InvalidValue`."""
    tool = s.setup.tools.get(call.tool)
    if tool is None:
        known = ", ".join(sorted(s.setup.tools)) or "none"
        raise InvalidArguments(f"no tool is named {values.plain_text(call.tool)!r}; there are: {known}")
    bound = tool.bind(arguments_of_text(call.arguments))
    return want(
        tool, bound, action_id=call.action_id, provider_id=call.provider_id, reply=action.reply, text=call.arguments
    )


def _next_attempt(s: Session, action: Action) -> Steps:
    """One more attempt under the same key, as `retry` allows: for a read that failed, and for *not executed*."""
    tool = s.setup.tools[action.tool]
    assert action.intent is not None
    wanted = recorded_wanted(s, action.intent, tool)
    yield from _tell_gateway(s, action, tool)
    verdict = Verdict(kind="go", key=action.first_key, approval=action.intent.approval)
    return (yield from intend(s, wanted, verdict, attempt=action.attempt + 1))


def _tell_gateway(s: Session, action: Action, tool: Tool) -> Steps:
    """Post a person's or probe's *not executed* to the gateway, which else goes on answering *unknown* for the key.

    One that knows better (it was executed) refuses the verdict and answers the key with the kept result.
    """
    post = getattr(tool.options.gateway, "verdict_not_executed", None)
    if post is None or s.event_at(action.outcome_seq).type != "ToolSettled":
        return
    from ..gateway import VerdictRefused  # brings sqlite3: only where there is a gateway

    done: Done = yield from s.run_body(
        partial(post, s.tenant, s.trajectory_id, action.first_key, s.token), tool.options.timeout_s, of=post
    )
    if done.error is not None and not isinstance(done.error, VerdictRefused):
        raise done.error


def _refuse(s: Session, action_id: str, tool: str, provider_id: str, why: str) -> Steps:
    yield from s.record(
        ToolResult(
            action_id=action_id, status="refused", attempt=1, tool=tool, provider_id=provider_id,
            error=values.plain_text(why),
        )
    )  # fmt: skip


def _replay(s: Session, wanted: Wanted, verdict: Verdict) -> Steps:
    """Give the recorded result of the earlier action of the same key; nothing is sent."""
    earlier = s.view.actions.by_id[verdict.repeats]
    body = s.event_at(earlier.outcome_seq).body
    yield from s.record(
        ToolResult(
            action_id=wanted.action_id, status="replayed", tool=wanted.tool.name, provider_id=wanted.provider_id,
            output=body.output if not isinstance(body, ToolSettled) or body.has_output else body.delivered,
            replays=earlier.outcome_seq,
        )
    )  # fmt: skip


def _ask(s: Session, wanted: Wanted, verdict: Verdict) -> Steps:
    """Record the question, unless it is already open; return it."""
    action = s.view.actions.by_id[wanted.action_id]
    approval_id = verdict.approval
    if not approval_id:
        approval_id = f"{wanted.action_id}:{s.next_seq}"
        expires_at = None
        if verdict.expires_s is not None:
            expires_at = s.ports.env.now_us() + round(verdict.expires_s * 1e6)
        yield from s.record(
            ApprovalRequested(
                approval_id=approval_id, action_id=wanted.action_id, tool=wanted.tool.name,
                arguments_hash=wanted.hash, requester=s.principal, question=values.plain_text(verdict.text),
                expires_at=expires_at, repeats=verdict.repeats,
            )
        )  # fmt: skip
    text = f"may {action.tool} ({wanted.action_id}) run? answer: trajlake approve|deny {s.trajectory_id} {approval_id}"
    return Waiting("approval", wanted.action_id, action.tool, text, approval_id)


def _open(s: Session, action: Action) -> Waiting:
    if stage_of(s, action) == "waiting":
        return _job(s, action)
    return question(s, action)


def _is_waiting(s: Session, action_id: str) -> bool:
    action = s.view.actions.by_id[action_id]
    return action.phase == "open" and stage_of(s, action) == "waiting"


def _job(s: Session, one: Dispatch | Action) -> Waiting:
    action = s.view.actions.by_id[one.wanted.action_id] if isinstance(one, Dispatch) else one
    assert action.intent is not None
    return Waiting(
        "job", action.action_id, action.tool, f"{action.tool} ({action.action_id}) has not answered yet",
        until=action.intent.deadline_at,
    )  # fmt: skip


def result_of(s: Session, action: Action) -> Result:
    """Return the settled result of an action as the agent sees it."""
    body = s.event_at(action.outcome_seq).body
    whole = s.inline(body.output)
    text = result_text(body if whole is body.output else replace_output(body, whole))
    if isinstance(body, ToolSettled):
        executed = body.verdict == "executed"
        status: Any = "ok" if executed else "not_executed"
        output = values.from_tree(whole) if body.has_output else None
        return Result(action.tool, action.action_id, status, output, "" if executed else text, text)
    error = body.error if isinstance(body.error, str) else "" if body.error is None else text
    return Result(action.tool, action.action_id, body.status, values.from_tree(whole), error, text)


def replace_output(body: Any, output: Any) -> Any:
    """Return the result with its bulk put back."""
    return msgspec.structs.replace(body, output=output)
