"""Reading ahead gives the same bytes in few reads, whatever is asked for."""

from __future__ import annotations

import random
from typing import Any

from trajlake.runtime.wal.reader import AHEAD_GAP_MAX, FRAME_READ, ReadAhead


class File:
    """Counts the reads of some bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.reads, self.bytes_read = data, 0, 0

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        del fd
        found = self.data[offset : offset + size]
        self.reads, self.bytes_read = self.reads + 1, self.bytes_read + len(found)
        return found


def test_reads_in_a_row_are_few_and_give_what_the_file_holds() -> None:
    dice = random.Random(5)
    data = dice.randbytes(2_000_000)
    offsets = sorted(dice.sample(range(0, len(data), 8), 4_000))
    file: Any = File(data)
    ahead = ReadAhead(file, offsets, len(data))
    for offset in offsets:
        size = min(FRAME_READ, len(data) - offset)
        assert ahead.pread(0, size, offset) == data[offset : offset + size]
    assert file.reads <= 16
    assert file.bytes_read <= len(data) + file.reads * FRAME_READ


def test_what_lies_between_frames_far_apart_is_not_read() -> None:
    data = bytes(1_000_000)
    offsets = list(range(0, len(data), AHEAD_GAP_MAX + 8))
    file: Any = File(data)
    ahead = ReadAhead(file, offsets, len(data))
    for offset in offsets:
        ahead.pread(0, min(FRAME_READ, len(data) - offset), offset)
    assert file.bytes_read <= len(offsets) * FRAME_READ


def test_other_places_and_long_reads_are_served_too() -> None:
    dice = random.Random(7)
    data = dice.randbytes(300_000)
    file: Any = File(data)
    ahead = ReadAhead(file, [1_000, 2_000, 250_000], len(data))
    for offset, size in [(1_000, 4_096), (5_096, 90_000), (2_000, 4_096), (0, 10), (299_000, 1_000), (250_000, 4_096)]:
        assert ahead.pread(0, size, offset) == data[offset : offset + size]
