"""Who may act for a trajectory: leases, tenures, and the store behind them. Source: design/agent.md.

Implementations: `file_lease` (a root on this host), and in `ingest.stores` PostgreSQL and object storage. All pass
`tests/runtime/conformance/test_lease_store.py`.

LeaseError
├── LeaseBusy       somebody else holds it: come back after `free_in_s`, or leave the trajectory to them
├── LeaseChanged    the record is not the one that was read: read again, decide again
├── LeaseLost       no longer ours: stop now; send nothing, delete nothing, return nothing
└── RecordMissing   events without a record: the store was lost; `trajlake recover ID --from URL`
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

import msgspec

from .generations import Arbiter, RecordLost, TakeGeneration, UseToken, first_token, next_token, take_generation

LEASE_DURATION_S: Final = 60.0
RENEW_EVERY_S: Final = 15.0


class LeaseError(Exception):
    """Root of the lease errors; its text is one line fit for a user."""

    exit_code = 2


class LeaseBusy(LeaseError):
    """Held by a worker that is not known to be dead."""

    def __init__(self, trajectory_id: str, worker: str, free_in_s: float) -> None:
        super().__init__(
            f"trajectory {trajectory_id!r} is held by {worker or 'another worker'} for {free_in_s:.0f} s more"
        )
        self.trajectory_id, self.worker, self.free_in_s = trajectory_id, worker, free_in_s


class LeaseChanged(LeaseError):
    """Compare-and-swap found another record than the one read."""


class LeaseLost(LeaseError):
    """The lease is not ours any more, or it cannot be shown to be."""


class RecordMissing(LeaseError):
    """The store has no record of a trajectory that has events."""


class Head(msgspec.Struct, frozen=True):
    """The last event of a closed tenure: sequence number and hash (hex)."""

    sequence_number: int
    hash: str


class Tenure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One worker's time with a trajectory. Its frames stand in `writer` at `first_lsn` or later.

    `released_head` is set when the worker let go by itself. `acquired_at` is µs UTC, for people only.
    """

    token: int
    writer: str
    host: str = ""
    worker: str = ""
    first_lsn: int = 0
    acquired_at: int = 0
    released_head: Head | None = None


class LeaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the store knows of one trajectory, as read at one moment.

    `revision` is opaque, for compare-and-swap. `free_in_s`: how long nobody else may take it, by the store's clock
    (0: free now, because it was released, ran out, or its writer is dead on this host). `holder` is None when free.
    `renewed_at` is µs UTC, for people only. Tenures are in token order.
    """

    tenant: str
    trajectory_id: str
    revision: str
    tenures: tuple[Tenure, ...]
    free_in_s: float
    holder: Tenure | None
    renewed_at: int = 0

    @property
    def highest_token(self) -> int:
        return self.tenures[-1].token

    def ended_at(self, token: int) -> bool:
        """Whether `token` is the highest and its worker released it: the recorded outcome may be returned as it is."""
        return self.highest_token == token and self.holder is None and self.tenures[-1].released_head is not None


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks for a lease. `writer` is the writer directory (hex) it appends to; `first_lsn` its next lsn or lower."""

    tenant: str
    trajectory_id: str
    worker: str
    writer: str
    host: str
    first_lsn: int = 0


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A lease as granted. `held_until_s` is by the holder's own boot-time clock and errs to the early side.

    `answered_at_s` (same clock) is taken before the store was asked, so it is not later than the store's answer.
    """

    tenant: str
    trajectory_id: str
    token: int
    worker: str
    writer: str
    revision: str
    held_until_s: float
    answered_at_s: float


class LeaseStore(Protocol):
    """Lease records with compare-and-swap. Any thread may call; other errors than those named mean *unknown*."""

    def read(self, tenant: str, trajectory_id: str) -> LeaseRecord | None:
        """Return the record, None if there is none. A damaged record raises `LeaseError`: it never reads as none."""
        ...

    def records(self) -> Iterator[LeaseRecord]:
        """Every record, in no order."""
        ...

    def acquire(self, claim: Claim, token: int, *, expected: str | None, duration_s: float = LEASE_DURATION_S) -> Lease:
        """Append a tenure with `token` and hold its lease, durably, if the record is still at revision `expected`.

        `expected` None: only if there is no record. Raises `LeaseChanged`; `LeaseBusy` if somebody holds it (the
        claiming worker too: it releases first); `ValueError` for a token not above the record's highest.
        """
        ...

    def extend(self, lease: Lease, duration_s: float = LEASE_DURATION_S) -> Lease:
        """Hold for at least `duration_s` from now (never shorter than before). Raises `LeaseLost` if not ours."""
        ...

    def release(self, lease: Lease, head: Head | None = None) -> None:
        """Let go, durably. `head` (the `LeaseReleased` event) closes the tenure; None leaves it open. `LeaseLost`."""
        ...


def take_lease(
    store: LeaseStore,
    arbiter: Arbiter,
    claim: Claim,
    key: str,
    *,
    seen: Callable[[], tuple[bool, Iterable[int]]] = lambda: (False, ()),
    recovering: bool = False,
    duration_s: float = LEASE_DURATION_S,
) -> tuple[Lease, LeaseRecord | None]:
    """Take the lease of a trajectory, choosing its token; return it and the record as it was before.

    `key`: trajectory key in hex. `seen()` answers (has events, tokens in events and gateways); it is asked anew each
    time round. The caller reads the log again after this, and lets go and calls again if it meets a higher token.
    Raises `LeaseBusy`, `RecordMissing`, `TokenExhausted`; a lost race is tried again.
    """
    while True:
        record = store.read(claim.tenant, claim.trajectory_id)
        if record is not None and record.holder is not None and not _is_earlier_life(record.holder, claim):
            raise LeaseBusy(claim.trajectory_id, record.holder.worker, record.free_in_s)
        has_events, tokens = seen()
        decision = next_token(
            None if record is None else record.highest_token, tokens, has_events=has_events, recovering=recovering
        )
        match decision:
            case RecordLost():
                raise RecordMissing(
                    f"trajectory {claim.trajectory_id!r} has events but the lease store has no record of it: "
                    f"run 'trajlake recover {claim.trajectory_id} --from URL'"
                )
            case TakeGeneration(at_least=at_least):
                token = first_token(take_generation(arbiter, key, at_least, _marker(claim)))
            case UseToken(token=token):
                pass
        try:
            expected = None if record is None else record.revision
            return store.acquire(claim, token, expected=expected, duration_s=duration_s), record
        except LeaseChanged:
            continue


def _is_earlier_life(holder: Tenure, claim: Claim) -> bool:
    """Whoever holds a writer directory knows that the earlier process of that directory is dead."""
    return holder.writer == claim.writer and holder.worker != claim.worker


def _marker(claim: Claim) -> bytes:
    return msgspec.json.encode({"worker": claim.worker, "writer": claim.writer, "host": claim.host}) + b"\n"
