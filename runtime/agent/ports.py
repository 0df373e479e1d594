"""What the core needs of the world, as protocols: the runtime's parts implement them, tests bring others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from trajlake.schemas.envelope import Event

from ..checkpoints.checkpoint import Record
from ..env import Env
from ..leases.generations import Arbiter
from ..leases.lease import Head, Lease, LeaseRecord, LeaseStore
from ..leases.lease_keeper import HeldLease
from ..mailbox.mail import MailStore
from ..wal.frame import TrajectoryInfo
from .requests import Ticket


@dataclass(frozen=True, slots=True)
class Found:
    """Everything known of a trajectory.

    `events`: all copies from every source, in any order. `undurable`: those among them that stand in an unsealed
    segment which this writer did not itself recover: a successor copies them before it builds on them.
    `complete`: no event can be missing (design/journal.md, *Sources for resume*). `missing_tenures`: tokens of those
    whose writer is not here, where that is all that makes it incomplete.
    """

    events: Sequence[Event] = ()
    undurable: Sequence[Event] = ()
    complete: bool = True
    missing_tenures: Sequence[int] = ()


class Log(Protocol):
    """This process's writer, and what all writers of the root hold."""

    @property
    def writer_id(self) -> str: ...

    @property
    def next_lsn(self) -> int: ...

    def append(self, events: Sequence[Event], info: TrajectoryInfo, *, lazy: bool = False) -> Ticket:
        """Queue events in this order; never waits for the disk. `lazy`: they may ride with the next barrier.

        Raises JournalError when nothing was queued.
        """
        ...

    def refuse_if_full(self) -> None:
        """Raise JournalFull when there is no room for an intent and what follows it. No I/O, never waits."""
        ...

    def read(self, tenant: str, trajectory_id: str, record: LeaseRecord | None) -> Found:
        """Return what is known of a trajectory; `record` names the writers to look in."""
        ...


class Blobs(Protocol):
    """Bulk beside the segments."""

    def put(self, tenant: str, data: bytes) -> str:
        """Store durably and return the sha256 (hex)."""
        ...

    def get(self, tenant: str, sha256: str) -> bytes: ...


class Keeper(Protocol):
    """Keeps leases alive (`runtime.lease_keeper.LeaseKeeper`)."""

    def hold(self, lease: Lease) -> HeldLease: ...

    def release(self, held: HeldLease, head: Head | None = None) -> None: ...

    def forget(self, held: HeldLease) -> None: ...


class Checkpoints(Protocol):
    """The files that hold checkpoints in use (`runtime.checkpoint.CheckpointFiles`)."""

    def note(self, record: Record) -> None: ...

    def remove_old(self, tenant: str, trajectory_id: str, newest_covers: int, keep: int) -> Sequence[Record]: ...


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Ports:
    """The world of one journal. `worker` names this process to people; `host` is compared at resume.

    `checkpoints` None: none are saved. `own_paths`: no part of any workspace. `files_env`: where workspaces are, if
    not behind `env`. `draining`: the process is to end; trajectories are let go of where their turn ends.
    """

    env: Env
    log: Log
    blobs: Blobs
    leases: LeaseStore
    keeper: Keeper
    arbiter: Arbiter
    mail: MailStore
    worker: str
    host: str
    checkpoints: Checkpoints | None = None
    own_paths: tuple[str, ...] = ()
    files_env: Env | None = None
    draining: Callable[[], bool] = _never

    def now_s(self) -> float:
        """Seconds of the boot-time clock."""
        return self.env.boottime_us() / 1e6
