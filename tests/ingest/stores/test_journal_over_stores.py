"""Agents whose leases and mail live in a database or an object store: another process finds the same backend."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trajlake.runtime import Journal
from trajlake.runtime.leases.lease import LeaseBusy
from trajlake.runtime.root import Root
from trajlake.runtime.stores import arbiter, lease_store, mail_store


@pytest.fixture(params=[pytest.param("postgres", marks=pytest.mark.postgres), pytest.param("s3", marks=pytest.mark.s3)])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Root]:
    """A root whose root.json names the store for leases and mail, and for the arbiter."""
    if request.param == "postgres":
        from tests.support.postgres import schema_url

        with schema_url() as url:
            yield Root.open(str(tmp_path / "journal"), stores={"lease": url, "replica": url})
        return
    from tests.support.object_store import CREDENTIALS, fresh_url

    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    url = fresh_url()
    yield Root.open(str(tmp_path / "journal"), stores={"lease": url, "landing": url})


AGENT = """
import sys
from trajlake.runtime import Journal
journal = Journal.open(sys.argv[1])
sent = []

@journal.tool(effect="external", approve=True)
def pay(cents: int) -> str:
    sent.append(cents)
    return f"paid {cents}"

def agent(t):
    for turn in t.turns(max=3):
        got = turn.call("pay", {"cents": 7})
        t.finish(got.text)

out = journal.run(agent, "order-7", task={"text": "pay"})
print(out.status, out.result, len(sent), [w.action_id for w in out.waiting_for])
journal.close()
"""


def run_agent(root: Root) -> str:
    done = subprocess.run(
        [sys.executable, "-c", AGENT, root.path],
        capture_output=True,
        text=True,
        timeout=60,
        env=dict(os.environ),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_one_process_parks_another_answers_by_mail_a_third_goes_on(root):
    assert run_agent(root).startswith("parked None 0")
    record = lease_store(root).read("default", "order-7")
    assert record is not None
    assert record.holder is None
    assert not (Path(root.path) / "trajectories").exists()
    with Journal.open(root.path) as journal:
        journal.approve("order-7", _first_approval(root), "looks right", actor="ada")
    assert list(mail_store(root).trajectories()) == [("default", "order-7")]
    assert run_agent(root).startswith("completed paid 7 1")
    assert list(mail_store(root).trajectories()) == []
    tokens = [tenure.token for tenure in lease_store(root).read("default", "order-7").tenures]
    assert tokens == sorted(set(tokens))
    assert not arbiter(root).create(_key(), 0, b"{}")


def test_a_worker_that_is_dead_on_this_host_holds_nobody_up(root):
    from trajlake.runtime.env import REAL_ENV
    from trajlake.runtime.leases.lease import Claim

    writer = root.claim_writer()
    claim = Claim(
        tenant="default", trajectory_id="t", worker="one", writer=writer.writer_id, host=REAL_ENV.host(), first_lsn=0
    )
    lease_store(root).acquire(claim, 1, expected=None)
    other = Claim(tenant="default", trajectory_id="t", worker="two", writer="f" * 32, host=REAL_ENV.host(), first_lsn=0)
    revision = lease_store(root).read("default", "t").revision
    with pytest.raises(LeaseBusy):
        lease_store(root).acquire(other, 2, expected=revision)
    writer.close()
    assert lease_store(root).read("default", "t").holder is None
    assert lease_store(root).acquire(other, 2, expected=revision).token == 2


def _first_approval(root: Root) -> str:
    from trajlake.runtime.root_view import RootView

    view = RootView(root).trajectory("default", "order-7")
    assert view is not None
    assert view.state is not None
    return next(iter(view.state.execution.approvals))


def _key() -> str:
    from trajlake.schemas.ids import trajectory_key

    return trajectory_key("default", "order-7").hex()
