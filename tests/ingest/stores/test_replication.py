"""Agents with a replica: what was acknowledged survives the loss of the host, and nothing is sent before that."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trajlake.runtime import Journal
from trajlake.runtime.agent.errors import Misuse
from trajlake.runtime.replicas.replica import Replica, ReplicaError
from trajlake.runtime.replicas.replication import Replication
from trajlake.runtime.root import Root
from trajlake.runtime.stores import replica as replica_of
from trajlake.runtime.wal.journal_errors import OutcomeUnknown
from trajlake.schemas.history import canonical

BULK = "b" * 40_000


class Held:
    """A replica that can be told to answer no more."""

    def __init__(self, real: Replica) -> None:
        self._real = real
        self.away = threading.Event()
        self.appended = 0

    def put(self, tenant, sha256, data):
        self._check()
        self._real.put(tenant, sha256, data)

    def append(self, writer, frames):
        self._check()
        self.appended += len(frames)
        return self._real.append(writer, frames)

    def read(self, tenant, trajectory_id):
        return self._real.read(tenant, trajectory_id)

    def get(self, tenant, sha256):
        return self._real.get(tenant, sha256)

    def _check(self) -> None:
        if self.away.is_set():
            raise ReplicaError("on purpose")


@pytest.fixture(params=[pytest.param("postgres", marks=pytest.mark.postgres), pytest.param("s3", marks=pytest.mark.s3)])
def url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "postgres":
        from tests.support.postgres import schema_url

        with schema_url() as found:
            yield found
        return
    from tests.support.object_store import CREDENTIALS, fresh_url

    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    yield fresh_url()


def open_journal(folder: Path, url: str) -> Journal:
    return Journal.open(str(folder), leases=url, replica=url, replicate=("external", "idempotent"))


def agent_of(journal: Journal, sent: list[int], then: Callable[[], None] = lambda: None):
    @journal.tool(effect="external")
    def pay(cents: int) -> str:
        sent.append(cents)
        return f"paid {cents} {BULK}"

    def agent(t):
        for turn in t.turns(max=3):
            if turn.number == 0:
                turn.call("pay", {"cents": 7})
                t.vars["paid"] = True
                continue
            then()
            t.finish("done")

    return agent


def test_after_the_loss_of_the_host_another_one_goes_on_where_it_was_acknowledged(tmp_path, url):
    sent: list[int] = []

    def die() -> None:
        raise RuntimeError("power")

    with open_journal(tmp_path / "one", url) as journal, pytest.raises(RuntimeError, match="power"):
        journal.run(agent_of(journal, sent, die), "order-7", task={"text": "pay"})
    shutil.rmtree(tmp_path / "one")
    with open_journal(tmp_path / "two", url) as journal:
        out = journal.run(agent_of(journal, sent), "order-7", task={"text": "pay"})
        assert (out.status, out.result, sent) == ("completed", "done", [7])
        events = replica_of(journal.root).read("default", "order-7")
    types = [event.type for event in canonical(_events(events)).events]
    assert types.count("ToolIntent") == types.count("ToolResult") == types.count("TaskEnded") == 1
    assert types.count("LeaseAcquired") == 1


def test_no_effect_is_sent_while_the_replica_is_away(tmp_path, url, monkeypatch):
    root = Root.open(str(tmp_path / "one"), stores={"replica": url})
    replica, sent = Held(replica_of(root)), []
    replica.away.set()
    journal = Journal.open(root.path, replica=replica, replicate=("external",))
    monkeypatch.setattr(
        Replication.__init__, "__kwdefaults__", {**Replication.__init__.__kwdefaults__, "patience_s": 0.5}
    )
    agent = agent_of(journal, sent)
    with pytest.raises(OutcomeUnknown, match="replica"):
        journal.run(agent, "order-7", task={"text": "pay"})
    assert sent == []
    replica.away.clear()
    journal.close()
    with Journal.open(root.path, replica=replica, replicate=("external",)) as journal:
        out = journal.run(agent_of(journal, sent), "order-7", task={"text": "pay"})
        # Its intent is durable here: nobody can know any more that nothing left the host, so a person is asked.
        assert (out.status, [one.kind for one in out.waiting_for], sent) == ("parked", ["doubt"], [])


def test_coroutines_wait_for_the_replica_without_blocking_their_loop(tmp_path, url):
    sent: list[int] = []
    with open_journal(tmp_path / "one", url) as journal:

        @journal.tool(effect="external")
        async def pay(cents: int) -> str:
            sent.append(cents)
            return "paid"

        async def agent(t):
            async for turn in t.turns(max=2):
                await turn.call("pay", {"cents": 7})
                await t.finish("done")

        async def both():
            return await asyncio.gather(*(journal.arun(agent, f"t{n}", task={"text": "pay"}) for n in range(5)))

        outs = asyncio.run(both())
        assert [out.status for out in outs] == ["completed"] * 5
        for number in range(5):
            types = [event.type for event in _events(replica_of(journal.root).read("default", f"t{number}"))]
            assert "TaskEnded" in types


def test_frames_that_another_writer_left_here_reach_the_replica_before_anything_new(tmp_path, url):
    root = Root.open(str(tmp_path / "one"))
    sent: list[int] = []
    with Journal.open(root.path) as journal, pytest.raises(RuntimeError):
        journal.run(agent_of(journal, sent, _fail), "order-7", task={"text": "pay"})
    with Journal.open(root.path, replica=url) as journal:
        assert journal.run(agent_of(journal, sent), "order-7", task={"text": "pay"}).status == "completed"
        found = canonical(_events(replica_of(journal.root).read("default", "order-7")))
    assert found.events[0].type == "TaskStarted"
    assert found.events[-1].type == "LeaseReleased"
    assert not found.held_back


def test_effect_classes_without_a_replica_are_refused(tmp_path):
    with pytest.raises(Misuse, match="no replica"):
        Journal.open(str(tmp_path / "journal"), replicate=("external",))


def _fail() -> None:
    raise RuntimeError("stop")


def _events(frames):
    from trajlake.runtime.replicas.replica import events_of

    return events_of(frames)
