"""The segments of one writer in a row: rotation, spares, and the single fail-over. Used by one thread at a time."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from ..env import Env
from .journal_errors import JournalFailed, JournalFull, again
from .segment import ActiveSegment, Group
from .segment_format import BLOCK_SIZE, FLAG_FAILOVER, IndexBuilder, new_header
from .spare import SpareKeeper
from .writer_options import WriterOptions


class SegmentChain:
    """Puts batches on disk, in order, each durable on return of `write_batch`.

    Promise: a disk error costs at most one fail-over in the life of a chain, to a fresh inode and from memory;
    the second one raises `JournalFailed`, and so does every later call. No file is synced again after an error.
    """

    def __init__(
        self, env: Env, folder: str, writer_id: bytes, *, next_number: int, next_lsn: int, previous_seal: bytes,
        options: WriterOptions, threaded: bool = True,
    ) -> None:  # fmt: skip
        self._env = env
        self._folder = folder
        self._writer_id = writer_id
        self._options = options
        self._next_number = next_number
        self._link = previous_seal
        self._size = options.segment_size_min_bytes
        self._active: ActiveSegment | None = None
        self._begun_at = 0.0
        self._error: JournalFailed | None = None
        self.next_lsn = next_lsn
        self.failed_over: OSError | None = None
        self._behind_poisoned = False
        self.space_low = False
        self.bytes_written = 0
        self.segments_begun = 0
        self.laid_out_at = 0.0
        self.barrier_begun_at = 0.0
        self._spares = SpareKeeper(env, folder, threaded=threaded, on_space=self._note_space)
        self._spares.want(self._size)

    @property
    def folder(self) -> str:
        """The writer's folder."""
        return self._folder

    @property
    def active_path(self) -> str | None:
        """Path of the segment that takes frames, if one is open."""
        return self._active.path if self._active else None

    def write_batch(self, groups: Sequence[Group]) -> None:
        """Append the batch; on return it is durable, its first event at the former `next_lsn`."""
        if self._error is not None:
            raise again(self._error)
        try:
            self._write(groups)
        except OSError as error:
            self._fail_over(error, groups)
            self.laid_out_at = self.barrier_begun_at = self._env.monotonic()
        assert self._active is not None
        self.next_lsn = self._active.next_lsn

    def catch_up(self) -> None:
        """Do what the last batch still needs and no commit waits for: its part of the checksum, the spare's pace."""
        if self._active is not None:
            self._active.index.checksum()
            self._spares.used_share = self._active.used_share

    def seal_due_at(self) -> float | None:
        """Return when (monotonic seconds) the active segment has to be sealed for its age; None for never."""
        if self._active is None or self._options.segment_age_max_s is None or not self._active.event_count:
            return None
        return self._begun_at + self._options.segment_age_max_s

    def seal(self) -> None:
        """Seal the active segment, so that it can be shipped. The next batch begins another."""
        if self._error is not None:
            raise again(self._error)
        if self._active is not None and self._active.offset < self._active.header.size_bytes // 4:
            # Sealed for its age and hardly used: zero-filling another large one would write more than the events.
            self._size = max(self._size // 2, self._options.segment_size_min_bytes)
        try:
            self._seal_active()
        except OSError as error:
            self._fail_over(error, ())

    def close(self) -> None:
        """Seal and let go. After an error nothing is sealed: recovery does it."""
        try:
            if self._error is None:
                self._seal_active()
        except OSError as error:
            self._error = self._failed(error)
            raise self._error from error
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close files without writing anything more."""
        self._spares.close()
        if self._active is not None:
            self._active.abandon()
            self._active = None

    def disown(self) -> None:
        """In a forked child: close the inherited descriptor, touch nothing else."""
        if self._active is not None:
            self._active.abandon()

    # -- inside ------------------------------------------------------------------------------------------------

    def _write(self, groups: Sequence[Group]) -> None:
        active = self._active
        if active is not None and not active.has_room(groups):
            self._seal_active()
            self._size = self._larger()
            active = None
        if active is None:
            active = self._begin(groups, first_batch=False)
        data = active.lay_out(groups)
        self.laid_out_at = self._env.monotonic()
        self.barrier_begun_at = active.write(data)
        self.bytes_written += len(data)

    def _seal_active(self) -> None:
        if self._active is not None:
            self._link = self._active.seal()
            self._active = None

    def _begin(self, groups: Sequence[Group], *, first_batch: bool) -> ActiveSegment:
        """Begin the next segment, large enough for `groups`; with `first_batch` they are part of its birth."""
        size = self._size
        while size < _needed(groups):
            size *= 2
        spare = self._spares.take(size)
        header = new_header(
            self._env, self._writer_id, self._next_number, self.next_lsn, self._env.stat(spare).size_bytes,
            self._link, FLAG_FAILOVER if self._behind_poisoned else 0,
        )  # fmt: skip
        self._active = ActiveSegment.begin(self._env, self._folder, header, spare, groups if first_batch else ())
        self._behind_poisoned = False
        self._begun_at = self._env.monotonic()
        self._next_number += 1
        self.segments_begun += 1
        self._spares.used_share = 0.0
        self._spares.want(self._larger())
        return self._active

    def _larger(self) -> int:
        return min(self._size * 2, self._options.segment_size_max_bytes)

    def _fail_over(self, error: OSError, groups: Sequence[Group]) -> None:
        """Leave the poisoned segment to recovery and carry on in a fresh one, once."""
        if self.failed_over is not None:
            self._error = self._failed(error)
            raise self._error from error
        self.failed_over = error
        self._behind_poisoned = True
        if self._active is not None:
            poisoned, self._active = self._active, None
            poisoned.rewind_failed()
            self._link = poisoned.link_hash()
            poisoned.abandon()
        if not groups:
            return
        # A file may already stand under the number that failed to begin: never use it twice.
        self._next_number += 1
        try:
            self._begin(groups, first_batch=True)
        except OSError as second:
            self._error = self._failed(second)
            raise self._error from second

    def _failed(self, error: OSError) -> JournalFailed:
        full = " (no space left; free some)" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        return JournalFailed(
            f"writer {self._folder}: disk error{full}: {error}; this process can only read now."
            " Acknowledged events are safe; start a new process, which recovers the rest"
        )

    def _note_space(self, low: bool) -> None:
        self.space_low = low

    def refuse_if_full(self) -> None:
        """Raise `JournalFull` while no further segment can be made: the kept room is for results, not for intents."""
        if self.space_low:
            self._spares.want(self._size)
            raise JournalFull(
                f"{self._folder}: no room on the disk for another segment of {self._size} bytes; free space and retry"
            )


def _needed(groups: Sequence[Group]) -> int:
    events = sum(group.count for group in groups)
    return BLOCK_SIZE + sum(group.size for group in groups) + IndexBuilder(0, 0).seal_size(events, len(groups)) + 1
