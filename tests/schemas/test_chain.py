"""The chain finds every change that was not an erasure, and an erasure breaks nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from trajlake.schemas.chain import Finding, commitment, event_hash, genesis, import_salt, make_event, verify
from trajlake.schemas.envelope import Event
from trajlake.schemas.errors import InvalidValue
from trajlake.schemas.events import ConstraintAccepted, InputRead, Payload, TaskEnded, TaskStarted, VarSet
from trajlake.schemas.limits import FRAME_MAX

SALT = bytes(range(16))


def event(payload: Payload, prev: bytes | None = None, number: int = 0, **changes: Any) -> Event:
    given: dict[str, Any] = {
        "tenant": "t", "trajectory_id": "r", "sequence_number": number, "fencing_token": 1, "turn": 0,
        "recorded_at": 1000 + number, "salt": SALT, "prev": prev or genesis("t", "r"),
    }  # fmt: skip
    return make_event(payload, **(given | changes))


def chain(length: int = 6) -> list[Event]:
    events = [event(TaskStarted(task="t"))]
    for number in range(1, length - 1):
        events.append(event(VarSet(name="v", value=number), events[-1].hash, number))
    return [*events, event(TaskEnded(status="completed"), events[-1].hash, length - 1)]


def changed(events: Sequence[Event], number: int, **changes: Any) -> list[Event]:
    return [msgspec.structs.replace(e, **changes) if e.sequence_number == number else e for e in events]


def without_commitments(events: Sequence[Event]) -> list[Event]:
    return [msgspec.structs.replace(e, commitment=None) for e in events]


def kinds(findings: list[Finding]) -> list[tuple[str, int]]:
    return [(finding.kind, finding.sequence_number) for finding in findings]


def test_a_clean_chain_has_no_finding_with_and_without_kept_commitments() -> None:
    assert verify(chain()) == []
    assert verify(without_commitments(chain())) == []
    assert verify([]) == []


def test_a_tail_verifies_from_the_hash_before_it() -> None:
    events = chain()
    assert verify(events[3:], prev=events[2].hash) == []
    assert kinds(verify(events[3:], prev=events[1].hash)) == [("chain", 3)]


def test_an_erased_event_passes_only_when_the_ledger_names_it() -> None:
    erased = changed(chain(), 2, payload=None, salt=None)
    assert verify(erased, erased={2}) == []
    assert verify(erased, erased=lambda number: number == 2) == []
    assert kinds(verify(erased)) == [("payload_missing", 2)]


def test_an_edited_payload_is_found_at_its_event_alone() -> None:
    edited = changed(chain(), 2, payload=b'{"name":"v","value":99}')
    assert kinds(verify(edited)) == [("payload", 2)]
    assert kinds(verify(without_commitments(edited))) == [("chain", 2)]


def test_a_payload_without_its_salt_is_found() -> None:
    assert kinds(verify(changed(chain(), 2, salt=None))) == [("payload", 2)]


@pytest.mark.parametrize(
    "change",
    [
        {"fencing_token": 2},
        {"turn": 9},
        {"recorded_at": 0},
        {"type": "InputRead"},
        {"schema_version": 2},
        {"tenant": "u"},
        {"trajectory_id": "s"},
        {"commitment": bytes(32), "payload": None, "salt": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_an_edited_envelope_is_found(change: dict[str, Any]) -> None:
    assert ("chain", 2) in kinds(verify(changed(chain(), 2, **change), erased={2}))


def test_where_a_frame_lies_is_outside_the_chain() -> None:
    assert verify(changed(chain(), 2, writer="ff" * 16, lsn=77)) == []


def test_an_edited_hash_breaks_its_own_event_and_the_next() -> None:
    assert kinds(verify(changed(chain(), 2, hash=bytes(32)))) == [("chain", 2), ("chain", 3)]


def test_a_dropped_event_is_a_gap_wherever_it_was() -> None:
    events = chain()
    assert kinds(verify(events[:2] + events[3:])) == [("gap", 3)]
    assert kinds(verify(events[1:])) == [("gap", 1)]


def test_what_lies_behind_a_gap_is_still_checked() -> None:
    events = changed(chain(), 4, payload=b"{}")
    assert kinds(verify(events[:2] + events[3:])) == [("gap", 3), ("payload", 4)]


def test_swapped_and_repeated_events_are_found() -> None:
    events = chain()
    assert ("gap", 3) in kinds(verify([*events[:2], events[3], events[2], *events[4:]]))
    assert ("gap", 2) in kinds(verify([*events[:3], events[2], *events[3:]]))


def test_an_appended_event_that_does_not_know_the_head_is_found() -> None:
    events = chain()
    forged = event(VarSet(name="v"), prev=events[2].hash, number=len(events))
    assert kinds(verify([*events, forged])) == [("chain", len(events))]


def test_separators_keep_neighbouring_fields_apart() -> None:
    assert genesis("run1", "23") != genesis("run12", "3")
    shared = (0, "VarSet", 1, 1, 1, 1, bytes(32))
    assert event_hash(bytes(32), "t1", "2", *shared) != event_hash(bytes(32), "t", "12", *shared)
    assert import_salt("f", "s1", "a", 1) != import_salt("f", "s", "1a", 1)


def test_the_salt_hides_a_short_text_from_guessing() -> None:
    assert commitment(SALT, b'"yes"') != commitment(bytes(16), b'"yes"')


def test_salts_of_an_import_are_the_same_every_time_and_differ_by_event() -> None:
    salts = [import_salt("claude-code", "session \ud800", "ab", number) for number in range(50)]
    assert len(set(salts)) == 50
    assert salts == [import_salt("claude-code", "session \ud800", "ab", number) for number in range(50)]
    assert {len(salt) for salt in salts} == {16}


def test_a_frame_holds_exactly_frame_max_and_no_byte_more() -> None:
    overhead = len(event(ConstraintAccepted(constraint_id="c", text="")).payload or b"")
    full = event(ConstraintAccepted(constraint_id="c", text="x" * (FRAME_MAX - overhead)))
    assert len(full.payload or b"") == FRAME_MAX
    with pytest.raises(InvalidValue, match=r"payload has 1048577 bytes, a frame holds 1048576"):
        event(ConstraintAccepted(constraint_id="c", text="x" * (FRAME_MAX - overhead + 1)))


@pytest.mark.parametrize(("text", "why"), [("a\0b", "U+0000"), ("a\ud800", "lone surrogate"), ("\\\0", "U+0000")])
def test_text_that_databases_refuse_is_refused_before_it_is_written(text: str, why: str) -> None:
    with pytest.raises(InvalidValue, match=why.replace("+", r"\+")):
        event(ConstraintAccepted(constraint_id="c", text=text))
    with pytest.raises(InvalidValue):
        event(VarSet(name="v", value={text: 1}))


def test_text_that_only_spells_an_escape_is_kept() -> None:
    raw = 'a body with "\\u0000" and \\\\u0000 in it'
    assert event(InputRead(kind="read", value=raw)).body.value == raw


def test_the_body_is_read_from_the_text_and_not_from_the_callers_struct() -> None:
    arguments = {"a": [1]}
    made = event(VarSet(name="v", value=arguments))
    arguments["a"].append(2)
    assert made.body.value == {"a": [1]}
    assert verify([made]) == []
