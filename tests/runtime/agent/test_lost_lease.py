"""A worker that was taken for dead: it sends nothing more, shows nothing more, and its late events are harmless."""

from __future__ import annotations

import time
from typing import Any

import pytest

from trajlake.runtime import Busy, Journal
from trajlake.runtime.leases.file_arbiter import FileArbiter
from trajlake.runtime.leases.file_lease import FileLeaseStore
from trajlake.runtime.leases.lease import Claim, take_lease
from trajlake.schemas.ids import trajectory_key

from .conftest import Bench, one_call, plain_agent


def take_over(journal: Journal) -> int:
    """Take the lease of `t` as a process that is sure that its holder is dead; return the token."""
    path = journal.root.path
    leases = FileLeaseStore(path, writer_is_dead=lambda writer: True)
    claim = Claim(tenant="default", trajectory_id="t", worker="other:1", writer="f" * 32, host="here")
    lease, _ = take_lease(leases, FileArbiter(path), claim, trajectory_key("default", "t").hex())
    return lease.token


def test_a_superseded_worker_sends_nothing_more(bench: Bench) -> None:
    journal, ran = bench.fresh(), []

    @journal.tool(effect="read")
    def look() -> None:
        assert take_over(journal) == 2
        time.sleep(1.1)

    @journal.tool
    def pay() -> None:
        ran.append(1)

    def agent(t: Any) -> None:
        for turn in t.turns():
            turn.call("look")
            turn.call("pay")

    with pytest.raises(Busy):
        journal.run(agent, "t", task=1)
    assert ran == []


def test_a_superseded_worker_shows_no_reply_and_no_end(bench: Bench) -> None:
    journal, shown = bench.fresh(), []

    @journal.tool(effect="read")
    def look() -> None:
        take_over(journal)
        time.sleep(1.1)

    def agent(t: Any) -> None:
        for turn in t.turns():
            turn.call("look")
            shown.append(turn.number)
            t.finish("done")
            shown.append("end")

    with pytest.raises(Busy):
        journal.run(agent, "t", task=1)
    assert shown == [0]


def test_a_worker_that_was_only_slow_keeps_its_trajectory(bench: Bench) -> None:
    journal = bench.fresh()

    @journal.tool(effect="read")
    def look() -> str:
        time.sleep(1.2)
        return "seen"

    @journal.tool
    def pay() -> None: ...

    results: list[Any] = []
    assert journal.run(plain_agent(results), "t", task=1, model=one_call("look")).status == "completed"
    assert results[0].output == "seen"
