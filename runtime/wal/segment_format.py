"""Segment header and SEAL: their bytes, built and read without any I/O. `FORMAT.md` is the law."""

from __future__ import annotations

import struct
import sys
from array import array
from hashlib import sha256
from typing import Final, Literal, NamedTuple
from zlib import crc32

from ..env import Env
from .frame import ALIGNMENT, CONTROL_SEAL, HEADER_SIZE, control_frame, header_at
from .journal_errors import SegmentCorrupt

MAGIC: Final = b"TJSEG\0\0\x01"
FORMAT_MAJOR: Final = 1
BLOCK_SIZE: Final = 4096
"""The segment header fills one block; frames begin behind it."""
SUFFIX: Final = ".seg"
TEMPORARY: Final = ".tmp"

FLAG_FAILOVER: Final = 1
"""Begun after the segment before it was poisoned by a disk error."""
FLAG_RECOVERED: Final = 2
"""Holds frames that recovery copied out of the segment before it."""

_HEADER: Final = struct.Struct("<8sIHHBBHIqqQ16s16sqq32sI28s")
HEADER_LENGTH: Final = 160
_SHA256: Final = 1
_CRC32: Final = 1

TRAILER: Final = struct.Struct("<8sQqqQQIIII")
TRAILER_MAGIC: Final = b"TJSEAL\0\x01"
TRAILER_SIZE: Final = TRAILER.size


class SegmentHeader(NamedTuple):
    """The head of a segment. Clocks are µs; `previous_seal` is the sha256 of the SEAL frame before it, or zeros."""

    writer_id: bytes
    number: int
    first_lsn: int
    epoch: int
    size_bytes: int
    flags: int
    boot_id: bytes
    created_at: int
    boottime: int
    previous_seal: bytes
    pid: int

    @property
    def writer(self) -> str:
        return self.writer_id.hex()


def new_header(
    env: Env, writer_id: bytes, number: int, first_lsn: int, size_bytes: int, previous_seal: bytes, flags: int = 0
) -> SegmentHeader:
    """Return a header with a fresh random epoch (never 0) and the clocks of now."""
    epoch = int.from_bytes(env.random_bytes(4), "little") or 1
    return SegmentHeader(
        writer_id, number, first_lsn, epoch, size_bytes, flags, env.boot_id(), env.now_us(), env.boottime_us(),
        previous_seal, env.pid() & 0xFFFFFFFF,
    )  # fmt: skip


def encode_header(header: SegmentHeader) -> bytes:
    """Return the 4096 bytes of a segment header."""
    packed = _HEADER.pack(
        MAGIC, 0, HEADER_LENGTH, header.flags, _SHA256, _CRC32, HEADER_SIZE, header.epoch, header.number,
        header.first_lsn, header.size_bytes, header.writer_id, header.boot_id, header.created_at, header.boottime,
        header.previous_seal, header.pid, bytes(28),
    )  # fmt: skip
    return (packed[:8] + struct.pack("<I", crc32(packed[12:])) + packed[12:]).ljust(BLOCK_SIZE, b"\0")


def decode_header(data: bytes | memoryview, path: str = "segment", *, file_size: int | None = None) -> SegmentHeader:
    """Return the header of a segment; raise `SegmentCorrupt` with the reason if it is none that we read.

    `data` is the file, or its first HEADER_LENGTH bytes with the size of the file beside them.
    """
    size = len(data) if file_size is None else file_size
    if size < BLOCK_SIZE or len(data) < HEADER_LENGTH:
        raise SegmentCorrupt(f"{path}: {size} bytes, shorter than a segment header", path=path)
    found = _HEADER.unpack_from(data)
    if found[0][:7] != MAGIC[:7]:
        raise SegmentCorrupt(f"{path}: no segment: its first bytes are {bytes(data[:8])!r}", path=path)
    if found[0] != MAGIC:
        raise SegmentCorrupt(f"{path}: segment format {found[0][7]}, this trajlake reads {FORMAT_MAJOR}", path=path)
    computed = crc32(data[12:HEADER_LENGTH])
    if found[1] != computed:
        raise SegmentCorrupt(
            f"{path}: header checksum mismatch (stored {found[1]:#010x}, computed {computed:#010x})", path=path
        )
    if found[2] != HEADER_LENGTH or found[4:7] != (_SHA256, _CRC32, HEADER_SIZE):
        raise SegmentCorrupt(f"{path}: header names algorithms or sizes unknown to this trajlake", path=path)
    return SegmentHeader(
        found[11], found[8], found[9], found[7], found[10], found[3], found[12], found[13], found[14], found[15],
        found[16],
    )  # fmt: skip


class Seal(NamedTuple):
    """A decoded SEAL: where the events of a sealed segment stand, and whose they are.

    Arrays are views into the segment's bytes: `offsets` (u64) of event frames in lsn order, `ordinals` (u32)
    of each event's trajectory in order of first appearance, `grouped` (u32) event indices by trajectory,
    `starts` (u64) where each trajectory's run in `grouped` begins, `info_offsets` (u64) of TRAJECTORY frames.
    """

    seal_offset: int
    first_lsn: int
    last_lsn: int
    checksum: int
    offsets: memoryview
    ordinals: memoryview
    grouped: memoryview
    starts: memoryview
    info_offsets: memoryview
    keys: memoryview

    @property
    def event_count(self) -> int:
        return len(self.offsets)

    def key(self, ordinal: int) -> bytes:
        return bytes(self.keys[ordinal * 16 : ordinal * 16 + 16])

    def events_of(self, key: bytes) -> list[int]:
        """Return the event indices (0 = first lsn) of one trajectory, ascending; none if it is not in here."""
        at = bytes(self.keys).find(key)
        while at % 16 and at >= 0:
            at = bytes(self.keys).find(key, at + 1)
        if at < 0:
            return []
        return list(self.grouped[self.starts[at // 16] : self.starts[at // 16 + 1]])


class IndexBuilder:
    """Collects what the SEAL of a segment will say while frames are laid out. One thread at a time."""

    def __init__(self, first_lsn: int, checksum: int) -> None:
        self.first_lsn = first_lsn
        self._checksum = checksum
        self._unread = b""
        self.offsets = array("Q")
        self.ordinals = array("I")
        self.known: dict[bytes, int] = {}
        self.info_offsets = array("Q")

    def take_in(self, data: bytes) -> None:
        """Note the bytes of a batch. They are read when the checksum is next asked for: so not before their barrier."""
        self._checksum, self._unread = self.checksum(), data

    def checksum(self) -> int:
        """Return the CRC-32 of all bytes so far. It lets other threads run while it reads more than a few KiB."""
        if self._unread:
            self._checksum, self._unread = crc32(self._unread, self._checksum), b""
        return self._checksum

    def mark(self) -> tuple[int, int, int, bytes]:
        """Return a point that `rewind` can go back to."""
        return len(self.offsets), len(self.info_offsets), self._checksum, self._unread

    def rewind(self, mark: tuple[int, int, int, bytes]) -> None:
        """Forget what was added since `mark`: those frames did not reach the disk for sure."""
        events, infos, self._checksum, self._unread = mark
        del self.offsets[events:], self.ordinals[events:], self.info_offsets[infos:]
        self.known = {key: ordinal for key, ordinal in self.known.items() if ordinal < infos}

    def seal_size(self, more_events: int = 0, more_trajectories: int = 0) -> int:
        """Return the bytes of the SEAL frame if so much is still added."""
        events = len(self.offsets) + more_events
        infos = len(self.info_offsets) + more_trajectories
        return HEADER_SIZE + _payload_size(events, infos)

    def seal_frame(self, epoch: int, seal_offset: int) -> bytes:
        """Return the whole SEAL frame for a segment that ends at `seal_offset`: a pure function of its frames."""
        events, infos = len(self.offsets), len(self.info_offsets)
        ordinals = self.ordinals
        groups = [array("I") for _ in range(infos)]
        for index, ordinal in enumerate(ordinals):
            groups[ordinal].append(index)
        starts = array("Q", [0])
        grouped = array("I")
        for group in groups:
            grouped.extend(group)
            starts.append(len(grouped))
        trailer = TRAILER.pack(
            TRAILER_MAGIC, seal_offset, self.first_lsn, self.first_lsn + events - 1, events, infos,
            self.checksum(), epoch, 0, 0,
        )  # fmt: skip
        payload = b"".join((
            _little(self.offsets), _aligned(_little(ordinals)), _aligned(_little(grouped)), _little(starts),
            _little(self.info_offsets), b"".join(self.known), trailer[:-4], struct.pack("<I", crc32(trailer[:-4])),
        ))  # fmt: skip
        return control_frame(CONTROL_SEAL, payload, epoch)


def seal_hash(seal_frame: bytes) -> bytes:
    """Return what the next segment's header carries as `previous_seal`."""
    return sha256(seal_frame).digest()


def decode_seal(payload: memoryview) -> Seal | None:
    """Return the index in a SEAL frame's payload, or None if sizes and trailer do not agree."""
    if len(payload) < TRAILER_SIZE:
        return None
    found = TRAILER.unpack(payload[-TRAILER_SIZE:])
    magic, seal_offset, first_lsn, last_lsn, events, infos, checksum, _, _, crc = found
    if magic != TRAILER_MAGIC or crc != crc32(payload[-TRAILER_SIZE:-4]):
        return None
    if len(payload) != _payload_size(events, infos) or last_lsn != first_lsn + events - 1:
        return None
    at = 0
    views: list[memoryview] = []
    for count, wide in ((events, True), (events, False), (events, False), (infos + 1, True), (infos, True)):
        size = count * (8 if wide else 4)
        views.append(_view(payload[at : at + size], "Q" if wide else "I"))
        at += size + -size % ALIGNMENT
    offsets, ordinals, grouped, starts, info_offsets = views
    keys = payload[at : at + 16 * infos]
    return Seal(seal_offset, first_lsn, last_lsn, checksum, offsets, ordinals, grouped, starts, info_offsets, keys)


class Trailer(NamedTuple):
    """The last bytes of a sealed and cut segment: where its SEAL begins, and what it covers."""

    seal_offset: int
    first_lsn: int
    last_lsn: int
    event_count: int
    trajectory_count: int
    checksum: int


def read_trailer(tail: bytes | memoryview, file_size: int) -> Trailer | None:
    """Return the trailer in a file's last bytes, or None if these are none, or not for a file of that size."""
    if len(tail) < TRAILER_SIZE or file_size < BLOCK_SIZE + HEADER_SIZE + TRAILER_SIZE:
        return None
    magic, seal_offset, first_lsn, last_lsn, events, infos, checksum, _, _, crc = TRAILER.unpack(tail[-TRAILER_SIZE:])
    if magic != TRAILER_MAGIC or crc != crc32(tail[-TRAILER_SIZE:-4]):
        return None
    if seal_offset < BLOCK_SIZE or seal_offset + HEADER_SIZE + _payload_size(events, infos) != file_size:
        return None
    if last_lsn != first_lsn + events - 1:
        return None
    return Trailer(seal_offset, first_lsn, last_lsn, events, infos, checksum)


def read_seal(frame: memoryview, epoch: int) -> Seal | None:
    """Return the index of a SEAL frame whose bytes are valid in every respect, else None."""
    header = header_at(frame, 0, epoch)
    if header is None or header.type_code != CONTROL_SEAL:
        return None
    payload = frame[HEADER_SIZE : HEADER_SIZE + header.payload_length]
    if crc32(payload) != header.payload_crc:
        return None
    return decode_seal(payload)


def _payload_size(events: int, infos: int) -> int:
    narrow = 4 * events + (4 * events) % ALIGNMENT
    return 8 * events + 2 * narrow + 8 * (infos + 1) + 8 * infos + 16 * infos + TRAILER_SIZE


def _little(values: array[int]) -> bytes:
    # All hosts we run on are little endian; the format must not depend on that.
    if sys.byteorder == "big":
        values = array(values.typecode, values)
        values.byteswap()
    return values.tobytes()


def _view(data: memoryview, kind: Literal["Q", "I"]) -> memoryview:
    if sys.byteorder == "big":
        values = array(kind, data.tobytes())
        values.byteswap()
        return memoryview(values)
    return data.cast("B").cast(kind)


def _aligned(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)
