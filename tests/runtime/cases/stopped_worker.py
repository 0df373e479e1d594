"""A worker for the tests of stopped processes: `python -m tests.runtime.cases.stopped_worker ROOT WORLD NAME WHERE`.

One trajectory: a look, then a payment that nothing protects (no key, no probe). In its first life it stops itself
(SIGSTOP) inside the look (WHERE `look`) or inside the payment, after it happened (`pay`). Leases are short, by the real
clock. Prints how the run ended.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec

from trajlake.runtime import Busy, Journal
from trajlake.runtime.leases import generations, lease_keeper
from trajlake.runtime.leases.file_lease import FileLeaseStore
from trajlake.runtime.leases.lease import Claim, Lease
from trajlake.runtime.models import scripted

LEASE_S = 4.0
MARGIN_S = 0.5
"""Instead of 60 s and 10 s."""


class ShortLeases(FileLeaseStore):
    """Leases of a few seconds."""

    def acquire(self, claim: Claim, token: int, *, expected: str | None, duration_s: float = LEASE_S) -> Lease:
        return super().acquire(claim, token, expected=expected, duration_s=min(duration_s, LEASE_S))

    def extend(self, lease: Lease, duration_s: float = LEASE_S) -> Lease:
        return super().extend(lease, min(duration_s, LEASE_S))


def stop_once(world: Path, place: str) -> None:
    """Stop this process, the first time that one comes here."""
    marker = world / f"stopped-{place}"
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGSTOP)


def main(root: str, world: str, name: str, where: str) -> None:
    generations.DISPATCH_MARGIN_S = lease_keeper.DISPATCH_MARGIN_S = MARGIN_S  # type: ignore[misc]
    outside = Path(world)
    journal = Journal.open(root, leases=ShortLeases(root))

    @journal.tool(effect="read", timeout_s=1)
    def look() -> str:
        if where == "look":
            stop_once(outside, where)
        return "seen"

    @journal.tool(effect="external", timeout_s=1)
    def pay(cents: int) -> str:
        with (outside / "bank").open("a") as bank:
            bank.write(f"{name} {cents}\n")
        if where == "pay":
            stop_once(outside, where)
        return f"paid by {name}"

    def agent(t: Any) -> None:
        for turn in t.turns(max=5):
            reply = turn.model()
            given = turn.tools(reply.calls)
            t.vars["told"] = [*t.vars.get("told", []), *(one.output for one in given)]
            if not reply.calls:
                t.finish(t.vars["told"])

    model = scripted([[("look", {})], [("pay", {"cents": 990})], "done"])
    try:
        outcome = journal.run(agent, "t", task="pay", model=model)
        ended: list[Any] = [outcome.status, outcome.result, [one.kind for one in outcome.waiting_for]]
    except Busy as error:
        ended = ["busy", str(error), []]
    journal.close()
    print(msgspec.json.encode(ended).decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
