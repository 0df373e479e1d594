"""Real processes, real time: a worker is stopped past its lease, another takes over, the first one wakes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from trajlake.runtime.root import Root
from trajlake.runtime.root_log import RootLog
from trajlake.runtime.root_view import RootView, status_row
from trajlake.schemas.chain import verify
from trajlake.schemas.history import canonical

WAIT_MAX_S = 120.0
"""Far more than a lease lasts: only a failure takes so long."""


class Scene:
    """One root, one outside world, and workers as processes."""

    def __init__(self, folder: Path, project: Path, where: str) -> None:
        self.root, self.world, self.project, self.where = folder / "root", folder / "world", project, where
        self.world.mkdir()

    def start(self, name: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.runtime.cases.stopped_worker"]
        return subprocess.Popen(
            [*command, str(self.root), str(self.world), name, self.where],
            cwd=self.project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def stopped(self, name: str) -> subprocess.Popen[str]:
        """Start a worker and wait until it has stopped itself."""
        child = self.start(name)
        _, status = os.waitpid(child.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), child.stderr.read() if child.stderr else ""
        return child

    def run(self, name: str) -> list[Any]:
        return ended(self.start(name))

    def take_over(self, name: str) -> list[Any]:
        """Run until the trajectory is free, as `trajlake recover --watch` does."""
        until = time.monotonic() + WAIT_MAX_S
        while True:
            found = self.run(name)
            if found[0] != "busy":
                return found
            assert time.monotonic() < until, found
            time.sleep(0.3)

    def bank(self) -> list[str]:
        path = self.world / "bank"
        return path.read_text().splitlines() if path.exists() else []

    def types(self) -> list[str]:
        events = canonical(RootLog(Root.open(str(self.root))).read("default", "t", None).events).events
        assert verify(events) == []
        return [event.type for event in events]

    def status(self) -> str:
        root = Root.open(str(self.root))
        view = RootView(root).trajectory("default", "t")
        assert view is not None
        return status_row(view, root.env.now_us()).status


def ended(child: subprocess.Popen[str]) -> list[Any]:
    out, error = child.communicate(timeout=WAIT_MAX_S)
    assert child.returncode == 0, error
    found: list[Any] = msgspec.json.decode(out)
    return found


def wake(child: subprocess.Popen[str]) -> list[Any]:
    child.send_signal(signal.SIGCONT)
    return ended(child)


@pytest.mark.long
def test_a_worker_stopped_past_its_lease_sends_and_shows_nothing_when_it_wakes(tmp_path: Path, project: Path) -> None:
    scene = Scene(tmp_path, project, "look")
    old = scene.stopped("a")
    assert scene.run("b")[0] == "busy", "its lease has not run out yet"
    assert scene.status() == "running"
    assert scene.take_over("b") == ["completed", ["seen", "paid by b"], []]
    assert wake(old)[0] == "busy"
    assert scene.bank() == ["b 990"]
    before = scene.types()
    assert scene.run("c") == ["completed", ["seen", "paid by b"], []]
    assert scene.types() == before


@pytest.mark.long
def test_a_call_that_outlives_its_workers_lease_is_in_doubt_and_its_late_result_settles_it(
    tmp_path: Path, project: Path
) -> None:
    scene = Scene(tmp_path, project, "pay")
    old = scene.stopped("a")
    assert scene.take_over("b") == ["parked", None, ["doubt"]]
    assert (scene.bank(), scene.status()) == (["a 990"], "parked")
    assert wake(old)[0] == "busy"
    assert scene.run("c") == ["completed", ["seen", "paid by a"], []]
    assert scene.bank() == ["a 990"]
    assert scene.types().count("ToolIntent") == 2
