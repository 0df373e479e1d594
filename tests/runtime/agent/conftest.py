"""A journal in a temporary folder, and what tests of agents keep asking of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trajlake.runtime import Journal
from trajlake.runtime.models import scripted
from trajlake.runtime.root_log import RootLog
from trajlake.schemas.chain import verify
from trajlake.schemas.envelope import Event
from trajlake.schemas.history import canonical


class Bench:
    """A root and the journals opened on it; `fresh` is a new process in all but name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journals: list[Journal] = []

    @property
    def work(self) -> str:
        """A folder for `local` tools to change."""
        (self.folder / "work").mkdir(exist_ok=True)
        return str(self.folder / "work")

    def fresh(self, **options: Any) -> Journal:
        """Close what is open and open the root again."""
        self.close()
        self.journals.append(Journal.open(self.folder / "root", **options))
        return self.journals[-1]

    def close(self) -> None:
        for journal in self.journals:
            journal.close()
        self.journals = []

    def events(self, trajectory_id: str = "t") -> list[Event]:
        """The canonical events of a trajectory; their chain is checked."""
        log = RootLog(Journal.open(self.folder / "root").root)
        history = canonical(log.read("default", trajectory_id, None).events)
        assert not history.conflicts
        assert not history.held_back
        assert verify(history.events) == []
        return history.events

    def types(self, trajectory_id: str = "t") -> list[str]:
        return [event.type for event in self.events(trajectory_id)]

    def bodies(self, event_type: str, trajectory_id: str = "t") -> list[Any]:
        return [event.body for event in self.events(trajectory_id) if event.type == event_type]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


class Died(BaseException):
    """Stands for a crash in tests within one process: nothing of ours catches it."""


def one_call(name: str, arguments: Any = None, then: str = "done") -> Any:
    """A model that proposes one call, then says `then`."""
    return scripted([[(name, arguments if arguments is not None else {})], then])


def plain_agent(results: list[Any] | None = None) -> Callable[[Any], None]:
    """An agent that runs what the model proposes until it proposes nothing; `results` collects what it was given."""

    def agent(t: Any) -> None:
        t.context.system("be brief")
        t.context.user(str(t.task))
        for turn in t.turns(max=10):
            reply = turn.model()
            given = turn.tools(reply.calls)
            if results is not None:
                results.extend(given)
            if not reply.calls:
                t.finish(reply.text)

    return agent
