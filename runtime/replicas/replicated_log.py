"""The journal of one root with a replica beside it: a wait includes the replica, but for intents of other classes.

Any tool class may be named in `replicate`; a trajectory is only safe against the loss of its host where both classes
that reach outside are. All frames go to the replica, whatever the class: an acknowledgement must cover a prefix.
"""

from __future__ import annotations

from _thread import LockType
from collections.abc import Generator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from trajlake.schemas.envelope import Event

from ..agent.ports import Blobs, Found, Log
from ..leases.lease import LeaseRecord
from ..wal.frame import TrajectoryInfo
from ..wal.journal_errors import BlobMissing
from ..wal.ticket import Ticket
from .replica import Replica, events_of
from .replication import Replication

OUTWARD: Final = frozenset(("external", "idempotent"))
"""Classes that reach outside: with both replicated, an incomplete log may be resumed."""


class ReplicatedTicket:
    """Durable here, then acknowledged there. `local` is the first half: what an intent of a class waits for that the
    replica does not cover.
    """

    __slots__ = ("_position", "_replication", "local")

    def __init__(self, local: Ticket, replication: Replication, position: int) -> None:
        self.local, self._replication, self._position = local, replication, position

    def wait(self, timeout: float | None = None) -> None:
        """Return once both are true. `timeout` holds for each. Raises as `Ticket.wait` does."""
        self.local.wait(timeout)
        self._replication.wait(self._position, timeout)

    def release_when_ended(self, _: LockType) -> bool:
        """False: what the replica says must be waited for."""
        return False

    def __await__(self) -> Generator[Any, None, None]:
        yield from self.local.__await__()
        yield from self._replication.wait_async(self._position)


class ReplicatedLog:
    """Implements `agent.ports.Log` over another log (`RootLog`) and a replica."""

    def __init__(self, log: Log, replica: Replica, replication: Replication) -> None:
        self._log = log
        self._replica = replica
        self._replication = replication

    @property
    def writer_id(self) -> str:
        return self._log.writer_id

    @property
    def next_lsn(self) -> int:
        return self._log.next_lsn

    def append(self, events: Sequence[Event], info: TrajectoryInfo, *, lazy: bool = False) -> ReplicatedTicket:
        ticket: Any = self._log.append(events, info, lazy=lazy)
        return ReplicatedTicket(ticket, self._replication, self._replication.send(self.writer_id, events, info, ticket))

    def refuse_if_full(self) -> None:
        self._log.refuse_if_full()

    def read(self, tenant: str, trajectory_id: str, record: LeaseRecord | None) -> Found:
        """Return the union of root and replica. What only the root holds is sent on, before anything is appended.

        Complete: as the root says, or because this trajectory replicates every class that reaches outside: whatever
        the root lacks then was never waited for. Raises OSError where the replica cannot be read.
        """
        here = self._log.read(tenant, trajectory_id, record)
        there = events_of(self._replica.read(tenant, trajectory_id))
        held = {_identity(event) for event in there}
        undurable = {_identity(event) for event in here.undurable}
        owed = [event for event in here.events if _identity(event) not in held | undurable]
        self._send_owed(owed, [*here.events, *there])
        complete = here.complete or _replicates_all(there)
        return Found([*here.events, *there], here.undurable, complete, here.missing_tenures)

    def _send_owed(self, owed: Sequence[Event], known: Sequence[Event]) -> None:
        info = _info_of(known)
        if info is None:
            return
        for writer in sorted({event.writer for event in owed}):
            events = sorted((event for event in owed if event.writer == writer), key=lambda event: event.lsn)
            self._replication.send(writer, events, info, None)


class ReplicatedBlobs:
    """Implements `agent.ports.Blobs`: the root's, and the replica's where the root lacks one."""

    def __init__(self, blobs: Blobs, replica: Replica) -> None:
        self._blobs = blobs
        self._replica = replica

    def put(self, tenant: str, data: bytes) -> str:
        return self._blobs.put(tenant, data)

    def put_everywhere(self, tenant: str, data: bytes) -> str:
        """Put it here and in the replica: what checkpoints are made of, which no frame names. Raises ReplicaError."""
        sha256 = self._blobs.put(tenant, data)
        self._replica.put(tenant, sha256, data)
        return sha256

    def get(self, tenant: str, sha256: str) -> bytes:
        try:
            return self._blobs.get(tenant, sha256)
        except BlobMissing as missing:
            try:
                data = self._replica.get(tenant, sha256)
            except FileNotFoundError:
                raise missing from None
            self._blobs.put(tenant, data)
            return data


def _identity(event: Event) -> tuple[int, int, bytes]:
    return event.sequence_number, event.fencing_token, event.hash


def _replicates_all(events: Sequence[Event]) -> bool:
    started = [event for event in events if event.type == "TaskStarted" and event.payload is not None]
    return bool(started) and all(frozenset(event.body.replicated) >= OUTWARD for event in started)


def _info_of(events: Sequence[Event]) -> TrajectoryInfo | None:
    """What the segments say of the trajectory, from its first event."""
    for event in events:
        if event.type == "TaskStarted" and event.payload is not None:
            return TrajectoryInfo(
                tenant=event.tenant, trajectory_id=event.trajectory_id, model=event.body.model,
                model_version=event.body.model_version,
                started_on=datetime.fromtimestamp(event.recorded_at / 1e6, UTC).date().isoformat(),
            )  # fmt: skip
    return None
