"""Leases in object storage: one object per trajectory, changed only by a put conditional on the version read.

The store's clock decides: an object's put time plus the duration it names is when the lease runs out, against the
date of the answer that showed it. Both are whole seconds and may come from two machines of the store, so a lease
counts as held for `CLOCK_STEP_S` longer than it says; its holder never counts on that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from trajlake.runtime.env import REAL_ENV, Env
from trajlake.runtime.leases.lease import (
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
from trajlake.schemas.ids import trajectory_key

from .object_client import Found, ObjectClient

FORMAT: Final = 1
CLOCK_STEP_S: Final = 2.0
"""One second for the coarse clock, one for the difference between two machines of the store."""


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    """`held_s`: from the object's put on; 0 when nobody holds it. `nonce` makes every version unique."""

    format: int
    tenant: str
    trajectory_id: str
    nonce: str
    tenures: tuple[Tenure, ...]
    held_s: float
    renewed_at: int


_decoder: Final = msgspec.json.Decoder(_Stored)


class ObjectLeaseStore:
    """A `LeaseStore` over `leases/<k2>/<key>.json`. Any thread and process may call. `is_dead`: as in PostgreSQL's."""

    def __init__(
        self, client: ObjectClient, *, env: Env = REAL_ENV, is_dead: Callable[[Tenure], bool] = lambda _: False
    ) -> None:
        self._client = client
        self._env = env
        self._is_dead = is_dead
        self._own: dict[str, tuple[str, _Stored]] = {}
        self._lock = threading.Lock()

    def read(self, tenant: str, trajectory_id: str) -> LeaseRecord | None:
        key = _key(tenant, trajectory_id)
        found = self._client.get(key)
        return None if found is None else self._record(found, _decode(found, key))

    def records(self) -> Iterator[LeaseRecord]:
        for listed in self._client.list("leases/"):
            found = self._client.get(listed.key)
            if found is not None:
                yield self._record(found, _decode(found, listed.key))

    def acquire(self, claim: Claim, token: int, *, expected: str | None, duration_s: float = LEASE_DURATION_S) -> Lease:
        key = _key(claim.tenant, claim.trajectory_id)
        asked_at_s = self._boot_s()
        tenure = Tenure(
            token=token, writer=claim.writer, host=claim.host, worker=claim.worker, first_lsn=claim.first_lsn,
            acquired_at=self._env.now_us(),
        )  # fmt: skip
        if expected is None:
            _check_above(token, 0)
            stored = self._new(claim.tenant, claim.trajectory_id, (tenure,), duration_s)
            etag = self._client.put_if_absent(key, msgspec.json.encode(stored))
        else:
            before = self._free_at(key, claim, expected)
            _check_above(token, before.tenures[-1].token)
            stored = self._new(claim.tenant, claim.trajectory_id, (*before.tenures, tenure), duration_s)
            etag = self._client.put_if_match(key, msgspec.json.encode(stored), expected)
        if etag is None:
            raise LeaseChanged(f"lease record of {claim.trajectory_id!r} changed since it was read: read it again")
        self._remember(key, etag, stored)
        return Lease(
            tenant=claim.tenant, trajectory_id=claim.trajectory_id, token=token, worker=claim.worker,
            writer=claim.writer, revision=etag, held_until_s=asked_at_s + duration_s, answered_at_s=asked_at_s,
        )  # fmt: skip

    def extend(self, lease: Lease, duration_s: float = LEASE_DURATION_S) -> Lease:
        for _ in range(2):
            asked_at_s = self._boot_s()
            held_s = max(duration_s, lease.held_until_s - asked_at_s)
            etag = self._replace(lease, lambda stored: stored.tenures, held_s)
            if etag is not None:
                return msgspec.structs.replace(
                    lease, revision=etag, answered_at_s=asked_at_s, held_until_s=asked_at_s + held_s
                )
        raise _lost(lease)

    def release(self, lease: Lease, head: Head | None = None) -> None:
        def closed(stored: _Stored) -> tuple[Tenure, ...]:
            return (*stored.tenures[:-1], msgspec.structs.replace(stored.tenures[-1], released_head=head))

        for _ in range(2):
            if self._replace(lease, closed, 0.0) is not None:
                with self._lock:
                    self._own.pop(_key(lease.tenant, lease.trajectory_id), None)
                return
        raise _lost(lease)

    # -- inside ------------------------------------------------------------------------------------------------

    def _replace(self, lease: Lease, tenures: Callable[[_Stored], tuple[Tenure, ...]], held_s: float) -> str | None:
        """Put the next version of a lease that is ours; None if what we knew of it was out of date: try again."""
        key = _key(lease.tenant, lease.trajectory_id)
        etag, stored = self._known(key) or self._current(key, lease)
        if not _is_own(stored, lease):
            raise _lost(lease)
        following = self._new(stored.tenant, stored.trajectory_id, tenures(stored), held_s)
        put = self._client.put_if_match(key, msgspec.json.encode(following), etag)
        if put is None:
            self._forget(key)
            return None
        self._remember(key, put, following)
        return put

    def _current(self, key: str, lease: Lease) -> tuple[str, _Stored]:
        found = self._client.get(key)
        if found is None:
            raise _lost(lease)
        return found.etag, _decode(found, key)

    def _free_at(self, key: str, claim: Claim, expected: str) -> _Stored:
        found = self._client.get(key)
        if found is None or found.etag != expected:
            raise LeaseChanged(f"lease record of {claim.trajectory_id!r} changed since it was read: read it again")
        stored = _decode(found, key)
        last, free_in_s = stored.tenures[-1], _free_in_s(found, stored)
        own_writer = last.writer == claim.writer and last.worker != claim.worker
        if free_in_s > 0 and not own_writer and not self._is_dead(last):
            raise LeaseBusy(claim.trajectory_id, last.worker, free_in_s)
        return stored

    def _new(self, tenant: str, trajectory_id: str, tenures: tuple[Tenure, ...], held_s: float) -> _Stored:
        return _Stored(
            format=FORMAT, tenant=tenant, trajectory_id=trajectory_id, nonce=self._env.random_bytes(8).hex(),
            tenures=tenures, held_s=held_s, renewed_at=self._env.now_us(),
        )  # fmt: skip

    def _record(self, found: Found, stored: _Stored) -> LeaseRecord:
        free_in_s = _free_in_s(found, stored)
        if free_in_s > 0 and self._is_dead(stored.tenures[-1]):
            free_in_s = 0.0
        return LeaseRecord(
            tenant=stored.tenant, trajectory_id=stored.trajectory_id, revision=found.etag, tenures=stored.tenures,
            free_in_s=free_in_s, holder=stored.tenures[-1] if free_in_s > 0 else None, renewed_at=stored.renewed_at,
        )  # fmt: skip

    def _known(self, key: str) -> tuple[str, _Stored] | None:
        with self._lock:
            return self._own.get(key)

    def _remember(self, key: str, etag: str, stored: _Stored) -> None:
        with self._lock:
            self._own[key] = (etag, stored)

    def _forget(self, key: str) -> None:
        with self._lock:
            self._own.pop(key, None)

    def _boot_s(self) -> float:
        return self._env.boottime_us() / 1e6


def _key(tenant: str, trajectory_id: str) -> str:
    name = trajectory_key(tenant, trajectory_id).hex()
    return f"leases/{name[:2]}/{name}.json"


def _free_in_s(found: Found, stored: _Stored) -> float:
    if stored.held_s <= 0:
        return 0.0
    return max(0.0, found.put_at_s + stored.held_s + CLOCK_STEP_S - found.now_s)


def _is_own(stored: _Stored, lease: Lease) -> bool:
    last = stored.tenures[-1]
    return stored.held_s > 0 and (last.token, last.worker) == (lease.token, lease.worker)


def _decode(found: Found, key: str) -> _Stored:
    try:
        stored = _decoder.decode(found.data)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise LeaseError(
            f"{key}: damaged lease record ({error}); bring the object back from an older version"
        ) from None
    if stored.format > FORMAT or not stored.tenures:
        raise LeaseError(f"{key}: lease record of format {stored.format}, or without a tenure: upgrade trajlake")
    return stored


def _lost(lease: Lease) -> LeaseLost:
    return LeaseLost(f"trajectory {lease.trajectory_id!r}: the lease with token {lease.token} is held no more")


def _check_above(token: int, highest: int) -> None:
    if token <= highest:
        raise ValueError(f"token {token} is not above {highest}, the highest of the lease record")
