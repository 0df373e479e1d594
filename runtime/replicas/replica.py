"""The replica: a second place that holds a trajectory's frames and blobs before an effect leaves the host.

Source: design/journal.md, *Durability levels*. Implementations are in `ingest.stores` (PostgreSQL, object storage);
all pass `tests/runtime/conformance/test_replica.py`. Frames are the journal's own (`FORMAT.md`): writer, lsn, epoch
and batch position stand outside the hash chain, so a frame may be laid out anew elsewhere and stays the same event.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from trajlake.schemas.blobs import blob_hashes
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import NAME_OF_CODE

from ..wal.frame import FrameHeader, TrajectoryInfo, header_at, lay_out, payload_at, prepare, to_event
from ..wal.journal_errors import SegmentCorrupt

REPLICA_EPOCH: Final = 0x4C50_4552
"""Epoch of frames laid out for a replica alone; those copied from a segment keep theirs."""


class ReplicaError(OSError):
    """The replica did not acknowledge; whether it holds the frames is unknown. No effect may be sent on its word."""

    exit_code = 3


class BlobNotHeld(ReplicaError):
    """Frames name a blob that the replica does not hold: put it first. Nothing was appended."""


class Frame(NamedTuple):
    """One event as a replica and the warm tier take it: `data` are header, payload and padding."""

    info: TrajectoryInfo
    header: FrameHeader
    payload: bytes
    data: bytes

    @property
    def type(self) -> str:
        """Name of the event type; "" for one this version does not know."""
        return NAME_OF_CODE.get(self.header.type_code, "")

    @property
    def blobs(self) -> set[str]:
        """The sha256 (hex) of every blob that the payload names."""
        return blob_hashes(self.type, self.payload)


class Replica(Protocol):
    """Any thread and process may call. What returned is durable in the replica; any error means *unknown*.

    Repeating a call is harmless: frames and blobs that are there already are passed over.
    """

    def put(self, tenant: str, sha256: str, data: bytes) -> None:
        """Store a blob. Raises ValueError if `data` does not hash to `sha256`."""
        ...

    def append(self, writer: str, frames: Sequence[Frame]) -> int:
        """Store frames of one writer, in rising lsn order; return the last one's lsn. Empty: -1.

        All or none where the store can; else a prefix at least. Raises `BlobNotHeld` before anything is stored.
        """
        ...

    def read(self, tenant: str, trajectory_id: str) -> list[Frame]:
        """Return every frame of one trajectory, copies included, in any order."""
        ...

    def get(self, tenant: str, sha256: str) -> bytes:
        """Return a blob, its hash checked. Raises FileNotFoundError if it is not held."""
        ...

    def open_trajectories(self, tenant: str) -> list[str]:
        """Return the ids of a tenant's live trajectories whose canonical history has no end, sorted."""
        ...


def frames_of(events: Sequence[Event], lsns: Iterable[int], info: TrajectoryInfo) -> list[Frame]:
    """Return events of one trajectory as frames; `lsns` are those their ticket tells. Raises `EventRefused`."""
    found = []
    for event, lsn in zip(events, lsns, strict=True):
        parts: list[bytes] = []
        lay_out((prepare(event, info),), REPLICA_EPOCH, lsn, 0, parts)
        found.append(frame_in(b"".join(parts), info))
    return found


def frame_in(data: bytes, info: TrajectoryInfo, where: str = "frame") -> Frame:
    """Return the frame that `data` is, both checksums checked. Raises `SegmentCorrupt` naming `where`."""
    header = header_at(data, 0, int.from_bytes(data[12:16], "little"))
    payload = None if header is None else payload_at(data, 0, header)
    if header is None or payload is None or header.trajectory_key != info.key:
        raise SegmentCorrupt(f"{where}: a frame of {info.trajectory_id!r} does not hold its checksum", path=where)
    return Frame(info, header, payload, data)


def events_of(frames: Iterable[Frame], writer: str = "") -> list[Event]:
    """Return the events of frames. Raises `UnknownVersion` for a type that this version does not know."""
    return [to_event(frame.header, frame.payload, frame.info, writer) for frame in frames]
