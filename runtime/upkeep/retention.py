"""Retention: sealed segments leave the root from the front once the landing holds them. Source: design/journal.md.

Rules, each with a test:

1. Only sealed segments go, and a writer's last one never: its lsn is where the writer goes on.
2. From the front, one at a time, each removal durable before the next: what is left has no gap, whatever crash comes.
3. A segment goes only when the landing holds the same bytes, and every blob that it names.
4. One with an event of a trajectory that has not ended stays, unless `open_too` (then a resume needs the landing).

May run beside live writers and readers. Blobs are not touched: `gc` takes those that nothing names any more.
"""

from __future__ import annotations

import msgspec

from ..root import Root
from ..wal.reader import SegmentFile, list_segments, trajectory_keys
from .ended import Ended
from .landed import LandedCheck, LandedFiles


class RetainReport(msgspec.Struct, kw_only=True):
    """What one run dropped, or would drop; `kept` says for each writer why its next segment stays."""

    landing: str
    dry_run: bool
    segments: list[str] = []
    bytes: int = 0
    kept: dict[str, str] = {}


def retain(
    root: Root, landed: LandedFiles, *, open_too: bool = False, older_than_s: float = 0.0, dry_run: bool = False
) -> RetainReport:
    """Drop what the rules allow. Raises OSError, `SegmentCorrupt`, `LeaseError`; what was dropped by then was safe.

    `older_than_s`: segments begun later than so long ago stay.
    """
    report = RetainReport(landing=landed.url, dry_run=dry_run)
    ended = Ended(root)
    check = LandedCheck(root, landed)
    begun_before_us = root.env.now_us() - int(older_than_s * 1e6)
    for writer in root.writers():
        segments = list_segments(root.env, root.writer_folder(writer))
        for segment in segments[:-1]:
            reason = _stays(root, segment, ended, begun_before_us, open_too) or check.missing(segment)
            if reason:
                report.kept[writer] = reason
                break
            if not dry_run:
                _drop(root, writer, segment)
            report.segments.append(segment.path)
            report.bytes += segment.size_bytes
        else:
            if segments:
                report.kept[writer] = "a writer's last segment never goes"
    return report


def _stays(root: Root, segment: SegmentFile, ended: Ended, begun_before_us: int, open_too: bool) -> str:
    if not segment.is_sealed:
        return f"{segment.path} is not sealed"
    if segment.header.created_at > begun_before_us:
        return f"{segment.path} is younger than asked for"
    still_open = 0 if open_too else sum(key not in ended.keys for key in trajectory_keys(root.env, segment))
    return f"{segment.path} holds events of {still_open} open trajectories" if still_open else ""


def _drop(root: Root, writer: str, segment: SegmentFile) -> None:
    # The exclusive lock keeps a backup, which holds the shared one, from meeting a root that shrinks.
    with root.blobs.locked(exclusive=True):
        root.env.unlink(segment.path)
        # Without this sync a later removal could reach the disk first, and leave a gap.
        root.env.fsync_dir(root.writer_folder(writer))
