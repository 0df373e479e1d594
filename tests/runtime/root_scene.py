"""A root with a few trajectories, written by a real writer, as a killed or living worker leaves them."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from trajlake.runtime.cli import main
from trajlake.runtime.leases.file_lease import FileLeaseStore
from trajlake.runtime.leases.lease import Claim, Head
from trajlake.runtime.root import Root
from trajlake.runtime.wal.frame import TrajectoryInfo
from trajlake.schemas.chain import genesis, make_event
from trajlake.schemas.events import (
    ApprovalRequested,
    Authorized,
    ModelReplied,
    ObligationOpened,
    Payload,
    ProposedCall,
    TaskEnded,
    TaskStarted,
    ToolIntent,
    ToolResult,
)

HASH = "11" * 32
REPLY = ModelReplied(text="I will pay", calls=(ProposedCall(tool="pay", provider_id="call_1", arguments="{}"),))
ALLOWED = Authorized(action_id="1.0", tool="pay", decision="allow", arguments_hash=HASH)
INTENT = ToolIntent(action_id="1.0", tool="pay", arguments_hash=HASH, key="ab" * 32, effect="external", timeout_s=0.001)
RESULT = ToolResult(action_id="1.0", status="ok", tool="pay", output={"paid": True})
QUESTION = ApprovalRequested(approval_id="ask-1", action_id="1.0", tool="pay", arguments_hash=HASH, question="pay?")
OWED = ObligationOpened(obligation_id="o1", text="send the receipt")


class Scene:
    """A worker on a root. `close()` is a clean exit; a scene that is only dropped still holds its LOCK."""

    def __init__(self, folder: Path, worker: str = "worker-1") -> None:
        self.root = Root.open(str(folder))
        self.writer = self.root.claim_writer()
        self.leases = FileLeaseStore(self.root.path)
        self.worker = worker

    def write(
        self, trajectory_id: str, *payloads: Payload, tenant: str = "default", lease: bool = True, release: bool = False
    ) -> None:
        """Write `TaskStarted` and `payloads` under token 1, an event each; turn 0 from the second on."""
        held = None
        if lease:
            claim = Claim(
                tenant=tenant, trajectory_id=trajectory_id, worker=self.worker, writer=self.writer.writer_id,
                host=self.root.env.host(), first_lsn=self.writer.next_lsn,
            )  # fmt: skip
            held = self.leases.acquire(claim, 1, expected=None)
        prev, events = genesis(tenant, trajectory_id), []
        for number, payload in enumerate((TaskStarted(task={"text": "go"}), *payloads)):
            event = make_event(
                payload, tenant=tenant, trajectory_id=trajectory_id, sequence_number=number, fencing_token=1,
                turn=0 if number else -1, recorded_at=time.time_ns() // 1000, salt=bytes([number]) * 16, prev=prev,
            )  # fmt: skip
            events.append(event)
            prev = event.hash
        info = TrajectoryInfo(tenant=tenant, trajectory_id=trajectory_id, started_on="2026-11-30")
        self.writer.append(events, info).wait()
        if held is not None and release:
            self.leases.release(held, Head(events[-1].sequence_number, prev.hex()))

    def close(self) -> None:
        self.writer.close()


def full_root(folder: Path) -> Scene:
    """One trajectory of each kind that `status` tells apart; the worker still lives."""
    scene = Scene(folder)
    scene.write("done", REPLY, ALLOWED, INTENT, RESULT, TaskEnded(status="completed"), release=True)
    scene.write("at-work", REPLY, ALLOWED)
    scene.write("asks", REPLY, QUESTION, OWED, release=True)
    scene.write("doubtful", REPLY, ALLOWED, INTENT, release=True)
    scene.write("left", REPLY, release=True)
    scene.write("theirs", REPLY, tenant="acme", release=True)
    claim = Claim(tenant="default", trajectory_id="unborn", worker="worker-1", writer=scene.writer.writer_id, host="h")
    scene.leases.release(scene.leases.acquire(claim, 1, expected=None))
    return scene


class InProcess:
    """Runs a verb in this process, in `folder`: as the command does it, without the cost of a start."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.chdir(folder)
        self._capsys = capsys

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        code = main(arguments)
        shown = self._capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, shown.out, shown.err)
