"""Bringing trajectories back after a root was lost: events and blobs from a landing folder or a replica.

Source: design/agent.md, *Lease*, and design/journal.md, *Sources for resume*. Only here may a worker go on without a
lease record: it takes a new generation from the arbiter that the root names (landing or replica), so a worker that
still lives elsewhere is refused by every gateway. What is brought back counts as not durable here: the first append of
the new tenure copies it into this root.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

import msgspec

from trajlake.schemas.blobs import blob_hashes
from trajlake.schemas.envelope import Event
from trajlake.schemas.history import canonical
from trajlake.schemas.ids import trajectory_key

from ..agent.ports import Blobs, Found, Log
from ..env import Env, exists, read_file
from ..leases.lease import LeaseRecord
from ..wal.frame import TrajectoryInfo
from ..wal.journal_errors import BlobMissing, RootError
from ..wal.reader import read_segment
from ..wal.ticket import Ticket
from .replica import Replica, events_of
from .replicated_log import OUTWARD

_MARKS: Final = frozenset(("TaskStarted", "LeaseAcquired", "TaskEnded"))


class Source(Protocol):
    """A place that holds what a lost root held. `is_replica`: effects may have waited for its acknowledgement."""

    @property
    def is_replica(self) -> bool: ...

    def events(self, tenant: str, trajectory_id: str) -> list[Event]:
        """Every event of a trajectory that is there, in any order, with copies."""
        ...

    def get(self, tenant: str, sha256: str) -> bytes:
        """A blob. Raises FileNotFoundError."""
        ...

    def open_trajectories(self, tenant: str) -> list[str]:
        """The ids of a tenant's live trajectories that began and did not end, sorted."""
        ...


def is_open(events: Iterable[Event]) -> bool:
    """Whether a live trajectory with these events has not ended.

    An end that does not count (its writer had lost the lease) is none: only canonical events say.
    """
    counting = canonical(events).events
    if not counting or (counting[0].payload is not None and counting[0].body.origin != "live"):
        return False
    return all(event.type != "TaskEnded" for event in counting)


class OpenOnes:
    """Finds the open trajectories among the events of many, with no more in memory than decides it.

    That is what opens and what ends; of all other events the place on the line, and none where an import began it.
    """

    def __init__(self) -> None:
        self._marks: dict[tuple[str, str], list[Event]] = {}
        self._others: dict[tuple[str, str], set[tuple[int, int, bytes]]] = {}
        self._not_live: dict[tuple[str, str], set[int]] = {}

    def add(self, event: Event) -> None:
        """Take one event, in any order, copies too."""
        name, token = (event.tenant, event.trajectory_id), event.fencing_token
        if event.type not in _MARKS:
            if token not in self._not_live.get(name, ()):
                self._others.setdefault(name, set()).add((event.sequence_number, token, event.hash))
            return
        payload = event.payload if event.type == "LeaseAcquired" else None
        mark = msgspec.structs.replace(event, payload=payload, salt=None, commitment=None)
        self._marks.setdefault(name, []).append(mark)
        if event.type == "TaskStarted" and event.payload is not None and event.body.origin != "live":
            self._not_live.setdefault(name, set()).add(token)
            if name in self._others:
                self._others[name] = {one for one in self._others[name] if one[1] != token}

    def of(self, tenant: str) -> list[str]:
        """The ids of a tenant's open trajectories, sorted."""
        return sorted(name for whose, name in self._marks if whose == tenant and self._is_open((whose, name)))

    def _is_open(self, name: tuple[str, str]) -> bool:
        others = (
            Event(
                tenant=name[0], trajectory_id=name[1], sequence_number=number, fencing_token=token, turn=0, type="",
                recorded_at=0, payload=None, salt=None, hash=digest,
            )
            for number, token, digest in self._others.get(name, ())
        )  # fmt: skip
        counting = canonical([*self._marks[name], *others]).events
        if not counting or counting[0].fencing_token in self._not_live.get(name, ()):
            return False
        return all(event.type != "TaskEnded" for event in counting)


class LandingFolder:
    """A landing on this host: shipped segments and blobs in a folder."""

    is_replica = False

    def __init__(self, env: Env, path: str) -> None:
        self._env, self._path = env, env.absolute(path)
        if not exists(env, f"{self._path}/writers"):
            raise RootError(f"{self._path}: no landing here (it has no writers/); check the URL")

    def events(self, tenant: str, trajectory_id: str) -> list[Event]:
        key = trajectory_key(tenant, trajectory_id)
        found = []
        for path in self._segments():
            scan = read_segment(self._env, path)
            if key in {info.key for info in scan.infos.values()}:
                found += [one for one in scan.events() if (one.tenant, one.trajectory_id) == (tenant, trajectory_id)]
        return found

    def get(self, tenant: str, sha256: str) -> bytes:
        return read_file(self._env, f"{self._path}/blobs/{tenant}/{sha256[:2]}/{sha256}")

    def open_trajectories(self, tenant: str) -> list[str]:
        found = OpenOnes()
        for path in self._segments():
            for event in read_segment(self._env, path).events():
                found.add(event)
        return found.of(tenant)

    def _segments(self) -> Iterator[str]:
        for folder in (f"{self._path}/writers", f"{self._path}/tails"):
            for writer in self._env.listdir(folder) if exists(self._env, folder) else ():
                for name in self._env.listdir(f"{folder}/{writer}"):
                    if name.endswith(".seg"):
                        yield f"{folder}/{writer}/{name}"


class ReplicaSource:
    """A replica."""

    is_replica = True

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def events(self, tenant: str, trajectory_id: str) -> list[Event]:
        return events_of(self._replica.read(tenant, trajectory_id))

    def get(self, tenant: str, sha256: str) -> bytes:
        return self._replica.get(tenant, sha256)

    def open_trajectories(self, tenant: str) -> list[str]:
        return self._replica.open_trajectories(tenant)


class RecoveredLog:
    """This root's log, and what the source holds beside it."""

    def __init__(self, log: Log, source: Source, blobs: Blobs) -> None:
        self._log, self._source, self._blobs = log, source, blobs

    @property
    def writer_id(self) -> str:
        return self._log.writer_id

    @property
    def next_lsn(self) -> int:
        return self._log.next_lsn

    def append(self, events: Sequence[Event], info: TrajectoryInfo, *, lazy: bool = False) -> Ticket:
        ticket: Ticket = self._log.append(events, info, lazy=lazy)  # type: ignore[assignment]
        return ticket

    def refuse_if_full(self) -> None:
        self._log.refuse_if_full()

    def read(self, tenant: str, trajectory_id: str, record: LeaseRecord | None) -> Found:
        """The union. Complete where the newest tenure was released; where all that reaches outside waited for this
        replica; or where the root itself says so of a known record.
        """
        here = self._log.read(tenant, trajectory_id, record)
        held = {event.hash for event in here.events}
        there = [event for event in self._source.events(tenant, trajectory_id) if event.hash not in held]
        last = max([*here.events, *there], key=lambda one: (one.fencing_token, one.sequence_number), default=None)
        self._bring_blobs(there)
        released = last is not None and last.type == "LeaseReleased"
        waited_for = self._source.is_replica and _replicates_outward(there)
        complete = here.complete and (record is not None or released or waited_for)
        return Found([*here.events, *there], [*here.undurable, *there], complete)

    def _bring_blobs(self, events: Sequence[Event]) -> None:
        """This root is to name these blobs: it keeps them too. One that is nowhere is missed when it is needed."""
        for event in events:
            for sha256 in blob_hashes(event.type, event.payload) if event.payload is not None else ():
                with contextlib.suppress(BlobMissing):
                    self._blobs.get(event.tenant, sha256)


def _replicates_outward(events: Sequence[Event]) -> bool:
    started = [event.body.replicated for event in events if event.type == "TaskStarted" and event.payload is not None]
    return bool(started) and all(OUTWARD.issubset(classes) for classes in started)


class RecoveredBlobs:
    """This root's blobs; one that is missing is brought from the source and kept."""

    def __init__(self, blobs: Blobs, source: Source) -> None:
        self._blobs, self._source = blobs, source

    def put(self, tenant: str, data: bytes) -> str:
        return self._blobs.put(tenant, data)

    def get(self, tenant: str, sha256: str) -> bytes:
        try:
            return self._blobs.get(tenant, sha256)
        except BlobMissing as missing:
            try:
                data = self._source.get(tenant, sha256)
            except FileNotFoundError:
                raise missing from None
            if self._blobs.put(tenant, data) != sha256:
                raise missing from None
            return data
