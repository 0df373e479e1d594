"""What the tests of replay share: a journal with one reading tool, recording, and a harness that a test changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trajlake.runtime import Journal
from trajlake.runtime.root_log import RootLog
from trajlake.schemas.envelope import Event


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.open(tmp_path / "root") as opened:
        yield opened


@pytest.fixture
def record_run(journal: Journal) -> Any:
    """Run an agent and return its recorded events."""

    def run(agent: Any, model: Any, trajectory_id: str = "t", **options: Any) -> list[Event]:
        journal.run(agent, trajectory_id, task=options.pop("task", "go"), model=model, **options)
        return list(RootLog(journal.root).read("default", trajectory_id, None).events)

    return run
