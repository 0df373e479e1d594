"""A host in memory for simulated runs: journal, leases, mail and blobs that outlive the processes on it.

Nothing here runs in a thread and nothing sleeps: a run is a pure function of its seed. A process can be crashed at
every request its core makes (before and after), and inside tool bodies.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from trajlake.runtime.agent.ports import Found, Ports
from trajlake.runtime.agent.requests import Block, Done, Next, Request, Sleep, Start, Wait
from trajlake.runtime.checkpoints.checkpoint import Record
from trajlake.runtime.env import Env
from trajlake.runtime.leases.lease import Claim, Head, Lease, LeaseBusy, LeaseChanged, LeaseLost, LeaseRecord, Tenure
from trajlake.runtime.leases.lease_keeper import HeldLease, LeaseKeeper
from trajlake.runtime.mailbox.mail import MailItem
from trajlake.runtime.wal.frame import TrajectoryInfo
from trajlake.schemas.envelope import Event


class Crash(BaseException):
    """The process is gone; whatever it was doing goes no further."""


class Process:
    """One life: it crashes at step `crash_at` (None: never). A dead one can write nothing any more."""

    def __init__(self, number: int, crash_at: int | None) -> None:
        self.name = f"p{number}"
        self.writer = f"{number:032x}"
        self.crash_at = crash_at
        self.step = 0
        self.dead = False

    def tick(self) -> None:
        """One more moment at which the process may die."""
        if self.dead:
            raise Crash
        self.step += 1
        if self.step == self.crash_at:
            self.dead = True
            raise Crash


class Host:
    """Everything that outlives a process. `power_loss` decides what a crash takes with it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.clock_us = 1_700_000_000_000_000
        self.durable: list[Event] = []
        self.cached: list[tuple[str, Event]] = []
        self.paused: list[tuple[str, Event]] = []
        self.blobs: dict[str, bytes] = {}
        self.mail: list[MailItem] = []
        self.posted: list[str] = []
        self.records: dict[str, _Record] = {}
        self.generations: set[tuple[str, int]] = set()
        self.processes = 0

    def start(self, crash_at: int | None) -> Process:
        """Start a process; all earlier ones are dead, or paused: what such a one had queued may reach the disk late."""
        self.processes += 1
        if self.paused and self.random.random() < 0.5:
            self._wake()
        return Process(self.processes, crash_at)

    def end(self, process: Process, queued: Sequence[Event]) -> None:
        """A process died: some of what it had queued reached the page cache, and at a power loss not even that."""
        process.dead = True
        reached = self.random.randint(0, len(queued))
        if self.random.random() < 0.2:
            self.paused = [(process.writer, event) for event in queued[reached:]]
        self.cached += [(process.writer, event) for event in queued[:reached]]
        if self.random.random() < 0.3:
            self.cached, self.paused = [], []

    def _wake(self) -> None:
        """A paused process writes what it had queued; its barrier covers what it had written before."""
        woken = {writer for writer, _ in self.paused}
        self.durable += [event for writer, event in self.cached if writer in woken]
        self.durable += [event for _, event in self.paused]
        self.cached = [(writer, event) for writer, event in self.cached if writer not in woken]
        self.paused = []

    def find(self) -> tuple[list[Event], list[Event]]:
        """Return (all events on disk, those that a power loss would still take)."""
        undurable = [event for _, event in self.cached]
        return [*self.durable, *undurable], undurable


class SimulatedEnv(Env):
    """The clock and randomness of a host; no disk."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._host = host

    def now_us(self) -> int:
        self._host.clock_us += 7
        return self._host.clock_us

    def boottime_us(self) -> int:
        return self.now_us()

    def monotonic(self) -> float:
        return self.now_us() / 1e6

    def random_bytes(self, size: int) -> bytes:
        return self._host.random.randbytes(size)

    def listdir(self, path: str) -> list[str]:
        return [path, str(self._host.random.randint(0, 9))]


class _Ticket:
    def __init__(self, log: SimulatedLog) -> None:
        self._log = log

    def wait(self, timeout: float | None = None) -> None:
        self._log.flush()

    def release_when_ended(self, _: Any) -> bool:
        """The barrier is the wait."""
        return False

    def __await__(self) -> Any:
        raise AssertionError("simulated runs are plain")


class SimulatedLog:
    """A writer whose barrier is a call: nothing is durable before it."""

    def __init__(self, host: Host, process: Process) -> None:
        self.host, self.process = host, process
        self.queued: list[Event] = []
        self.writer_id = process.writer
        self.next_lsn = 0

    def append(self, events: Sequence[Event], info: TrajectoryInfo, *, lazy: bool = False) -> _Ticket:
        if self.process.dead:
            raise Crash
        self.queued += events
        return _Ticket(self)

    def refuse_if_full(self) -> None:
        """There is always room."""

    def flush(self) -> None:
        """The barrier: everything queued is durable after it."""
        if self.process.dead:
            raise Crash
        self.host.durable += self.queued
        copied = {event.hash for event in self.queued}
        self.host.cached = [(writer, event) for writer, event in self.host.cached if event.hash not in copied]
        self.queued = []

    def read(self, tenant: str, trajectory_id: str, record: LeaseRecord | None) -> Found:
        events, undurable = self.host.find()
        mine = [event for event in events if event.trajectory_id == trajectory_id]
        return Found(mine, [event for event in undurable if event.trajectory_id == trajectory_id])


class SimulatedBlobs:
    """Blobs by their hash."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def put(self, tenant: str, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self._host.blobs[digest] = data
        return digest

    def get(self, tenant: str, sha256: str) -> bytes:
        return self._host.blobs[sha256]


class _Record(msgspec.Struct):
    tenures: tuple[Tenure, ...]
    revision: int = 1
    held: bool = True
    until_us: int = 0


class SimulatedLeases:
    """A lease store whose dead holders are known to be dead at once."""

    def __init__(self, host: Host, process: Process) -> None:
        self._host, self._process = host, process

    def read(self, tenant: str, trajectory_id: str) -> LeaseRecord | None:
        record = self._host.records.get(trajectory_id)
        if record is None:
            return None
        held = record.held and record.tenures[-1].worker == self._process.name
        return LeaseRecord(
            tenant=tenant, trajectory_id=trajectory_id, revision=str(record.revision), tenures=record.tenures,
            free_in_s=60.0 if held else 0.0, holder=record.tenures[-1] if held else None,
        )  # fmt: skip

    def records(self) -> Iterator[LeaseRecord]:
        return iter(())

    def acquire(self, claim: Claim, token: int, *, expected: str | None, duration_s: float = 60.0) -> Lease:
        record = self._host.records.get(claim.trajectory_id)
        if (str(record.revision) if record is not None else None) != expected:
            raise LeaseChanged("changed")
        if record is not None and record.held and record.tenures[-1].worker == claim.worker:
            raise LeaseBusy(claim.trajectory_id, claim.worker, 60.0)
        before = record.tenures if record is not None else ()
        if before and token <= before[-1].token:
            raise ValueError("token")
        tenure = Tenure(token=token, writer=claim.writer, host=claim.host, worker=claim.worker)
        revision = 1 if record is None else record.revision + 1
        self._host.records[claim.trajectory_id] = _Record((*before, tenure), revision)
        return self._lease(claim.tenant, claim.trajectory_id, duration_s)

    def extend(self, lease: Lease, duration_s: float = 60.0) -> Lease:
        record = self._host.records[lease.trajectory_id]
        if not record.held or record.tenures[-1].token != lease.token:
            raise LeaseLost("lost")
        return self._lease(lease.tenant, lease.trajectory_id, duration_s)

    def release(self, lease: Lease, head: Head | None = None) -> None:
        record = self._host.records[lease.trajectory_id]
        last = msgspec.structs.replace(record.tenures[-1], released_head=head)
        self._host.records[lease.trajectory_id] = _Record((*record.tenures[:-1], last), record.revision + 1, held=False)

    def _lease(self, tenant: str, trajectory_id: str, duration_s: float) -> Lease:
        record = self._host.records[trajectory_id]
        last = record.tenures[-1]
        now_s = self._host.clock_us / 1e6
        return Lease(
            tenant=tenant, trajectory_id=trajectory_id, token=last.token, worker=last.worker, writer=last.writer,
            revision=str(record.revision), held_until_s=now_s + duration_s, answered_at_s=now_s,
        )  # fmt: skip


class SimulatedMail:
    """Mail in a list."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def post(self, item: MailItem) -> bool:
        self._host.mail.append(item)
        return True

    def waiting(self, tenant: str, trajectory_id: str) -> list[MailItem]:
        return [item for item in self._host.mail if item.trajectory_id == trajectory_id]

    def delete(self, item: MailItem) -> None:
        self._host.mail = [one for one in self._host.mail if one.id != item.id]

    def trajectories(self) -> Iterator[tuple[str, str]]:
        return iter({(item.tenant, item.trajectory_id) for item in self._host.mail})


class SimulatedCheckpoints:
    """Checkpoints in use, in memory; those given up may no longer be read."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def note(self, record: Record) -> None:
        self.records = [*(one for one in self.records if one.root != record.root), record]

    def remove_old(self, tenant: str, trajectory_id: str, newest_covers: int, keep: int) -> list[Record]:
        old = sorted((one for one in self.records if one.covers <= newest_covers), key=lambda one: one.covers)[:-keep]
        self.records = [one for one in self.records if one not in old]
        return old


class _Arbiter:
    def __init__(self, host: Host) -> None:
        self._host = host

    def create(self, key: str, generation: int, body: bytes) -> bool:
        if (key, generation) in self._host.generations:
            return False
        self._host.generations.add((key, generation))
        return True


class _Keeper(LeaseKeeper):
    """Renews nothing: no time passes but what the simulation lets pass."""

    def hold(self, lease: Lease) -> HeldLease:
        return HeldLease(self, lease)


def ports_of(host: Host, process: Process, log: SimulatedLog) -> Ports:
    """Return the world of one process."""
    env = SimulatedEnv(host)
    leases = SimulatedLeases(host, process)
    return Ports(
        env=env, log=log, blobs=SimulatedBlobs(host), leases=leases, keeper=_Keeper(leases, env=env),
        arbiter=_Arbiter(host), mail=SimulatedMail(host), worker=process.name, host="simulated",
    )  # fmt: skip


def performer(host: Host, process: Process) -> Callable[[Request], Any]:
    """Return a driver that performs each request at once, in place; bodies end in a random order."""
    started: list[Start] = []
    durable: list[Any] = []

    def perform(request: Request) -> Any:
        if isinstance(request, Start) and request.after is not None and request.after not in durable:
            durable.append(request.after)
            perform(Wait(request.after))
        process.tick()
        answer: Any = None
        match request:
            case Wait(ticket=ticket):
                ticket.wait()
            case Block(call=call):
                answer = call()
            case Start():
                started.append(request)
            case Next():
                answer = _run(started.pop(host.random.randrange(len(started))))
            case Sleep(seconds=seconds):
                host.clock_us += round(seconds * 1e6)
        process.tick()
        return answer

    return perform


def _run(body: Start) -> Done:
    try:
        return Done(body.tag, body.call())
    except Crash:
        raise
    except BaseException as error:
        return Done(body.tag, error=error)


def in_order(events: Iterable[Event]) -> list[Event]:
    """Return events by number and token."""
    return sorted(events, key=lambda event: (event.sequence_number, event.fencing_token))
