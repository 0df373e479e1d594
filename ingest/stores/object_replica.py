"""The replica in object storage: tail objects `tails/<writer>/<first>-<last>.seg`, and blobs where landing has them.

A tail is a sealed segment (`FORMAT.md`) of a run of neighbouring lsns, made from the journal's frames; whoever reads
segments reads tails. It stays when a sealed segment that covers it has landed: whoever takes a lost host's trajectories
over reads the tails alone (`read`), and by them tells a replica from a landing.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256 as digest_of
from typing import Final

from trajlake.runtime.env import REAL_ENV
from trajlake.runtime.replicas.recover_from import OpenOnes
from trajlake.runtime.replicas.replica import REPLICA_EPOCH, BlobNotHeld, Frame, events_of
from trajlake.runtime.wal.frame import HEADER, HEADER_SIZE, FrameHeader, PreparedFrame, frame_size
from trajlake.runtime.wal.journal_errors import SegmentCorrupt
from trajlake.runtime.wal.segment import ActiveSegment, Group
from trajlake.runtime.wal.segment_format import BLOCK_SIZE, SegmentHeader, encode_header
from trajlake.runtime.wal.segment_scan import scan_segment
from trajlake.schemas.ids import trajectory_key

from .object_client import ObjectClient

GETS_AT_ONCE: Final = 8
BLOB_TRUSTED_S: Final = 3600.0
"""How long a blob that was put or seen is taken to be there: landing drops none younger than a week."""
_NAME: Final = re.compile(r"tails/([0-9a-f]{32})/(\d{20})-(\d{20})\.seg")


class ObjectReplica:
    """A `Replica`. Frames go in rising lsn order, one object per run of neighbours: an error leaves a prefix."""

    def __init__(self, client: ObjectClient) -> None:
        self._client = client
        self._held: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    def put(self, tenant: str, sha256: str, data: bytes) -> None:
        if digest_of(data).hexdigest() != sha256:
            raise ValueError(f"blob {sha256}: the bytes given hash to {digest_of(data).hexdigest()}")
        self._client.put(_blob_key(tenant, sha256), data)
        self._note(tenant, sha256)

    def append(self, writer: str, frames: Sequence[Frame]) -> int:
        for tenant, sha256 in sorted({(frame.info.tenant, sha256) for frame in frames for sha256 in frame.blobs}):
            if not self._holds(tenant, sha256):
                raise BlobNotHeld(f"blob {sha256} of {tenant!r} is not in the replica: put it, then append")
        for run in _runs(frames):
            first, last = run[0].header.lsn, run[-1].header.lsn
            self._client.put(f"tails/{writer}/{first:020d}-{last:020d}.seg", tail_bytes(writer, run))
        return frames[-1].header.lsn if frames else -1

    def read(self, tenant: str, trajectory_id: str) -> list[Frame]:
        """Reads every tail."""
        wanted = trajectory_key(tenant, trajectory_id)
        return [frame for _, frames in self.of_each(self.tails(), wanted) for frame in frames]

    def get(self, tenant: str, sha256: str) -> bytes:
        found = self._client.get(_blob_key(tenant, sha256))
        if found is None or digest_of(found.data).hexdigest() != sha256:
            raise FileNotFoundError(f"blob {sha256} of {tenant!r} is not in {self._client.shown}")
        return found.data

    def open_trajectories(self, tenant: str) -> list[str]:
        found = OpenOnes()
        for _, frames in self.of_each(self.tails()):
            for event in events_of(frames):
                found.add(event)
        return found.of(tenant)

    def tails(self) -> list[str]:
        """The keys of the tail objects."""
        return [listed.key for listed in self._client.list("tails/") if _NAME.fullmatch(listed.key)]

    def of_each(self, keys: Sequence[str], wanted: bytes | None = None) -> Iterator[tuple[str, list[Frame]]]:
        """The frames of each sealed segment among these objects, of the trajectory `wanted` only if it is given.

        In the order of the keys; of what was not taken yet, no more than `GETS_AT_ONCE` objects are held.
        """
        under_way: deque[tuple[str, Future[list[Frame]]]] = deque()
        with ThreadPoolExecutor(GETS_AT_ONCE, "trajlake-tails") as pool:
            for key in keys:
                under_way.append((key, pool.submit(self._frames, key, wanted)))
                if len(under_way) == GETS_AT_ONCE:
                    yield _taken(under_way)
            while under_way:
                yield _taken(under_way)

    def _frames(self, key: str, wanted: bytes | None) -> list[Frame]:
        found = self._client.get(key)
        if found is None:  # erased meanwhile: a committed segment held it
            return []
        return list(frames_in(found.data, f"{self._client.shown}/{key}", wanted))

    def _holds(self, tenant: str, sha256: str) -> bool:
        with self._lock:
            seen_at_s = self._held.get((tenant, sha256))
        if seen_at_s is not None and time.monotonic() - seen_at_s < BLOB_TRUSTED_S:
            return True
        if self._client.head(_blob_key(tenant, sha256)) is None:
            return False
        self._note(tenant, sha256)
        return True

    def _note(self, tenant: str, sha256: str) -> None:
        with self._lock:
            self._held[tenant, sha256] = time.monotonic()


def _taken(under_way: deque[tuple[str, Future[list[Frame]]]]) -> tuple[str, list[Frame]]:
    key, frames = under_way.popleft()
    return key, frames.result()


def tail_bytes(writer: str, run: Sequence[Frame]) -> bytes:
    """Return the sealed segment of frames with neighbouring lsns: the same frames give the same bytes."""
    first = run[0].header
    header = SegmentHeader(
        bytes.fromhex(writer), 0, first.lsn, REPLICA_EPOCH, 0, 0, bytes(16), first.recorded_at, 0, bytes(32), 0
    )
    segment = ActiveSegment(REAL_ENV, "", header, -1)  # laid out in memory: it has no file
    body = segment.lay_out(Group([_prepared(frame)], frame.info) for frame in run)
    return encode_header(header) + body + segment.index.seal_frame(REPLICA_EPOCH, BLOCK_SIZE + len(body))


def frames_in(data: bytes, where: str, wanted: bytes | None = None) -> Iterator[Frame]:
    """Yield the frames of a sealed segment, those of the trajectory `wanted` only if it is given."""
    scan = scan_segment(data, where)
    if scan.end != "sealed":
        raise SegmentCorrupt(f"{where}: not a whole segment; {scan.report}", path=where)
    for at in scan.offsets:
        header = FrameHeader._make(HEADER.unpack_from(data, at))
        if wanted is None or header.trajectory_key == wanted:
            payload = data[at + HEADER_SIZE : at + HEADER_SIZE + header.payload_length]
            whole = data[at : at + frame_size(header.payload_length)]
            yield Frame(scan.infos[header.trajectory_key], header, payload, whole)


def _runs(frames: Sequence[Frame]) -> Iterator[list[Frame]]:
    run: list[Frame] = []
    for frame in frames:
        if run and frame.header.lsn != run[-1].header.lsn + 1:
            yield run
            run = []
        run.append(frame)
    if run:
        yield run


def _prepared(frame: Frame) -> PreparedFrame:
    return frame.data[28:HEADER_SIZE], frame.payload, frame.header.payload_crc, len(frame.data)


def _blob_key(tenant: str, sha256: str) -> str:
    return f"blobs/{tenant}/{sha256[:2]}/{sha256}"
