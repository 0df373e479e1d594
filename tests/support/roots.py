"""A root on the real disk with sealed segments of several trajectories, blobs, leases and mail."""

from __future__ import annotations

import os
import time
from hashlib import sha256
from pathlib import Path

from trajlake.runtime.env import REAL_ENV, make_folder
from trajlake.runtime.leases.lease import Claim, Head
from trajlake.runtime.root import Root
from trajlake.runtime.stores import lease_store
from trajlake.runtime.wal.frame import TrajectoryInfo
from trajlake.runtime.wal.reader import iter_events, list_segments
from trajlake.runtime.wal.writer import Writer
from trajlake.runtime.wal.writer_options import WriterOptions
from trajlake.schemas.blobs import offload_payload
from trajlake.schemas.chain import genesis, make_event
from trajlake.schemas.events import LeaseReleased, MessageAdded, Payload, TaskEnded, TaskStarted

SMALL = WriterOptions(segment_size_min_bytes=8192, segment_size_max_bytes=8192)
DAY_S = 86_400


class Story:
    """Writes whole trajectories through a writer; each `write` ends in a segment of its own."""

    def __init__(self, folder: Path, writer: Writer | None = None) -> None:
        self.root = Root.open(str(folder))
        self.writer = writer or self.root.claim_writer(SMALL)
        self.leases = lease_store(self.root)
        self.blobs: dict[str, str] = {}

    def write(self, trajectory_id: str, *, ended: bool = True, bulk: bytes = b"", seal: bool = True) -> None:
        """A trajectory under token 1: started, one message (with a blob if `bulk`), perhaps ended and released."""
        claim = Claim(
            tenant="default", trajectory_id=trajectory_id, worker=f"w:{self.writer.writer_id}",
            writer=self.writer.writer_id, host=self.root.env.host(), first_lsn=self.writer.next_lsn,
        )  # fmt: skip
        lease = self.leases.acquire(claim, 1, expected=None)
        message = MessageAdded(role="user", wire={"content": bulk.decode() or "hello"}, item_hash="00" * 32)
        message, made = offload_payload(message)
        for blob in made:
            self.blobs[trajectory_id] = self.root.blobs.put("default", blob.data)
        payloads: list[Payload] = [TaskStarted(task={"text": "go"}), message]
        if ended:
            payloads += [TaskEnded(status="completed"), LeaseReleased(token=1)]
        prev, events = genesis("default", trajectory_id), []
        for number, payload in enumerate(payloads):
            event = make_event(
                payload, tenant="default", trajectory_id=trajectory_id, sequence_number=number, fencing_token=1,
                turn=min(number, 1) - 1, recorded_at=1_800_000_000_000_000 + number,
                salt=sha256(f"{trajectory_id}{number}".encode()).digest()[:16], prev=prev,
            )  # fmt: skip
            events.append(event)
            prev = event.hash
        info = TrajectoryInfo(tenant="default", trajectory_id=trajectory_id, started_on="2026-11-30")
        self.writer.append(events, info).wait()
        if ended:
            self.leases.release(lease, Head(len(events) - 1, prev.hex()))
        if seal:
            self.seal()

    def seal(self) -> None:
        before = sum(one.is_sealed for one in self.segments())
        self.writer.seal()
        while sum(one.is_sealed for one in self.segments()) == before:
            time.sleep(0.001)

    def segments(self) -> list:
        return list_segments(REAL_ENV, self.writer.folder)

    def close(self) -> None:
        self.writer.close()


def land(root: Root, landing: Path, *, blobs: bool = True) -> None:
    """Copy what is sealed, and the blobs, as a shipper lays them out."""
    for writer in root.writers():
        for segment in list_segments(REAL_ENV, root.writer_folder(writer)):
            if segment.is_sealed:
                name = f"writers/{writer}/{segment.first_lsn:020d}-{segment.last_lsn:020d}.seg"
                copy(Path(segment.path), landing / name)
    for tenant, name in root.blobs.names() if blobs else ():
        copy(Path(root.blobs.path(tenant, name)), landing / "blobs" / tenant / name[:2] / name)


def copy(source: Path, target: Path) -> None:
    make_folder(REAL_ENV, str(target.parent))
    target.write_bytes(source.read_bytes())


def age(root: Root, days: float) -> None:
    """Make every file of a root older."""
    for folder, _, names in os.walk(root.path):
        for name in names:
            path = Path(folder) / name
            then = path.stat().st_mtime - days * DAY_S
            os.utime(path, (then, then))


def lsns(root: Root) -> dict[str, list[int]]:
    """Writer -> its lsns; raises for a gap."""
    return {w: [event.lsn for event in iter_events(REAL_ENV, root.writer_folder(w))] for w in root.writers()}


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


__all__ = ["DAY_S", "SMALL", "Story", "age", "copy", "land", "lsns", "tree"]
