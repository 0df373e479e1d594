"""Leases in the root: one small file per trajectory, for the processes of one host.

`trajectories/<k2>/<key>.json` is never written in place: each change is a new file renamed over the old one, under
an flock of the old one. Whoever gets the lock looks again at the name; if another file stands there, it starts over.
So a file's bytes never change, and no separate lock file outlives a trajectory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import msgspec

from trajlake.schemas.ids import trajectory_key

from ..durable_folders import DurableFolders
from ..env import REAL_ENV, Env, create_atomically, read_file, write_atomically
from .lease import (
    LEASE_DURATION_S,
    Claim,
    Head,
    Lease,
    LeaseBusy,
    LeaseChanged,
    LeaseError,
    LeaseLost,
    LeaseRecord,
    Tenure,
)

FORMAT: Final = 1
LOCK_WAIT_MAX_S: Final = 5.0
"""Longest wait for the lock of a record; a holder keeps it for one small write, unless it was stopped meanwhile."""

_POLL_S: Final = 0.002


class _Hold(msgspec.Struct, frozen=True, kw_only=True):
    """The current lease. `expires_boot_us` is by the boot-time clock of boot `boot`; the two `_at` are for people."""

    token: int
    boot: str
    expires_boot_us: int
    expires_at_us: int
    renewed_at_us: int


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    tenant: str
    trajectory_id: str
    revision: int
    tenures: tuple[Tenure, ...]
    lease: _Hold | None = None


_decoder: Final = msgspec.json.Decoder(_Stored)


class FileLeaseStore:
    """A `LeaseStore` over the root at `root` (an absolute path). Any thread may call.

    `writer_is_dead(writer)` says whether no process of this host holds that writer directory; by default its LOCK is
    tried. `boot`, `host` and the clock come from `env`.
    """

    def __init__(self, root: str, *, env: Env = REAL_ENV, writer_is_dead: Callable[[str], bool] | None = None) -> None:
        self._folder = f"{root}/trajectories"
        self._writers = f"{root}/writers"
        self._env = env
        self._boot = env.boot_id().hex()
        self._writer_is_dead = writer_is_dead or self._lock_is_free
        self._folders = DurableFolders(env, root)
        self._named: tuple[str, str] = ("", "")
        self._pause = threading.Event()  # never set: a wait that needs no clock of its own

    # -- reading -----------------------------------------------------------------------------------------------

    def read(self, tenant: str, trajectory_id: str) -> LeaseRecord | None:
        stored = self._load(self._path(tenant, trajectory_id))
        return None if stored is None else self._record(stored)

    def records(self) -> Iterator[LeaseRecord]:
        for part in self._names(self._folder):
            for name in self._names(f"{self._folder}/{part}"):
                if name.endswith(".json") and not name.startswith("."):
                    stored = self._load(f"{self._folder}/{part}/{name}")
                    if stored is not None:
                        yield self._record(stored)

    # -- changing ----------------------------------------------------------------------------------------------

    def acquire(self, claim: Claim, token: int, *, expected: str | None, duration_s: float = LEASE_DURATION_S) -> Lease:
        path = self._path(claim.tenant, claim.trajectory_id)
        self._name_worker(claim)
        asked_at_s = self._boot_s()
        tenure = Tenure(
            token=token, writer=claim.writer, host=claim.host, worker=claim.worker, first_lsn=claim.first_lsn,
            acquired_at=self._env.now_us(),
        )  # fmt: skip
        if expected is None:
            return self._create(path, claim, tenure, duration_s, asked_at_s)
        with self._locked(path) as stored:
            if stored is None or str(stored.revision) != expected:
                raise LeaseChanged(f"lease record of {claim.trajectory_id!r} changed since it was read: read it again")
            free_in_s = 0.0 if self._claims_own_writer(stored, claim) else self._free_in_s(stored)
            if free_in_s > 0:
                raise LeaseBusy(claim.trajectory_id, stored.tenures[-1].worker, free_in_s)
            _check_above(token, stored.tenures[-1].token)
            return self._replace(path, stored, (*stored.tenures, tenure), duration_s, asked_at_s)

    def extend(self, lease: Lease, duration_s: float = LEASE_DURATION_S) -> Lease:
        path = self._path(lease.tenant, lease.trajectory_id)
        asked_at_s = self._boot_s()
        with self._locked(path) as stored:
            hold = self._own(stored, lease)
            assert stored is not None
            already_s = (hold.expires_boot_us - self._env.boottime_us()) / 1e6
            return self._replace(path, stored, stored.tenures, max(duration_s, already_s), asked_at_s)

    def release(self, lease: Lease, head: Head | None = None) -> None:
        path = self._path(lease.tenant, lease.trajectory_id)
        with self._locked(path) as stored:
            self._own(stored, lease)
            assert stored is not None
            closed = msgspec.structs.replace(stored.tenures[-1], released_head=head)
            self._write(path, stored, (*stored.tenures[:-1], closed), None)

    # -- inside ------------------------------------------------------------------------------------------------

    def _create(self, path: str, claim: Claim, tenure: Tenure, duration_s: float, asked_at_s: float) -> Lease:
        _check_above(tenure.token, 0)
        self._folders.ensure(path.rpartition("/")[0])
        stored = _Stored(
            format=FORMAT, tenant=claim.tenant, trajectory_id=claim.trajectory_id, revision=1, tenures=(tenure,),
            lease=self._hold(tenure.token, duration_s),
        )  # fmt: skip
        if not create_atomically(self._env, path, _encode(stored)):
            raise LeaseChanged(f"a lease record of {claim.trajectory_id!r} was made meanwhile: read it")
        return self._lease(stored, duration_s, asked_at_s)

    def _replace(
        self, path: str, stored: _Stored, tenures: tuple[Tenure, ...], duration_s: float, asked_at_s: float
    ) -> Lease:
        written = self._write(path, stored, tenures, self._hold(tenures[-1].token, duration_s))
        return self._lease(written, duration_s, asked_at_s)

    def _write(self, path: str, stored: _Stored, tenures: tuple[Tenure, ...], hold: _Hold | None) -> _Stored:
        following = msgspec.structs.replace(stored, revision=stored.revision + 1, tenures=tenures, lease=hold)
        write_atomically(self._env, path, _encode(following))
        return following

    def _hold(self, token: int, duration_s: float) -> _Hold:
        duration_us = int(duration_s * 1e6)
        now_us = self._env.now_us()
        return _Hold(
            token=token, boot=self._boot, expires_boot_us=self._env.boottime_us() + duration_us,
            expires_at_us=now_us + duration_us, renewed_at_us=now_us,
        )  # fmt: skip

    def _lease(self, stored: _Stored, duration_s: float, asked_at_s: float) -> Lease:
        tenure = stored.tenures[-1]
        return Lease(
            tenant=stored.tenant, trajectory_id=stored.trajectory_id, token=tenure.token, worker=tenure.worker,
            writer=tenure.writer, revision=str(stored.revision), held_until_s=asked_at_s + duration_s,
            answered_at_s=asked_at_s,
        )  # fmt: skip

    def _own(self, stored: _Stored | None, lease: Lease) -> _Hold:
        if stored is None or stored.lease is None or stored.lease.token != lease.token:
            raise LeaseLost(f"trajectory {lease.trajectory_id!r}: the lease with token {lease.token} is held no more")
        if stored.tenures[-1].worker != lease.worker:
            raise LeaseLost(f"trajectory {lease.trajectory_id!r}: the lease belongs to {stored.tenures[-1].worker}")
        return stored.lease

    def _claims_own_writer(self, stored: _Stored, claim: Claim) -> bool:
        """Whoever holds a writer directory knows that the earlier process of that directory is dead."""
        last = stored.tenures[-1]
        return last.writer == claim.writer and last.worker != claim.worker

    def _free_in_s(self, stored: _Stored) -> float:
        """Seconds for which nobody else may take it; 0 if released, run out, or its worker is known to be dead."""
        hold = stored.lease
        if hold is None:
            return 0.0
        last = stored.tenures[-1]
        if hold.boot == self._boot:
            left_us = hold.expires_boot_us - self._env.boottime_us()
            return 0.0 if left_us <= 0 or self._is_dead(last) else left_us / 1e6
        if last.host == self._env.host():
            return 0.0  # this host has booted since: no process of then is left
        return max(0.0, (hold.expires_at_us - self._env.now_us()) / 1e6)  # a root that moved: only wall clocks compare

    def _is_dead(self, tenure: Tenure) -> bool:
        """Nobody holds its writer directory, or a later process does."""
        if self._writer_is_dead(tenure.writer):
            return True
        try:
            return read_file(self._env, self._worker_path(tenure.writer)) != tenure.worker.encode()
        except FileNotFoundError:
            return False

    def _name_worker(self, claim: Claim) -> None:
        """Write beside LOCK who holds the writer directory, before its first lease: see `_is_dead`, which reads the
        lease record first, so that it never takes a worker for an earlier one.
        """
        if self._named != (claim.writer, claim.worker):
            with suppress(FileNotFoundError):  # a claim without a writer directory in this root: tests, other stores
                write_atomically(self._env, self._worker_path(claim.writer), claim.worker.encode())
            self._named = (claim.writer, claim.worker)

    def _worker_path(self, writer: str) -> str:
        return f"{self._writers}/{writer}/WORKER"

    def _record(self, stored: _Stored) -> LeaseRecord:
        free_in_s = self._free_in_s(stored)
        return LeaseRecord(
            tenant=stored.tenant, trajectory_id=stored.trajectory_id, revision=str(stored.revision),
            tenures=stored.tenures, free_in_s=free_in_s, holder=stored.tenures[-1] if free_in_s > 0 else None,
            renewed_at=stored.lease.renewed_at_us if stored.lease else 0,
        )  # fmt: skip

    @contextmanager
    def _locked(self, path: str) -> Iterator[_Stored | None]:
        """Hold the record's lock and give what it stores now; None if there is no record."""
        deadline_s = self._env.monotonic() + LOCK_WAIT_MAX_S
        while True:
            try:
                fd = self._env.open(path)
            except FileNotFoundError:
                yield None
                return
            try:
                if self._env.flock(fd, exclusive=True):
                    text = self._env.pread(fd, self._env.size(fd), 0)
                    if self._still(path, text):
                        yield _decode(text, path)
                        return
                elif self._env.monotonic() > deadline_s:
                    raise LeaseError(f"{path}: locked for {LOCK_WAIT_MAX_S:.0f} s; is a process of this root stopped?")
            finally:
                self._env.close(fd)
            self._pause.wait(_POLL_S)

    def _still(self, path: str, text: bytes) -> bool:
        try:
            return read_file(self._env, path) == text
        except FileNotFoundError:
            return False

    def _lock_is_free(self, writer: str) -> bool:
        try:
            fd = self._env.open(f"{self._writers}/{writer}/LOCK")
        except FileNotFoundError:
            return True
        try:
            return self._env.flock(fd, exclusive=False)
        finally:
            self._env.close(fd)

    def _load(self, path: str) -> _Stored | None:
        try:
            return _decode(read_file(self._env, path), path)
        except FileNotFoundError:
            return None

    def _names(self, folder: str) -> list[str]:
        try:
            return self._env.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _path(self, tenant: str, trajectory_id: str) -> str:
        key = trajectory_key(tenant, trajectory_id).hex()
        return f"{self._folder}/{key[:2]}/{key}.json"

    def _boot_s(self) -> float:
        return self._env.boottime_us() / 1e6


def as_restored(text: bytes, path: str, tenure: Tenure) -> bytes:
    """Return a record as a restored root holds it: nobody's lease, and `tenure`, which nobody held, as the last one.

    The next token is then above any of that tenure's generation. Raises `LeaseError` for a damaged record.
    """
    stored = _decode(text, path)
    _check_above(tenure.token, stored.tenures[-1].token)
    return _encode(
        msgspec.structs.replace(stored, revision=stored.revision + 1, tenures=(*stored.tenures, tenure), lease=None)
    )


def _check_above(token: int, highest: int) -> None:
    if token <= highest:
        raise ValueError(f"token {token} is not above {highest}, the highest of the lease record")


def _encode(stored: _Stored) -> bytes:
    return msgspec.json.encode(stored) + b"\n"


def _decode(text: bytes, path: str) -> _Stored:
    try:
        stored = _decoder.decode(text)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise LeaseError(f"{path}: damaged lease record ({error}); bring the file back from a backup") from None
    if stored.format > FORMAT:
        raise LeaseError(f"{path}: lease record of format {stored.format}, newer than {FORMAT}: upgrade trajlake")
    if not stored.tenures:
        raise LeaseError(f"{path}: damaged lease record (no tenure); bring the file back from a backup")
    return stored
