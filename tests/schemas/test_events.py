"""Event types: codes are bytes on disk, payloads are legal JSON and come back as they went."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from trajlake.schemas.errors import InvalidEvent
from trajlake.schemas.events import (
    CODE_OF_NAME,
    NAME_OF_CODE,
    TYPE_CODES,
    TYPES,
    Payload,
    RolledBack,
    TaskStarted,
    ToolIntent,
    ToolResult,
    decode_payload,
    encode_payload,
)

CODES = """
TaskStarted 1 LeaseAcquired 2 LeaseReleased 3 Resumed 4 ResumeRefused 5 RolledBack 6 CancelRequested 7
TaskEnded 8 Branched 9 GoalRevised 16 ConstraintAccepted 17 ConstraintWithdrawn 18 AssumptionCommitted 19
AssumptionRetracted 20 ObligationOpened 21 ObligationDischarged 22 PlanCommitted 23 ObservationCached 24
ObservationInvalidated 25 MessageAdded 32 ContextBuilt 33 ModelReplied 34 Compacted 35 InputRead 36 VarSet 37
AuthorityAcquired 48 AuthorityEnded 49 Authorized 50 ApprovalRequested 51 ApprovalResolved 52 BudgetRevised 53
ToolIntent 64 ToolResult 65 ToolSettled 66 LateResult 67 CheckpointSaved 80 DriftDetected 81 RewardAssigned 96
Annotated 97 SourceKept 112
"""


def test_every_type_keeps_its_code_for_good() -> None:
    words = CODES.split()
    assert dict(zip(words[::2], map(int, words[1::2]), strict=True)) == CODE_OF_NAME
    assert {code: name for name, code in CODE_OF_NAME.items()} == NAME_OF_CODE


@pytest.mark.parametrize("cls", list(TYPE_CODES), ids=lambda cls: cls.__name__)
def test_a_payload_of_every_type_comes_back_as_it_went(cls: type[Payload]) -> None:
    payload = cls(**{field.name: example(field) for field in msgspec.structs.fields(cls) if field.required})
    text = encode_payload(payload)
    assert decode_payload(cls.__name__, text) == payload
    assert encode_payload(decode_payload(cls.__name__, text)) == text


@pytest.mark.parametrize("cls", list(TYPE_CODES), ids=lambda cls: cls.__name__)
def test_payloads_are_frozen_and_name_their_place(cls: type[Payload]) -> None:
    assert issubclass(cls, Payload)
    assert cls.__struct_config__.frozen
    assert TYPES[cls.__name__] is cls


def example(field: msgspec.structs.FieldInfo) -> Any:
    kind: Any = field.type
    if getattr(kind, "__args__", None) and not hasattr(kind, "__struct_fields__"):
        options = kind.__args__
        return options[0] if isinstance(options[0], str) else {"usd": "1"}
    return {str: "x", int: 7, float: 1.5}.get(kind, {"a": [1, None]})


def test_a_payload_holds_its_own_fields_only_and_leaves_defaults_out() -> None:
    text = encode_payload(TaskStarted(task="t"))
    assert json.loads(text) == {"task": "t"}


def test_absent_null_and_empty_arguments_differ() -> None:
    def intent(**fields: Any) -> ToolIntent:
        given = ToolIntent(action_id="1.0", tool="t", arguments_hash="h", key="k", effect="read", **fields)
        return decode_payload("ToolIntent", encode_payload(given))  # type: ignore[return-value]

    assert intent().arguments is msgspec.UNSET
    assert intent(arguments=None).arguments is None
    assert intent(arguments="").arguments == ""


def test_a_field_whose_name_is_a_keyword_is_written_plainly() -> None:
    assert json.loads(encode_payload(RolledBack(to=3, from_=9))) == {"to": 3, "from": 9}


def test_fields_of_a_later_minor_are_passed_over() -> None:
    result = decode_payload("ToolResult", b'{"action_id":"1.0","status":"ok","invented_later":{"a":1}}')
    assert result == ToolResult(action_id="1.0", status="ok")


@pytest.mark.parametrize(
    ("event_type", "text", "why"),
    [
        ("ToolResult", b"", "ToolResult payload"),
        ("ToolResult", b"{", "ToolResult payload"),
        ("ToolResult", b"[]", "ToolResult payload"),
        ("ToolResult", b'{"status":"ok"}', "missing required field `action_id`"),
        ("ToolResult", b'{"action_id":"1.0","status":"perhaps"}', "status"),
        ("ToolResult", b'{"action_id":"\xff","status":"ok"}', "ToolResult payload"),
        ("Invented", b"{}", "'Invented' is not known"),
    ],
)
def test_text_that_is_no_payload_is_refused_with_the_type(event_type: str, text: bytes, why: str) -> None:
    with pytest.raises(InvalidEvent, match=why):
        decode_payload(event_type, text)
