"""`turn.model`: one context, one reply, an event per attempt. The runtime retries; SDK retries are off."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from trajlake.schemas import values
from trajlake.schemas.canonical_json import canonical
from trajlake.schemas.context import context_hash_of, item_hash
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import ContextBuilt, ContextHead, MessageAdded, ModelReplied, ProposedCall, Usage
from trajlake.schemas.limits import INLINE_MAX

from ..tools import Retry, Tool
from .arguments import text_of_call
from .context import Item, at_pointer
from .errors import BudgetExhausted, ModelFailed
from .inputs import at_once
from .mailroom import boundary
from .requests import Done, Sleep, Steps
from .session import Session

if TYPE_CHECKING:
    from ..models import protocol

MODEL_RETRY = Retry(3, 0.5)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a reply proposes. `arguments` is the text the model emitted, byte for byte."""

    tool: str
    arguments: str
    provider_id: str
    action_id: str
    index: int


@dataclass(frozen=True, slots=True)
class Reply:
    """One kept reply: durable, and shown by a worker that held the lease after it was. `raw`: its body as received."""

    text: str
    calls: tuple[ToolCall, ...]
    stop_reason: str | None
    usage: Usage | None
    item: Any
    sequence_number: int
    served_model: str = ""
    raw: str = ""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """What one `turn.model` asks."""

    model: Any
    tools: Sequence[Tool]
    purpose: str = "act"
    messages: Sequence[Mapping[str, Any]] | None = None
    parameters: Mapping[str, Any] | None = None
    on_delta: Callable[[str], None] | None = None
    retry: Retry = MODEL_RETRY


def run_model(s: Session, ask: Ask) -> Steps:
    """Serve the recorded reply of this operation, or make the call. Returns a `Reply`; `ModelFailed` after the last.

    The reply is returned after its barrier and a lease check: what a model said is output to people.
    """
    operation = f"model {ask.purpose}"
    s.check_usable(operation)
    s.asked = None
    items = s.view.context.items if ask.messages is None else _bring_messages(s, ask.messages)
    nth, built = s.table.take("model", ask.purpose)
    operation = f"{operation} #{nth}"
    if built is None:
        yield from boundary(s, operation)
        return (yield from _call(s, ask, (yield from _build(s, ask, items)), 0))
    head, stored = _head(ask) if s.compares_heads else (built.body.head, {})
    if built.body.context_hash != _context_hash(s, head, items):
        s.context_differs(operation, built, head, stored, items)
    attempts = s.table.replies(built.sequence_number)
    s.serve([built, *attempts])
    if attempts and attempts[-1].body.status == "kept":
        return reply_of(s, attempts[-1], ask.model)
    if attempts and attempts[-1].body.status == "error":
        raise ModelFailed(attempts[-1].body.error)
    yield from boundary(s, operation)
    return (yield from _call(s, ask, built, len(attempts)))


def _head(ask: Ask) -> tuple[ContextHead, dict[str, Any]]:
    """Return the head of the context and the bytes behind its hashes."""
    stored: dict[str, Any] = {}
    head = {}
    trees = {"tools": [tool_tree(tool) for tool in ask.tools], "parameters": dict(ask.parameters or {})}
    for name, tree in trees.items():
        if tree:
            tree = values.to_tree(tree)
            head[name] = hashlib.sha256(canonical(tree)).hexdigest()
            stored[head[name]] = tree
    return ContextHead(**head), stored


def _context_hash(s: Session, head: ContextHead, items: Sequence[Item]) -> str:
    if items is s.view.context.items:
        return s.view.context.hash(head)
    return context_hash_of(head, [item.hash for item in items])


def _build(s: Session, ask: Ask, items: Sequence[Item]) -> Steps:
    """Record the context of the call. Returns its event. Raises `BudgetExhausted` where a limit is reached."""
    short = s.view.budget.frozen().allows({"model_calls": "1", "input_tokens": "1", "output_tokens": "1"})
    if short is not None:
        raise BudgetExhausted(short, s.view.budget.frozen().left[short])
    head, stored = _head(ask)
    for known in [digest for digest in stored if digest in s.view.stored]:
        del stored[known]
    refs = tuple(item.ref for item in items)
    base, keep = None, 0
    if s.view.context.built is not None:
        base, before = s.view.context.built
        keep = _common(before, refs)
    payload = ContextBuilt(
        context_hash=_context_hash(s, head, items), purpose=ask.purpose, base=base if keep else None, keep=keep,
        append=refs[keep:], head=head, stored=stored,
    )  # fmt: skip
    return (yield from s.record(payload))


def _bring_messages(s: Session, messages: Sequence[Mapping[str, Any]]) -> list[Item]:
    """The items of a list that the harness brings: found by hash, unknown ones become `MessageAdded`."""
    known = {item.hash: item for item in s.view.context.items}
    found: list[Item] = []
    for wire in messages:
        tree = values.to_tree(dict(wire))
        digest = item_hash(tree)
        if digest not in known:
            role = str(wire.get("role", "user"))
            payload = MessageAdded(role=role, wire=tree, item_hash=digest)
            at_once(s, "message", role, partial(_same, payload))
            known[digest] = s.view.context.items[-1]
        found.append(known[digest])
    return found


def _same(payload: MessageAdded) -> MessageAdded:
    return payload


def _call(s: Session, ask: Ask, built: Event, attempts: int) -> Steps:
    """Attempt until a reply is kept or the retries are used up."""
    from ..models import protocol  # with the models comes HTTP: not before one is used

    specs = [
        protocol.ToolSpec(name=tool.name, description=tool.description, schema=tool.parameters) for tool in ask.tools
    ]
    items = s.view.context.wires_of(built.body)
    shown = protocol.Context(items=items, parameters=ask.parameters or {}, turn=s.turn, purpose=ask.purpose)
    request: bytes = ask.model.request(shown, specs)
    while True:
        attempts += 1
        started_s = s.ports.now_s()
        done: Done = yield from s.run_body(
            _sender(ask, request), of=None if hasattr(ask.model, "send") else ask.model.asend
        )
        if done.error is not None and not isinstance(done.error, Exception):
            raise done.error
        elapsed_ms = round((s.ports.now_s() - started_s) * 1000, 3)
        last = attempts > ask.retry.n
        payload, error = _attempt(ask, built, done, attempts, elapsed_ms, s.view.system_no, last=last)
        event: Event = yield from s.record(payload)
        if error is None:
            yield from s.checked_barrier()
            return reply_of(s, event, ask.model)
        if payload.status == "error":
            raise ModelFailed(payload.error) from error
        wished_s = getattr(error, "retry_after_s", None)
        yield Sleep(min(wished_s, 60.0) if wished_s is not None else ask.retry.pause_s(attempts))


def _sender(ask: Ask, request: bytes) -> Callable[[], Any]:
    asend = getattr(ask.model, "asend", None)
    if asend is not None and not hasattr(ask.model, "send"):
        return lambda: asend(request, ask.on_delta)
    return lambda: ask.model.send(request, ask.on_delta)


def _attempt(
    ask: Ask, built: Event, done: Done, attempt: int, elapsed_ms: float, system_no: int, *, last: bool
) -> tuple[ModelReplied, Exception | None]:
    """Return the event of one attempt, and what went wrong in it."""
    from ..models import protocol
    from ..models.calls import read_response

    common: dict[str, Any] = {
        "format": ask.model.format, "attempt": attempt, "context": built.sequence_number,
        "duration_ms": elapsed_ms, "system_no": system_no, "endpoint": getattr(ask.model, "endpoint", None) or "",
    }  # fmt: skip
    error = done.error
    raw: str | None = None
    if error is None:
        raw = bytes(done.value).decode("utf-8", "replace")
        try:
            response = read_response(ask.model, done.value)
        except (protocol.ModelError, ValueError) as unreadable:
            error = unreadable
        else:
            return _kept(response, raw, common, _cost(ask.model, response)), None
    elif isinstance(error, protocol.ModelError) and error.body:
        raw = error.body.decode("utf-8", "replace")
    assert isinstance(error, Exception)
    again = not last and (not isinstance(error, protocol.ModelError) or error.retry)
    text = values.plain_text(f"{type(error).__name__}: {error}")[:2000]
    tree = None if raw is None else values.to_tree(raw)
    return ModelReplied(raw=tree, status="retried" if again else "error", error=text, **common), error


def _kept(response: protocol.Response, raw: str, common: dict[str, Any], cost: dict[str, str]) -> ModelReplied:
    tree = values.to_tree(raw)
    in_place = response.arguments_in_place and isinstance(tree, str) and len(raw.encode()) <= INLINE_MAX
    calls = tuple(_recorded_call(call, raw, in_place) for call in response.calls)
    item = values.to_tree(dict(response.item))
    pointer = response.item_pointer if isinstance(tree, str) else None
    if pointer is not None and not _stands_at(raw, pointer, response.item):
        pointer = None
    return ModelReplied(
        raw=tree, item_hash=item_hash(item), wire=None if pointer is not None else item, wire_pointer=pointer or "",
        stop_reason=response.stop_reason, calls=calls, usage=response.usage, served_model=response.served_model,
        response_id=response.response_id, cache_key=response.cache_key, cost=cost, **common,
    )  # fmt: skip


def _stands_at(raw: str, pointer: str, value: Any) -> bool:
    """Whether a reader's pointer is right: what it misses could never be read out of the record again."""
    try:
        return bool(at_pointer(msgspec.json.decode(raw), pointer) == value)
    except (LookupError, ValueError, TypeError, msgspec.DecodeError):
        return False


def _recorded_call(call: ProposedCall, raw: str, in_place: bool) -> ProposedCall:
    if in_place and _stands_at(raw, call.pointer, call.arguments):
        return msgspec.structs.replace(call, arguments=None)
    arguments = values.to_tree(call.arguments) if isinstance(call.arguments, str) else call.arguments
    return msgspec.structs.replace(call, arguments=arguments)


def _cost(model: Any, response: protocol.Response) -> dict[str, str]:
    cost = getattr(model, "cost", None)
    return {} if cost is None else {unit: str(amount) for unit, amount in cost(response).items()}


def reply_of(s: Session, event: Event, model: Any) -> Reply:
    """Return the `Reply` that a kept `ModelReplied` stands for."""
    from ..models.calls import read_response

    body: ModelReplied = event.body
    raw = s.value(body.raw)
    response = read_response(model if getattr(model, "format", None) == body.format else body.format, raw.encode())
    seq = event.sequence_number
    calls = tuple(
        ToolCall(call.tool, _text(s, call, raw), call.provider_id, f"{seq}.{index}", index)
        for index, call in enumerate(body.calls)
    )
    return Reply(response.text, calls, body.stop_reason, body.usage, dict(response.item), seq, body.served_model, raw)


def _text(s: Session, call: ProposedCall, raw: str) -> str:
    if call.arguments is not None:
        return str(s.value(call.arguments))
    return text_of_call(call, lambda: raw)


def tool_tree(tool: Tool) -> dict[str, Any]:
    """Return a tool as it is offered to models."""
    return {"name": tool.name, "description": tool.description, "schema": tool.parameters}


def _common(before: Sequence[int], after: Sequence[int]) -> int:
    count = 0
    for one, other in zip(before, after, strict=False):
        if one != other:
            break
        count += 1
    return count
