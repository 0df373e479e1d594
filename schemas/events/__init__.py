"""Every event type, its fixed code and its struct. Codes are bytes on disk: never reused, never renumbered."""
# ruff: noqa: F401 - every name imported here is what this package is for; __all__ takes them from dir().

from __future__ import annotations

from typing import Final

import msgspec

from ..errors import InvalidEvent
from ._base import Amounts, Json, MailStamp, Payload, Ref
from .action import Cut, Effect, FileChange, LateResult, ResultStatus, ToolIntent, ToolResult, ToolSettled
from .authority import (
    ApprovalRequested,
    ApprovalResolved,
    AuthorityAcquired,
    AuthorityEnded,
    Authorized,
    BudgetRevised,
    Decision,
)
from .intent import (
    AssumptionCommitted,
    AssumptionRetracted,
    ConstraintAccepted,
    ConstraintWithdrawn,
    GoalRevised,
    ObligationDischarged,
    ObligationOpened,
    ObservationCached,
    ObservationInvalidated,
    PlanCommitted,
    Predicate,
)
from .judgement import Annotated, RewardAssigned, SourceKept
from .life import (
    Branched,
    CancelRequested,
    EndStatus,
    ImportSource,
    LeaseAcquired,
    LeaseReleased,
    Origin,
    ParentAction,
    Resumed,
    ResumeRefused,
    RolledBack,
    TaskEnded,
    TaskStarted,
    ToolDeclaration,
)
from .model import (
    Compacted,
    ContextBuilt,
    ContextHead,
    InputRead,
    MessageAdded,
    MessageOrigin,
    ModelReplied,
    ProposedCall,
    ReplyStatus,
    RetrievedItem,
    Usage,
    VarSet,
)
from .state import CheckpointSaved, DriftDetected

TYPE_CODES: Final[dict[type[Payload], int]] = {
    TaskStarted: 1,
    LeaseAcquired: 2,
    LeaseReleased: 3,
    Resumed: 4,
    ResumeRefused: 5,
    RolledBack: 6,
    CancelRequested: 7,
    TaskEnded: 8,
    Branched: 9,
    GoalRevised: 16,
    ConstraintAccepted: 17,
    ConstraintWithdrawn: 18,
    AssumptionCommitted: 19,
    AssumptionRetracted: 20,
    ObligationOpened: 21,
    ObligationDischarged: 22,
    PlanCommitted: 23,
    ObservationCached: 24,
    ObservationInvalidated: 25,
    MessageAdded: 32,
    ContextBuilt: 33,
    ModelReplied: 34,
    Compacted: 35,
    InputRead: 36,
    VarSet: 37,
    AuthorityAcquired: 48,
    AuthorityEnded: 49,
    Authorized: 50,
    ApprovalRequested: 51,
    ApprovalResolved: 52,
    BudgetRevised: 53,
    ToolIntent: 64,
    ToolResult: 65,
    ToolSettled: 66,
    LateResult: 67,
    CheckpointSaved: 80,
    DriftDetected: 81,
    RewardAssigned: 96,
    Annotated: 97,
    SourceKept: 112,
}
CONTROL_TRAJECTORY: Final = 0xFF01
CONTROL_SEAL: Final = 0xFF02
"""Control frames of a segment: no events, lsn -1."""

TYPES: Final[dict[str, type[Payload]]] = {struct.__name__: struct for struct in TYPE_CODES}
NAME_OF_CODE: Final[dict[int, str]] = {code: struct.__name__ for struct, code in TYPE_CODES.items()}
CODE_OF_NAME: Final[dict[str, int]] = {name: code for code, name in NAME_OF_CODE.items()}

_encoder: Final = msgspec.json.Encoder()
_decoders: Final[dict[str, msgspec.json.Decoder[Payload]]] = {}
"""Made at first use: forty of them would cost 3 ms of every start."""


def encode_payload(payload: Payload) -> bytes:
    """Return the JSON text (UTF-8) of a payload: fields in declared order, defaults left out."""
    return _encoder.encode(payload)


def decode_payload(event_type: str, text: bytes | str) -> Payload:
    """Return the struct that `text` holds; raise `InvalidEvent` if it holds none of that type."""
    decoder = _decoders.get(event_type) or _make_decoder(event_type)
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise InvalidEvent(f"{event_type} payload: {error}") from None


def _make_decoder(event_type: str) -> msgspec.json.Decoder[Payload]:
    struct = TYPES.get(event_type)
    if struct is None:
        raise InvalidEvent(f"event type {event_type!r} is not known to this version")
    decoder: msgspec.json.Decoder[Payload] = msgspec.json.Decoder(struct)
    _decoders[event_type] = decoder
    return decoder


__all__ = [name for name in dir() if name[0].isupper() or name in ("encode_payload", "decode_payload")]
