"""Sealed segments as columns: what a pipeline needs to build Arrow arrays without a Python loop over frames.

`scan_columns` parses the index only. Header fields are gathered in two numpy steps, because every frame begins
at a multiple of 8 and its header has a fixed width (names, types and offsets: `frame.HEADER_FIELDS`):

    words = numpy.frombuffer(columns.data[: columns.data_size], "<u8")          # data_size is a multiple of 8
    starts = numpy.frombuffer(columns.offsets, "<u8")
    heads = words[(starts // 8)[:, None] + numpy.arange(16)].view(HEADER_DTYPE)[:, 0]

Payloads lie between headers. As one Arrow binary array over the whole buffer with the boundaries
start, start + 128, start + 128 + payload_length of every frame, they are each third element: `take` copies them
in C. The trajectory of every event is a dictionary index (`ordinals`) into `trajectories`.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

from .frame import HEADER_SIZE, TrajectoryInfo, decode_info, header_at, payload_at
from .journal_errors import SegmentCorrupt
from .segment_format import TRAILER_SIZE, SegmentHeader, decode_header, read_seal, read_trailer


class SegmentColumns(NamedTuple):
    """A sealed segment. Arrays are little-endian views into `data`, in lsn order; `lsn` is first_lsn + row.

    data          all bytes of the segment; frames lie below `data_size` (a multiple of 8)
    offsets       u64 per event: where its frame begins
    ordinals      u32 per event: index into `trajectories`
    trajectories  what the segment says of each, in order of first appearance
    """

    header: SegmentHeader
    data: memoryview
    data_size: int
    offsets: memoryview
    ordinals: memoryview
    trajectories: list[TrajectoryInfo]
    first_lsn: int
    last_lsn: int

    @property
    def event_count(self) -> int:
        return len(self.offsets)

    @property
    def writer(self) -> str:
        return self.header.writer


def scan_columns(data: bytes | memoryview, path: str = "segment") -> SegmentColumns:
    """Return the columns of a sealed segment, its whole checksum verified (one CRC pass, no per-frame work).

    With the checksum every frame is what the writer wrote, so no frame CRC needs checking. Raises
    `SegmentCorrupt` for bytes that are not a whole sealed segment; `read_segment` then tells what is wrong.
    """
    view = memoryview(data)
    header = decode_header(view, path)
    trailer = read_trailer(view[-TRAILER_SIZE:], len(view))
    seal = None if trailer is None else read_seal(view[trailer.seal_offset :], header.epoch)
    start = -1 if trailer is None else trailer.seal_offset
    if seal is None or seal.seal_offset != start or seal.first_lsn != header.first_lsn:
        raise SegmentCorrupt(f"{path}: not a whole sealed segment; run 'trajlake journal verify'", path=path)
    computed = crc32(view[:start])
    if computed != seal.checksum:
        raise SegmentCorrupt(
            f"{path}: segment checksum mismatch (stored {seal.checksum:#010x}, computed {computed:#010x});"
            " run 'trajlake journal verify'",
            path=path,
        )  # fmt: skip
    trajectories = []
    for ordinal, offset in enumerate(seal.info_offsets):
        frame = header_at(view, offset, header.epoch)
        payload = None if frame is None else payload_at(view, offset, frame)
        if payload is None:
            raise SegmentCorrupt(f"{path}: TRAJECTORY frame at byte {offset} is damaged", path=path, offset=offset)
        trajectories.append(decode_info(payload, seal.key(ordinal), path))
    return SegmentColumns(header, view, start, seal.offsets, seal.ordinals, trajectories, seal.first_lsn, seal.last_lsn)


__all__ = ["HEADER_SIZE", "SegmentColumns", "scan_columns"]
