"""Items of the OpenAI Responses API, which Codex rollouts and NeMo-Gym write too: kinds, calls, outputs, replies.

Neighbouring items that the model produced are one reply. An output, or a message of somebody else, ends it; so
does an assistant message behind a call (rollouts without outputs).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from .anthropic_parts import wire_of
from .build import Call, Trajectory, label
from .json_text import raw_members, text_of, value_of
from .openai_parts import arguments_text

FORMAT: Final = "openai.responses/1"
MODEL_ITEMS: Final = frozenset(
    {
        "reasoning", "function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call",
        "computer_call", "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call",
        "mcp_list_tools", "mcp_call", "mcp_approval_request", "tool_search_call", "compaction", "compaction_summary",
    }
)  # fmt: skip
OUTPUT_ITEMS: Final = frozenset(
    {
        "function_call_output", "custom_tool_call_output", "local_shell_call_output", "shell_call_output",
        "apply_patch_call_output", "computer_call_output", "tool_search_output",
    }
)  # fmt: skip
ARGUMENTS: Final = {
    "function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action", "shell_call": "action",
    "apply_patch_call": "operation", "computer_call": "action", "mcp_call": "arguments",
    "mcp_approval_request": "arguments",
}  # fmt: skip
"""Items that propose an action whose outcome the transcript may hold -> the member with its arguments."""


def kind_of(item: Any) -> str:
    """Return `model`, `output`, `message` (of somebody else) or "" for an item."""
    if not isinstance(item, dict):
        return ""
    kind = item.get("type")
    if kind in MODEL_ITEMS or (kind == "message" and item.get("role") == "assistant"):
        return "model"
    if kind in OUTPUT_ITEMS:
        return "output"
    return "message" if kind in ("message", None) and isinstance(item.get("role"), str) else ""


def call_of(raw: msgspec.Raw, pointer: str) -> Call | None:
    """Return the call that an item proposes; None for any other item."""
    parts = raw_members(raw) or {}
    kind = _value(parts, "type")
    member = ARGUMENTS.get(kind) if isinstance(kind, str) else None
    if member is None:
        return None
    name = _value(parts, "name") or str(kind).removesuffix("_call")
    arguments, in_string = arguments_text(parts[member]) if member in parts else (None, False)
    provider_id = _value(parts, "call_id") or _value(parts, "id")
    return Call(label(name), label(provider_id), arguments, f"{pointer}/{member}" if in_string else "")


def output_text(output: Any) -> tuple[Any, bool]:
    """Return what an output item delivered, as text where it is text, and whether its shape is more than a string."""
    if isinstance(output, str):
        return output, False
    parts = output if isinstance(output, list) else [output]
    if parts and all(_is_text_part(part) for part in parts):
        return "".join(part["text"] for part in parts), True
    return output, True


def _is_text_part(part: Any) -> bool:
    return (
        isinstance(part, dict)
        and isinstance(part.get("text"), str)
        and part.get("type") in ("input_text", "output_text", "text")
    )


def breaks_reply(items: list[dict[str, Any]], item: dict[str, Any]) -> bool:
    """Return whether a model's item begins a new reply although nothing stands between: a message behind a call."""
    return item.get("type") == "message" and any(one.get("type") in ARGUMENTS for one in items)


def add_reply(
    trajectory: Trajectory, items: list[tuple[msgspec.Raw, str]], *, raw: str | None = None, **more: Any
) -> list[Call]:
    """Add one reply made of items, and what its items already say of their outcome. Returns its calls.

    `raw` is the whole response body where the items are all of its output.
    """
    text = raw if raw is not None else '{"output":[' + ",".join(text_of(item) for item, _ in items) + "]}"
    wire, keep_wire = wire_of(msgspec.Raw(text.encode("utf-8", "surrogateescape")))
    calls = [call_of(item, f"/output/{index}") for index, (item, _) in enumerate(items)]
    found = [call for call in calls if call is not None]
    context_item = wire.get("output") if isinstance(wire, dict) else wire
    more.setdefault("place", items[0][1] if items else "")
    number = trajectory.reply(
        text, context_item, format=FORMAT, calls=found, wire_pointer="/output", keep_wire=keep_wire, **more
    )
    for (item, place), call in zip(items, calls, strict=True):
        _settle_inline(trajectory, value_of(item), call, number, place, more.get("at"))
    return found


def _settle_inline(
    trajectory: Trajectory, item: Any, call: Call | None, number: int, place: str, at: int | None
) -> None:
    kind = item.get("type")
    if kind == "mcp_approval_request" and call is not None:
        proposed = trajectory.find_call(call.provider_id)
        if proposed is not None:
            trajectory.ask(proposed, approval_id=label(item.get("id")), place=place, at=at)
    elif kind == "mcp_call" and call is not None:
        proposed = trajectory.find_call(call.provider_id)
        request = item.get("approval_request_id")
        if proposed is not None and isinstance(request, str):
            trajectory.approval(proposed, True, approver="unknown", because=request, place=place, at=at)
        if item.get("output") is not None or item.get("error") is not None:
            error = item.get("error")
            trajectory.result(
                call.provider_id, item.get("output"), item, status="ok" if error is None else "error", error=error,
                place=place, at=at,
            )  # fmt: skip
    elif kind in ("compaction", "compaction_summary"):
        trajectory.compacted(None, reply=number, carried=[number], trigger="server", place=place, at=at)


def add_output(trajectory: Trajectory, item: dict[str, Any], *, place: str, at: int | None = None) -> None:
    """Add an output item as the result of the call it names."""
    if item.get("type") == "tool_search_output":
        trajectory.message("tool", item, place=place, at=at)
        return
    output, shaped = output_text(item.get("output"))
    trajectory.result(
        label(item.get("call_id") or item.get("id")), output, item, status="ok", place=place, at=at, keep_wire=shaped
    )


def message_text(item: dict[str, Any]) -> Any:
    """Return the text of a message item."""
    return output_text(item.get("content"))[0]


def _value(parts: dict[str, msgspec.Raw], key: str) -> Any:
    return value_of(parts[key]) if key in parts else None
