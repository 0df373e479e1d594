"""The hash chain: commitment, event hash, making an event, verifying a run of them. Source: design/events.md.

All hashes are sha256 over UTF-8 text whose parts are joined by LF, with no LF at the end: numbers in
decimal, digests as 64 lower-case hex digits, so that SQL computes the same. Writer, lsn, epoch and CRCs stay
outside, so frames can be copied; the payload enters by its commitment, so it can be erased.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from hashlib import sha256
from typing import Any, Final, Literal

import msgspec

from .envelope import Event
from .errors import InvalidValue
from .events import Payload, encode_payload
from .limits import FRAME_MAX, SALT_SIZE
from .versions import CURRENT_SCHEMA_VERSION

FindingKind = Literal["chain", "payload", "payload_missing", "gap"]
CHAIN_DOMAIN: Final = "trajlake chain 1"
_SALT_DOMAIN: Final = "trajlake import salt 1"


class Finding(msgspec.Struct, frozen=True):
    """One broken rule at one event; `detail` is a line for a person."""

    kind: FindingKind
    sequence_number: int
    detail: str


def commitment(salt: bytes, payload: bytes) -> bytes:
    """Return sha256(hex(salt) LF payload): 32 bytes that bind the text and, without the salt, do not tell it."""
    return sha256(salt.hex().encode() + b"\n" + payload).digest()


def genesis(tenant: str, trajectory_id: str) -> bytes:
    """Return the `prev` of event 0 of a trajectory."""
    return sha256(f"{CHAIN_DOMAIN}\n{tenant}\n{trajectory_id}".encode()).digest()


def event_hash(
    prev: bytes,
    tenant: str,
    trajectory_id: str,
    seq: int,
    type_name: str,
    schema_version: int,
    token: int,
    turn: int,
    recorded_at_us: int,
    commitment: bytes,
) -> bytes:
    """Return the hash of an event (32 bytes). `prev` is the hash of the preceding canonical event."""
    text = (
        f"{prev.hex()}\n{tenant}\n{trajectory_id}\n{seq}\n{type_name}\n{schema_version}\n"
        f"{token}\n{turn}\n{recorded_at_us}\n{commitment.hex()}"
    )
    return sha256(text.encode()).digest()


def import_salt(format: str, session: str, first_record_hash: str, seq: int) -> bytes:  # noqa: A002 - the law's word
    """Return the 16-byte salt of an imported event: the same at every import of the same source."""
    text = f"{_SALT_DOMAIN}\n{format}\n{session}\n{first_record_hash}\n{seq}"
    return sha256(text.encode("utf-8", "surrogatepass")).digest()[:SALT_SIZE]


def make_event(
    payload: Payload,
    *,
    tenant: str,
    trajectory_id: str,
    sequence_number: int,
    fencing_token: int,
    turn: int,
    recorded_at: int,
    salt: bytes,
    prev: bytes,
    encoded: bytes | None = None,
) -> Event:
    """Encode `payload` and return its event, linked to `prev`. `encoded`: its text, where the caller has made it.

    Bulk has been moved out before (`blobs.offload_payload`). Raises `InvalidValue`, before anything is
    written, for a payload over FRAME_MAX and for text with lone surrogates or U+0000 that the value codec
    has not tagged.
    """
    type_name = type(payload).__name__
    try:
        text = encode_payload(payload) if encoded is None else encoded
    except UnicodeEncodeError:
        raise InvalidValue(f"{type_name}: a field holds a lone surrogate; pass its value through to_tree") from None
    if len(text) > FRAME_MAX or b"\\u0000" in text:
        _check_payload(type_name, text)
    bound = commitment(salt, text)
    return Event(
        tenant=tenant,
        trajectory_id=trajectory_id,
        sequence_number=sequence_number,
        fencing_token=fencing_token,
        turn=turn,
        type=type_name,
        recorded_at=recorded_at,
        payload=text,
        salt=salt,
        hash=event_hash(
            prev,
            tenant,
            trajectory_id,
            sequence_number,
            type_name,
            CURRENT_SCHEMA_VERSION,
            fencing_token,
            turn,
            recorded_at,
            bound,
        ),
        schema_version=CURRENT_SCHEMA_VERSION,
        commitment=bound,
    )


def hash_of(event: Event, prev: bytes, bound: bytes) -> bytes:
    """Return the hash that `event` must have after `prev`, with the commitment `bound`."""
    return event_hash(
        prev,
        event.tenant,
        event.trajectory_id,
        event.sequence_number,
        event.type,
        event.schema_version,
        event.fencing_token,
        event.turn,
        event.recorded_at,
        bound,
    )


def verify(
    events: Iterable[Event],
    prev: bytes | None = None,
    *,
    erased: Collection[int] | Callable[[int], bool] = (),
) -> list[Finding]:
    """Check one trajectory's canonical events, in order; return what is wrong, first things first.

    With `prev` None the run starts at event 0; otherwise `prev` is the hash before the first event given.
    `gap`: numbers do not follow each other; `payload`: the text does not fit its commitment; `chain`: the
    hash does not fit envelope, commitment and predecessor (where no commitment is kept, as in journals, an
    edited text shows here); `payload_missing`: text gone and `erased` (the ledger) does not name the event.
    After a gap the chain is taken up again at the event behind it.
    """
    is_erased = erased if callable(erased) else erased.__contains__
    findings: list[Finding] = []
    expected: int | None = 0 if prev is None else None
    before: bytes | None = prev
    for event in events:
        number = event.sequence_number
        if expected is None:
            expected = number
        if number != expected:
            findings.append(Finding("gap", number, f"event {number} follows, event {expected} was expected"))
            before = None
        elif before is None:
            before = genesis(event.tenant, event.trajectory_id) if number == 0 else None
        findings.extend(_check_event(event, before, is_erased))
        before, expected = event.hash, number + 1
    return findings


def _check_event(event: Event, prev: bytes | None, is_erased: Callable[[int], bool]) -> list[Finding]:
    findings: list[Finding] = []
    number = event.sequence_number
    bound = event.commitment
    if event.payload is None:
        if not is_erased(number):
            findings.append(Finding("payload_missing", number, "the payload is gone and no erasure names the event"))
    elif event.salt is None:
        findings.append(Finding("payload", number, "the payload is present, its salt is not"))
    else:
        computed = commitment(event.salt, event.payload)
        if bound is None:
            bound = computed
        elif computed != bound:
            findings.append(Finding("payload", number, f"payload commits to {computed.hex()}, not {bound.hex()}"))
    if prev is not None and bound is not None:
        expected = hash_of(event, prev, bound)
        if expected != event.hash:
            findings.append(Finding("chain", number, f"hash is {event.hash.hex()}, computed {expected.hex()}"))
    return findings


def _check_payload(type_name: str, text: bytes) -> None:
    if len(text) > FRAME_MAX:
        raise InvalidValue(f"{type_name}: payload has {len(text)} bytes, a frame holds {FRAME_MAX}: shorten its fields")
    if b"\\u0000" in text and _holds_nul(msgspec.json.decode(text)):
        raise InvalidValue(f"{type_name}: a field holds U+0000; pass its value through to_tree")


def _holds_nul(tree: Any) -> bool:
    if isinstance(tree, str):
        return "\0" in tree
    if isinstance(tree, dict):
        return any("\0" in key or _holds_nul(value) for key, value in tree.items())
    return isinstance(tree, list) and any(map(_holds_nul, tree))
