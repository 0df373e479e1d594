"""Every row of the resume table has its tests, and the two rows that need a damaged world have theirs here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trajlake.runtime import ResumeRefused
from trajlake.runtime.agent import enter
from trajlake.runtime.agent.resume_table import ROWS
from trajlake.schemas.events import TYPES
from trajlake.schemas.versions import Verdict

from .conftest import Bench, Died
from .test_what_resume_checks import dying


def test_each_row_names_tests_that_are_there_and_an_event_that_says_so() -> None:
    here = Path(__file__).parent
    text = "".join(path.read_text() for path in here.glob("test_*.py"))
    for row in ROWS:
        assert row.event in TYPES
        assert row.tests, row.found
        for name in row.tests:
            assert f"def {name}(" in text, name


def test_a_schema_that_cannot_be_resumed_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    agent: Any = dying(lambda t, turn: turn.now())
    with pytest.raises(Died):
        bench.fresh().run(agent, "t", task=1)
    monkeypatch.setattr(enter, "resumable", lambda version: Verdict(ok=False, reason="version 2 is newer than 1"))
    with pytest.raises(ResumeRefused, match="newer") as caught:
        bench.fresh().run(agent, "t")
    assert caught.value.reason == "schema"
    assert bench.bodies("ResumeRefused")[0].reason == "schema"
