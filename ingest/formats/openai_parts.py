"""What the formats built of OpenAI chat messages share: one message of a list becomes its event."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from trajlake.schemas.events import Usage
from trajlake.schemas.events.action import ResultStatus

from .anthropic_parts import count
from .build import Call, Trajectory, label
from .json_text import NotJson, decode, is_absent, raw_elements, string_of, text_of, value_of

FORMAT: Final = "openai.chat/1"
NO_RAW: Final = msgspec.Raw(b"")
T = TypeVar("T", bound=msgspec.Struct)


class ChatMessage(msgspec.Struct):
    """The keys of a message that the mapping needs; parts keep their exact text."""

    role: Any = None
    content: msgspec.Raw = NO_RAW
    tool_calls: msgspec.Raw = NO_RAW
    function_call: msgspec.Raw = NO_RAW
    tool_call_id: Any = None
    id: Any = None
    name: Any = None


class _Function(msgspec.Struct):
    name: Any = None
    arguments: msgspec.Raw = NO_RAW
    input: msgspec.Raw = NO_RAW


class _CallObject(msgspec.Struct):
    id: Any = None
    name: Any = None
    arguments: msgspec.Raw = NO_RAW
    function: msgspec.Raw = NO_RAW
    custom: msgspec.Raw = NO_RAW


def arguments_text(raw: msgspec.Raw) -> tuple[str | None, bool]:
    """Return a call's arguments as the text the model emitted, and whether a string holds them.

    A string is that text; an object (HF templates, tau2) is its exact slice; absent and null are None.
    """
    if is_absent(raw) or bytes(raw) == b"null":
        return None, False
    text = string_of(raw)
    return (text_of(raw), False) if text is None else (text, True)


def calls_of(message: ChatMessage, base: str = "") -> list[Call]:
    """Return the calls of an assistant message; `base` is the pointer of the message inside the reply's `raw`."""
    calls = []
    raws = None if is_absent(message.tool_calls) else raw_elements(message.tool_calls)
    for index, raw in enumerate(raws or ()):
        calls.append(_call_of(raw, f"{base}/tool_calls/{index}"))
    if not is_absent(message.function_call) and (legacy := decode_or_none(message.function_call, _Function)):
        text, in_string = arguments_text(legacy.arguments)
        calls.append(Call(label(legacy.name), "", text, f"{base}/function_call/arguments" if in_string else ""))
    return calls


def _call_of(raw: msgspec.Raw, pointer: str) -> Call:
    call = decode_or_none(raw, _CallObject) or _CallObject()
    for part, key in (("function", "arguments"), ("custom", "input")):
        inner = getattr(call, part)
        function = None if is_absent(inner) else decode_or_none(inner, _Function)
        if function is not None:
            text, in_string = arguments_text(getattr(function, key))
            return Call(label(function.name), label(call.id), text, f"{pointer}/{part}/{key}" if in_string else "")
    text, in_string = arguments_text(call.arguments)
    return Call(label(call.name), label(call.id), text, f"{pointer}/arguments" if in_string else "")


def decode_or_none(raw: msgspec.Raw, kind: type[T]) -> T | None:
    """Return `decode`, or None also for what is nested too deeply."""
    try:
        return decode(raw, kind)
    except NotJson:
        return None


def content_of(content: msgspec.Raw) -> tuple[Any, bool]:
    """Return what a message's content says (parts of text joined) and whether its shape is more than a string."""
    if is_absent(content):
        return None, False
    text = string_of(content)
    if text is not None:
        return text, False
    value = value_of(content)
    if isinstance(value, list) and value and all(_text_part(part) is not None for part in value):
        return "".join(_text_part(part) or "" for part in value), True
    return value, value is not None


def _text_part(part: Any) -> str | None:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and part.get("type") in ("text", "input_text", "output_text", None):
        text = part.get("text")
        return text if isinstance(text, str) else None
    return None


def usage_of(tree: Any) -> Usage | None:
    """Return the usage of a chat completion: cached input is part of `prompt_tokens`."""
    if not isinstance(tree, dict):
        return None
    shown = tree.get("prompt_tokens_details")
    made = tree.get("completion_tokens_details")
    usage = Usage(
        input_total=count(tree.get("prompt_tokens")),
        cached_read=count(shown.get("cached_tokens")) if isinstance(shown, dict) else None,
        output=count(tree.get("completion_tokens")),
        reasoning=count(made.get("reasoning_tokens")) if isinstance(made, dict) else None,
    )
    return None if usage == Usage() else usage


def feed(
    trajectory: Trajectory,
    raw: msgspec.Raw,
    *,
    place: str,
    at: int | None = None,
    copied: bool = False,
    **reply: Any,
) -> str:
    """Add one message of a list as its event; return its kind for the loss tally ("" if it is no message).

    `reply` goes to `Trajectory.reply` where the message is one (usage, model, stop_reason, ...).
    """
    message = decode_or_none(raw, ChatMessage)
    if message is None or not isinstance(message.role, str):
        return ""
    try:
        wire = value_of(raw)
    except NotJson:
        return ""
    role = message.role
    if copied:
        trajectory.message(role, wire, at=at, place=place, origin="copied")
    elif role == "assistant":
        calls, keep_wire = calls_of(message), not _is_plain(raw)
        trajectory.reply(
            text_of(raw), wire, format=FORMAT, calls=calls, at=at, place=place, keep_wire=keep_wire, **reply
        )
    elif role in ("tool", "function"):
        output, shaped = content_of(message.content)
        provider_id = message.tool_call_id if message.tool_call_id is not None else message.id
        trajectory.result(
            label(provider_id) if role == "tool" else "",
            output,
            wire,
            status=status_of(wire),
            at=at,
            place=place,
            keep_wire=shaped,
        )
    else:
        if role == "user":
            trajectory.set_task(content_of(message.content)[0])
        trajectory.message(role, wire, at=at, place=place)
    return role


def status_of(wire: Any) -> ResultStatus:
    """Return `error` where a tool message says so in a key of its own; the text alone is not judged."""
    return "error" if isinstance(wire, dict) and (wire.get("error") is True or wire.get("is_error") is True) else "ok"


def _is_plain(raw: msgspec.Raw) -> bool:
    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
        return False
    return True
