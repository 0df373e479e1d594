"""One event by its place: by lsn, or by trajectory and sequence number. No sealed segment is scanned.

By lsn: the segment is found by bisection over headers, the event in it through the seal index. By number: the index
names the frames of that trajectory, and of these the 128-byte headers are read. An unsealed segment (one for each
live writer, and what a crash left) has no index yet: its frames are walked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from zlib import crc32

from trajlake.schemas.envelope import Event
from trajlake.schemas.ids import trajectory_key

from ..env import Env
from .frame import HEADER, HEADER_SIZE, FrameHeader
from .journal_errors import SegmentCorrupt
from .reader import (
    SegmentFile,
    event_in,
    list_segments,
    load_seal,
    open_segment,
    read_segment,
    segment_events,
    segment_numbers,
)
from .segment import segment_path

_SEQUENCE_NUMBER: Final = FrameHeader._fields.index("sequence_number")


def read_lsn(env: Env, folder: str, lsn: int) -> Event | None:
    """Return the event at one lsn of a writer, or None if no segment here holds it. Raises `SegmentCorrupt`."""
    segment = _segment_at(env, folder, lsn)
    if segment is None:
        return None
    if segment.last_lsn is None:
        return next(iter(segment_events(env, segment, lsn, lsn + 1)), None)
    if lsn > segment.last_lsn:
        return None
    seal, _ = load_seal(env, segment)
    fd = env.open(segment.path)
    try:
        return event_in(env, fd, segment, seal, lsn - segment.first_lsn, {})
    finally:
        env.close(fd)


def read_sequence_number(
    env: Env, folders: Iterable[str], tenant: str, trajectory_id: str, sequence_number: int
) -> list[Event]:
    """Return every event of a trajectory that has this number, by token: usually one, more after a take-over.

    `folders` are writers' folders. The last one counts, unless a later opening cut its token off: `canonical` of the
    whole trajectory says so.
    """
    key = trajectory_key(tenant, trajectory_id)
    found: dict[tuple[int, bytes], Event] = {}
    for folder in folders:
        for segment in list_segments(env, folder):
            for event in _in_segment(env, segment, key, sequence_number):
                found.setdefault((event.fencing_token, event.hash), event)
    return [found[place] for place in sorted(found)]


def _segment_at(env: Env, folder: str, lsn: int) -> SegmentFile | None:
    """The last segment that begins at or before `lsn`: where two hold it, the later one took over."""
    numbers = segment_numbers(env, folder)
    low, high = 0, len(numbers)
    best: SegmentFile | None = None
    while low < high:
        middle = (low + high) // 2
        try:
            segment = open_segment(env, segment_path(folder, numbers[middle]))
        except FileNotFoundError:  # dropped from the front, or empty at a close
            numbers.pop(middle)
            high -= 1
            continue
        if segment.first_lsn <= lsn:
            best, low = segment, middle + 1
        else:
            high = middle
    return best


def _in_segment(env: Env, segment: SegmentFile, key: bytes, sequence_number: int) -> list[Event]:
    if not segment.is_sealed:
        scan = read_segment(env, segment.path)
        place = (key, sequence_number)
        headers = [scan.header_of(index) for index in range(len(scan.offsets))]
        return [scan.event(at) for at, h in enumerate(headers) if (h.trajectory_key, h.sequence_number) == place]
    seal, _ = load_seal(env, segment)
    wanted = seal.events_of(key)
    if not wanted:
        return []
    fd = env.open(segment.path)
    try:
        # No bisection: numbers step back where a token was cut off and the same process took over again.
        indices = [at for at in wanted if _number_at(env, fd, segment, seal.offsets[at]) == sequence_number]
        return [event_in(env, fd, segment, seal, index, {}) for index in indices]
    finally:
        env.close(fd)


def _number_at(env: Env, fd: int, segment: SegmentFile, offset: int) -> int:
    data = env.pread(fd, HEADER_SIZE, offset).ljust(HEADER_SIZE, b"\0")
    header = HEADER.unpack(data)
    if header[3] != segment.header.epoch or header[0] != crc32(data[4:]):
        raise SegmentCorrupt(
            f"{segment.path}: frame at byte {offset} does not hold its checksum; run 'trajlake journal verify'",
            path=segment.path, offset=offset,
        )  # fmt: skip
    number: int = header[_SEQUENCE_NUMBER]
    return number
