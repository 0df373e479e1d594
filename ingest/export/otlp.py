"""`otlp`: OTLP JSON by the current gen_ai conventions, one line (a whole document) per 4 MB of spans.

The trajectory is an `invoke_agent` span, written last as it ends last; each reply is a `chat` span below it, each
answered call an `execute_tool` span below its reply. By the conventions every `chat` span holds its whole prompt, which
grows with the square of a session; `prompts="new"` writes what is new in it only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

from .turns import Answer, Asked, Conversation, Losses, Message, Reply, Summary, as_text

NAME: Final = "otlp"
INTERNAL, CLIENT = 1, 3
BATCH_SIZE_MAX_BYTES: Final = 4 << 20


def write(conversation: Conversation, losses: Losses, *, prompts: str = "full") -> Iterator[str]:
    """Yield the lines of one trajectory. `prompts`: `full` or `new`."""
    resource = {"attributes": _attributes({"service.name": conversation.start.agent or "trajlake"})}
    batch: list[str] = []
    size = 0
    for span in _spans(conversation, losses, prompts):
        text = as_text(span)
        if batch and size + len(text) > BATCH_SIZE_MAX_BYTES:
            yield _line(resource, batch)
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    yield _line(resource, batch)


def _line(resource: dict[str, Any], spans: list[str]) -> str:
    scope = f'{{"scope": {{"name": "trajlake"}}, "spans": [{", ".join(spans)}]}}'
    return f'{{"resourceSpans": [{{"resource": {as_text(resource)}, "scopeSpans": [{scope}]}}]}}'


def _spans(conversation: Conversation, losses: Losses, prompts: str) -> Iterator[dict[str, Any]]:
    name = f"{conversation.tenant}/{conversation.trajectory_id}"
    trace = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    root = _span_id(trace, "agent")
    prompt: list[str] = []
    for turn in conversation.turns:
        if isinstance(turn, Message):
            prompt.append(json.dumps({"role": turn.role, "parts": _parts(turn.text)}))
            losses.add("marks of copied messages", int(turn.copied))
        elif isinstance(turn, Summary):
            losses.add("compactions (the prompts of later calls begin with the summary)")
            prompt = [json.dumps({"role": "user", "parts": _parts(turn.text)})] if turn.text is not None else []
        elif isinstance(turn, Answer):
            part = {"type": "tool_call_response", "id": turn.call_id or turn.action_id, "response": turn.output}
            prompt.append(json.dumps({"role": "tool", "parts": [part]}, default=repr))
        else:
            yield from _reply_spans(trace, root, turn, prompt, losses)
            if prompts == "new":
                losses.add("prompts (only what is new in them is written)")
                prompt.clear()
    losses.add("durations of replies (none was recorded)", _untimed(conversation))
    conversation.count_losses(losses)
    yield _agent_span(trace, root, conversation)


def _agent_span(trace: str, root: str, conversation: Conversation) -> dict[str, Any]:
    start, source, end = conversation.start, conversation.start.source, conversation.end
    failed = end is not None and end.status == "failed"
    told: dict[str, Any] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": start.agent or None,
        "gen_ai.agent.version": (source.producer_version or None) if source else None,
        "gen_ai.conversation.id": conversation.trajectory_id,
        "gen_ai.request.model": start.model,
        "gen_ai.tool.definitions": json.dumps(conversation.tools) if conversation.tools else None,
        "error.type": (end.reason if end else "") or "failed" if failed else None,
    }
    first, last = conversation.events[0].recorded_at, max(event.recorded_at for event in conversation.events)
    return _span(trace, root, "", f"invoke_agent {start.agent or 'agent'}", INTERNAL, first, last, told)


def _reply_spans(trace: str, root: str, turn: Reply, prompt: list[str], losses: Losses) -> Iterator[dict[str, Any]]:
    span_id = _span_id(trace, str(turn.event))
    message = {"role": "assistant", "parts": _reply_parts(turn)}
    if turn.stop_reason:
        message["finish_reason"] = turn.stop_reason
    usage = turn.usage
    told: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": turn.model,
        "gen_ai.response.model": turn.model,
        "gen_ai.response.id": turn.response_id or None,
        "gen_ai.response.finish_reasons": [turn.stop_reason] if turn.stop_reason else None,
        "gen_ai.usage.input_tokens": usage.input_total if usage else None,
        "gen_ai.usage.output_tokens": usage.output if usage else None,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_read if usage else None,
        "gen_ai.usage.cache_write.input_tokens": usage.cache_write if usage else None,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning if usage else None,
        "gen_ai.input.messages": f"[{', '.join(prompt)}]",
        "gen_ai.output.messages": json.dumps([message]),
        "error.type": turn.error or turn.status if turn.status == "error" else None,
    }
    begun = turn.at - round((turn.duration_ms or 0) * 1000)
    yield _span(trace, span_id, root, f"chat {turn.model}", CLIENT, begun, turn.at, told)
    losses.add("raw response bodies", int(bool(turn.raw)))
    if turn.status == "kept" and turn.purpose == "act":
        prompt.append(json.dumps({"role": "assistant", "parts": message["parts"]}))
    for call in turn.calls:
        if call.answer is None:
            losses.add("calls without an answer (no execute_tool span)")
        else:
            yield _tool_span(trace, span_id, call, call.answer)


def _tool_span(trace: str, parent: str, call: Asked, answer: Answer) -> dict[str, Any]:
    told = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.tool,
        "gen_ai.tool.call.id": call.call_id or call.action_id,
        "gen_ai.tool.call.arguments": call.arguments,
        "gen_ai.tool.call.result": as_text(answer.output),
        "error.type": None if answer.status == "ok" else answer.status,
    }
    begun = answer.at - round((answer.duration_ms or 0) * 1000)
    span = _span(
        trace, _span_id(trace, call.action_id), parent, f"execute_tool {call.tool}", INTERNAL, begun, answer.at, told
    )
    if answer.status != "ok":
        span["status"] = {"code": 2, "message": as_text(answer.error) or answer.status}
    return span


def _reply_parts(turn: Reply) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    if turn.thought:
        parts.append({"type": "reasoning", "content": turn.thought})
    parts += _parts(turn.text) if turn.text is not None else []
    for call in turn.calls:
        # A string here is the text that the model emitted; an object would lose its spelling.
        parts.append({"type": "tool_call", "id": call.call_id or call.action_id, "name": call.tool,
                      "arguments": call.arguments})  # fmt: skip
    return parts


def _parts(value: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "content": as_text(value)}]


def _untimed(conversation: Conversation) -> int:
    return sum(1 for turn in conversation.turns if isinstance(turn, Reply) and turn.duration_ms is None)


def _span(
    trace: str, span_id: str, parent: str, name: str, kind: int, start: int, end: int, told: dict[str, Any]
) -> dict[str, Any]:
    span = {"traceId": trace, "spanId": span_id, "name": name, "kind": kind, "startTimeUnixNano": str(start * 1000),
            "endTimeUnixNano": str(end * 1000), "attributes": _attributes(told)}  # fmt: skip
    if parent:
        span["parentSpanId"] = parent
    return span


def _attributes(told: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in told.items() if value is not None]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(one) for one in value]}}
    return {"stringValue": value if isinstance(value, str) else as_text(value)}


def _span_id(trace: str, name: str) -> str:
    return sha256(f"{trace}/{name}".encode()).hexdigest()[:16]
