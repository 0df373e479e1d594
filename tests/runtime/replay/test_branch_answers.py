"""What the stand-ins of a branch answer where it, or its child, was cut short; where a branch keeps its files."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trajlake.runtime import Journal, Stubs, branch, resume_branch
from trajlake.runtime.branches.branch_run import BothBlobs
from trajlake.runtime.branches.branch_stubs import Answers
from trajlake.runtime.models import scripted
from trajlake.runtime.wal.journal_errors import BlobMissing
from trajlake.schemas.keys import arguments_hash


def test_answers_a_child_was_given_before_the_crash_are_not_given_again(journal: Journal) -> None:
    answers = iter(["first", "second", "third"])
    seen: list[str] = []
    dies = [True]

    @journal.tool(effect="read")
    def poll() -> str:
        return next(answers)

    def child(t: Any) -> None:
        for turn in t.turns(max=3):
            if turn.number == 2 and dies[0] and not t.id.startswith("p/"):
                raise KeyError("died")
            seen.append(turn.call("poll").text)

    def agent(t: Any) -> None:
        for turn in t.turns(max=1):
            turn.spawn(child, "c", task=1)

    model = scripted([])
    journal.run(agent, "p", task="go", model=model)
    assert seen == ["first", "second", "third"]
    seen.clear()
    with pytest.raises(KeyError):
        branch(journal, "p", 0, "x", agent=agent, model=model)
    dies[0] = False
    resume_branch(journal, "p~0.0", agent=agent, model=model)
    assert seen == ["first", "second", "third"]


def test_a_call_that_was_settled_as_executed_counts_as_answered() -> None:
    def called(action_id: str, answer: str, **body: Any) -> list[Any]:
        intent = SimpleNamespace(action_id=action_id, tool="poll", arguments_hash=arguments_hash({}))
        settled = SimpleNamespace(action_id=action_id, **body)
        return [SimpleNamespace(type="ToolIntent", body=intent), SimpleNamespace(type=answer, body=settled)]

    record = [
        *called("0.0", "ToolSettled", verdict="executed", has_output=True, output="first"),
        *called("1.0", "ToolSettled", verdict="not_executed"),
        *called("2.0", "ToolSettled", verdict="executed", has_output=False, delivered="it was done"),
        *called("3.0", "ToolResult", status="ok", output="third"),
    ]
    nothing: Any = None
    answers = Answers(record, nothing)
    assert [answers.answer("poll", {}) for _ in range(3)] == ["first", "it was done", "third"]
    answers = Answers(record, nothing)
    answers.spend(record[:4])
    assert answers.answer("poll", {}) == "it was done"


def test_no_two_branches_share_a_folder(journal: Journal, tmp_path: Path) -> None:
    ids = ["a/1.x", "a_1.x", "a%2F1.x", "a"]
    files, branches = tmp_path / "files", tmp_path / "branches"
    files.mkdir()

    @journal.tool(effect="local")
    def note(text: str) -> str:
        (files / text).write_text(text)
        return "ok"

    def agent(t: Any) -> None:
        for turn in t.turns(max=1):
            turn.call("note", {"text": "n"})

    def note_there(text: str) -> str:
        return text

    for name in ids:
        journal.run(agent, name, task="go", model=scripted([]), workspace=str(files))
        (files / "n").unlink()
        branch(
            journal, name, 0, "x", agent=agent, model=scripted([]), tools=Stubs(note=note_there),
            workspace=str(branches),
        )  # fmt: skip
    names = {"a%2F1.x~0.0", "a_1.x~0.0", "a%252F1.x~0.0", "a~0.0"}
    assert {path.name for path in branches.iterdir()} == names


def test_a_blob_that_cannot_be_read_is_not_looked_for_in_the_parent() -> None:
    def raises(error: Exception) -> Any:
        def get(*_: str) -> bytes:
            raise error

        return SimpleNamespace(get=get, put=None, blob=get)

    parent: Any = SimpleNamespace(blob=lambda sha256: b"the parent's")
    assert BothBlobs(raises(BlobMissing("not here")), parent).get("default", "0" * 64) == b"the parent's"
    with pytest.raises(OSError, match="the device"):
        BothBlobs(raises(OSError(5, "the device")), parent).get("default", "0" * 64)
    with pytest.raises(KeyError) as caught:
        BothBlobs(raises(BlobMissing("damaged")), raises(KeyError("no such blob"))).get("default", "0" * 64)
    assert str(caught.value.__cause__) == "damaged"
