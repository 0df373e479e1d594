"""`openai-chat`: one line of JSON per trajectory, {id, model, messages, tools}, as trainers read them.

Arguments are written as the text the model emitted, or, on demand, as objects. The whole history is written, in
order, each call's answers behind its reply.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from .turns import Answer, Conversation, Losses, Message, Reply, Summary, arguments_object, as_text

NAME: Final = "openai-chat"
ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})


def write(conversation: Conversation, losses: Losses, *, arguments: str = "str") -> Iterator[str]:
    """Yield the one line of a trajectory. `arguments`: `str` or `dict`."""
    messages: list[dict[str, Any]] = []
    for turn in conversation.turns:
        if isinstance(turn, Message):
            messages.append(_message(turn, losses))
        elif isinstance(turn, Reply):
            if turn.status != "kept" or turn.purpose != "act":
                losses.add(f"replies that are {turn.status if turn.status != 'kept' else turn.purpose}")
                continue
            messages.append(_reply(turn, losses, arguments))
            for call in turn.calls:
                if call.answer is None:
                    losses.add("calls without an answer (written without one)")
                else:
                    messages.append(_answer(call.answer, call.call_id or call.action_id, losses))
        elif isinstance(turn, Summary):
            losses.add("compactions (the whole history is written instead)")
        elif isinstance(turn, Answer) and not turn.tool and not turn.call_id:
            losses.add("answers without a call")
    losses.add(
        "token usage, times and costs of replies", sum(1 for turn in conversation.turns if isinstance(turn, Reply))
    )
    conversation.count_losses(losses)
    line: dict[str, Any] = {"id": conversation.trajectory_id, "model": conversation.start.model, "messages": messages}
    if conversation.tools:
        line["tools"] = conversation.tools
    yield as_text(line)


def _message(turn: Message, losses: Losses) -> dict[str, Any]:
    role = turn.said.role if turn.said is not None else turn.role
    if turn.copied:
        losses.add("marks of copied messages")
    if role not in ROLES:
        losses.add(f"role {role!r} (written as user)")
        role = "user"
    content = turn.text
    if turn.said is not None and turn.said.calls:
        losses.add("calls inside a message that is no reply")
    message: dict[str, Any] = {
        "role": role,
        "content": content if isinstance(content, (str, list)) else as_text(content),
    }
    if role == "tool":
        message["tool_call_id"] = turn.said.call_id if turn.said is not None else ""
        message["content"] = as_text(content)
    return message


def _reply(turn: Reply, losses: Losses, arguments: str) -> dict[str, Any]:
    text = turn.text
    if text is not None and not isinstance(text, str):
        losses.add("replies that are more than text (written as JSON text)")
        text = as_text(text)
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if turn.thought:
        message["reasoning_content"] = turn.thought
    if turn.calls:
        message["tool_calls"] = [
            {
                "id": call.call_id or call.action_id,
                "type": "function",
                "function": {"name": call.tool, "arguments": _arguments(call.arguments, arguments, losses)},
            }
            for call in turn.calls
        ]
    return message


def _arguments(text: str | None, how: str, losses: Losses) -> Any:
    if how == "str":
        return text or ""
    value = arguments_object(text)
    if value is None:
        losses.add("arguments that are no JSON object (written as text)")
        return text
    return value


def _answer(answer: Answer, call_id: str, losses: Losses) -> dict[str, Any]:
    if answer.output is not None and not isinstance(answer.output, str):
        losses.add("answers that are no text (written as JSON text)")
    if answer.status != "ok":
        losses.add(f"status {answer.status!r} of answers")
    return {"role": "tool", "tool_call_id": call_id, "content": as_text(answer.output)}
