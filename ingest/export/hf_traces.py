"""`hf-traces`: the Hub's session format for harnesses without a viewer of their own (STS): a `session` line, then
one `message` line for each turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from .atif import iso_time
from .turns import Answer, Conversation, Losses, Message, Reply, Summary, arguments_object, as_text

NAME: Final = "hf-traces"


def write(conversation: Conversation, losses: Losses) -> Iterator[str]:
    """Yield the lines of one trajectory."""
    start = conversation.start
    source = start.source
    session: dict[str, Any] = {
        "type": "session",
        "harness": source.format if source is not None else start.agent or "trajlake",
        "id": source.session if source is not None else conversation.trajectory_id,
        "timestamp": iso_time(conversation.events[0].recorded_at),
        "model": start.model,
    }
    if isinstance(start.task, str):
        session["name"] = start.task[:200]
    if conversation.tools:
        session["tools"] = conversation.tools
    yield as_text(session)
    for turn in conversation.turns:
        message = _message_of(turn, losses)
        if message is not None:
            line = {"type": "message", "id": str(turn.event), "timestamp": iso_time(turn.at), "message": message}
            yield as_text(line)
    conversation.count_losses(losses)


def _message_of(turn: Message | Reply | Answer | Summary, losses: Losses) -> dict[str, Any] | None:
    if isinstance(turn, Message):
        if turn.copied:
            losses.add("marks of copied messages")
        return {"role": turn.role, "content": _content(turn.text)}
    if isinstance(turn, Summary):
        losses.add("compactions (their summary is written as a user message)")
        return {"role": "user", "content": as_text(turn.text)} if turn.text is not None else None
    if isinstance(turn, Answer):
        if turn.status not in ("ok", "error"):
            losses.add(f"status {turn.status!r} of answers (written as an error)")
        return {
            "role": "tool",
            "toolCallId": turn.call_id or turn.action_id,
            "toolName": turn.tool,
            "content": _content(turn.output),
            "isError": turn.status != "ok",
        }
    if turn.status != "kept" or turn.purpose != "act":
        losses.add(f"replies that are {turn.status if turn.status != 'kept' else turn.purpose}")
        return None
    return _reply(turn, losses)


def _reply(turn: Reply, losses: Losses) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": _content(turn.text), "model": turn.model}
    if turn.thought:
        message["thinking"] = turn.thought
    calls = []
    for call in turn.calls:
        value = arguments_object(call.arguments)
        if value is None:
            losses.add("arguments that are no JSON object (written as text)")
        told: Any = call.arguments if value is None else value
        calls.append({"id": call.call_id or call.action_id, "name": call.tool, "arguments": told})
    if calls:
        message["toolCalls"] = calls
        losses.add("spelling of arguments (written as objects)", len(calls))
    if turn.usage is not None:
        usage = turn.usage
        message["usage"] = {"input": usage.input_total, "cacheRead": usage.cached_read, "output": usage.output}
    if turn.stop_reason is not None:
        message["stopReason"] = turn.stop_reason
    return message


def _content(value: Any) -> Any:
    return value if isinstance(value, (str, list)) or value is None else as_text(value)
