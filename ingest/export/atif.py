"""`atif`: one ATIF document per trajectory.

What came in as ATIF goes out as it was: its steps stand in the events word for word. Everything else is written as
ATIF v1.7, whose rules forbid unknown fields, want a message in every step and arguments as an object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from trajlake.schemas.events import Usage

from .turns import Answer, Asked, Conversation, Losses, Message, Reply, Summary, arguments_object, as_text

NAME: Final = "atif"
VERSION: Final = "ATIF-v1.7"
_STEP: Final = re.compile(r"/steps/(\d+)(?:/observation/results/(\d+))?$")
SOURCES: Final = {"system": "system", "developer": "system", "user": "user", "assistant": "agent"}
Children = Callable[[str], list[Conversation]]


def write(conversation: Conversation, losses: Losses, children: Children = lambda _: []) -> Iterator[str]:
    """Yield the one document of a trajectory. `children` gives the sub-agents that were embedded in it."""
    yield as_text(document(conversation, losses, children))


def document(conversation: Conversation, losses: Losses, children: Children = lambda _: []) -> dict[str, Any]:
    """Return the document as data."""
    source = conversation.start.source
    if source is not None and source.format == NAME:
        found = _as_it_was(conversation, children, losses)
        if found is not None:
            return found
    return _made(conversation, losses)


# -- what was ATIF


def _as_it_was(conversation: Conversation, children: Children, losses: Losses) -> dict[str, Any] | None:
    outer = next((kept for kept in conversation.kept if kept.kind == "document"), None)
    if outer is None:
        return None
    steps: dict[int, dict[str, Any]] = {}
    results: dict[int, dict[int, Any]] = {}
    for turn in conversation.turns:
        place = _STEP.search("" if isinstance(turn, Summary) else turn.place)
        if place is None or isinstance(turn, Summary):
            continue
        number = int(place[1])
        if place[2] is not None:
            results.setdefault(number, {})[int(place[2])] = _result_as_it_was(turn)
        elif isinstance(turn, Message):
            steps[number] = turn.wire if isinstance(turn.wire, dict) else {}
        elif isinstance(turn, Reply):
            steps[number] = json.loads(turn.raw)
    for kept in conversation.kept:
        place = _STEP.search(kept.place)
        if kept.kind == "step" and place is not None:
            steps[int(place[1])] = json.loads(conversation.value(kept.raw))
    for number, mine in results.items():
        told = {"results": [mine[index] for index in sorted(mine)]}
        steps.setdefault(number, {}).setdefault("observation", told)
    made: dict[str, Any] = json.loads(conversation.value(outer.raw))
    made["steps"] = [steps[number] for number in sorted(steps)]
    inner = [document(child, losses, children) for child in children(conversation.trajectory_id)]
    if inner:
        made["subagent_trajectories"] = inner
    return made


def _result_as_it_was(turn: Message | Reply | Answer) -> Any:
    if isinstance(turn, Answer):
        return turn.wire if turn.wire is not None else {"source_call_id": turn.call_id, "content": turn.output}
    return turn.wire


# -- what was something else


def _made(conversation: Conversation, losses: Losses) -> dict[str, Any]:
    start, source = conversation.start, conversation.start.source
    steps: list[dict[str, Any]] = []
    by_action: dict[str, dict[str, Any]] = {}
    for turn in conversation.turns:
        step = _step_of(turn, losses, by_action)
        if step is not None:
            step["step_id"] = len(steps) + 1
            steps.append(step)
    if not steps:
        losses.add("trajectories without a step (ATIF wants one: an empty system message is written)")
        steps.append({"step_id": 1, "source": "system", "message": ""})
    agent: dict[str, Any] = {
        "name": start.agent or (source.format if source else "unknown"),
        "version": (source.producer_version if source else start.runtime) or "unknown",
    }
    if start.model != "unknown":
        agent["model_name"] = start.model
    if isinstance(conversation.tools, list) and all(isinstance(tool, dict) for tool in conversation.tools):
        agent["tool_definitions"] = conversation.tools
    made: dict[str, Any] = {
        "schema_version": VERSION,
        "session_id": source.session if source else conversation.trajectory_id,
        "trajectory_id": conversation.trajectory_id,
        "agent": agent,
        "steps": steps,
    }
    if totals := _totals(conversation):
        made["final_metrics"] = totals
    made["extra"] = _extra(conversation)
    losses.add("request parameters", int(conversation.parameters is not None))
    conversation.count_losses(losses)
    return made


def _extra(conversation: Conversation) -> dict[str, Any]:
    told: dict[str, Any] = {"tenant": conversation.tenant, "origin": conversation.start.origin}
    if conversation.start.source is not None:
        told["source_format"] = conversation.start.source.format
    if conversation.end is not None:
        told["status"] = conversation.end.status
        if conversation.end.reason:
            told["reason"] = conversation.end.reason
    return {"trajlake": told}


def _step_of(turn: Any, losses: Losses, by_action: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    if isinstance(turn, Message):
        return _message_step(turn, losses)
    if isinstance(turn, Summary):
        losses.add("compactions (written as a system step)")
        extra = {"compaction": {"trigger": turn.trigger, "tokens_before": turn.tokens_before,
                                "tokens_after": turn.tokens_after}}  # fmt: skip
        return {**_at(turn.at), "source": "system", "message": as_text(turn.text), "extra": extra}
    if isinstance(turn, Answer):
        return _answer(turn, losses, by_action)
    return _reply_step(turn, losses, by_action)


def _message_step(turn: Message, losses: Losses) -> dict[str, Any]:
    role = turn.said.role if turn.said is not None else turn.role
    step: dict[str, Any] = {**_at(turn.at), "source": SOURCES.get(role, "system")}
    if role == "tool":
        losses.add("answers without a call (written as observations of a system step)")
        return {**step, "message": "", "observation": {"results": [{"content": as_text(turn.text)}]}}
    if role not in SOURCES:
        losses.add(f"role {role!r} (written as system)")
    step["message"] = _text(turn.text, losses)
    if turn.copied:
        step["is_copied_context"] = True
    elif step["source"] == "agent":
        step["llm_call_count"] = 0
    if turn.said is not None and turn.said.calls:
        losses.add("calls inside a message that is no reply")
    return step


def _reply_step(turn: Reply, losses: Losses, by_action: dict[str, dict[str, Any]]) -> dict[str, Any]:
    step: dict[str, Any] = {**_at(turn.at), "source": "agent", "message": _text(turn.text, losses)}
    if turn.model and turn.model != "unknown":
        step["model_name"] = turn.model
    if turn.thought:
        step["reasoning_content"] = turn.thought
    if turn.calls:
        step["tool_calls"] = [_call(call, losses) for call in turn.calls]
        for call in turn.calls:
            by_action[call.action_id] = step
    metrics = _metrics(turn)
    if metrics:
        step["metrics"] = metrics
    extra = {"stop_reason": turn.stop_reason, "response_id": turn.response_id or None,
             "status": None if turn.status == "kept" else turn.status,
             "purpose": None if turn.purpose == "act" else turn.purpose, "error": turn.error or None}  # fmt: skip
    extra = {key: value for key, value in extra.items() if value is not None}
    if extra:
        step["extra"] = extra
    losses.add("raw response bodies", int(bool(turn.raw)))
    return step


def _call(call: Asked, losses: Losses) -> dict[str, Any]:
    value = arguments_object(call.arguments)
    made: dict[str, Any] = {
        "tool_call_id": call.call_id or call.action_id,
        "function_name": call.tool,
        "arguments": {} if value is None else value,
    }
    if value is None:
        losses.add("arguments that are no JSON object (their text is in extra)")
        made["extra"] = {"arguments_text": call.arguments}
    elif call.arguments is not None and json.dumps(value, ensure_ascii=False) != call.arguments:
        losses.add("spelling of arguments (written as objects)")
    return made


def _answer(turn: Answer, losses: Losses, by_action: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    if turn.output is not None and not isinstance(turn.output, str):
        losses.add("answers that are no text (written as JSON text)")
    result: dict[str, Any] = {"content": as_text(turn.output)}
    if turn.status != "ok":
        result["extra"] = {"status": turn.status}
    step = by_action.get(turn.action_id)
    if step is None:
        losses.add("answers without a call (written as observations of a system step)")
        return {**_at(turn.at), "source": "system", "message": "", "observation": {"results": [result]}}
    call_id = turn.call_id or turn.action_id
    step.setdefault("observation", {"results": []})["results"].append({"source_call_id": call_id, **result})
    losses.add("times of single answers")
    return None


def _text(value: Any, losses: Losses) -> str:
    if isinstance(value, list):
        texts = [part.get("text") for part in value if isinstance(part, dict) and isinstance(part.get("text"), str)]
        losses.add("parts of messages that are no text (ATIF keeps media beside the document)", len(value) - len(texts))
        return "".join(text for text in texts if text is not None)
    if value is not None and not isinstance(value, str):
        losses.add("messages that are no text (written as JSON text)")
    return as_text(value)


def _metrics(turn: Reply) -> dict[str, Any]:
    usage = turn.usage or Usage()
    extra = {"cache_creation_input_tokens": usage.cache_write, "reasoning_tokens": usage.reasoning}
    told: dict[str, Any] = {
        "prompt_tokens": usage.input_total,
        "completion_tokens": usage.output,
        "cached_tokens": usage.cached_read,
        "cost_usd": turn.cost_usd,
        "completion_token_ids": turn.token_ids if isinstance(turn.token_ids, list) else None,
        "logprobs": turn.logprobs if _is_numbers(turn.logprobs) else None,
        "extra": {key: value for key, value in extra.items() if value is not None} or None,
    }
    return {key: value for key, value in told.items() if value is not None}


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, (int, float)) for one in value)


def _totals(conversation: Conversation) -> dict[str, Any]:
    replies = [turn for turn in conversation.turns if isinstance(turn, Reply)]
    told: dict[str, list[Any]] = {
        "total_prompt_tokens": [turn.usage.input_total for turn in replies if turn.usage],
        "total_completion_tokens": [turn.usage.output for turn in replies if turn.usage],
        "total_cached_tokens": [turn.usage.cached_read for turn in replies if turn.usage],
        "total_cost_usd": [turn.cost_usd for turn in replies],
    }
    found = {name: [one for one in values if one is not None] for name, values in told.items()}
    return {name: sum(values) for name, values in found.items() if values}


def _at(at: int) -> dict[str, Any]:
    return {"timestamp": iso_time(at)} if at else {}


def iso_time(at: int) -> str:
    """Return µs since 1970 as ISO 8601 in UTC."""
    return datetime.fromtimestamp(at / 1_000_000, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
