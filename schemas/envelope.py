"""An event as the rest of the system passes it round: header fields, exact payload text, decoded body on demand."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec

from .events import CODE_OF_NAME, decode_payload


class Event(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One event. `payload` is the exact JSON text (None once erased); `recorded_at` is µs UTC, never an order.

    `salt` has 16 bytes (None once erased), `hash` 32. `writer` (hex) and `lsn` say where it was read;
    they are outside the chain and not compared.
    """

    tenant: str
    trajectory_id: str
    sequence_number: int
    fencing_token: int
    turn: int
    type: str
    recorded_at: int
    payload: bytes | None
    salt: bytes | None
    hash: bytes
    schema_version: int = 1
    commitment: bytes | None = None
    writer: str = ""
    lsn: int = -1

    @property
    def type_code(self) -> int:
        return CODE_OF_NAME[self.type]

    @cached_property
    def body(self) -> Any:
        """The decoded struct. Raises `InvalidEvent` for text that is none, and when it was erased."""
        return decode_payload(self.type, self.payload if self.payload is not None else b"")
