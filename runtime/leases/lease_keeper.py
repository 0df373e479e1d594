"""Keeps this process's leases alive, and answers the question before every send: may I?

One keeper per process; one daemon thread for all its leases, started with the first. A lease that is lost stays lost:
its owner stops, whatever a later answer of the store would say.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final

from ..env import REAL_ENV, Env
from .generations import ANSWER_AGE_MAX_S, DISPATCH_MARGIN_S, may_dispatch
from .lease import LEASE_DURATION_S, RENEW_EVERY_S, Head, Lease, LeaseLost, LeaseStore

_TRIES: Final = 5
"""How often a check asks again when an answer came too late to rely on. Nothing was sent meanwhile."""

_RETRY_RENEWAL_S: Final = 1.0


class Permit:
    """Leave to send now. It ages by the boot-time clock: check `good()` once more as the last step before the send."""

    def __init__(self, held: HeldLease, timeout_s: float, until_s: float, answered_at_s: float) -> None:
        self._held, self._timeout_s, self._until_s, self._answered_at_s = held, timeout_s, until_s, answered_at_s

    def good(self) -> bool:
        """Whether the send may still happen. Cheap, no I/O; from any thread."""
        return not self._held.lost and may_dispatch(
            held_until_s=self._until_s, timeout_s=self._timeout_s,
            answered_at_s=self._answered_at_s, now_s=self._held.now_s(),
        )  # fmt: skip


class HeldLease:
    """A lease under renewal. Safe from any thread. `token`, `lost` and the checks are all its owner needs."""

    def __init__(self, keeper: LeaseKeeper, lease: Lease) -> None:
        self.token = lease.token
        self._keeper = keeper
        self._env = keeper.env
        self._lease = lease
        self._lock = threading.Lock()
        self._pid = keeper.env.pid()
        self.renew_at_s = 0.0
        self.lost = False
        self.error: BaseException | None = None

    @property
    def lease(self) -> Lease:
        """The latest answer of the store."""
        return self._lease

    def now_s(self) -> float:
        return self._keeper.env.boottime_us() / 1e6

    def check_for_dispatch(self, timeout_s: float = 0.0) -> Permit:
        """Extend the lease to now + timeout + 10 s and return leave to send; raise `LeaseLost` if that fails.

        Call it after the intent is durable at its level. With `timeout_s` 0 it is the check that deleting mail and
        returning a reply, result or outcome need after their barrier. An answer that is less than 1 s old and reaches
        far enough serves again: nobody can take a lease over before it runs out while its writer lives.
        """
        for _ in range(_TRIES):
            permit = self.permit_by_last_answer(timeout_s)
            if permit is not None:
                return permit
            self._extend(timeout_s + DISPATCH_MARGIN_S + ANSWER_AGE_MAX_S)
        permit = self.permit_by_last_answer(timeout_s)
        if permit is not None:
            return permit
        raise LeaseLost(
            f"trajectory {self._lease.trajectory_id!r}: the lease store is too slow to rely on ({_TRIES} tries)"
        )

    def may_send(self, timeout_s: float) -> bool:
        """Whether the store's last answer gives leave to send at this moment. Cheap, no I/O; from any thread."""
        lease, env = self._lease, self._env
        return not self.lost and env.pid() == self._pid and may_dispatch(
            held_until_s=lease.held_until_s, timeout_s=timeout_s, answered_at_s=lease.answered_at_s,
            now_s=env.boottime_us() / 1e6,
        )  # fmt: skip

    def permit_by_last_answer(self, timeout_s: float = 0.0) -> Permit | None:
        """Leave to send as `check_for_dispatch` gives it, where the store's last answer still serves; else None.

        No I/O, never waits. Raises `LeaseLost` once the lease is known to be lost.
        """
        self._check_alive()
        lease = self._lease
        permit = Permit(self, timeout_s, lease.held_until_s, lease.answered_at_s)
        return permit if permit.good() else None

    async def acheck_for_dispatch(self, timeout_s: float = 0.0) -> Permit:
        """The same without blocking the loop: the store is asked in a worker thread, the age is judged in the loop."""
        for _ in range(_TRIES):
            permit = await asyncio.to_thread(self.check_for_dispatch, timeout_s)
            if permit.good():
                return permit
        raise LeaseLost(f"trajectory {self._lease.trajectory_id!r}: the event loop is too busy to rely on a lease")

    def renew(self) -> None:
        """Extend by the usual duration. The keeper calls this; errors are kept, a loss is final."""
        try:
            self._extend(self._keeper.duration_s)
        except LeaseLost:
            return
        except Exception as error:  # noqa: BLE001 - unknown: the store may answer again before the lease runs out
            self.error = error
            self.renew_at_s = self.now_s() + _RETRY_RENEWAL_S

    def _extend(self, duration_s: float) -> None:
        with self._lock:
            self._check_alive()
            try:
                self._lease = self._keeper.store.extend(self._lease, max(duration_s, self._keeper.duration_s))
            except LeaseLost as error:
                self._lose(error)
                raise
            self.error = None
            self.renew_at_s = self._lease.answered_at_s + self._keeper.renew_every_s

    def _check_alive(self) -> None:
        if self.lost:
            raise LeaseLost(f"trajectory {self._lease.trajectory_id!r}: the lease with token {self.token} was lost")
        if self._keeper.env.pid() != self._pid:
            raise LeaseLost("a lease does not pass to a forked child: open the journal there (start method 'spawn')")

    def _lose(self, error: BaseException) -> None:
        self.lost, self.error = True, error
        self._keeper.forget(self)

    def _let_go(self, head: Head | None) -> None:
        with self._lock:
            self._check_alive()
            self.lost = True
            self._keeper.forget(self)
            self._keeper.store.release(self._lease, head)


class LeaseKeeper:
    """Renews every lease of this process until it is released, lost, or the keeper is closed.

    `on_lost(held)` is called from the keeper's thread or the thread that found out; it must not block.
    """

    def __init__(
        self, store: LeaseStore, *, env: Env = REAL_ENV, duration_s: float = LEASE_DURATION_S,
        renew_every_s: float = RENEW_EVERY_S, on_lost: Callable[[HeldLease], None] | None = None,
    ) -> None:  # fmt: skip
        if not 0 < renew_every_s < duration_s:
            raise ValueError(f"renew_every_s {renew_every_s} must be above 0 and below duration_s {duration_s}")
        self.store, self.env = store, env
        self.duration_s, self.renew_every_s = duration_s, renew_every_s
        self._on_lost = on_lost
        self._held: list[HeldLease] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def hold(self, lease: Lease) -> HeldLease:
        """Take over a lease that was just acquired; renewal begins `renew_every_s` after it."""
        held = HeldLease(self, lease)
        held.renew_at_s = lease.answered_at_s + self.renew_every_s
        with self._changed:
            if self._closed:
                raise LeaseLost("the lease keeper is closed")
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="trajlake-lease-keeper", daemon=True)
                thread.start()  # raises where the system gives no more threads: then nothing is held, nor renewed
                self._thread = thread
            self._held.append(held)
            self._changed.notify()
        return held

    def release(self, held: HeldLease, head: Head | None = None) -> None:
        """Let go, durably; `head` is the durable `LeaseReleased`, None leaves the tenure open. `LeaseLost` if not ours.

        Release before the writer is closed: a lease whose writer's LOCK is free may be taken by anybody at once.
        """
        held._let_go(head)

    def forget(self, held: HeldLease) -> None:
        """Stop renewing; the lease runs out by itself."""
        with self._changed:
            known = held in self._held
            if known:
                self._held.remove(held)
        if known and held.error is not None and self._on_lost is not None:
            self._on_lost(held)

    def close(self) -> None:
        """End the thread. Leases still held are not released: their trajectories are open, others may take them."""
        with self._changed:
            self._closed = True
            self._held.clear()
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5.0)

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                now_s = self.env.boottime_us() / 1e6
                due = [held for held in self._held if held.renew_at_s <= now_s]
                if not due:
                    soonest_s = min((held.renew_at_s for held in self._held), default=now_s + 3600.0)
                    # A sleeping machine does not count towards a wait: look at least once a second.
                    self._changed.wait(min(max(soonest_s - now_s, 0.01), 1.0 if self._held else 3600.0))
                    continue
            for held in due:
                held.renew()
