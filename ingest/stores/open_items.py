"""What an event opens or closes for the warm tier's queues: intents without outcome, questions unanswered. Pure.

The stages themselves are decided elsewhere (`schemas/state/stages.py`, and the view `doubts`, which knows the clock
and the leases); here is only which of the four events exist.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

ITEM_TYPES: Final = (
    "ToolIntent", "ToolResult", "ToolSettled", "LateResult", "ApprovalRequested", "ApprovalResolved", "TaskEnded",
)  # fmt: skip
Kind = Literal["intent", "approval"]


class OpenItem(msgspec.Struct, frozen=True, kw_only=True):
    """An intent (by action id) or a question (by approval id). `until_us`: deadline or expiry, µs UTC; None: none."""

    kind: Kind
    item_id: str
    action_id: str
    tool: str
    effect: str = ""
    attempt: int = 1
    asynchronous: bool = False
    arguments_hash: str = ""
    requester: str | None = None
    question: str = ""
    until_us: int | None = None


class Closing(msgspec.Struct, frozen=True):
    """The item is open no more; `item_id` None: every one of that kind."""

    kind: Kind
    item_id: str | None


class _Intent(msgspec.Struct, frozen=True):
    action_id: str
    tool: str
    effect: str = ""
    attempt: int = 1
    asynchronous: bool = False
    arguments_hash: str = ""
    timeout_s: float | None = None
    deadline_at: int | None = None


class _Question(msgspec.Struct, frozen=True):
    approval_id: str
    action_id: str
    tool: str
    arguments_hash: str = ""
    requester: str | None = None
    question: str = ""
    expires_at: int | None = None


class _Outcome(msgspec.Struct, frozen=True):
    action_id: str
    decision: str = "accepted"


class _Answer(msgspec.Struct, frozen=True):
    approval_id: str


_intent: Final = msgspec.json.Decoder(_Intent)
_question: Final = msgspec.json.Decoder(_Question)
_outcome: Final = msgspec.json.Decoder(_Outcome)
_answer: Final = msgspec.json.Decoder(_Answer)


def change_of(event_type: str, recorded_at_us: int, payload: bytes | str | None) -> OpenItem | Closing | None:
    """Return what the event changes, None for nothing; also for a payload that is erased or does not decode."""
    if event_type not in ITEM_TYPES:
        return None
    if event_type == "TaskEnded":
        return Closing("approval", None)
    try:
        return _change(event_type, recorded_at_us, payload if payload is not None else b"")
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


def _change(event_type: str, recorded_at_us: int, payload: bytes | str) -> OpenItem | Closing | None:
    match event_type:
        case "ToolIntent":
            found = _intent.decode(payload)
            until_us = found.deadline_at
            if until_us is None and found.timeout_s is not None and not found.asynchronous:
                until_us = recorded_at_us + round(found.timeout_s * 1_000_000)
            return OpenItem(
                kind="intent", item_id=found.action_id, action_id=found.action_id, tool=found.tool,
                effect=found.effect, attempt=found.attempt, asynchronous=found.asynchronous,
                arguments_hash=found.arguments_hash, until_us=until_us,
            )  # fmt: skip
        case "ApprovalRequested":
            asked = _question.decode(payload)
            return OpenItem(
                kind="approval", item_id=asked.approval_id, action_id=asked.action_id, tool=asked.tool,
                arguments_hash=asked.arguments_hash, requester=asked.requester, question=asked.question,
                until_us=asked.expires_at,
            )  # fmt: skip
        case "ApprovalResolved":
            return Closing("approval", _answer.decode(payload).approval_id)
    outcome = _outcome.decode(payload)
    return Closing("intent", outcome.action_id) if outcome.decision == "accepted" else None


def item_parameters(item: OpenItem) -> dict[str, Any]:
    """Return the fields of an item as parameters of `open_item_put`."""
    return {name: getattr(item, name) for name in item.__struct_fields__}
