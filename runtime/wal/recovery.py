"""Recovery: mend a dead writer's files so that appending can go on, in new segments only.

| last segment                     | what is done                                                              |
|----------------------------------|---------------------------------------------------------------------------|
| sealed                           | cut to length if a crash left it longer                                   |
| open or torn, nothing valid      | the file goes                                                             |
| open or torn                     | frames of the last barrier are copied, with their lsns, into a new segment |
|                                  | that is durable before it has its name; then the old one is sealed         |
|                                  | before the first copied frame                                              |
| corrupt                          | `SegmentCorrupt`; no byte is changed                                       |

An earlier unsealed segment (poisoned by a disk error, or left by a crash during recovery) ends where the next
one begins: all before that is durable, all behind it stands in the next one. It is sealed there. Every step may
be repeated: the SEAL is a pure function of the frames, a copied frame has the same lsn and the same event bytes.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple
from zlib import crc32

from ..env import Env, write_fully
from .chain_scan import chain_breaks
from .frame import frame_size, payload_at
from .journal_errors import SegmentCorrupt
from .reader import SegmentFile, list_segments, load_seal, read_segment
from .segment import Group, write_sealed
from .segment_format import FLAG_RECOVERED, TEMPORARY, IndexBuilder, new_header, seal_hash
from .segment_scan import SegmentScan

_TAIL_AT = 28


class Recovered(NamedTuple):
    """Where the writer goes on. `reports` has one line for each thing that was mended or dropped."""

    next_number: int
    next_lsn: int
    previous_seal: bytes
    reports: list[str]


def recover_writer(env: Env, folder: str, writer_id: bytes, *, check_chain: bool = False) -> Recovered:
    """Mend a writer's folder; the caller holds its LOCK. Safe to repeat after a crash at any point.

    `check_chain`: also check the hash chains in the segments that are mended; a break is reported, not mended.

    On return every event that was ever acknowledged is durable and stands in a sealed segment. Raises
    `SegmentCorrupt`, having changed nothing in the damaged file, if acknowledged events cannot be read.
    """
    for name in env.listdir(folder):
        if name.endswith(TEMPORARY):
            env.unlink(f"{folder}/{name}")
    segments = list_segments(env, folder)
    _check_row(segments, writer_id)
    reports: list[str] = []
    link = bytes(32)
    next_lsn = 0
    for place, segment in enumerate(segments):
        following = segments[place + 1] if place + 1 < len(segments) else None
        if segment.last_lsn is not None:
            # Only the last link is needed; reading them all would read every index of the journal.
            link = seal_hash(load_seal(env, segment)[1]) if following is None else b""
            next_lsn = segment.last_lsn + 1
        elif following is not None:
            link, next_lsn = _end_at(env, folder, segment, following.first_lsn, reports, check_chain)
        else:
            link, next_lsn = _mend_last(env, folder, segment, reports, check_chain)
        if following is not None and following.first_lsn != next_lsn:
            raise SegmentCorrupt(
                f"{following.path}: begins at lsn {following.first_lsn}, but lsn {next_lsn} was to come:"
                " a segment is missing; bring it back, or run 'trajlake journal verify'",
                path=following.path, lsn=next_lsn,
            )  # fmt: skip
    number = segments[-1].number + 2 if segments else 0
    return Recovered(number, next_lsn, link, reports)


def _check_row(segments: list[SegmentFile], writer_id: bytes) -> None:
    for segment in segments:
        if segment.header.writer_id != writer_id:
            raise SegmentCorrupt(
                f"{segment.path}: belongs to writer {segment.header.writer}, not to this folder", path=segment.path
            )


def _end_at(
    env: Env, folder: str, segment: SegmentFile, stop_lsn: int, reports: list[str], check_chain: bool
) -> tuple[bytes, int]:
    """Seal an earlier segment where the next one takes over. Returns (hash of its SEAL, next lsn)."""
    scan = read_segment(env, segment.path)
    keep = stop_lsn - scan.first_lsn
    if scan.end == "sealed":
        keep = len(scan.offsets)
    if not 0 <= keep <= len(scan.offsets):
        raise SegmentCorrupt(
            scan.report or f"{scan.path}: lsn {scan.last_lsn + 1} to {stop_lsn - 1} are missing at its end",
            path=scan.path, offset=scan.end_offset, lsn=scan.last_lsn + 1,
        )  # fmt: skip
    if check_chain:
        reports += _breaks(scan)
    reports.append(f"{scan.path}: sealed behind lsn {scan.first_lsn + keep - 1}, where the next segment takes over")
    seal = _seal_of(scan, keep)
    _seal_in_place(env, folder, scan, keep, seal)
    return seal[0], scan.first_lsn + keep


def _mend_last(env: Env, folder: str, segment: SegmentFile, reports: list[str], check_chain: bool) -> tuple[bytes, int]:
    """Mend the last segment (see the table). Returns (hash of the last SEAL, next lsn)."""
    scan = read_segment(env, segment.path)
    if scan.end == "corrupt":
        raise SegmentCorrupt(scan.report, path=scan.path, offset=scan.damaged_at, lsn=scan.last_lsn + 1)
    if scan.report:
        reports.append(scan.report)
    if check_chain:
        reports += _breaks(scan)
    keep, last = scan.proved, scan.last_lsn
    seal = _seal_of(scan, keep)
    link = seal[0]
    if keep < len(scan.offsets):
        header = new_header(
            env, segment.header.writer_id, segment.number + 1, scan.first_lsn + keep, 0, link, FLAG_RECOVERED
        )
        groups = _groups_of(scan, keep)
        link = write_sealed(env, folder, header, groups)
        reports.append(f"{scan.path}: lsn {scan.first_lsn + keep} to {last} were copied into a new segment")
    _seal_in_place(env, folder, scan, keep, seal)
    return link, last + 1


def _breaks(scan: SegmentScan) -> list[str]:
    return [f"{scan.path}: lsn {lsn}: its hash does not follow from what it says" for lsn in chain_breaks(scan)]


def _groups_of(scan: SegmentScan, start: int) -> list[Group]:
    """Return the events from index `start` on, ready to be laid out elsewhere: tails and payloads byte for byte."""
    groups: list[Group] = []
    for index in range(start, len(scan.offsets)):
        header = scan.header_of(index)
        offset = scan.offsets[index]
        payload = payload_at(scan.data, offset, header)
        assert payload is not None
        tail = bytes(scan.data[offset + _TAIL_AT : offset + 128])
        frame = (tail, payload, header.payload_crc, frame_size(header.payload_length))
        groups.append(Group([frame], scan.infos[header.trajectory_key]))
    return groups


def _seal_of(scan: SegmentScan, keep: int) -> tuple[bytes, int, bytes]:
    """Return (link, offset, SEAL frame) for a segment of which the first `keep` events stay."""
    if keep == 0:
        return scan.header.previous_seal, 0, b""
    if scan.seal is not None:
        frame = bytes(scan.data[scan.seal_offset : scan.end_offset])
        return seal_hash(frame), scan.seal_offset, frame
    end = scan.offsets[keep - 1] + frame_size(scan.header_of(keep - 1).payload_length)
    index = IndexBuilder(scan.first_lsn, crc32(scan.data[:end]))
    for key, at in zip(scan.infos, scan.info_offsets, strict=True):
        if at < end:
            index.known[key] = len(index.known)
            index.info_offsets.append(at)
    index.offsets.extend(scan.offsets[:keep])
    index.ordinals.extend(scan.ordinals[:keep])
    frame = index.seal_frame(scan.header.epoch, end)
    return seal_hash(frame), end, frame


def _seal_in_place(env: Env, folder: str, scan: SegmentScan, keep: int, seal: tuple[bytes, int, bytes]) -> None:
    """Seal a segment behind its first `keep` events and cut it; without any it is removed."""
    _, offset, frame = seal
    if keep == 0:
        with contextlib.suppress(FileNotFoundError):
            env.unlink(scan.path)
        env.fsync_dir(folder)
        return
    fd = env.open(scan.path, write=True)
    try:
        if scan.seal is None:
            write_fully(env, fd, frame, offset)
            env.fdatasync(fd)
        env.truncate(fd, offset + len(frame))
    finally:
        env.close(fd)
