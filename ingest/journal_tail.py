"""Follows one journal from an lsn on, through sealed segments into the active one, and hands out durable frames only.

A frame of the active segment is durable for certain once a frame of a later barrier, or a SEAL, stands behind it: a
barrier begins only after the one before it has finished. The last barrier of a quiet journal has nothing behind it.
Then this reader makes its own: it syncs the file through the descriptor that it opened before it read the frames. A
sync that fails is final, as for the writer: nothing more is taken from that segment until a successor takes over.
Reads only; safe beside a live writer, in any process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from trajlake.runtime.env import Env
from trajlake.runtime.replicas.replica import Frame
from trajlake.runtime.wal.frame import (
    CONTROL_LSN,
    CONTROL_SEAL,
    CONTROL_TRAJECTORY,
    HEADER,
    HEADER_SIZE,
    FrameHeader,
    TrajectoryInfo,
    decode_info,
    frame_size,
    header_at,
    payload_at,
)
from trajlake.runtime.wal.journal_errors import SegmentCorrupt
from trajlake.runtime.wal.reader import SegmentFile, open_segment, read_segment, segment_numbers
from trajlake.runtime.wal.segment_format import BLOCK_SIZE, SUFFIX
from trajlake.schemas.limits import FRAME_MAX

QUIET_S: Final = 0.05
"""How long the last barrier must have stood alone before this reader syncs it itself."""
_WINDOW_MIN: Final = 1 << 13
_WINDOW_MAX: Final = 1 << 22
_AT_ONCE: Final = 128


class JournalTail:
    """A place in one writer's folder. One thread. `next_lsn` is the lsn of the next frame that `read` will return."""

    def __init__(self, env: Env, folder: str, next_lsn: int) -> None:
        self._env = env
        self._folder = folder
        self.next_lsn = next_lsn
        self._ready: deque[Frame] = deque()
        self._sealed: _SealedFrames | None = None  # what follows those that are ready
        self._active: _ActiveSegment | None = None
        self._number = 0  # of the segment that was read last: those before it are not looked at again

    def read(
        self, count_max: int, size_max_bytes: int = 1 << 24, give_way: Callable[[], None] = lambda: None
    ) -> list[Frame]:
        """Return durable frames from `next_lsn` on, in lsn order without a gap; none if there is nothing new.

        `give_way` is called every millisecond or so while frames of a sealed segment are made.
        Raises `SegmentCorrupt` where lsns are missing or damaged, after everything before that place was returned.
        """
        if not self._has_more():
            self._find_more()
        frames: list[Frame] = []
        size = 0
        while len(frames) < count_max and size < size_max_bytes and self._has_more():
            frames.append(self._ready.popleft())
            size += len(frames[-1].data)
            if not self._ready:
                give_way()
        if frames:
            self.next_lsn = frames[-1].header.lsn + 1
        return frames

    def go_to(self, next_lsn: int) -> None:
        """Continue at another lsn (the cursor was moved by somebody else)."""
        self.close()
        self.next_lsn = next_lsn

    def close(self) -> None:
        """Give the descriptor back and forget what was read ahead."""
        self._ready.clear()
        self._sealed = None
        self._number = 0
        if self._active is not None:
            self._env.close(self._active.fd)
            self._active = None

    # -- inside ------------------------------------------------------------------------------------------------

    def _has_more(self) -> bool:
        """Whether a frame is ready. Those of a sealed segment are made a few at a time."""
        if not self._ready and self._sealed is not None:
            self._ready.extend(self._sealed.take(_AT_ONCE))
            if self._sealed.is_empty:
                self._sealed = None
        return bool(self._ready)

    def _find_more(self) -> None:
        if self._active is not None and self._take_from(self._active):
            return
        segments = self._segments(self._number)
        if self._number and (not segments or segments[0].first_lsn > self.next_lsn):
            segments = self._segments(0)
        place = self._place_of(segments)
        while place is not None and not self._has_more():
            following = segments[place + 1].first_lsn if place + 1 < len(segments) else None
            if not self._read_segment(segments[place], following):
                return
            place = place + 1 if place + 1 < len(segments) else None

    def _segments(self, from_number: int) -> list[SegmentFile]:
        numbers = [number for number in segment_numbers(self._env, self._folder) if number >= from_number]
        return [open_segment(self._env, f"{self._folder}/{number:020d}{SUFFIX}") for number in numbers]

    def _place_of(self, segments: Sequence[SegmentFile]) -> int | None:
        """The last segment that begins at or before the next lsn: of two copies of a frame, the later counts."""
        found = None
        for place, segment in enumerate(segments):
            if segment.first_lsn <= self.next_lsn:
                found = place
        if found is None and segments:
            raise SegmentCorrupt(
                f"{self._folder}: lsn {self.next_lsn} to {segments[0].first_lsn - 1} left this root before they were "
                "shipped; bring the segments back from landing",
                path=self._folder, lsn=self.next_lsn,
            )  # fmt: skip
        return found

    def _read_segment(self, segment: SegmentFile, following: int | None) -> bool:
        """Read on in one segment; True if the segment behind it comes next."""
        self._number = segment.number
        if self._active is not None and self._active.path != segment.path:
            self._env.close(self._active.fd)
            self._active = None
        if segment.is_sealed:
            assert segment.last_lsn is not None
            if segment.last_lsn >= self.next_lsn:
                self._sealed = _SealedFrames(self._env, segment, self.next_lsn, following)
            return self._ready_until() >= (segment.last_lsn + 1 if following is None else following)
        if self._active is None:
            self._active = _ActiveSegment(self._env, segment)
        self._take_from(self._active, following)
        if following is not None and self._ready_until() < following and not self._ready:
            raise SegmentCorrupt(
                f"{segment.path}: ends before lsn {self.next_lsn}, but the segment behind it begins at lsn "
                f"{following}; run 'trajlake journal verify'",
                path=segment.path, lsn=self.next_lsn,
            )  # fmt: skip
        return following is not None and self._ready_until() >= following

    def _take_from(self, active: _ActiveSegment, following: int | None = None) -> bool:
        for frame in active.durable(following):
            if frame.header.lsn >= self._ready_until():
                self._ready.append(frame)
        return bool(self._ready)

    def _ready_until(self) -> int:
        if self._sealed is not None:
            return self._sealed.until_lsn
        return self._ready[-1].header.lsn + 1 if self._ready else self.next_lsn


class _ActiveSegment:
    """The open file of an unsealed segment, and how far it was parsed."""

    def __init__(self, env: Env, segment: SegmentFile) -> None:
        self._env = env
        self.path = segment.path
        self.fd = env.open(segment.path)  # before anything is read: so that our sync sees what went wrong since
        self._epoch = segment.header.epoch
        self._offset = BLOCK_SIZE
        self._next_lsn = segment.first_lsn
        self._infos: dict[bytes, TrajectoryInfo] = {}
        self._unproved: list[Frame] = []
        self._proved: list[Frame] = []
        self._next_position = 0
        self._quiet_since_s = env.monotonic()
        self._failed = False
        self._looked_at = -1

    def durable(self, following: int | None) -> list[Frame]:
        """Return the frames that have become durable since the last call. `following`: where a successor begins."""
        if self._parse():
            self._quiet_since_s = self._env.monotonic()
        elif following is not None:
            # What the successor holds again is read there; what stands before it was acknowledged.
            self._proved += [frame for frame in self._unproved if frame.header.lsn < following]
            self._unproved = []
        elif self._unproved and self._env.monotonic() - self._quiet_since_s >= QUIET_S:
            self._sync()
        elif not self._unproved:
            self._look_for_damage()
        proved, self._proved = self._proved, []
        return proved if following is None else [frame for frame in proved if frame.header.lsn < following]

    def _sync(self) -> None:
        if self._failed:
            return
        try:
            self._env.fdatasync(self.fd)
        except OSError:
            self._failed = True  # final: the writer goes on elsewhere, and so shall we
            return
        self._prove()

    def _prove(self) -> None:
        self._proved += self._unproved
        self._unproved = []

    def _parse(self) -> bool:
        """Take in every valid frame from the offset on; True if there was one."""
        found, window = False, _WINDOW_MIN
        while True:
            data = self._env.pread(self.fd, window, self._offset)
            used, needed = self._parse_window(data)
            found = found or used > 0
            if used == 0 and needed <= len(data):
                return found
            if used == 0 and len(data) < window:
                return found  # the file ends here
            window = min(max(window * 4, needed), max(_WINDOW_MAX, needed))

    def _parse_window(self, data: bytes) -> tuple[int, int]:
        """Return the bytes taken, and how many the next frame needs (0: none stands there)."""
        at = 0
        while True:
            header = header_at(data, at, self._epoch)
            if header is None:
                return at, self._needed(data, at)
            size = frame_size(header.payload_length)
            payload = payload_at(data, at, header)
            if payload is None or not self._take(header, payload, data[at : at + size]):
                return at, 0
            at += size
            self._offset += size

    def _needed(self, data: bytes, at: int) -> int:
        if len(data) - at < HEADER_SIZE:
            return HEADER_SIZE
        length, epoch = (
            int.from_bytes(data[at + 4 : at + 8], "little"),
            int.from_bytes(data[at + 12 : at + 16], "little"),
        )
        return frame_size(length) if epoch == self._epoch and 0 < length <= FRAME_MAX else 0

    def _take(self, header: FrameHeader, payload: bytes, data: bytes) -> bool:
        if header.lsn == CONTROL_LSN:
            if header.type_code == CONTROL_TRAJECTORY:
                self._infos[header.trajectory_key] = decode_info(payload, header.trajectory_key, self.path)
                return True
            if header.type_code == CONTROL_SEAL:
                self._prove()
            return False
        info = self._infos.get(header.trajectory_key)
        if info is None or header.lsn != self._next_lsn or header.batch_position not in (0, self._next_position):
            return False
        if header.batch_position == 0:
            self._prove()
        self._next_position = header.batch_position + 1
        self._next_lsn += 1
        self._unproved.append(Frame(info, header, payload, data))
        return True

    def _look_for_damage(self) -> None:
        """Once per place: does something stand here that is no frame, with acknowledged frames behind it?"""
        if self._looked_at == self._offset or not any(self._env.pread(self.fd, HEADER_SIZE, self._offset)):
            return
        self._looked_at = self._offset
        scan = read_segment(self._env, self.path)
        if scan.end == "corrupt":
            raise SegmentCorrupt(scan.report, path=self.path, offset=scan.damaged_at, lsn=scan.last_lsn + 1)


class _SealedFrames:
    """The frames of a sealed segment from an lsn on; its checksum over everything stands for each frame's own."""

    def __init__(self, env: Env, segment: SegmentFile, from_lsn: int, following: int | None) -> None:
        scan = read_segment(env, segment.path)
        if scan.end != "sealed":
            raise SegmentCorrupt(scan.report or f"{segment.path}: changed while it was read", path=segment.path)
        whole = scan.data.obj
        self._data = whole if isinstance(whole, bytes) else bytes(scan.data)
        self._infos = list(scan.infos.values())
        self._offsets, self._ordinals = scan.offsets, scan.ordinals
        self._stop = len(scan.offsets) if following is None else min(len(scan.offsets), following - scan.first_lsn)
        self._next = min(max(0, from_lsn - scan.first_lsn), self._stop)
        self.until_lsn = scan.first_lsn + self._stop

    @property
    def is_empty(self) -> bool:
        return self._next >= self._stop

    def take(self, count_max: int) -> list[Frame]:
        """Return the next frames, in order."""
        data, infos, offsets, ordinals = self._data, self._infos, self._offsets, self._ordinals
        unpack, header_of = HEADER.unpack_from, FrameHeader._make
        stop = min(self._next + count_max, self._stop)
        frames = []
        for index in range(self._next, stop):
            at = offsets[index]
            header = header_of(unpack(data, at))
            length = header.payload_length
            start = at + HEADER_SIZE
            end = start + length
            frames.append(Frame(infos[ordinals[index]], header, data[start:end], data[at : end + (-length & 7)]))
        self._next = stop
        return frames
