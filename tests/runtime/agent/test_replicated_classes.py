"""With a replica: which intents wait for it, and that whatever is shown does."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from trajlake.runtime import Journal
from trajlake.runtime.replicas.replica import Frame
from trajlake.runtime.replicas.replication import Replication


class HeldBack:
    """A replica in memory that answers no append before `answers` is set."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.frames: list[Frame] = []
        self.blobs: dict[str, bytes] = {}

    def put(self, tenant: str, sha256: str, data: bytes) -> None:
        self.blobs[sha256] = data

    def append(self, writer: str, frames: Sequence[Frame]) -> int:
        self.answers.wait(60)
        self.frames += frames
        return frames[-1].header.lsn if frames else -1

    def read(self, tenant: str, trajectory_id: str) -> list[Frame]:
        return [frame for frame in self.frames if frame.info.trajectory_id == trajectory_id]

    def get(self, tenant: str, sha256: str) -> bytes:
        return self.blobs[sha256]

    def types(self) -> list[str]:
        return [frame.type for frame in self.frames]


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldBack]:
    patient = {**(Replication.__init__.__kwdefaults__ or {}), "patience_s": 5.0}
    monkeypatch.setattr(Replication.__init__, "__kwdefaults__", patient)
    held = HeldBack()
    yield held
    held.answers.set()


def run(folder: Path, replica: HeldBack, effect: str, seen: list[list[str]]) -> list[str]:
    """One call whose body notes what the replica holds, then lets it answer; what it holds when the call returns."""
    with Journal.open(folder, replica=replica, replicate=("external",)) as journal:

        @journal.tool(effect=effect)
        def act() -> str:
            seen.append(replica.types())
            replica.answers.set()
            return "done"

        shown: list[str] = []

        def agent(t: Any) -> None:
            for turn in t.turns(max=1):
                turn.call("act")
                shown.extend(replica.types())
                t.finish()

        journal.run(agent, "t", task=1, workspace=str(folder.parent) if effect == "local" else None)
    return shown


@pytest.mark.parametrize("effect", ["idempotent", "local"])
def test_an_intent_of_a_class_that_is_not_replicated_does_not_wait_for_the_replica(
    tmp_path: Path, replica: HeldBack, effect: str
) -> None:
    seen: list[list[str]] = []
    shown = run(tmp_path / "root", replica, effect, seen)
    assert seen == [[]]
    assert effect == "idempotent" or "ToolResult" in shown, "what is returned waits for it all the same"
    assert replica.types()[-1] == "LeaseReleased"


def test_an_intent_of_a_replicated_class_is_acknowledged_before_its_effect(tmp_path: Path, replica: HeldBack) -> None:
    replica.answers.set()
    seen: list[list[str]] = []
    shown = run(tmp_path / "root", replica, "external", seen)
    assert "ToolIntent" in seen[0]
    assert "ToolResult" in shown
