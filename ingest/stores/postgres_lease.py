"""Leases in PostgreSQL, for workers on several hosts. Times are by the server's clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

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

from .postgres_database import Connection, Database
from .sql_text import statement

_tenures: Final = msgspec.json.Decoder(tuple[Tenure, ...])


class PostgresLeaseStore:
    """A `LeaseStore` over `trajectory_leases`. Any thread and process may call.

    `is_dead(tenure)` says whether the process of a tenure is known to be dead (its writer's LOCK is free on this
    host): such a lease may be taken at once. An unreachable server raises `StoreUnreachable`: unknown.
    """

    def __init__(
        self, database: Database, *, env: Env = REAL_ENV, is_dead: Callable[[Tenure], bool] = lambda _: False
    ) -> None:
        self._database = database
        self._env = env
        self._is_dead = is_dead

    def read(self, tenant: str, trajectory_id: str) -> LeaseRecord | None:
        named = {"tenant": tenant, "trajectory_id": trajectory_id}
        row = self._database.run(lambda c: c.execute(statement("lease_read"), named).fetchone())
        return None if row is None else self._record(row)

    def records(self) -> Iterator[LeaseRecord]:
        rows = self._database.run(lambda c: c.execute(statement("lease_read_all")).fetchall())
        for row in rows:
            yield self._record(row)

    def acquire(self, claim: Claim, token: int, *, expected: str | None, duration_s: float = LEASE_DURATION_S) -> Lease:
        asked_at_s = self._boot_s()
        tenure = Tenure(
            token=token, writer=claim.writer, host=claim.host, worker=claim.worker, first_lsn=claim.first_lsn,
            acquired_at=self._env.now_us(),
        )  # fmt: skip

        def take(connection: Connection) -> int:
            if expected is None:
                return self._create(connection, claim, tenure, duration_s)
            return self._take(connection, claim, tenure, expected, duration_s)

        def take_unless_done(connection: Connection) -> int:
            # The first try may have been committed before its answer was lost: then the lease is ours already.
            row = self._locked(connection, claim.tenant, claim.trajectory_id)
            last = None if row is None else _decode(row)[-1]
            if row is not None and last is not None and (last.token, last.worker) == (token, claim.worker):
                connection.execute(
                    statement("lease_extend"), _named(claim, token, claim.worker) | {"duration_s": duration_s}
                )
                return int(row[2]) + 1
            return take(connection)

        revision = self._database.run(take, again=take_unless_done)
        return Lease(
            tenant=claim.tenant, trajectory_id=claim.trajectory_id, token=token, worker=claim.worker,
            writer=claim.writer, revision=str(revision), held_until_s=asked_at_s + duration_s,
            answered_at_s=asked_at_s,
        )  # fmt: skip

    def extend(self, lease: Lease, duration_s: float = LEASE_DURATION_S) -> Lease:
        asked_at_s = self._boot_s()
        named = _named(lease, lease.token, lease.worker) | {"duration_s": duration_s}
        row = self._database.run(lambda c: c.execute(statement("lease_extend"), named).fetchone())
        if row is None:
            raise _lost(lease)
        return msgspec.structs.replace(
            lease, revision=str(row[0]), answered_at_s=asked_at_s, held_until_s=asked_at_s + row[1]
        )

    def release(self, lease: Lease, head: Head | None = None) -> None:
        named = _named(lease, lease.token, lease.worker)
        text = None if head is None else msgspec.json.encode(head).decode()

        def release(connection: Connection) -> bool:
            return connection.execute(statement("lease_release"), named | {"head": text}).fetchone() is not None

        def release_unless_done(connection: Connection) -> bool:
            after = named | {"revision": int(lease.revision) + 1}
            return (
                release(connection) or connection.execute(statement("lease_released_by"), after).fetchone() is not None
            )

        if not self._database.run(release, again=release_unless_done):
            raise _lost(lease)

    # -- inside ------------------------------------------------------------------------------------------------

    def _create(self, connection: Connection, claim: Claim, tenure: Tenure, duration_s: float) -> int:
        _check_above(tenure.token, 0)
        named = _named(claim, tenure.token, tenure.worker) | {"duration_s": duration_s, "tenures": _encode((tenure,))}
        row = connection.execute(statement("lease_create"), named).fetchone()
        if row is None:
            raise LeaseChanged(f"a lease record of {claim.trajectory_id!r} was made meanwhile: read it")
        return int(row[0])

    def _take(self, connection: Connection, claim: Claim, tenure: Tenure, expected: str, duration_s: float) -> int:
        row = self._locked(connection, claim.tenant, claim.trajectory_id)
        if row is None or str(row[2]) != expected:
            raise LeaseChanged(f"lease record of {claim.trajectory_id!r} changed since it was read: read it again")
        tenures = _decode(row)
        last, free_in_s = tenures[-1], row[4]
        own_writer = last.writer == claim.writer and last.worker != claim.worker
        if free_in_s > 0 and not own_writer and not self._is_dead(last):
            raise LeaseBusy(claim.trajectory_id, last.worker, free_in_s)
        _check_above(tenure.token, last.token)
        named = _named(claim, tenure.token, tenure.worker)
        named |= {"duration_s": duration_s, "tenures": _encode((*tenures, tenure))}
        taken = connection.execute(statement("lease_take"), named).fetchone()
        assert taken is not None
        return int(taken[0])

    def _locked(self, connection: Connection, tenant: str, trajectory_id: str) -> tuple[Any, ...] | None:
        return connection.execute(
            statement("lease_lock"), {"tenant": tenant, "trajectory_id": trajectory_id}
        ).fetchone()

    def _record(self, row: tuple[Any, ...]) -> LeaseRecord:
        tenures = _decode(row)
        free_in_s = row[4]
        if free_in_s > 0 and self._is_dead(tenures[-1]):
            free_in_s = 0.0
        return LeaseRecord(
            tenant=row[0], trajectory_id=row[1], revision=str(row[2]), tenures=tenures, free_in_s=free_in_s,
            holder=tenures[-1] if free_in_s > 0 else None, renewed_at=row[5],
        )  # fmt: skip

    def _boot_s(self) -> float:
        return self._env.boottime_us() / 1e6


def _named(claim: Claim | Lease, token: int, worker: str) -> dict[str, Any]:
    return {
        "tenant": claim.tenant, "trajectory_id": claim.trajectory_id, "fencing_token": token, "worker": worker,
    }  # fmt: skip


def _encode(tenures: tuple[Tenure, ...]) -> str:
    return msgspec.json.encode(tenures).decode()


def _decode(row: tuple[Any, ...]) -> tuple[Tenure, ...]:
    try:
        tenures = _tenures.decode(row[3])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise LeaseError(f"trajectory_leases of {row[1]!r}: damaged lease record ({error})") from None
    if not tenures:
        raise LeaseError(f"trajectory_leases of {row[1]!r}: damaged lease record (no tenure)")
    return tenures


def _lost(lease: Lease) -> LeaseLost:
    return LeaseLost(f"trajectory {lease.trajectory_id!r}: the lease with token {lease.token} is held no more")


def _check_above(token: int, highest: int) -> None:
    if token <= highest:
        raise ValueError(f"token {token} is not above {highest}, the highest of the lease record")
