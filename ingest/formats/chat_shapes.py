"""Messages in the shapes that exporters of traces write, read as one thing: who says what, calls what, answers what.

Known shapes: OpenAI chat, OpenAI Responses items, gen_ai `parts`, AI SDK parts, Anthropic blocks, LangChain
messages, Inspect messages. Texts of arguments are exact: a JSON string's value, or an object's slice of the source.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from .build import Call, label
from .json_text import NotJson, raw_elements, raw_members, value_of
from .openai_parts import arguments_text

ROLES: Final = {"human": "user", "ai": "assistant", "model": "assistant", "AIMessageChunk": "assistant"}
TEXT_PARTS: Final = frozenset({"text", "input_text", "output_text"})
CALL_PARTS: Final = frozenset({"tool_call", "tool-call", "tool_use", "toolCall", "function_call", "server_tool_call"})
RESULT_PARTS: Final = frozenset(
    {"tool_call_response", "tool-result", "tool_result", "function_call_output", "server_tool_call_response"}
)
THOUGHT_PARTS: Final = frozenset({"reasoning", "thinking", "think", "redacted_thinking"})


class Said(NamedTuple):
    """One message. `text` is what it says; for an answer `output` is that, and `call_id` names the call.

    `wire` is the message in OpenAI's chat shape where that says all of it, else as the source has it.
    """

    role: str
    wire: Any
    text: Any = None
    calls: tuple[Call, ...] = ()
    call_id: str = ""
    output: Any = None
    failed: bool = False
    thought: str = ""
    ident: str = ""

    @property
    def key(self) -> str:
        """The message's identity: equal keys mean that the same was said, whatever the shape."""
        calls = [[call.provider_id, call.tool, canonical_arguments(call.arguments)] for call in self.calls]
        told = [self.role, self.ident, self.text or "", calls, self.call_id, self.output]
        return sha256(json.dumps(told, sort_keys=True, default=repr).encode()).hexdigest()


def said_all(raws: Iterable[msgspec.Raw]) -> list[Said]:
    """Return what a list of messages says; neighbouring items of one reply (Responses) are one message."""
    found: list[Said] = []
    joins = False
    for raw in raws:
        parts = _members(raw)
        is_item = parts is not None and _is_item(parts)
        for said in said_of(raw):
            if is_item and joins and found and said.role == found[-1].role == "assistant":
                found[-1] = _joined(found[-1], said)
            else:
                found.append(said)
        joins = bool(found) and found[-1].role == "assistant"
    return found


def _is_item(parts: dict[str, msgspec.Raw]) -> bool:
    kind = _string(parts, "type")
    return kind == "message" or ("role" not in parts and kind in CALL_PARTS | THOUGHT_PARTS)


def said_of(raw: msgspec.Raw) -> list[Said]:
    """Return what one message says: usually one, several where it answers several calls, none for no message."""
    parts = _members(raw)
    if parts is None:
        text = _any(raw)
        return [Said("user", {"role": "user", "content": text}, text)] if isinstance(text, str) else []
    kind = _string(parts, "type")
    if "role" not in parts and kind in CALL_PARTS:
        return [_assistant(None, (_call_part(parts),), "")]
    if "role" not in parts and kind in RESULT_PARTS:
        return [_answer_part(parts)]
    if "role" not in parts and kind in THOUGHT_PARTS:
        return [Said("assistant", _any(raw), thought=label(_any_of(parts, "text", "content", "summary")))]
    role = _string(parts, "role") or kind
    role = ROLES.get(role, role)
    if not role:
        return []
    if role in ("tool", "function"):
        return _tool_message(raw, parts)
    return _message(raw, parts, role)


def _message(raw: msgspec.Raw, parts: dict[str, msgspec.Raw], role: str) -> list[Said]:
    body = parts.get("parts", parts.get("content"))
    read = _Content(body)
    calls = (*read.calls, *_listed_calls(parts))
    answers = list(read.answers)
    if role == "assistant":
        whole = read.other is None
        said = _assistant(read.text, calls, _string(parts, "reasoning_content") or read.thought)
        return [said if whole else said._replace(wire=_any(raw), text=read.other), *answers]
    if answers and read.text is None and read.other is None:
        return answers
    text = read.text if read.other is None else read.other
    wire = _any(raw) if read.other is not None or read.calls else {"role": role, "content": text}
    return [*answers, Said(role, wire, text, calls)]


def _assistant(text: str | None, calls: tuple[Call, ...], thought: str) -> Said:
    wire: dict[str, Any] = {"role": "assistant", "content": text}
    if thought:
        wire["reasoning_content"] = thought
    if calls:
        wire["tool_calls"] = [
            {"id": call.provider_id, "type": "function", "function": {"name": call.tool, "arguments": call.arguments}}
            for call in calls
        ]
    return Said("assistant", wire, text, calls, thought=thought)


def _tool_message(raw: msgspec.Raw, parts: dict[str, msgspec.Raw]) -> list[Said]:
    read = _Content(parts.get("parts", parts.get("content")))
    if read.answers:
        return list(read.answers)
    call_id = label(_any_of(parts, "tool_call_id", "toolCallId", "id"))
    output = read.text if read.other is None else read.other
    failed = bool(_any_of(parts, "error", "is_error")) or _string(parts, "status") == "error"
    wire = {"role": "tool", "tool_call_id": call_id, "content": output}
    return [Said("tool", wire if read.other is None else _any(raw), None, (), call_id, output, failed)]


class _Content:
    """A message's content, read part by part. `other` is the whole value where it says more than text and calls."""

    def __init__(self, body: msgspec.Raw | None) -> None:
        self.text: str | None = None
        self.other: Any = None
        self.thought = ""
        self.calls: list[Call] = []
        self.answers: list[Said] = []
        if body is None:
            return
        value = _any(body)
        if value is None or isinstance(value, str):
            self.text = value
            return
        raws = raw_elements(body)
        if raws is None:
            self.other = value
            return
        known = [self._part(raw) for raw in raws]
        if not all(known):
            self.other = value

    def _part(self, raw: msgspec.Raw) -> bool:
        parts = _members(raw)
        if parts is None:
            text = _any(raw)
            return isinstance(text, str) and self._say(text)
        kind = _string(parts, "type")
        if kind in TEXT_PARTS or (not kind and "text" in parts):
            text = _any_of(parts, "text", "content")
            return isinstance(text, str) and self._say(text)
        if kind in CALL_PARTS:
            self.calls.append(_call_part(parts))
            return True
        if kind in RESULT_PARTS:
            self.answers.append(_answer_part(parts))
            return True
        if kind in THOUGHT_PARTS:
            text = _any_of(parts, "text", "content", "thinking", "think", "reasoning")
            self.thought += text if isinstance(text, str) else ""
            return isinstance(text, str)
        return False

    def _say(self, text: str) -> bool:
        self.text = (self.text or "") + text
        return True


def _listed_calls(parts: dict[str, msgspec.Raw]) -> list[Call]:
    listed = parts.get("tool_calls")
    if (listed is None or not raw_elements(listed)) and "additional_kwargs" in parts:
        listed = (_members(parts["additional_kwargs"]) or {}).get("tool_calls")
    raws = raw_elements(listed) if listed is not None else None
    return [_call_part(_members(raw) or {}) for raw in raws or ()]


def _call_part(parts: dict[str, msgspec.Raw]) -> Call:
    inner = _members(parts["function"]) if "function" in parts else None
    told = {**parts, **(inner or {})}
    given = next((told[key] for key in ("arguments", "args", "input", "parameters") if key in told), None)
    name = _string(told, "name") or _string(told, "toolName") or _string(parts, "function")
    call_id = label(_any_of(parts, "call_id", "toolCallId", "tool_call_id", "id"))
    return Call(name, call_id, None if given is None else arguments_text(given)[0])


def _answer_part(parts: dict[str, msgspec.Raw]) -> Said:
    call_id = label(_any_of(parts, "call_id", "toolCallId", "tool_use_id", "tool_call_id", "id"))
    given = next((parts[key] for key in ("response", "result", "output", "content") if key in parts), None)
    output = None if given is None else _any(given)
    if given is not None and isinstance(output, list):
        read = _Content(given)
        output = read.text if read.other is None and read.text is not None else output
    if isinstance(output, dict) and set(output) == {"type", "value"}:  # AI SDK: {"type": "text"|"json", "value": ...}
        output = output["value"]
    failed = bool(_any_of(parts, "is_error", "isError"))
    wire = {"role": "tool", "tool_call_id": call_id, "content": output}
    return Said("tool", wire, None, (), call_id, output, failed)


def _joined(one: Said, other: Said) -> Said:
    said = [text for text in (one.text, other.text) if isinstance(text, str)]
    joined = _assistant("".join(said) if said else None, (*one.calls, *other.calls), one.thought + other.thought)
    return joined._replace(ident=one.ident)


def canonical_arguments(arguments: str | None) -> str:
    """Return arguments in one spelling, to compare those of two shapes; text that is no JSON as it is."""
    if arguments is None:
        return ""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments


def _members(raw: msgspec.Raw) -> dict[str, msgspec.Raw] | None:
    try:
        return raw_members(raw)
    except NotJson:
        return None


def _any(raw: msgspec.Raw) -> Any:
    try:
        return value_of(raw)
    except NotJson:
        return bytes(raw).decode("utf-8", "surrogateescape")


def _any_of(parts: dict[str, msgspec.Raw], *keys: str) -> Any:
    for key in keys:
        if key in parts and (value := _any(parts[key])) is not None:
            return value
    return None


def _string(parts: dict[str, msgspec.Raw], key: str) -> str:
    value = _any(parts[key]) if key in parts else None
    return value if isinstance(value, str) else ""
