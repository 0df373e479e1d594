"""What one span says about a model call or a tool, in any of the conventions that emitters follow.

gen_ai conventions old and new, OpenInference's flattened keys, OpenLLMetry's `gen_ai.prompt.N`, the AI SDK's
`ai.*`, and messages as span events. Where several stand side by side, the first that says something wins, but
the text of arguments is taken from one that has it as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from trajlake.schemas.events import Usage

from .build import label
from .chat_shapes import Said, said_all, said_of
from .message_values import as_text, elements_of, first_reply, messages_in, opened, raw_of
from .trace_steps import Step, StepKind
from .usage import first_count, or_none

FORMAT: Final = "otlp.span/1"
MODEL_OPERATIONS: Final = frozenset({"chat", "generate_content", "text_completion"})
TOOL_OPERATIONS: Final = frozenset({"execute_tool"})
AGENT_OPERATIONS: Final = frozenset({"invoke_agent", "create_agent", "invoke_workflow"})
AI_CALLS: Final = ("doGenerate", "doStream")
EVENT_ROLES: Final = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
PROMPT_KEYS: Final = (
    "gen_ai.input.messages", "gen_ai.system_instructions", "gen_ai.prompt", "llm.input_messages", "ai.prompt",
    "input.value", "input.mime_type", "gen_ai.tool.definitions", "llm.tools", "ai.prompt.tools",
)  # fmt: skip
REPLY_KEYS: Final = (
    "gen_ai.output.messages", "gen_ai.completion", "llm.output_messages", "ai.response.text",
    "ai.response.toolCalls", "ai.response.object", "ai.response.reasoning", "output.value", "output.mime_type",
)  # fmt: skip
TOOL_KEYS: Final = (
    "gen_ai.tool.call.arguments", "gen_ai.tool.call.result", "input.value", "input.mime_type", "output.value",
    "output.mime_type", "ai.toolCall.args", "ai.toolCall.result", "traceloop.entity.input", "traceloop.entity.output",
)  # fmt: skip
ARGUMENT_KEYS: Final = (
    "gen_ai.tool.call.arguments", "ai.toolCall.args", "input.value", "tool.parameters", "traceloop.entity.input",
)  # fmt: skip
OUTPUT_KEYS: Final = ("gen_ai.tool.call.result", "ai.toolCall.result", "output.value", "traceloop.entity.output")
PARAMETERS: Final = (
    "temperature", "top_p", "top_k", "max_tokens", "seed", "frequency_penalty", "presence_penalty", "stop_sequences",
)  # fmt: skip
INPUT_COUNTS: Final = (
    "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt", "llm.usage.prompt_tokens",
    "ai.usage.inputTokens", "ai.usage.promptTokens",
)  # fmt: skip
OUTPUT_COUNTS: Final = (
    "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion",
    "llm.usage.completion_tokens", "ai.usage.outputTokens", "ai.usage.completionTokens",
)  # fmt: skip
READ_COUNTS: Final = (
    "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens",
    "gen_ai.usage.details.cached_tokens", "llm.token_count.prompt_details.cache_read", "ai.usage.cachedInputTokens",
)  # fmt: skip
WRITE_COUNTS: Final = (
    "gen_ai.usage.cache_write.input_tokens", "gen_ai.usage.cache_creation.input_tokens",
    "gen_ai.usage.cache_creation_input_tokens", "llm.token_count.prompt_details.cache_write",
)  # fmt: skip
THOUGHT_COUNTS: Final = (
    "gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens", "gen_ai.usage.details.reasoning_tokens",
    "llm.token_count.completion_details.reasoning", "ai.usage.reasoningTokens",
)  # fmt: skip
_PLACE: Final = re.compile(r"(\d+)\.?(.*)")


class SpanFacts(NamedTuple):
    """A span, whatever it was written as. Times are µs."""

    id: str
    parent: str
    name: str
    start: int
    end: int | None
    place: str
    raw: str
    attributes: dict[str, Any]
    resource: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    error: str


def step_of(span: SpanFacts) -> Step:
    """Return the step that a span is."""
    told = span.attributes
    kind = _kind(told)
    step = Step(kind, span.id, span.parent, span.name, span.start, span.end, span.place, span.raw, f"{kind} span")
    if kind == "model":
        return _model_step(step, span)
    if kind == "tool":
        return _tool_step(step, span)
    name = told.get("gen_ai.agent.name") or told.get("agent.name")
    if kind == "agent":
        return step._replace(name=label(name) or span.name, task=_task(told))
    return step


def _kind(told: Mapping[str, Any]) -> StepKind:
    operation = label(told.get("gen_ai.operation.name"))
    kind = label(told.get("openinference.span.kind")).upper()
    ai_call = label(told.get("ai.operationId"))
    loop = label(told.get("traceloop.span.kind"))
    if operation in MODEL_OPERATIONS or kind == "LLM" or (ai_call.endswith(AI_CALLS) and "ai.embed" not in ai_call):
        return "model"
    if operation in TOOL_OPERATIONS or kind == "TOOL" or ai_call == "ai.toolCall" or loop == "tool":
        return "tool"
    if operation in AGENT_OPERATIONS or kind == "AGENT" or loop == "agent":
        return "agent"
    if not operation and not ai_call and ("gen_ai.request.model" in told or told.get("llm.request.type") == "chat"):
        return "model"
    return "other"


def _model_step(step: Step, span: SpanFacts) -> Step:
    told = span.attributes
    reply, raw = _reply(span)
    usage = usage_of(told)
    if reply is None:
        if usage is None and not any(key.startswith(PROMPT_KEYS) for key in told):
            return step
        reply = Said("assistant", {"role": "assistant", "content": None})  # content is off by default
    reasons = told.get("gen_ai.response.finish_reasons") or told.get("ai.response.finishReason")
    reason = reasons[0] if isinstance(reasons, list) and reasons else reasons
    parameters = {key: told[f"gen_ai.request.{key}"] for key in PARAMETERS if f"gen_ai.request.{key}" in told}
    if "llm.invocation_parameters" in told:
        parameters = opened(told["llm.invocation_parameters"]) or parameters
    cost = told.get("gen_ai.usage.cost", told.get("llm.cost.total"))
    skipped = (*PROMPT_KEYS, *REPLY_KEYS)
    return step._replace(
        prompt=_prompt(span),
        reply=reply,
        reply_raw=raw,
        format=FORMAT,
        usage=usage,
        model=_first(told, "gen_ai.response.model", "llm.response.model_name", "ai.response.model",
                     "gen_ai.request.model", "llm.model_name", "llm.request.model_name", "ai.model.id"),
        response_id=_first(told, "gen_ai.response.id", "ai.response.id", "llm.response.id"),
        stop_reason=None if reason is None else label(reason),
        cost=str(cost) if isinstance(cost, (int, float)) and not isinstance(cost, bool) else "",
        error=span.error or label(told.get("error.type")),
        tools=_tools(told),
        parameters=parameters or None,
        details=_details(span, skipped, events=("gen_ai.",)),
    )  # fmt: skip


def _tool_step(step: Step, span: SpanFacts) -> Step:
    told = span.attributes
    name = _first(told, "gen_ai.tool.name", "tool.name", "ai.toolCall.name", "traceloop.entity.name") or span.name
    arguments = next((told[key] for key in ARGUMENT_KEYS if key in told), None)
    output = next((told[key] for key in OUTPUT_KEYS if key in told), None)
    return step._replace(
        name=name,
        call_id=_first(told, "gen_ai.tool.call.id", "tool_call.id", "ai.toolCall.id", "tool.id"),
        arguments=None if arguments is None else as_text(arguments),
        output=output,
        failed=bool(span.error) or "error.type" in told,
        error=span.error,
        ended=span.end is not None,
        details=_details(span, TOOL_KEYS, events=()),
    )


def usage_of(told: Mapping[str, Any]) -> Usage | None:
    """Return a span's usage; the input includes cached input, also where an emitter left it out."""
    shown, read, write = (first_count(told, *keys) for keys in (INPUT_COUNTS, READ_COUNTS, WRITE_COUNTS))
    if shown is not None and shown < (read or 0) + (write or 0):
        shown += (read or 0) + (write or 0)
    return or_none(
        Usage(
            input_total=shown,
            cached_read=read,
            cache_write=write,
            output=first_count(told, *OUTPUT_COUNTS),
            reasoning=first_count(told, *THOUGHT_COUNTS),
        )
    )


# -- prompts and replies


def _prompt(span: SpanFacts) -> list[Said]:
    told = _with_operation_details(span)
    system = _system(told.get("gen_ai.system_instructions"))
    for key in ("gen_ai.input.messages", "ai.prompt.messages"):
        if key in told and (found := said_all(elements_of(told[key]))):
            return system + found
    for prefix, inner in (("llm.input_messages", "message."), ("gen_ai.prompt", "")):
        if flat := flattened(told, prefix, inner):
            return system + said_all(flat)
    events = [
        raw_of({"role": EVENT_ROLES[name], **_event_body(body)}) for name, body in span.events if name in EVENT_ROLES
    ]
    if events:
        return system + said_all(events)
    for key in ("gen_ai.prompt", "ai.prompt", "input.value", "traceloop.entity.input"):
        if key in told and (found := said_all(messages_in(told[key]))):
            return system + found
    return system


def _reply(span: SpanFacts) -> tuple[Said | None, str]:
    """Return the reply and its text in the source: one attribute's, or an object of those that make it up."""
    told = _with_operation_details(span)
    flat_key, flat = next(
        ((prefix, found) for prefix, inner in (("llm.output_messages", "message."), ("gen_ai.completion", ""))
         if (found := flattened(told, prefix, inner))),
        ("", []),
    )  # fmt: skip
    spelled = first_reply(said_all(flat))
    if "gen_ai.output.messages" in told:
        said = first_reply(said_all(elements_of(told["gen_ai.output.messages"])))
        if said is not None:
            return _spelled(said, spelled), as_text(told["gen_ai.output.messages"])
    if spelled is not None:
        return spelled, _object_of(told, flat_key)
    if any(key in told for key in ("ai.response.text", "ai.response.toolCalls", "ai.response.object")):
        return _ai_reply(told), _object_of(told, *[key for key in REPLY_KEYS if key.startswith("ai.")])
    choices = [body for name, body in span.events if name == "gen_ai.choice"]
    if choices:
        message = _event_body(choices[0])
        inner = message.get("message")
        merged = {**message, **inner} if isinstance(inner, dict) else message
        return first_reply(said_of(raw_of({**merged, "role": "assistant"}))), as_text(choices[0])
    for key in ("gen_ai.completion", "output.value", "traceloop.entity.output"):
        if key in told:
            said = first_reply(said_all(messages_in(told[key])))
            text = told[key]
            if said is None and isinstance(text, str):
                said = Said("assistant", {"role": "assistant", "content": text}, text)
            return said, as_text(text)
    return None, ""


def _ai_reply(told: Mapping[str, Any]) -> Said:
    text = told.get("ai.response.text", told.get("ai.response.object"))
    calls = opened(told.get("ai.response.toolCalls"))
    parts: list[Any] = [{"type": "text", "text": text}] if isinstance(text, str) else []
    parts += [{"type": "tool-call", **call} for call in calls or [] if isinstance(call, dict)]
    body = {"role": "assistant", "content": parts, "reasoning_content": told.get("ai.response.reasoning") or ""}
    return first_reply(said_of(raw_of(body))) or Said("assistant", {"role": "assistant", "content": None})


def _spelled(said: Said, other: Said | None) -> Said:
    """Take the text of arguments from a second telling of the same reply that has it as text."""
    if other is None or [call.tool for call in said.calls] != [call.tool for call in other.calls]:
        return said
    calls = tuple(
        call._replace(arguments=twin.arguments) if twin.arguments is not None else call
        for call, twin in zip(said.calls, other.calls, strict=True)
    )
    wire = dict(said.wire) if isinstance(said.wire, dict) else said.wire
    if isinstance(wire, dict) and "tool_calls" in wire:
        wire["tool_calls"] = [
            {"id": call.provider_id, "type": "function", "function": {"name": call.tool, "arguments": call.arguments}}
            for call in calls
        ]
    return said._replace(calls=calls, wire=wire)


def flattened(told: Mapping[str, Any], prefix: str, inner: str) -> list[msgspec.Raw]:
    """Return the messages that stand in flattened keys: `<prefix>.<n>.<inner>role`, `...tool_calls.<m>...`."""
    messages: dict[int, dict[str, Any]] = {}
    start = prefix + "."
    for key, value in told.items():
        found = _PLACE.fullmatch(key[len(start) :]) if key.startswith(start) else None
        if found is not None:
            _put(messages.setdefault(int(found[1]), {}), found[2].removeprefix(inner), value)
    return [raw_of(_listed(messages[number])) for number in sorted(messages)]


def _put(message: dict[str, Any], path: str, value: Any) -> None:
    steps = [step for step in path.split(".") if step not in ("tool_call", "message_content", "message")]
    at = message
    for step in steps[:-1]:
        inside = at.setdefault(step, {})
        if not isinstance(inside, dict):
            return
        at = inside
    if steps:
        at[{"contents": "content"}.get(steps[-1], steps[-1])] = value


def _listed(tree: Any) -> Any:
    """Turn objects whose keys are places into lists."""
    if not isinstance(tree, dict):
        return tree
    if tree and all(key.isdigit() for key in tree):
        return [_listed(tree[key]) for key in sorted(tree, key=int)]
    made = {key: _listed(value) for key, value in tree.items()}
    if isinstance(made.get("contents"), list):
        made.setdefault("content", made["contents"])
        del made["contents"]
    return made


# -- values


def _with_operation_details(span: SpanFacts) -> dict[str, Any]:
    """Attributes, with those of the event that carries content where the span does not."""
    found = dict(span.attributes)
    for name, body in span.events:
        if name == "gen_ai.client.inference.operation.details":
            found = {**body, **found}
        if name == "gen_ai.content.prompt" and "gen_ai.prompt" in body:
            found.setdefault("gen_ai.prompt", body["gen_ai.prompt"])
        if name == "gen_ai.content.completion" and "gen_ai.completion" in body:
            found.setdefault("gen_ai.completion", body["gen_ai.completion"])
    return found


def _event_body(body: dict[str, Any]) -> dict[str, Any]:
    """The body of a message event; values that hold JSON are opened, content stays text."""
    plain = ("content", "role", "id", "name")
    return {
        key: opened(value) if key not in plain and isinstance(value, str) and value[:1] in ("[", "{") else value
        for key, value in body.items()
    }


def _system(told: Any) -> list[Said]:
    value = opened(told)
    if value is None:
        return []
    parts = value if isinstance(value, list) else [value]
    texts = [one if isinstance(one, str) else one.get("content", one.get("text")) for one in parts
             if isinstance(one, (str, dict))]  # fmt: skip
    text = "".join(one for one in texts if isinstance(one, str))
    return [Said("system", {"role": "system", "content": text}, text)]


def _tools(told: Mapping[str, Any]) -> Any:
    for key in ("gen_ai.tool.definitions", "ai.prompt.tools"):
        if key in told:
            return opened(told[key])
    listed = [opened(value) for key, value in told.items() if re.fullmatch(r"llm\.tools\.\d+\.tool\.json_schema", key)]
    return listed or None


def _first(told: Mapping[str, Any], *keys: str) -> str:
    return next((label(told[key]) for key in keys if told.get(key) not in (None, "")), "")


def _task(told: Mapping[str, Any]) -> Any:
    value = told.get("input.value")
    return value if isinstance(value, str) and value[:1] not in ("{", "[") else None


def _object_of(told: Mapping[str, Any], *prefixes: str) -> str:
    kept = {key: value for key, value in told.items() if key.startswith(prefixes)}
    return json.dumps(kept, ensure_ascii=False)


def _details(span: SpanFacts, skipped: tuple[str, ...], events: tuple[str, ...]) -> str:
    """Return what a span says beside what was mapped, its place in the trace included, as JSON text."""
    rest: dict[str, Any] = {
        "spanId": span.id,
        "parentSpanId": span.parent,
        "start_us": span.start,
        "end_us": span.end,
        "attributes": {key: value for key, value in span.attributes.items() if not key.startswith(skipped)},
        "resource": span.resource,
        "events": [[name, body] for name, body in span.events if not events or not name.startswith(events)],
    }
    return json.dumps({"name": span.name, **{key: value for key, value in rest.items() if value}}, ensure_ascii=False)
