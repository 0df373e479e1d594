"""One active segment: prepared, written batch by batch, sealed and cut. One thread at a time; errors are final."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Final
from zlib import crc32

from ..env import Env, write_fully
from .frame import CONTROL_TRAJECTORY, PreparedFrame, TrajectoryInfo, control_frame, lay_out
from .segment_format import BLOCK_SIZE, SUFFIX, TEMPORARY, IndexBuilder, SegmentHeader, encode_header, seal_hash

ZEROS: Final = bytes(1 << 18)


class Group:
    """Events of one trajectory that were appended together, prepared for the disk.

    `size`: bytes of all its frames, and of a TRAJECTORY frame should one be needed.
    """

    __slots__ = ("count", "frames", "info", "size")

    def __init__(self, frames: Sequence[PreparedFrame], info: TrajectoryInfo) -> None:
        self.frames = frames
        self.info = info
        self.count = len(frames)
        size = info.frame_size
        for frame in frames:
            size += frame[3]
        self.size = size


_count_of: Final = attrgetter("count")
_size_of: Final = attrgetter("size")


def segment_path(folder: str, number: int) -> str:
    """Return the path of a segment in its writer's folder."""
    return f"{folder}/{number:020d}{SUFFIX}"


def fill_with_zeros(env: Env, path: str, size_bytes: int, pace: Callable[[float], None] = lambda _: None) -> None:
    """Create `path` as a new file of zeros, durable but for its name. Written in pieces, each synced on its own,
    so that the bulk never stands in front of a commit; `pace` is called before each with the share that is done.
    On an error the file is removed.
    """
    fd = env.open(path, write=True, create=True, exclusive=True)
    try:
        for offset in range(0, size_bytes, len(ZEROS)):
            pace(offset / size_bytes)
            write_fully(env, fd, ZEROS[: min(len(ZEROS), size_bytes - offset)], offset)
            env.fdatasync(fd)
    except OSError:
        with contextlib.suppress(OSError):
            env.unlink(path)
        raise
    finally:
        env.close(fd)


class ActiveSegment:
    """A segment that takes batches. Any OSError from a method poisons it for good: no method may follow but
    `link_hash`, `rewind_failed` and `abandon`.
    """

    def __init__(self, env: Env, folder: str, header: SegmentHeader, fd: int) -> None:
        self._env = env
        self._folder = folder
        self._fd = fd
        self.header = header
        block = encode_header(header)
        self._block = block
        self.offset = BLOCK_SIZE
        self.index = IndexBuilder(header.first_lsn, crc32(block))
        self._durable_mark = self.index.mark()
        self._durable_offset = BLOCK_SIZE

    @classmethod
    def begin(
        cls, env: Env, folder: str, header: SegmentHeader, spare: str, first_batch: Iterable[Group] = ()
    ) -> ActiveSegment:
        """Turn the zero-filled file `spare` into a segment that holds `first_batch`, durably.

        Header and batch reach the disk before the name does, so a named segment is proof of what it begins
        with: that is what makes fail-over and recovery safe to repeat.
        """
        fd = env.open(spare, write=True)
        try:
            segment = cls(env, folder, header, fd)
            body = segment.lay_out(first_batch)
            write_fully(env, fd, segment._block + body, 0)
            env.fdatasync(fd)
            env.rename(spare, segment.path)
            env.fsync_dir(folder)
        except OSError:
            with contextlib.suppress(OSError):
                env.close(fd)
            raise
        segment._settle(len(body))
        return segment

    @property
    def path(self) -> str:
        return segment_path(self._folder, self.header.number)

    @property
    def event_count(self) -> int:
        return len(self.index.offsets)

    @property
    def used_share(self) -> float:
        """How much of the file is used, 0 to 1."""
        return self.offset / self.header.size_bytes

    @property
    def next_lsn(self) -> int:
        """The lsn that the next event gets."""
        return self.header.first_lsn + len(self.index.offsets)

    def has_room(self, groups: Sequence[Group]) -> bool:
        """Tell whether a batch fits, with the SEAL that will describe it and a byte behind that.

        A file that ends with a trailer counts as sealed and cut, and cutting comes after the sync of the SEAL:
        so no SEAL may end where the file does before it was cut.
        """
        size, events, infos = sum(map(_size_of, groups)), sum(map(_count_of, groups)), len(groups)
        end: int = self.offset + size + self.index.seal_size(events, infos)
        return end < self.header.size_bytes

    def lay_out(self, groups: Iterable[Group]) -> bytes:
        """Return the bytes of a batch at its place in this segment, and note it in the index."""
        index, epoch = self.index, self.header.epoch
        known, offsets, ordinals = index.known, index.offsets, index.ordinals
        parts: list[bytes] = []
        frames: list[PreparedFrame] = []
        offset = self.offset
        lsn = self.next_lsn
        position = 0
        for group in groups:
            key = group.info.key
            ordinal = known.get(key)
            if ordinal is None:
                lay_out(frames, epoch, lsn + position - len(frames), position - len(frames), parts)
                frames = []
                ordinal = known[key] = len(known)
                index.info_offsets.append(offset)
                control = control_frame(CONTROL_TRAJECTORY, group.info.payload, epoch, key=key, batch_position=position)
                parts.append(control)
                offset += len(control)
            for frame in group.frames:
                frames.append(frame)
                offsets.append(offset)
                ordinals.append(ordinal)
                offset += frame[3]
            position += group.count
        lay_out(frames, epoch, lsn + position - len(frames), position - len(frames), parts)
        data = b"".join(parts)
        index.take_in(data)
        return data

    def write(self, data: bytes) -> float:
        """Append what `lay_out` returned; on return it is durable. An OSError poisons the segment.

        Returns when (monotonic seconds) the barrier was begun: where it is a call of its own, after the write.
        """
        env = self._env
        begun = env.monotonic()
        if env.one_call_barrier:
            count = env.pwrite_durably(self._fd, data, self.offset)
        else:
            count = env.pwrite(self._fd, data, self.offset)
        if count != len(data):
            raise OSError(f"{self.path}: short write: {count} of {len(data)} bytes at {self.offset}")
        if not env.one_call_barrier:
            begun = env.monotonic()
            env.fdatasync(self._fd)
        self._settle(len(data))
        return begun

    def rewind_failed(self) -> None:
        """Forget the batch whose write failed: the index is again that of the durable frames."""
        self.index.rewind(self._durable_mark)
        self.offset = self._durable_offset

    def link_hash(self) -> bytes:
        """Return what the next header carries: the hash of this segment's SEAL as it is, or will be, written.

        A segment without events gets no SEAL (its file goes); then the link skips it.
        """
        if not self.event_count:
            return self.header.previous_seal
        return seal_hash(self.index.seal_frame(self.header.epoch, self.offset))

    def seal(self) -> bytes:
        """Write the SEAL, sync it, cut the file to length and close it. One without events is removed.

        Returns what the next header carries, as `link_hash` does.

        The cut itself is not synced: after a power loss recovery cuts again.
        """
        if not self.event_count:
            self.abandon()
            self._env.unlink(self.path)
            self._env.fsync_dir(self._folder)
            return self.header.previous_seal
        frame = self.index.seal_frame(self.header.epoch, self.offset)
        write_fully(self._env, self._fd, frame, self.offset)
        self._env.fdatasync(self._fd)
        self._env.truncate(self._fd, self.offset + len(frame))
        self.abandon()
        return seal_hash(frame)

    def abandon(self) -> None:
        """Close the file as it is; recovery will see to it."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                self._env.close(fd)

    def _settle(self, size: int) -> None:
        self.offset += size
        self._durable_mark = self.index.mark()
        self._durable_offset = self.offset


def write_sealed(env: Env, folder: str, header: SegmentHeader, groups: Iterable[Group]) -> bytes:
    """Create a segment that is sealed at birth, durably and atomically under its name. Returns its SEAL's hash."""
    temporary = segment_path(folder, header.number) + TEMPORARY
    with contextlib.suppress(FileNotFoundError):
        env.unlink(temporary)
    fd = env.open(temporary, write=True, create=True, exclusive=True)
    try:
        segment = ActiveSegment(env, folder, header, fd)
        body = segment.lay_out(groups)
        seal = segment.index.seal_frame(header.epoch, BLOCK_SIZE + len(body))
        write_fully(env, fd, segment._block + body + seal)
        env.fdatasync(fd)
    finally:
        env.close(fd)
    env.rename(temporary, segment.path)
    env.fsync_dir(folder)
    return seal_hash(seal)
