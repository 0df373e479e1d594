"""Whether a segment that is not sealed must once have been: damage, where its bytes alone would look like a crash.

A scan of one file cannot tell a torn SEAL from one that was damaged later. Its neighbours and its length can: a
segment is cut to length only behind a durable SEAL, and a writer begins the next one only after it, but for a
fail-over and the copy that recovery makes (`FORMAT.md`, *How a segment ends*).
"""

from __future__ import annotations

from collections.abc import Sequence

from .reader import SegmentFile
from .segment_format import FLAG_FAILOVER, FLAG_RECOVERED
from .segment_scan import End


def lost_seal(segments: Sequence[SegmentFile], place: int, end: End) -> str:
    """Return what proves that the segment at `place` of a writer's row was sealed, "" if nothing does or it still is.

    `end`: how a scan made after `segments` were listed says that it ends.
    """
    if end in ("sealed", "corrupt"):
        return ""
    segment = segments[place]
    made_with = segment.header.size_bytes
    if segment.is_sealed:
        return "the trailer behind it is whole"
    if made_with == 0:
        return "the file was sealed before it had its name"
    if end == "torn" and segment.size_bytes < made_with:  # a backup cuts an unsealed one too, behind a whole frame
        return "the file was cut to length, as is done only behind a SEAL"
    if _begun_behind_a_seal(segments, place):
        return "a later segment was begun, as is done only behind a SEAL"
    return ""


def _begun_behind_a_seal(segments: Sequence[SegmentFile], place: int) -> bool:
    """Whether a later segment shows that this one's SEAL was durable.

    The next one may stand there without it after a fail-over, until another process recovers; and while recovery,
    which seals behind its copy, is under way, so with nothing behind the copy.
    """
    later = segments[place + 1 :]
    if not later:
        return False
    following, *others = (segment.header for segment in later)
    if not following.flags & (FLAG_FAILOVER | FLAG_RECOVERED):
        return True
    if not following.flags & FLAG_FAILOVER:
        return bool(others)
    return any((one.pid, one.boot_id) != (following.pid, following.boot_id) for one in others)
