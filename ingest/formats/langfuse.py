"""Langfuse exports: {trace, observations} documents, traces with their observations inside, lists and lines of them.

`input`, `output` and `metadata` are JSON as text in some files and as data in others. Observations stand in no
order; they are taken by start time. Scores are judgements: they are kept raw with their trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from trajlake.schemas.events import Usage

from ..sources import Source
from .build import label, time_us
from .chat_shapes import Said, said_all
from .contract import BadSource, Item, Loss, ReadOptions
from .documents import Document, first_value, read_records, refuse, under
from .json_text import object_text, raw_elements, raw_members, string_of, text_of, value_of
from .message_values import first_reply, members_of, messages_in, opened
from .trace_steps import Step, StepKind, Trace
from .usage import first_count, or_none

NAME: Final = "langfuse"
FORMAT: Final = "langfuse.observation/1"
MODEL_TYPES: Final = frozenset({"GENERATION", "COMPLETION"})
READ_COUNTS: Final = (
    "input_cache_read", "prompt_details.cache_read", "input_cached_tokens", "cache_read_input_tokens",
    "input_token_details.cache_read", "prompt_tokens_details.cached_tokens",
)  # fmt: skip
WRITE_COUNTS: Final = ("input_cache_creation", "cache_creation_input_tokens", "prompt_details.cache_write")
THOUGHT_COUNTS: Final = (
    "output_reasoning", "completion_details.reasoning", "output_reasoning_tokens", "reasoning_tokens",
    "completion_tokens_details.reasoning_tokens",
)  # fmt: skip
TOLD: Final = frozenset({"input", "output"})
"""Fields of an observation that become prompt, reply or answer."""


class Langfuse:
    """The importer `langfuse`."""

    name = NAME
    mapping_version = 0

    def sniff(self, head: bytes, name: str) -> int:  # noqa: ARG002 - content alone decides
        value = first_value(head)
        if isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, dict):
            return 94 if isinstance(value.get("observations"), list) and ("trace" in value or "id" in value) else 0
        start = head.lstrip()
        is_trace = start.startswith((b"{", b"[")) and b'"projectId"' in start
        return 90 if is_trace and (b'"observations"' in start or b'"parentObservationId"' in start) else 0

    def read(self, source: Source, options: ReadOptions, loss: Loss) -> Iterator[Item]:
        ready: list[Item] = []
        found = False
        for record in read_records(source, loss):
            parts = raw_members(record.raw) or {}
            observations = raw_elements(parts["observations"]) if "observations" in parts else None
            if observations is None:
                if not found:
                    break
                loss.skip("no trace")
                loss.problem(record.place, "holds no observations; left out")
                continue
            found = True
            _read_trace(source, options, loss, ready, record, parts, observations)
            yield from ready
            ready.clear()
        if not found:
            raise refuse(source, "holds no Langfuse trace with its observations")


def _read_trace(
    source: Source,
    options: ReadOptions,
    loss: Loss,
    ready: list[Item],
    record: Document,
    parts: dict[str, msgspec.Raw],
    observations: list[msgspec.Raw],
) -> None:
    told = (raw_members(parts["trace"]) if "trace" in parts else parts) or {}
    trace_id = label(value_of(told["id"])) if "id" in told else ""
    steps = []
    for index, raw in enumerate(observations):
        step = step_of(raw, under(record.place, f"/observations/{index}"))
        if step is None:
            loss.skip("no observation")
            loss.problem(under(record.place, f"/observations/{index}"), "is no observation; left out")
        else:
            steps.append(step)
    place = under(record.place, "/trace") if "trace" in parts else record.place or "whole file"
    begun = time_us(value_of(told["timestamp"])) if "timestamp" in told else None
    if not steps:
        steps = [Step("other", "", "", "trace", begun or 0, None, place, "{}", "empty trace")]
    trace = Trace(NAME, trace_id, source.name, options.tenant, ready.append, loss)
    try:
        main = trace.build(steps)
    except BadSource as error:
        loss.skip("hostile id", len(steps))
        loss.problem(place, str(error))
        return
    copies = raw_elements(told["observations"]) if "trace" in parts and "observations" in told else None
    if copies:
        loss.skip("observation (copy inside the trace)", len(copies))
    main.keep("trace", object_text(told, without=("observations",)), place=place)
    loss.keep("trace")
    around = set(parts) - {"trace", "observations"}
    if "trace" in parts and around:
        main.keep("export", object_text(parts, without=("trace", "observations")), place=record.place or "whole file")
        loss.keep("export")


def step_of(raw: msgspec.Raw, place: str) -> Step | None:
    """Return the step that an observation is; None for what is no object."""
    parts = raw_members(raw)
    if parts is None:
        return None
    kind = label(_value(parts, "type")).upper()
    output = _opened_text(parts.get("output"))
    start = time_us(_value(parts, "startTime")) or 0
    end = time_us(_value(parts, "endTime"))
    level_error = label(_value(parts, "level")) == "ERROR"
    error = label(_value(parts, "statusMessage")) or "error" if level_error else ""
    answer = _answer_in(output)
    step_kind: StepKind = "other"
    if kind in MODEL_TYPES:
        step_kind = "model"
    elif kind == "TOOL" or (kind == "SPAN" and answer is not None):
        step_kind = "tool"
    elif kind == "AGENT":
        step_kind = "agent"
    step = Step(
        step_kind, label(_value(parts, "id")), label(_value(parts, "parentObservationId")),
        label(_value(parts, "name")), start, end, place, text_of(raw), kind or "observation", error=error,
        ended=end is not None, failed=level_error,
    )  # fmt: skip
    if step_kind == "model":
        return _model_step(step, parts, output)
    if step_kind == "tool":
        return _tool_step(step, parts, output, answer)
    return step


def _model_step(step: Step, parts: dict[str, msgspec.Raw], output: str | None) -> Step:
    prompt, tools = _prompt(_opened_text(parts.get("input")))
    usage = usage_of(opened(_value(parts, "usageDetails")) or opened(_value(parts, "usage")))
    costs = opened(_value(parts, "costDetails"))
    cost = costs.get("total") if isinstance(costs, dict) else _value(parts, "calculatedTotalCost")
    parameters = opened(_value(parts, "modelParameters"))
    reply = first_reply(said_all(messages_in(output))) if output is not None else None
    if reply is None:
        value = None if output is None else opened(output)
        text = value if isinstance(value, str) else output
        reply = Said("assistant", {"role": "assistant", "content": text}, text)
    told = members_of(output) if output is not None else {}
    response_id = _value(told, "id")
    return step._replace(
        prompt=prompt,
        reply=reply,
        reply_raw=output or "",
        format=FORMAT,
        usage=usage,
        model=label(_value(parts, "model")),
        response_id=label(response_id) if isinstance(response_id, str) and "object" in told else "",
        cost=str(cost) if isinstance(cost, (int, float)) and not isinstance(cost, bool) else "",
        tools=tools or opened(_value(parts, "toolDefinitions")) or None,
        parameters=parameters if isinstance(parameters, dict) and parameters else None,
        details=object_text(parts, without=TOLD),
    )


def _tool_step(step: Step, parts: dict[str, msgspec.Raw], output: str | None, answer: Said | None) -> Step:
    attributes = opened(_value(parts, "metadata"))
    attributes = attributes.get("attributes") if isinstance(attributes, dict) else None
    attributes = attributes if isinstance(attributes, dict) else {}
    name = label(attributes.get("gen_ai.tool.name")) or step.name
    value = None if output is None else opened(output)
    return step._replace(
        name=name,
        call_id=answer.call_id if answer is not None else label(attributes.get("gen_ai.tool.call.id")),
        arguments=_opened_text(parts.get("input")),
        output=answer.output if answer is not None else (output if isinstance(value, str) else value),
        details=object_text(parts, without=TOLD),
    )


def usage_of(told: Any) -> Usage | None:
    """Return an observation's usage. Where the counts add up to the total only with the cached ones, input excludes
    them."""
    if not isinstance(told, Mapping):
        return None
    shown = first_count(told, "input", "prompt", "promptTokens", "input_tokens")
    output = first_count(told, "output", "completion", "completionTokens", "output_tokens")
    read, write = first_count(told, *READ_COUNTS), first_count(told, *WRITE_COUNTS)
    cached = (read or 0) + (write or 0)
    total = first_count(told, "total", "totalTokens")
    if shown is not None and cached and (shown < cached or total == shown + (output or 0) + cached):
        shown += cached
    return or_none(
        Usage(
            input_total=shown,
            cached_read=read,
            cache_write=write,
            output=output,
            reasoning=first_count(told, *THOUGHT_COUNTS),
        )
    )


def _prompt(text: str | None) -> tuple[list[Said], Any]:
    """Return the messages of a prompt, and the tool definitions that LangChain's handler puts among them."""
    if text is None:
        return [], None
    raws, tools = [], []
    for raw in messages_in(text):
        content = (raw_members(raw) or {}).get("content")
        inner = raw_members(content) if content is not None else None
        if content is not None and inner is not None and "function" in inner and _value(inner, "type") == "function":
            tools.append(value_of(content))
        else:
            raws.append(raw)
    said = said_all(raws)
    if not raws and not tools:
        value = opened(text)
        said = [Said("user", {"role": "user", "content": value}, value if isinstance(value, str) else text)]
    return said, tools


def _answer_in(output: str | None) -> Said | None:
    """Return the tool message that an output is, if it is one."""
    parts = members_of(output) if output is not None else {}
    if _value(parts, "type") != "tool" and _value(parts, "role") != "tool":
        return None
    found = said_all(messages_in(output))
    return found[0] if found and found[0].role == "tool" and found[0].call_id else None


def _opened_text(raw: msgspec.Raw | None) -> str | None:
    """Return a field as JSON text: what a string holds, or the exact text of the data. None for null and absent."""
    if raw is None or bytes(raw) == b"null":
        return None
    held = string_of(raw)
    return text_of(raw) if held is None else held


def _value(parts: Mapping[str, msgspec.Raw], key: str) -> Any:
    return value_of(parts[key]) if key in parts else None


IMPORTER: Final = Langfuse()
