"""Arguments of a proposed call: the text the model emitted, and the object it stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from trajlake.schemas.canonical_json import parse_arguments
from trajlake.schemas.errors import InvalidValue
from trajlake.schemas.events import ProposedCall

from ..tools import InvalidArguments
from .context import at_pointer


def text_of_call(call: ProposedCall, raw: Callable[[], Any]) -> str:
    """Return the argument text of a recorded call: its own, or what its pointer finds in the reply's raw body.

    An object in the body (no text of its own) is returned as compact JSON in its own key order.
    """
    found = call.arguments
    if found is None and call.pointer:
        try:
            found = at_pointer(msgspec.json.decode(raw()), call.pointer)
        except (LookupError, ValueError, TypeError, msgspec.DecodeError) as error:
            raise InvalidArguments(f"{call.tool}: no arguments at {call.pointer} ({error})") from None
    if isinstance(found, str):
        return found
    return "" if found is None else msgspec.json.encode(found).decode()


def arguments_of_text(text: str) -> dict[str, Any]:
    """Return the object that argument text stands for; blank text is no arguments. Raises `InvalidArguments`."""
    if not text.strip():
        return {}
    try:
        tree = parse_arguments(text)
    except InvalidValue as error:
        raise InvalidArguments(str(error)) from None
    if not isinstance(tree, dict):
        raise InvalidArguments(f"arguments must be a JSON object, not {type(tree).__name__}")
    return tree
