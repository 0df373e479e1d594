"""Reading a segment's bytes: every valid frame, and how the segment ends. Pure; no disk. Rules: `FORMAT.md`.

| end       | meaning                                                    | what a reader does            |
|-----------|------------------------------------------------------------|-------------------------------|
| `sealed`  | a SEAL closes it                                           | trust all of it               |
| `open`    | valid frames, then nothing but zeros                       | last barrier may be not durable |
| `torn`    | the last barrier is damaged: a crash cut it short          | drop the damaged tail, report |
| `corrupt` | an earlier barrier is damaged, so acknowledged data is     | stop, report, never cut       |
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, Literal
from zlib import crc32

from trajlake.schemas.envelope import Event
from trajlake.schemas.limits import FRAME_MAX

from .frame import (
    ALIGNMENT,
    CONTROL_LSN,
    CONTROL_SEAL,
    CONTROL_TRAJECTORY,
    HEADER_SIZE,
    PADDING,
    FrameHeader,
    TrajectoryInfo,
    decode_info,
    frame_size,
    header_at,
    payload_at,
    to_event,
)
from .journal_errors import SegmentCorrupt
from .segment_format import (
    BLOCK_SIZE,
    TRAILER_SIZE,
    Seal,
    SegmentHeader,
    decode_header,
    read_seal,
    read_trailer,
)

End = Literal["sealed", "open", "torn", "corrupt"]
_EPOCH_AT: Final = 12
_FRONT: Final = struct.Struct("<IIIIqI4x16s")
"""The first 48 bytes of a frame header, but for type code and schema version."""


class SegmentScan:
    """What a segment holds. `offsets[i]` is where the event with lsn `header.first_lsn + i` stands, `ordinals[i]` the
    place of its trajectory in `infos` (order of first appearance), `info_offsets` where their TRAJECTORY frames do.

    `proved` events are durable for certain (a later barrier, or the SEAL, was begun after theirs had finished);
    those behind are valid, but perhaps so far only in the machine's cache. `seal_offset` is -1 without a SEAL;
    `end_offset` is the byte behind the last valid event (behind the SEAL in a sealed segment).
    """

    def __init__(self, path: str, data: bytes | memoryview) -> None:
        self.path = path
        self.data = memoryview(data)
        self.header: SegmentHeader = decode_header(data, path)
        self.infos: dict[bytes, TrajectoryInfo] = {}
        self.offsets: Sequence[int] = []
        self.ordinals: Sequence[int] = []
        self.info_offsets: Sequence[int] = []
        self.end: End = "open"
        self.proved = 0
        self.seal: Seal | None = None
        self.seal_offset = -1
        self.end_offset = BLOCK_SIZE
        self.damaged_at = -1
        self.report = ""

    @property
    def first_lsn(self) -> int:
        return self.header.first_lsn

    @property
    def last_lsn(self) -> int:
        """The lsn of the last valid event; first_lsn - 1 if there is none."""
        return self.header.first_lsn + len(self.offsets) - 1

    def header_of(self, index: int) -> FrameHeader:
        """Return the frame header of the index-th event; raise `SegmentCorrupt` if it is not valid."""
        offset = self.offsets[index]
        header = header_at(self.data, offset, self.header.epoch)
        if header is None or header.lsn != self.header.first_lsn + index:
            raise self._bad_frame(offset, index)
        return header

    def event(self, index: int) -> Event:
        """Return the index-th event, its CRCs checked; raise `SegmentCorrupt` if they do not hold."""
        header = self.header_of(index)
        payload = payload_at(self.data, self.offsets[index], header)
        if payload is None:
            raise self._bad_frame(self.offsets[index], index)
        return to_event(header, payload, self.infos[header.trajectory_key], self.header.writer)

    def events(self, start: int = 0, stop: int | None = None) -> Iterator[Event]:
        """Yield events by index (not lsn), in order."""
        for index in range(start, len(self.offsets) if stop is None else min(stop, len(self.offsets))):
            yield self.event(index)

    def _bad_frame(self, offset: int, index: int) -> SegmentCorrupt:
        lsn = self.header.first_lsn + index
        return SegmentCorrupt(
            f"{self.path}: lsn {lsn} at byte {offset} does not hold its checksum; run 'trajlake journal verify'",
            path=self.path, offset=offset, lsn=lsn,
        )  # fmt: skip


def scan_segment(data: bytes | memoryview, path: str = "segment") -> SegmentScan:
    """Return what the bytes of a segment hold; raise `SegmentCorrupt` only if they have no valid segment header.

    Memory is bounded by the data: no length is believed before its checksum holds.
    """
    scan = SegmentScan(path, data)
    if not _scan_by_index(scan):
        _scan_frames(scan)
    return scan


def _scan_by_index(scan: SegmentScan) -> bool:
    """Take a sealed and cut segment at its word if the whole-segment checksum holds."""
    data = scan.data
    trailer = read_trailer(data[-TRAILER_SIZE:], len(data))
    if trailer is None:
        return False
    start = trailer.seal_offset
    seal = read_seal(data[start:], scan.header.epoch)
    if seal is None or seal.seal_offset != start or seal.first_lsn != scan.header.first_lsn:
        return False
    if crc32(data[:start]) != seal.checksum:
        return False
    for ordinal, offset in enumerate(seal.info_offsets):
        header = header_at(data, offset, scan.header.epoch)
        payload = None if header is None else payload_at(data, offset, header)
        if header is None or payload is None or header.trajectory_key != seal.key(ordinal):
            return False
        scan.infos[header.trajectory_key] = decode_info(payload, header.trajectory_key, scan.path)
    scan.offsets, scan.ordinals, scan.info_offsets = seal.offsets, seal.ordinals, seal.info_offsets
    _close_sealed(scan, seal, start)
    return True


def _close_sealed(scan: SegmentScan, seal: Seal, start: int) -> None:
    scan.seal, scan.seal_offset = seal, start
    scan.end = "sealed"
    scan.proved = len(scan.offsets)
    header = header_at(scan.data, start, scan.header.epoch)
    assert header is not None
    scan.end_offset = start + frame_size(header.payload_length)


def _scan_frames(scan: SegmentScan) -> None:
    """Walk from frame to frame, and judge what stops the walk.

    Header and payload are checked in place, rules 1 to 8 of `FORMAT.md` in their order: calls for each frame would
    cost more than the checks, and recovery has to be near the speed of reading. Control frames go the long way.
    """
    offsets: list[int] = []
    ordinals: list[int] = []
    known: dict[bytes, int] = {}
    info_offsets: list[int] = []
    scan.offsets, scan.ordinals, scan.info_offsets = offsets, ordinals, info_offsets
    data, epoch = scan.data, scan.header.epoch
    unpack, crc, add_offset, add_ordinal = _FRONT.unpack_from, crc32, offsets.append, ordinals.append
    at, size = BLOCK_SIZE, len(data)
    next_lsn, next_position = scan.first_lsn, 0
    while at + HEADER_SIZE <= size:
        header_crc, length, payload_crc, frame_epoch, lsn, position, key = unpack(data, at)
        if lsn == CONTROL_LSN:
            length = _control(scan, at, known, info_offsets)
            if not length or scan.end == "sealed":
                break
            at += frame_size(length)
            continue
        start = at + HEADER_SIZE
        end = start + length
        following = end + (-length & 7)
        if (
            frame_epoch != epoch
            or header_crc != crc(data[at + 4 : start])
            or not 0 < length <= FRAME_MAX
            or following > size
            or lsn != next_lsn
            or (position and position != next_position)
        ):
            break
        if not position:
            # This barrier was begun after the one before it had finished.
            scan.proved = len(offsets)
        ordinal = known.get(key)
        if crc(data[start:end]) != payload_crc or data[end:following] != PADDING[length & 7] or ordinal is None:
            break
        add_offset(at)
        add_ordinal(ordinal)
        next_lsn += 1
        next_position = position + 1
        at = following
    if scan.end != "sealed":
        scan.end_offset = _end_of_last(scan)
        _judge(scan, at)


def _end_of_last(scan: SegmentScan) -> int:
    """The byte behind the last valid event."""
    if not scan.offsets:
        return BLOCK_SIZE
    return scan.offsets[-1] + frame_size(_FRONT.unpack_from(scan.data, scan.offsets[-1])[1])


def _control(scan: SegmentScan, at: int, known: dict[bytes, int], info_offsets: list[int]) -> int:
    """Take in the control frame at `at`; return its payload length, 0 if it is not valid here."""
    header = header_at(scan.data, at, scan.header.epoch)
    if header is None:
        return 0
    if header.type_code == CONTROL_SEAL:
        # Sealing begins when every barrier has finished, so even a SEAL cut short proves them all.
        scan.proved = len(scan.offsets)
    payload = payload_at(scan.data, at, header)
    if payload is None:
        return 0
    if header.type_code == CONTROL_TRAJECTORY and header.trajectory_key not in scan.infos:
        try:
            scan.infos[header.trajectory_key] = decode_info(payload, header.trajectory_key, scan.path)
        except SegmentCorrupt:
            return 0
        known[header.trajectory_key] = len(known)
        info_offsets.append(at)
        return header.payload_length
    if header.type_code != CONTROL_SEAL:
        return 0
    seal = read_seal(scan.data[at : at + frame_size(header.payload_length)], scan.header.epoch)
    if seal is None or seal.seal_offset != at or list(seal.offsets) != scan.offsets:
        return 0
    _close_sealed(scan, seal, at)
    return header.payload_length


def _judge(scan: SegmentScan, at: int) -> None:
    """Decide between open, torn and corrupt for what stands at `at`, where no valid frame follows the others.

    A barrier is begun only after the one before it has finished. So a frame further on whose barrier began
    behind the first missing lsn proves that this one had been acknowledged. Without such a proof it is the
    last barrier, which nobody was told of.
    """
    missing = scan.last_lsn + 1
    proof = _proof_behind(scan, at, missing)
    if proof is not None:
        scan.end, scan.damaged_at = "corrupt", at
        scan.report = (
            f"{scan.path}: acknowledged events from lsn {missing} on are damaged at byte {at}"
            f" (valid frames of a later barrier follow at byte {proof}); nothing was cut"
        )
        return
    dirty = len(bytes(scan.data[at:]).rstrip(b"\0"))
    if dirty:
        scan.end, scan.damaged_at = "torn", at
        scan.report = f"{scan.path}: torn tail: {dirty} bytes at byte {at} behind lsn {missing - 1} are no whole frame"


def _proof_behind(scan: SegmentScan, at: int, missing: int) -> int | None:
    """Return where a frame begins that shows the barrier of lsn `missing` to have finished; None if there is none."""
    epoch = scan.header.epoch
    needle = epoch.to_bytes(4, "little")
    data = bytes(scan.data[at:])
    found = data.find(needle, _EPOCH_AT)
    while found >= 0:
        start = found - _EPOCH_AT
        if start % ALIGNMENT == 0:
            header = header_at(scan.data, at + start, epoch)
            if header is not None:
                sealed = header.type_code == CONTROL_SEAL and start > 0
                if sealed or header.lsn - header.batch_position > missing:
                    return at + start
        found = data.find(needle, found + 1)
    return None


__all__ = ["BLOCK_SIZE", "HEADER_SIZE", "End", "SegmentScan", "scan_segment"]
