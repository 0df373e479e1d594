"""A host is lost with root, leases, blobs and workspace: `trajlake recover --from URL` goes on from the replica.

The worker dies by SIGKILL between an effect and its result. In an empty folder everything that was acknowledged comes
back: files byte for byte, every effect once, and every open trajectory without being named.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

AGENT = """
import os, signal
from pathlib import Path
from trajlake.runtime import NOT_EXECUTED, Executed, Journal

HERE = Path(os.environ["HERE"])
URL = os.environ.get("REPLICA") or None
CLASSES = ("external", "idempotent", "local")
journal = Journal.open(HERE / "root", replica=URL, replicate=CLASSES if URL else ())

def paid():
    return (HERE / "paid").read_text().splitlines() if (HERE / "paid").exists() else []

def seen(call):
    return Executed(call.arguments["n"], evidence="ledger") if call.key in paid() else NOT_EXECUTED

@journal.tool(timeout_s=0.5, settle_after_s=0, probe=seen)
def pay(n: int, *, call) -> int:
    with open(HERE / "paid", "a") as file:
        file.write(call.key + "\\n")
    if os.environ.get("KILL") and len(paid()) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return n

@journal.tool(effect="local")
def edit(n: int) -> None:
    work = HERE / "work"
    (work / f"f{n % 3}").write_bytes(bytes([n]) * 70_000)
    if n == 2:
        (work / "start").unlink()
        (work / "deep").mkdir()
        (work / "deep" / "er").write_text(f"turn {n}")

def work(t):
    files = t.task != "no files"
    for turn in t.turns(max=6):
        if files:
            turn.call("edit", {"n": turn.number})
        turn.call("pay", {"n": turn.number})
        t.vars["n"] = turn.number
    t.finish(t.vars["n"])

def fall(t):
    for turn in t.turns(max=1):
        turn.call("edit", {"n": turn.number})
        turn.call("pay", {"n": turn.number})
        1 / 0

def look(t):
    raise SystemExit("looked")

def short(t):
    for turn in t.turns(max=1):
        t.finish("over")

if __name__ == "__main__":
    from agent import journal, short, work
    workspace = str(HERE / "work")
    with journal:
        journal.run(short, "over", task="go", workspace=workspace)
        journal.run(work, "t", task="go", workspace=workspace)
"""


class Host:
    """A folder that stands for a host: the agent's code, root, workspace; and what the outside world counts."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        folder.mkdir()
        (folder / "agent.py").write_text(AGENT)
        (folder / "work").mkdir()
        (folder / "work" / "start").write_text("was there")

    def run(self, *words: str, **env: str) -> Any:
        environ = {
            **os.environ, "HERE": str(self.folder), "TRAJLAKE_JOURNAL": str(self.folder / "root"), "REPLICA": self.url,
            **env,
        }  # fmt: skip
        return subprocess.run(
            [sys.executable, *words], cwd=self.folder, env=environ, capture_output=True, text=True, timeout=180,
            check=False,
        )  # fmt: skip

    def files(self) -> dict[str, bytes]:
        work = self.folder / "work"
        return {str(path.relative_to(work)): path.read_bytes() for path in work.rglob("*") if path.is_file()}

    def paid(self) -> list[str]:
        return (self.folder / "paid").read_text().splitlines()

    def lose(self) -> None:
        shutil.rmtree(self.folder / "root")
        shutil.rmtree(self.folder / "work")


@pytest.fixture(
    params=[
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("s3", marks=[pytest.mark.s3, pytest.mark.long]),
    ]
)
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


def test_an_empty_folder_goes_on_from_the_replica_with_equal_files_and_nothing_done_twice(
    tmp_path: Path, url: str
) -> None:
    host = Host(tmp_path / "host", url)
    killed = host.run("agent.py", KILL="1")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    before = host.files()
    assert (len(host.paid()), "start" in before, "deep/er" in before) == (4, False, True)
    host.lose()
    looked = host.run("-m", "trajlake.runtime", "recover", "agent:look", "--from", url, "--workspace", "work")
    assert "looked" in looked.stderr, looked.stdout + looked.stderr
    assert host.files() == before, "the files are not those of the lost host"
    assert len(host.paid()) == 4
    shutil.rmtree(host.folder / "work")
    done = host.run("-m", "trajlake.runtime", "recover", "agent:work", "--from", url, "--workspace", "work")
    assert (done.returncode, done.stdout) == (0, "t: completed: 5\n"), done.stderr
    assert len(host.paid()) == len(set(host.paid())) == 6
    assert host.files() == {**before, "f1": bytes([4]) * 70_000, "f2": bytes([5]) * 70_000}
    verified = host.run("-m", "trajlake.runtime", "journal", "verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr


@pytest.mark.s3
@pytest.mark.long
def test_a_landing_in_object_storage_is_recovered_from_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support.object_store import CREDENTIALS, fresh_url, shared_endpoint

    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", shared_endpoint())
    url = fresh_url().partition("?")[0]
    host = Host(tmp_path / "host", "")
    monkeypatch.setenv("TRAJLAKE_LANDING", url)
    failed = host.run("-c", "import agent; agent.journal.run(agent.fall, 't', task='go', workspace='work')")
    assert "ZeroDivisionError" in failed.stderr, failed.stderr
    shipped = host.run("-m", "trajlake.runtime", "ship", "root", "--to", url)
    assert shipped.returncode == 0, shipped.stderr
    before = host.files()
    host.lose()
    looked = host.run("-m", "trajlake.runtime", "recover", "agent:look", "--from", url, "--workspace", "work")
    assert "looked" in looked.stderr, looked.stdout + looked.stderr
    assert host.files() == before
    done = host.run("-m", "trajlake.runtime", "recover", "agent:work", "--from", url, "--workspace", "work")
    assert (done.returncode, done.stdout) == (0, "t: completed: 5\n"), done.stderr
    assert len(host.paid()) == len(set(host.paid())) == 6
