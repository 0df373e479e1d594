"""An event as the rest of the system passes it round: header fields, exact payload text, decoded body on demand."""

from __future__ import annotations

from typing import Any

import msgspec

from .events import CODE_OF_NAME, decode_payload


class _Body:
    """The decoded struct, made at the first look and kept. Two threads may both decode: they get equal structs.

    (`functools.cached_property` would take a lock each time.)
    """

    def __get__(self, event: Any, owner: type | None = None) -> Any:
        if event is None:
            return self
        body = event.__dict__["body"] = decode_payload(event.type, event.payload if event.payload is not None else b"")
        return body


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

    body = _Body()
    """The decoded struct. Raises `InvalidEvent` for text that is none, and when it was erased."""
