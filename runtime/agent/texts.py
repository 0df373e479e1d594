"""What a model is given of a settled call, as fixed wording: a change of it changes contexts, so it has a version."""

from __future__ import annotations

import contextlib
from typing import Any, Final

import msgspec

from trajlake.schemas.errors import InvalidValue
from trajlake.schemas.events import ToolResult, ToolSettled
from trajlake.schemas.values import from_tree, plain_text

DELIVERED_VERSION: Final = 2

_encode: Final = msgspec.json.Encoder().encode


def text_of(tree: Any) -> str:
    """Return an output tree as the text a model is given: a string as it is, anything else as compact JSON."""
    if isinstance(tree, dict) and len(tree) == 1 and next(iter(tree)).startswith("$"):
        # A text that JSON cannot keep (a lone surrogate, U+0000) is tagged; a class that is gone stays as it is.
        with contextlib.suppress(InvalidValue):
            value = from_tree(tree)
            tree = value if isinstance(value, str) else tree
    return plain_text(tree) if isinstance(tree, str) else _encode(tree).decode()


def delivered(verdict: str, evidence: Any, because: str = "") -> str:
    """Return the text for an effect whose output is lost, or that was found not to have happened.

    A person's reason (`because`) is told as what it is where there is no evidence.
    """
    if verdict == "executed":
        if evidence is None and because:
            return f"The call was executed; its output was lost. A person said so: {because}"
        shown = "none given" if evidence is None else text_of(evidence)
        return f"The call was executed; its output was lost. Evidence: {shown}"
    return "The call was not executed."


def result_text(body: ToolResult | ToolSettled) -> str:
    """Return what a model is given of this result. Bulk has been put back into it."""
    if isinstance(body, ToolSettled):
        return text_of(body.output) if body.has_output else body.delivered
    if body.status in ("ok", "replayed"):
        return text_of(body.output)
    return error_text(body)


def error_text(body: ToolResult) -> str:
    """Return the text of a call that gave no output."""
    message = body.error if isinstance(body.error, str) else text_of(body.error) if body.error is not None else ""
    match body.status:
        case "refused":
            return f"Refused: {message}" if message else "Refused."
        case "not_executed":
            return f"Not executed: {message}" if message else "The call was not executed."
        case _:
            return f"Error: {message}" if message else "Error."


def failed(body: ToolResult | ToolSettled) -> bool:
    """Whether a model should see this result as a failure."""
    if isinstance(body, ToolSettled):
        return body.verdict != "executed"
    return body.status not in ("ok", "replayed")
