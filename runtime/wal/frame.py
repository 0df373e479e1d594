"""The frame: 128 bytes of header, payload, zeros up to a multiple of 8. `FORMAT.md` is the law; this is its codec."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from datetime import date
from functools import cached_property
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from trajlake.schemas.envelope import Event
from trajlake.schemas.errors import UnknownVersion
from trajlake.schemas.events import CODE_OF_NAME, CONTROL_SEAL, CONTROL_TRAJECTORY, NAME_OF_CODE
from trajlake.schemas.ids import check_tenant, trajectory_key
from trajlake.schemas.limits import FRAME_MAX, HASH_SIZE, SALT_SIZE

from .journal_errors import EventRefused, SegmentCorrupt

HEADER_SIZE: Final = 128
ALIGNMENT: Final = 8
CONTROL_LSN: Final = -1

HEADER: Final = struct.Struct("<IIIIqIHH16sqqqiI16s32s")
FRONT: Final = struct.Struct("<IIIqI")
"""Bytes 4 to 28, which the flusher fills: payload length, payload CRC, epoch, lsn, batch position."""
TAIL: Final = struct.Struct("<HH16sqqqiI16s32s")
"""Bytes 28 to 128, which the caller of `append` fills, outside any lock."""
U32: Final = struct.Struct("<I")
PADDING: Final = tuple(bytes(-length % ALIGNMENT) for length in range(ALIGNMENT))

HEADER_FIELDS: Final = (
    # name, numpy type, offset in the frame
    ("header_crc", "<u4", 0),
    ("payload_length", "<u4", 4),
    ("payload_crc", "<u4", 8),
    ("epoch", "<u4", 12),
    ("lsn", "<i8", 16),
    ("batch_position", "<u4", 24),
    ("type_code", "<u2", 28),
    ("schema_version", "<u2", 30),
    ("trajectory_key", "S16", 32),
    ("sequence_number", "<i8", 48),
    ("fencing_token", "<i8", 56),
    ("recorded_at", "<i8", 64),
    ("turn", "<i4", 72),
    ("flags", "<u4", 76),
    ("salt", "S16", 80),
    ("hash", "S32", 96),
)
"""Every field is aligned to its own size, so that columns can be viewed in place (numpy strips NULs of `S`: use V)."""


class FrameHeader(NamedTuple):
    """The fields of a frame header, in the order of their bytes."""

    header_crc: int
    payload_length: int
    payload_crc: int
    epoch: int
    lsn: int
    batch_position: int
    type_code: int
    schema_version: int
    trajectory_key: bytes
    sequence_number: int
    fencing_token: int
    recorded_at: int
    turn: int
    flags: int
    salt: bytes
    hash: bytes


class TrajectoryInfo(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What a segment says once of each trajectory in it. `started_on` is YYYY-MM-DD, the lake's partition."""

    tenant: str
    trajectory_id: str
    model: str = ""
    model_version: str = ""
    started_on: str

    def __post_init__(self) -> None:
        try:
            check_tenant(self.tenant)
            if date.fromisoformat(self.started_on).isoformat() != self.started_on:
                raise ValueError
        except ValueError as error:
            raise EventRefused(
                f"trajectory {self.trajectory_id!r}: {error or f'started_on {self.started_on!r} is not YYYY-MM-DD'}"
            ) from None

    @cached_property
    def key(self) -> bytes:
        """The 16-byte trajectory key."""
        return trajectory_key(self.tenant, self.trajectory_id)

    @cached_property
    def payload(self) -> bytes:
        """The JSON text of the TRAJECTORY control frame."""
        return msgspec.json.encode(self)

    @cached_property
    def frame_size(self) -> int:
        """Bytes of the TRAJECTORY control frame in the file."""
        return frame_size(len(self.payload))


PreparedFrame = tuple[bytes, bytes, int, int]
"""An event as its caller prepared it, all that does not depend on its place in a segment: tail of the header,
payload, payload CRC, bytes in the file. A plain tuple: this is made and taken apart for every event."""


def frame_size(payload_length: int) -> int:
    """Return the bytes that a frame with such a payload takes in the file."""
    return HEADER_SIZE + payload_length + -payload_length % ALIGNMENT


def prepare(event: Event, info: TrajectoryInfo) -> PreparedFrame:
    """Return the event's frame but for lsn, epoch and batch position; raise `EventRefused` if none can hold it."""
    payload, salt = event.payload, event.salt
    if event.trajectory_id != info.trajectory_id or event.tenant != info.tenant:
        raise EventRefused(f"event {event.sequence_number} of {event.trajectory_id!r} came with the wrong trajectory")
    if payload is None or salt is None:
        raise EventRefused(f"event {event.sequence_number} of {event.trajectory_id!r} is erased: nothing to append")
    length = len(payload)
    if not 0 < length <= FRAME_MAX:
        raise EventRefused(
            f"event {event.sequence_number} of {event.trajectory_id!r}: payload of {length} bytes,"
            f" must be 1 to {FRAME_MAX}; bulk belongs in blobs"
        )
    if len(salt) != SALT_SIZE or len(event.hash) != HASH_SIZE:
        raise EventRefused(f"event {event.sequence_number} of {event.trajectory_id!r}: salt or hash of a wrong size")
    try:
        tail = TAIL.pack(
            CODE_OF_NAME[event.type], event.schema_version, info.key, event.sequence_number, event.fencing_token,
            event.recorded_at, event.turn, 0, salt, event.hash,
        )  # fmt: skip
    except (struct.error, KeyError) as error:
        raise EventRefused(f"event {event.sequence_number} of {event.trajectory_id!r}: bad field: {error}") from None
    return tail, payload, crc32(payload), HEADER_SIZE + length + (-length & 7)


def lay_out(frames: Iterable[PreparedFrame], epoch: int, lsn: int, batch_position: int, parts: list[bytes]) -> None:
    """Append whole frames to `parts`, the first at `lsn` and `batch_position`. This is the flusher's inner loop."""
    front, crc_field, padding, add = FRONT.pack, U32.pack, PADDING, parts.extend
    for tail, payload, payload_crc, _ in frames:
        length = len(payload)
        rest = front(length, payload_crc, epoch, lsn, batch_position) + tail
        add((crc_field(crc32(rest)), rest, payload, padding[length & 7]))
        lsn += 1
        batch_position += 1


def control_frame(code: int, payload: bytes, epoch: int, *, key: bytes = bytes(16), batch_position: int = 0) -> bytes:
    """Return a whole TRAJECTORY or SEAL frame: lsn -1, all fields of an event zero."""
    tail = TAIL.pack(code, 1, key, 0, 0, 0, 0, 0, bytes(SALT_SIZE), bytes(HASH_SIZE))
    parts: list[bytes] = []
    lay_out(((tail, payload, crc32(payload), 0),), epoch, CONTROL_LSN, batch_position, parts)
    return b"".join(parts)


def header_at(data: bytes | memoryview, offset: int, epoch: int) -> FrameHeader | None:
    """Return the header at `offset` if it is valid (FORMAT.md, frame rules 1 to 4), else None."""
    if offset + HEADER_SIZE > len(data):
        return None
    header = FrameHeader._make(HEADER.unpack_from(data, offset))
    if (
        header.epoch != epoch
        or header.payload_length == 0
        or header.header_crc != crc32(data[offset + 4 : offset + HEADER_SIZE])
        or (header.payload_length > FRAME_MAX and header.type_code != CONTROL_SEAL)
        or offset + frame_size(header.payload_length) > len(data)
    ):
        return None
    return header


def payload_at(data: bytes | memoryview, offset: int, header: FrameHeader) -> bytes | None:
    """Return the payload of a valid header if its CRC and padding hold (frame rules 5 and 6), else None."""
    start = offset + HEADER_SIZE
    end = start + header.payload_length
    payload = bytes(data[start:end])
    if crc32(payload) != header.payload_crc or any(data[end : offset + frame_size(header.payload_length)]):
        return None
    return payload


def to_event(header: FrameHeader, payload: bytes, info: TrajectoryInfo, writer: str) -> Event:
    """Return the event of a valid frame; raise `UnknownVersion` for a type that this version does not know."""
    name = NAME_OF_CODE.get(header.type_code)
    if name is None:
        raise UnknownVersion(
            f"lsn {header.lsn} of writer {writer}: event type {header.type_code} is newer than this trajlake; upgrade"
        )
    return Event(
        tenant=info.tenant,
        trajectory_id=info.trajectory_id,
        sequence_number=header.sequence_number,
        fencing_token=header.fencing_token,
        turn=header.turn,
        type=name,
        recorded_at=header.recorded_at,
        payload=payload,
        salt=header.salt,
        hash=header.hash,
        schema_version=header.schema_version,
        writer=writer,
        lsn=header.lsn,
    )


def decode_info(payload: bytes, key: bytes, where: str) -> TrajectoryInfo:
    """Return what a TRAJECTORY frame says; raise `SegmentCorrupt` if it is none of that key."""
    try:
        info = msgspec.json.decode(payload, type=TrajectoryInfo)
    except (msgspec.DecodeError, msgspec.ValidationError, EventRefused) as error:
        raise SegmentCorrupt(f"{where}: TRAJECTORY frame does not decode: {error}") from None
    if info.key != key:
        raise SegmentCorrupt(f"{where}: TRAJECTORY frame of {info.trajectory_id!r} carries another key")
    return info


__all__ = [
    "ALIGNMENT", "CONTROL_LSN", "CONTROL_SEAL", "CONTROL_TRAJECTORY", "HEADER", "HEADER_FIELDS", "HEADER_SIZE",
    "FrameHeader", "PreparedFrame", "TrajectoryInfo", "control_frame", "decode_info", "frame_size", "header_at",
    "lay_out", "payload_at", "prepare", "to_event",
]  # fmt: skip
