"""Reading journals: one segment, a writer's segments in a row, one trajectory, one lsn. Nothing here writes.

Readers may run beside a live writer, in any process. They hand out every valid frame; `SegmentScan.proved` and
`durable_prefix` say which of them are durable for certain.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple, Protocol, TypeVar

from trajlake.schemas.envelope import Event
from trajlake.schemas.ids import trajectory_key

from ..env import Env, read_file
from .frame import HEADER_SIZE as FRAME_HEADER_SIZE
from .frame import FrameHeader, TrajectoryInfo, decode_info, frame_size, header_at, payload_at, to_event
from .journal_errors import SegmentCorrupt
from .segment import segment_path
from .segment_format import (
    HEADER_LENGTH,
    SUFFIX,
    TRAILER_SIZE,
    Seal,
    SegmentHeader,
    Trailer,
    decode_header,
    read_seal,
    read_trailer,
)
from .segment_scan import SegmentScan, scan_segment

T = TypeVar("T")

FRAME_READ: Final = 4_096
"""Bytes read at a place where a frame is to stand: nearly every one fits."""
AHEAD_MAX: Final = 256 * 1024
AHEAD_GAP_MAX: Final = 16 * 1024
"""Bytes between two wanted frames that are rather read over than skipped."""
LOOKS_MAX: Final = 100
"""Looks at a folder from which segments go; more in a row than retention ever takes."""


class SegmentFile(NamedTuple):
    """A segment as its header and trailer describe it: 224 bytes were read. `last_lsn` is None while unsealed."""

    path: str
    number: int
    header: SegmentHeader
    size_bytes: int
    trailer: Trailer | None

    @property
    def first_lsn(self) -> int:
        return self.header.first_lsn

    @property
    def last_lsn(self) -> int | None:
        return self.trailer.last_lsn if self.trailer else None

    @property
    def is_sealed(self) -> bool:
        """True for a segment that is sealed and cut to length: its bytes never change again, it can be shipped."""
        return self.trailer is not None


def read_segment(env: Env, path: str) -> SegmentScan:
    """Return all valid frames of a segment and how it ends. Raises `SegmentCorrupt` without a valid header.

    `corrupt` is said only if a second look sees the same: a reader beside a live writer may have read the
    place before, and what lies behind it after, a barrier went by.
    """
    scan = scan_segment(read_file(env, path), path)
    if scan.end == "corrupt":
        scan = scan_segment(read_file(env, path), path)
    return scan


def durable_prefix(env: Env, path: str) -> SegmentScan:
    """Return a scan cut to the frames that are durable for certain, for those who copy an active segment elsewhere."""
    scan = read_segment(env, path)
    scan.offsets = scan.offsets[: scan.proved]
    return scan


def segment_numbers(env: Env, folder: str) -> list[int]:
    """Return the numbers of the segments in a writer's folder, ascending."""
    found = []
    for name in env.listdir(folder):
        stem, dot, suffix = name.partition(".")
        if dot + suffix == SUFFIX and stem.isdigit():
            found.append(int(stem))
    return found


def open_segment(env: Env, path: str) -> SegmentFile:
    """Return what header and trailer of a segment say. Raises `SegmentCorrupt` for a bad header."""
    fd = env.open(path)
    try:
        size = env.size(fd)
        header = decode_header(env.pread(fd, HEADER_LENGTH, 0), path, file_size=size)
        trailer = read_trailer(env.pread(fd, TRAILER_SIZE, max(0, size - TRAILER_SIZE)), size)
        if trailer is not None and trailer.first_lsn != header.first_lsn:
            trailer = None
        return SegmentFile(path, header.number, header, size, trailer)
    finally:
        env.close(fd)


def load_seal(env: Env, segment: SegmentFile) -> tuple[Seal, bytes]:
    """Return the index of a sealed segment and the bytes of its SEAL frame. Raises `SegmentCorrupt` if damaged."""
    assert segment.trailer is not None
    start = segment.trailer.seal_offset
    fd = env.open(segment.path)
    try:
        frame = env.pread(fd, segment.size_bytes - start, start)
    finally:
        env.close(fd)
    seal = read_seal(memoryview(frame), segment.header.epoch)
    if seal is None or seal.seal_offset != start:
        raise SegmentCorrupt(
            f"{segment.path}: the SEAL at byte {start} is damaged; run 'trajlake journal verify'",
            path=segment.path, offset=start,
        )  # fmt: skip
    return seal, frame


def trajectory_keys(env: Env, segment: SegmentFile) -> list[bytes]:
    """Return the keys of the trajectories in a segment, in order of first appearance."""
    if not segment.is_sealed:
        return list(read_segment(env, segment.path).infos)
    seal, _ = load_seal(env, segment)
    return [seal.key(ordinal) for ordinal in range(len(seal.info_offsets))]


def list_segments(env: Env, folder: str) -> list[SegmentFile]:
    """Return the segments of a writer's folder by number, as they stood at one moment.

    If one goes meanwhile (retention drops them from the front), the folder is looked at again: what was noted
    before may be gone too, and would look like a gap.
    """
    for _ in range(LOOKS_MAX):
        found = []
        gone = False
        for number in segment_numbers(env, folder):
            try:
                found.append(open_segment(env, segment_path(folder, number)))
            except FileNotFoundError:
                gone = True
        if not gone:
            break
    return found


def iter_events(env: Env, folder: str, *, from_lsn: int = 0) -> Iterator[Event]:
    """Yield the events of one writer in lsn order, each once, from `from_lsn` on (or the first still here).

    A torn tail ends it silently (`read_segment` reports it). Raises `SegmentCorrupt` at the place of damage, and
    for lsns missing between two segments, after everything before that place was yielded.
    """
    segments = list_segments(env, folder)
    expected = -1
    for place, segment in enumerate(segments):
        following = segments[place + 1] if place + 1 < len(segments) else None
        if expected >= 0 and segment.first_lsn != expected:
            raise _gap(segment, expected)
        stop = following.first_lsn if following else None
        if segment.last_lsn is not None and segment.last_lsn < from_lsn:
            expected = segment.last_lsn + 1
            continue
        expected = yield from segment_events(env, segment, from_lsn, stop)


def segment_events(env: Env, segment: SegmentFile, from_lsn: int, stop_lsn: int | None) -> Generator[Event, None, int]:
    """Yield a segment's events up to `stop_lsn`, where the next segment takes over. Returns the next lsn."""
    try:
        scan = read_segment(env, segment.path)
    except FileNotFoundError:
        if segment.is_sealed:
            raise
        # Closing a writer removes a segment that never took an event.
        return segment.first_lsn
    return (yield from scanned_events(scan, from_lsn, stop_lsn))


def scanned_events(scan: SegmentScan, from_lsn: int, stop_lsn: int | None) -> Generator[Event, None, int]:
    """The same of a segment that was scanned. Raises `SegmentCorrupt` at the place of damage."""
    first = scan.first_lsn
    last = scan.last_lsn + 1
    end = last if stop_lsn is None else min(last, stop_lsn)
    yield from scan.events(max(0, from_lsn - first), end - first)
    if scan.end == "corrupt" and (stop_lsn is None or end < stop_lsn):
        raise SegmentCorrupt(scan.report, path=scan.path, offset=scan.damaged_at, lsn=end)
    return end


def read_trajectory(
    env: Env, folders: Iterable[tuple[str, int]], key: bytes
) -> tuple[list[Event], TrajectoryInfo | None]:
    """Return all events of one trajectory in the given writer folders, with what the segments say of it.

    `folders` are (writer folder, first lsn) as its tenures name them. Order is by folder and lsn; copies are
    not removed and nothing is folded: that is `canonical`'s work. Unsealed segments are read whole, sealed ones
    through their index. Raises `SegmentCorrupt`.
    """
    events: list[Event] = []
    info: TrajectoryInfo | None = None
    for folder, first_lsn in folders:
        found = read_of_writer(env, folder, first_lsn, key)
        events += found.events
        info = info or found.info
    return events, info


class OfWriter(NamedTuple):
    """A trajectory's events in one writer's folder; `unsealed`: those of them that stand in unsealed segments."""

    events: list[Event]
    unsealed: list[Event]
    info: TrajectoryInfo | None


def read_of_writer(env: Env, folder: str, first_lsn: int, key: bytes) -> OfWriter:
    """The same of one writer."""
    return while_segments_go(partial(_read_writer, env, folder, first_lsn, key))


def while_segments_go(read: Callable[[], T]) -> T:
    """Return what `read` gives of a writer's folder; read it all again while a segment goes between list and look.

    Recovery moves frames that nothing proves durable into a new segment and removes the old one: whoever passed over
    the old one would miss them, an intent among them.
    """
    for _ in range(LOOKS_MAX):
        try:
            return read()
        except FileNotFoundError:
            continue
    return read()


def _read_writer(env: Env, folder: str, first_lsn: int, key: bytes) -> OfWriter:
    """Raises `FileNotFoundError` when a segment goes meanwhile."""
    events: list[Event] = []
    unsealed: list[Event] = []
    info: TrajectoryInfo | None = None
    segments = list_segments(env, folder)
    for place, segment in enumerate(segments):
        stop = segments[place + 1].first_lsn if place + 1 < len(segments) else None
        if segment.last_lsn is not None and segment.last_lsn < first_lsn:
            continue
        if segment.is_sealed:
            found, said = _read_sealed(env, segment, key)
        else:
            found, said = _read_unsealed(env, segment, first_lsn, stop, key)
            unsealed += found
        events += [event for event in found if event.lsn >= first_lsn]
        info = info or said
    return OfWriter(events, unsealed, info)


def _read_unsealed(
    env: Env, segment: SegmentFile, first_lsn: int, stop: int | None, key: bytes
) -> tuple[list[Event], TrajectoryInfo | None]:
    scan = read_segment(env, segment.path)
    if scan.end != "corrupt" and key not in scan.infos:  # damage may hide what it looks for: then it is told
        return [], None
    return [event for event in scanned_events(scan, first_lsn, stop) if _key_of(event) == key], scan.infos.get(key)


def _key_of(event: Event) -> bytes:
    return trajectory_key(event.tenant, event.trajectory_id)


def _read_sealed(env: Env, segment: SegmentFile, key: bytes) -> tuple[list[Event], TrajectoryInfo | None]:
    seal, _ = load_seal(env, segment)
    wanted = seal.events_of(key)
    if not wanted:
        return [], None
    infos: dict[int, TrajectoryInfo] = {}
    fd = env.open(segment.path)
    try:
        ahead = ReadAhead(env, [seal.offsets[index] for index in wanted], segment.size_bytes)
        events = [event_in(ahead, fd, segment, seal, index, infos) for index in wanted]
    finally:
        env.close(fd)
    return events, infos[seal.ordinals[wanted[0]]]


class Reads(Protocol):
    """What reads a file at a place: the host, or what read ahead of it."""

    def pread(self, fd: int, size: int, offset: int) -> bytes: ...


class ReadAhead:
    """Serves reads at `offsets`, asked for in rising order, from few and long reads of the file."""

    def __init__(self, env: Env, offsets: Sequence[int], file_size: int) -> None:
        self._env, self._offsets, self._file_size = env, offsets, file_size
        self._start, self._held = 0, b""

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        """Return the bytes there, as the host would."""
        if offset < self._start or offset + size > self._start + len(self._held):
            self._start, self._held = offset, self._env.pread(fd, max(size, self._length(offset)), offset)
        at = offset - self._start
        return self._held[at : at + size]

    def _length(self, offset: int) -> int:
        """How far to read from a place: over all that follow it closely."""
        end = offset
        for place in range(bisect_left(self._offsets, offset), len(self._offsets)):
            following = self._offsets[place]
            if following - end > AHEAD_GAP_MAX or following - offset > AHEAD_MAX:
                break
            end = following
        return min(end - offset + FRAME_READ, self._file_size - offset)


def event_in(
    env: Reads, fd: int, segment: SegmentFile, seal: Seal, index: int, infos: dict[int, TrajectoryInfo]
) -> Event:
    """Read one event of a sealed segment by its index, both CRCs checked."""
    ordinal = seal.ordinals[index]
    if ordinal not in infos:
        header, payload = frame_in(env, fd, segment, seal.info_offsets[ordinal])
        infos[ordinal] = decode_info(payload, seal.key(ordinal), segment.path)
    header, payload = frame_in(env, fd, segment, seal.offsets[index])
    if header.lsn != segment.first_lsn + index or header.trajectory_key != seal.key(ordinal):
        raise SegmentCorrupt(
            f"{segment.path}: frame at byte {seal.offsets[index]} is not the one that the index names",
            path=segment.path, offset=seal.offsets[index], lsn=segment.first_lsn + index,
        )  # fmt: skip
    return to_event(header, payload, infos[ordinal], segment.header.writer)


def frame_in(env: Reads, fd: int, segment: SegmentFile, offset: int) -> tuple[FrameHeader, bytes]:
    """Read the frame at a place that an index names. Raises `SegmentCorrupt` if it is not valid."""
    # One read serves nearly every frame; only a long one needs a second.
    data = env.pread(fd, min(FRAME_READ, segment.size_bytes - offset), offset)
    if len(data) >= FRAME_HEADER_SIZE:
        whole = frame_size(int.from_bytes(data[4:8], "little"))
        if len(data) < whole <= segment.size_bytes - offset:
            data += env.pread(fd, whole - len(data), offset + len(data))
    header = header_at(data, 0, segment.header.epoch)
    payload = None if header is None else payload_at(data, 0, header)
    if header is None or payload is None:
        raise SegmentCorrupt(
            f"{segment.path}: frame at byte {offset} does not hold its checksum; run 'trajlake journal verify'",
            path=segment.path, offset=offset,
        )  # fmt: skip
    return header, payload


def gaps(segments: Sequence[SegmentFile]) -> list[SegmentCorrupt]:
    """Return one error for each place in a writer's row where a sealed segment's end and the next one's start differ.

    What is missing in front of the first is not seen: retention takes segments there.
    """
    return [
        _gap(after, before.last_lsn + 1)
        for before, after in pairwise(segments)
        if before.last_lsn is not None and before.last_lsn + 1 < after.first_lsn
    ]


def _gap(segment: SegmentFile, expected: int) -> SegmentCorrupt:
    return SegmentCorrupt(
        f"{segment.path}: begins at lsn {segment.first_lsn}, but lsn {expected} was to come:"
        " a segment before it is missing or damaged; run 'trajlake journal verify'",
        path=segment.path, lsn=expected,
    )  # fmt: skip
