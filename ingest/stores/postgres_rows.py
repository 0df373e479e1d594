"""Rows of `trajectory_events` in PostgreSQL's binary COPY form, made straight from frames: no adapter per value."""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterable
from datetime import date
from typing import Any, Final

import msgspec

from trajlake.runtime.replicas.replica import Frame
from trajlake.runtime.wal.frame import TrajectoryInfo
from trajlake.schemas.chain import commitment

BEGIN: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
END: Final = b"\xff\xff"
CHUNK_BYTES: Final = 1 << 18

_FIELDS: Final = struct.pack(">h", 17)
_NULL: Final = struct.pack(">i", -1)
_KEY: Final = struct.Struct(">iqiq")
_FACTS: Final = struct.Struct(">iiiiiq")
_FACTS_AND_TEXT: Final = struct.Struct(">iiiiiqiB")
_DIGESTS: Final = struct.Struct(">i32si32s")
_SALT_AND_DIGESTS: Final = struct.Struct(">i16si32si32s")
_LENGTH: Final = struct.Struct(">i")
_LSN: Final = struct.Struct(">iq")
_DATE: Final = struct.Struct(">ii")
_EPOCH_US: Final = 946_684_800_000_000
"""PostgreSQL counts from 2000-01-01."""
_DAY_ZERO: Final = date(2000, 1, 1)
_NOT_IN_JSONB: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u(?:0000|[dD][89a-fA-F])")
_NESTING_MAX: Final = 5_000


def chunks(
    writer: str, frames: Iterable[Frame], erased: Collection[tuple[str, str]], *, careful: bool
) -> Iterable[bytes]:
    """Yield what COPY takes. Rows of `erased` trajectories carry no text. `careful`: see `jsonb_text`."""
    places: dict[int, tuple[bytes, bytes, bool]] = {}
    names: dict[str, bytes] = {}
    of_writer = _text(writer)
    parts: list[bytes] = [BEGIN]
    size = 0
    for frame in frames:
        info = frame.info
        place = places.get(id(info))
        if place is None:
            place = places[id(info)] = (*_place(info), (info.tenant, info.trajectory_id) in erased)
        name = names.get(frame.type)
        if name is None:
            name = names[frame.type] = _text(frame.type or f"type {frame.header.type_code}")
        size += _row(parts, frame, place, name, of_writer, careful)
        if size > CHUNK_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
    parts.append(END)
    yield b"".join(parts)


def _row(
    parts: list[bytes], frame: Frame, place: tuple[bytes, bytes, bool], name: bytes, writer: bytes, careful: bool
) -> int:
    header, payload, data = frame.header, frame.payload, frame.data
    front, back, is_erased = place
    key = _KEY.pack(8, header.sequence_number, 8, header.fencing_token)
    facts = (4, header.schema_version, 4, header.turn, 8, header.recorded_at - _EPOCH_US)
    sealed = commitment(header.salt, payload)
    if is_erased:
        parts += (
            front, key, name, _FACTS.pack(*facts), _NULL, _NULL, _DIGESTS.pack(32, sealed, 32, header.hash),
            writer, _LSN.pack(8, header.lsn), back, _NULL,
        )  # fmt: skip
        return 400
    text = jsonb_text(payload, careful=careful) if careful or b"\\" in payload else payload
    parts += (
        front, key, name, _FACTS_AND_TEXT.pack(*facts, len(text) + 1, 1), text,
        _SALT_AND_DIGESTS.pack(16, header.salt, 32, sealed, 32, header.hash),
        writer, _LSN.pack(8, header.lsn), back, _LENGTH.pack(len(data)), data,
    )  # fmt: skip
    return 2 * len(payload) + 400


def jsonb_text(payload: bytes, *, careful: bool = False) -> bytes:
    """Return the text that goes into the jsonb column: the payload itself where jsonb can hold it.

    U+0000 and lone surrogates, which the value codec tags, and texts that are no JSON become
    `{"$not_jsonb": reason}`: that column is for queries only, the frame keeps the bytes. `careful` also decodes
    what looks harmless; it is asked for when the server refused a batch.
    """
    escaped = b"\\u" in payload and _NOT_IN_JSONB.search(payload) is not None
    if not escaped and not careful:
        return payload
    try:
        payload.decode()
        tree: Any = msgspec.json.decode(payload)
        text = msgspec.json.encode(tree) if escaped else payload
        if payload.count(b"[") + payload.count(b"{") > _NESTING_MAX:
            return _marker("nested too deeply")
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return _marker(f"not JSON: {type(error).__name__}")
    if escaped and _NOT_IN_JSONB.search(text) is not None:
        return _marker("holds U+0000 or a lone surrogate")
    return text


def _marker(reason: str) -> bytes:
    return msgspec.json.encode({"$not_jsonb": reason})


def model_of(info: TrajectoryInfo) -> str:
    """Return id@version, as the lake names the model at the start."""
    name = info.model or "unknown"
    return f"{name}@{info.model_version}" if info.model_version else name


def _place(info: TrajectoryInfo) -> tuple[bytes, bytes]:
    days = (date.fromisoformat(info.started_on) - _DAY_ZERO).days
    return _FIELDS + _text(info.tenant) + _text(info.trajectory_id), _DATE.pack(4, days) + _text(model_of(info))


def _text(value: str) -> bytes:
    data = value.encode()
    return _LENGTH.pack(len(data)) + data
