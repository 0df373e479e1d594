"""Clock, chance and listings that a harness reads past its turn: recorded, served, or named."""

# ruff: noqa: PLW0108, DTZ005, DTZ011, ICN001 - each read stands as a harness would write it

from __future__ import annotations

import datetime
import glob
import os
import random
import secrets
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime as moment
from pathlib import Path
from time import time as clock
from typing import Any

import pytest

from trajlake.runtime import Journal, replay
from trajlake.runtime.models import scripted
from trajlake.runtime.root_log import RootLog
from trajlake.schemas.envelope import Event

MODEL = scripted([[("look", {"n": 1})], "done"])


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.open(tmp_path / "root") as opened:

        @opened.tool(effect="read")
        def look(n: int) -> float:
            return time.time()

        yield opened


def events_of(journal: Journal) -> list[Event]:
    return list(RootLog(journal.root).read("default", "t", None).events)


def agent_reading(read: Callable[[], Any]) -> Callable[[Any], None]:
    def agent(t: Any) -> None:
        t.context.user(t.task)
        for turn in t.turns(max=3):
            t.vars["read"] = repr(read())
            reply = turn.model()
            turn.tools(reply.calls)
            t.vars["again"] = repr(read())
            if not reply.calls:
                t.finish("done")

    return agent


def shuffled() -> list[int]:
    cards = list(range(20))
    random.shuffle(cards)
    return cards


READS: dict[str, Callable[[], Any]] = {
    "time": time.time,
    "time_by_module": lambda: time.time(),
    "time_bound_by_name": lambda: clock(),
    "monotonic_ns": lambda: time.monotonic_ns(),
    "now": lambda: datetime.datetime.now(),
    "now_bound_by_name": lambda: moment.now(datetime.UTC),
    "today": lambda: datetime.date.today(),
    "random": lambda: random.random(),
    "shuffle": shuffled,
    "choice": lambda: random.choice("abcdefghijklmnop"),
    "token": lambda: secrets.token_hex(8),
    "secret_choice": lambda: secrets.choice(range(10**9)),
    "uuid4": lambda: uuid.uuid4(),
    "urandom": lambda: os.urandom(8),
    "pid": lambda: os.getpid(),
}


@pytest.mark.parametrize("name", [name for name in READS if name != "time"])
def test_a_caught_read_is_recorded_and_served(journal: Journal, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = agent_reading(READS[name])
    journal.run(agent, "t", task="go", model=MODEL, intercept=True)
    events = events_of(journal)
    reads = [event.body for event in events if event.type == "InputRead"]
    assert {read.kind for read in reads} == {"intercepted"}
    assert len(reads) >= 3, "the mark, and each read"
    monkeypatch.setattr(os, "getpid", lambda: 1)
    for cold in (False, True):
        assert replay(agent, events, journal=journal, cold=cold).same


@pytest.mark.parametrize("name", ["time_by_module", "time_bound_by_name", "now", "random", "uuid4", "urandom"])
def test_without_interception_the_same_read_is_a_difference_that_names_it(journal: Journal, name: str) -> None:
    agent = agent_reading(READS[name])
    journal.run(agent, "t", task="go", model=MODEL)
    report = replay(agent, events_of(journal), journal=journal, intercept=True)
    assert (report.verdict, report.turn, report.operation) == ("differs", 0, "var read #0")
    assert "read past the log" in report.component
    assert any("past the log" in note for note in report.notes)


def test_listings_are_recorded_sorted(journal: Journal, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("b", "c", "a"):
        (folder / name).touch()

    def listed() -> Any:
        return [os.listdir(folder), [path.name for path in folder.iterdir()], glob.glob(f"{folder}/*")]

    agent = agent_reading(listed)
    journal.run(agent, "t", task="go", model=MODEL, intercept=True)
    events = events_of(journal)
    (folder / "d").touch()
    assert replay(agent, events, journal=journal).same
    reads = [event.body for event in events if event.type == "InputRead" and "listdir" in event.body.name]
    assert reads
    assert all(read.value == ["a", "b", "c"] for read in reads)


def test_the_real_functions_are_back_afterwards_and_tools_and_libraries_had_them(journal: Journal) -> None:
    before = (time.time, datetime.datetime, os.listdir, random.random, clock, moment)
    agent = agent_reading(lambda: 1)
    journal.run(agent, "t", task="go", model=MODEL, intercept=True)
    assert (time.time, datetime.datetime, os.listdir, random.random, clock, moment) == before
    names = [event.body.name for event in events_of(journal) if event.type == "InputRead"]
    assert names == ["on"], "the tool's own clock was not recorded"


def test_a_new_read_in_an_intercepted_harness_is_extra(journal: Journal) -> None:
    journal.run(agent_reading(lambda: 1), "t", task="go", model=MODEL, intercept=True)
    report = replay(agent_reading(lambda: time.time() and 1), events_of(journal), journal=journal)
    assert (report.turn, report.cause, report.component) == (0, "extra", "recorded input: intercepted:time.time")


def test_what_cannot_be_intercepted_is_named(journal: Journal, tmp_path: Path) -> None:
    (tmp_path / "TAG").write_text("7")

    def kept(now: Callable[[], float] = time.time) -> str:
        with open(tmp_path / "TAG") as file:
            now()
            return file.read()

    agent = agent_reading(kept)
    journal.run(agent, "t", task="go", model=MODEL)
    report = replay(agent, events_of(journal), journal=journal, intercept=True)
    assert report.same
    assert any("TAG" in note and "test_intercept.py" in note for note in report.notes), report.notes
