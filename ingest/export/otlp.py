"""`otlp`: one OTLP JSON document per trajectory, by the current gen_ai conventions.

The trajectory is an `invoke_agent` span, each reply a `chat` span below it, each answered or open call an
`execute_tool` span below its reply. Prompts are written in full, as the conventions say.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

from .turns import Answer, Asked, Conversation, Losses, Message, Reply, Summary, as_text

NAME: Final = "otlp"
INTERNAL, CLIENT = 1, 3


def write(conversation: Conversation, losses: Losses) -> Iterator[str]:
    """Yield the one document of a trajectory."""
    spans = list(_spans(conversation, losses))
    resource = {"attributes": _attributes({"service.name": conversation.start.agent or "trajlake"})}
    scope = {"scope": {"name": "trajlake"}, "spans": spans}
    yield as_text({"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]})


def _spans(conversation: Conversation, losses: Losses) -> Iterator[dict[str, Any]]:
    trace = sha256(f"{conversation.tenant}/{conversation.trajectory_id}".encode("utf-8", "surrogatepass")).hexdigest()[
        :32
    ]
    root = _span_id(trace, "agent")
    first, last = conversation.events[0].recorded_at, max(event.recorded_at for event in conversation.events)
    start, source = conversation.start, conversation.start.source
    told: dict[str, Any] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": start.agent or None,
        "gen_ai.agent.version": source.producer_version or None if source else None,
        "gen_ai.conversation.id": conversation.trajectory_id,
        "gen_ai.request.model": start.model,
        "gen_ai.tool.definitions": json.dumps(conversation.tools) if conversation.tools else None,
        "error.type": conversation.end.reason or "failed"
        if conversation.end and conversation.end.status == "failed"
        else None,
    }
    yield _span(trace, root, "", f"invoke_agent {start.agent or 'agent'}", INTERNAL, first, last, told)
    prompt: list[dict[str, Any]] = []
    for turn in conversation.turns:
        if isinstance(turn, Message):
            prompt.append({"role": turn.role, "parts": _parts(turn.text)})
            if turn.copied:
                losses.add("marks of copied messages")
        elif isinstance(turn, Summary):
            losses.add("compactions (the prompts of later calls begin with the summary)")
            prompt = [{"role": "user", "parts": _parts(turn.text)}] if turn.text is not None else []
        elif isinstance(turn, Answer):
            part = {"type": "tool_call_response", "id": turn.call_id or turn.action_id, "response": turn.output}
            prompt.append({"role": "tool", "parts": [part]})
        else:
            yield from _reply_spans(trace, root, turn, prompt, losses)
    losses.add("times between request and reply where none was recorded", _untimed(conversation))
    conversation.count_losses(losses)


def _reply_spans(
    trace: str, root: str, turn: Reply, prompt: list[dict[str, Any]], losses: Losses
) -> Iterator[dict[str, Any]]:
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
        "gen_ai.input.messages": json.dumps(prompt),
        "gen_ai.output.messages": json.dumps([message]),
        "error.type": turn.error or turn.status if turn.status == "error" else None,
    }
    begun = turn.at - round((turn.duration_ms or 0) * 1000)
    yield _span(trace, span_id, root, f"chat {turn.model}", CLIENT, begun, turn.at, told)
    losses.add("raw response bodies", int(bool(turn.raw)))
    if turn.status == "kept" and turn.purpose == "act":
        prompt.append({"role": "assistant", "parts": message["parts"]})
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
