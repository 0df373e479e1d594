"""`trajlake journal verify`: everything a root can be checked for without a lake. Reads only.

Payload texts are checked as they pass and not kept, so memory holds one small record per event.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from trajlake.schemas.blobs import blob_hashes
from trajlake.schemas.chain import commitment, verify
from trajlake.schemas.envelope import Event
from trajlake.schemas.errors import SchemaError
from trajlake.schemas.history import canonical

from ..checkpoints.checkpoint import CheckpointFiles, Record, objects_of_record
from ..leases.lease import LeaseError
from ..root import Root
from ..stores import lease_store
from ..wal.journal_errors import BlobMissing, JournalError, without_advice
from ..wal.lost_seal import lost_seal
from ..wal.reader import SegmentFile, list_segments, read_segment
from ..wal.segment_scan import SegmentScan

Kind = Literal[
    "corrupt", "torn", "lsn_gap", "chain", "gap", "payload", "conflict", "held_back", "blob", "checkpoint", "lease",
]  # fmt: skip

NOTES: frozenset[str] = frozenset({"torn", "held_back"})
"""What a crash or a running worker leaves behind: reported, no damage."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, and where. A note (`is_note`) is to be expected after a crash."""

    kind: Kind
    where: str
    detail: str

    @property
    def is_note(self) -> bool:
        return self.kind in NOTES


class Checked(msgspec.Struct, kw_only=True):
    """How much was looked at."""

    writers: int = 0
    segments: int = 0
    events: int = 0
    trajectories: int = 0
    blobs: int = 0
    checkpoints: int = 0


def check_root(root: Root, checked: Checked) -> Iterator[Finding]:
    """Yield what is wrong with a root's segments, histories, chains, checkpoints, blobs and lease records.

    What was looked at is counted into `checked`.
    """
    found: dict[tuple[str, str], list[Event]] = {}
    blobs: dict[tuple[str, str], str] = {}
    for writer in root.writers():
        checked.writers += 1
        yield from _check_writer(root, writer, checked, found, blobs)
    checked.trajectories = len(found)
    for identity in sorted(found):
        yield from _check_history(*identity, found.pop(identity))
    files = CheckpointFiles(root.env, root.path)
    of_checkpoints: dict[tuple[str, str], Record] = {}
    yield from _check_checkpoints(root, files, of_checkpoints, checked)
    for named, where in sorted(blobs.items()):
        yield from _check_blob(root, *named, where, checked)
    for named, record in sorted(of_checkpoints.items(), key=lambda item: item[0]):
        if named not in blobs:
            found_here = list(_check_blob(root, *named, files.path(record), checked))
            yield from found_here if found_here and files.is_in_use(record) else ()
    try:
        for _ in lease_store(root).records():
            pass
    except LeaseError as error:
        yield Finding(kind="lease", where=f"{root.path}/trajectories", detail=str(error))


def _check_writer(
    root: Root,
    writer: str,
    checked: Checked,
    found: dict[tuple[str, str], list[Event]],
    blobs: dict[tuple[str, str], str],
) -> Iterator[Finding]:
    segments = list_segments(root.env, root.writer_folder(writer))
    expected = segments[0].first_lsn if segments else 0
    for place, segment in enumerate(segments):
        checked.segments += 1
        following = segments[place + 1].first_lsn if place + 1 < len(segments) else None
        try:
            scan = read_segment(root.env, segment.path)
            if scan.first_lsn != expected:
                missing = f"lsn {expected} to {scan.first_lsn - 1} are missing before it"
                yield Finding(kind="lsn_gap", where=segment.path, detail=missing)
            # Frames that the next segment holds too are copies from a recovery.
            expected = scan.last_lsn + 1 if following is None else min(scan.last_lsn + 1, following)
            for event in scan.events(0, expected - scan.first_lsn):
                checked.events += 1
                yield from _check_event(event, f"{segment.path} lsn {event.lsn}", blobs)
                found.setdefault((event.tenant, event.trajectory_id), []).append(_slim(event))
            yield from _check_end(segments, place, scan, taken_over=following is not None and expected == following)
        except JournalError as error:
            yield _finding("corrupt", segment.path, str(error))
            expected = following if following is not None else expected


def _check_end(
    segments: Sequence[SegmentFile], place: int, scan: SegmentScan, *, taken_over: bool
) -> Iterator[Finding]:
    """Judge how a segment ends. `taken_over`: the next one begins where its valid frames end."""
    proof = lost_seal(segments, place, scan.end)
    if proof:
        detail = f"its SEAL at byte {scan.end_offset}, behind lsn {scan.last_lsn}, is damaged or gone ({proof})"
        yield _finding("corrupt", scan.path, detail)
    elif scan.end == "corrupt" and not taken_over:
        yield _finding("corrupt", scan.path, scan.report)
    elif scan.end == "torn":
        yield _finding("torn", scan.path, scan.report)


def _check_checkpoints(
    root: Root, files: CheckpointFiles, named: dict[tuple[str, str], Record], checked: Checked
) -> Iterator[Finding]:
    """Yield checkpoints in use whose root or folders cannot be read; collect the objects that the others name."""
    try:
        for record in files.all():
            checked.checkpoints += 1
            try:
                for sha256 in objects_of_record(root.blobs, record):
                    named.setdefault((record.tenant, sha256), record)
            except JournalError as error:
                if files.is_in_use(record):
                    yield _finding("checkpoint", files.path(record), str(error))
    except JournalError as error:
        yield _finding("checkpoint", f"{root.path}/checkpoints", str(error))


def _check_blob(root: Root, tenant: str, sha256: str, where: str, checked: Checked) -> Iterator[Finding]:
    checked.blobs += 1
    try:
        root.blobs.get(tenant, sha256)
    except BlobMissing as error:
        yield _finding("blob", where, str(error))


def _finding(kind: Kind, where: str, text: str) -> Finding:
    """A finding whose text names neither the place again nor the verb that is running."""
    return Finding(kind=kind, where=where, detail=without_advice(text).removeprefix(f"{where}: "))


def _check_event(event: Event, where: str, blobs: dict[tuple[str, str], str]) -> Iterator[Finding]:
    try:
        assert event.body is not None
        for sha256 in blob_hashes(event.type, event.payload):
            blobs.setdefault((event.tenant, sha256), where)
    except SchemaError as error:
        yield Finding(kind="payload", where=where, detail=str(error))


def _slim(event: Event) -> Event:
    """The event without its text; its commitment still binds the text that was read. Openings keep theirs."""
    if event.type in ("TaskStarted", "LeaseAcquired", "RolledBack") or event.payload is None or event.salt is None:
        return event
    return msgspec.structs.replace(event, payload=None, salt=None, commitment=commitment(event.salt, event.payload))


def _check_history(tenant: str, trajectory_id: str, events: list[Event]) -> Iterator[Finding]:
    where = f"{tenant}/{trajectory_id}"
    try:
        history = canonical(events)
    except SchemaError as error:
        yield Finding(kind="payload", where=where, detail=str(error))
        return
    for event in history.conflicts:
        detail = f"event {event.sequence_number} of token {event.fencing_token} exists twice with different contents"
        yield Finding(kind="conflict", where=where, detail=detail)
    if history.held_back:
        first = min(event.sequence_number for event in history.held_back)
        detail = f"{len(history.held_back)} events from {first} on wait for an opening or a gap before them"
        yield Finding(kind="held_back", where=where, detail=detail)
    for finding in verify(history.events, erased=range(len(history.events))):
        yield Finding(kind="gap" if finding.kind == "gap" else "chain", where=where, detail=finding.detail)
