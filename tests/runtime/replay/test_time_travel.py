"""Back to a turn: the list as it was delivered, the cut, and the full output behind it (the worked case)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trajlake.runtime import Journal, cut
from trajlake.runtime.models import ScriptedReply, scripted
from trajlake.runtime.replaying.sources import RootSource
from trajlake.runtime.time_travel import text_of, turn_view

BRANCHES = "\n".join([*(f"feature-{n}  merged" for n in range(5000)), "release  protected: never delete", "tmp  old"])


def recorded(root: Path) -> Journal:
    journal = Journal.open(root)

    @journal.tool(effect="read")
    def list_branches() -> Any:
        return cut(BRANCHES, head=300, tail=8)

    @journal.tool(effect="external")
    def delete(name: str) -> str:
        return f"deleted {name}"

    def says(context: Any) -> ScriptedReply:
        calls = {22: [("list_branches", {})], 23: [("delete", {"name": "release"})]}
        return ScriptedReply(text=f"step {context.turn}", calls=calls.get(context.turn, ()))

    def agent(t: Any) -> None:
        t.context.system("You clean up branches.")
        t.context.user(t.task)
        for turn in t.turns(max=25):
            t.vars["at"] = turn.number
            reply = turn.model()
            turn.tools(reply.calls)
            turn.now()
            if turn.number == 24:
                t.finish("clean")

    journal.run(agent, "clean", task="clean up", model=scripted(says), budget={"tool_calls": 5})
    return journal


def test_turn_23_shows_the_list_as_delivered_the_cut_and_what_was_cut_away(tmp_path: Path, trajlake: Any) -> None:
    recorded(tmp_path / "root").close()
    done = trajlake("show", "clean", "--turn", "23", "--journal", "root")
    assert done.returncode == 0, done.stderr
    delivered, _, full = done.stdout.partition("cut: characters 300 to")
    assert "feature-0  merged" in delivered
    assert "release  protected" not in delivered
    assert "release  protected: never delete" in full
    assert "⟦" in full
    assert "authorized" in done.stdout
    assert "delete: allow" in done.stdout
    assert "budget left: tool_calls 3" in done.stdout
    told = json.loads(trajlake("show", "clean", "--turn", "23", "--journal", "root", "--json").stdout)
    item = told["calls"][0]["items"][-1]
    assert item["cut"] == {"head": 300, "tail": 8, "total": len(BRANCHES)}
    assert item["full"] == BRANCHES
    assert "release" not in item["delivered"]
    assert [one["decision"] for one in told["authorizations"]] == ["allow"]
    assert told["budget_left"] == {"tool_calls": "3"}
    assert told["vars"] == {"at": 23}
    assert [one["kind"] for one in told["inputs"]] == ["now"]


def test_a_turn_that_was_never_reached_is_refused(tmp_path: Path, trajlake: Any) -> None:
    recorded(tmp_path / "root").close()
    done = trajlake("show", "clean", "--turn", "99", "--journal", "root")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "the last is 24" in done.stderr


def test_the_context_of_every_turn_has_the_recorded_hash(tmp_path: Path) -> None:
    with recorded(tmp_path / "root") as journal:
        record = RootSource(journal.root, "default").record("clean")
        assert record is not None
        for turn in range(-1, 25):
            view = turn_view(record, turn)
            assert view is not None
            assert len(view.calls) == (0 if turn < 0 else 1)
            assert text_of(view, width=40)
            for call in view.calls:
                assert len(call.items) == 2 + turn + (turn > 22) + (turn > 23)


def test_missing_bulk_is_said_not_raised(tmp_path: Path) -> None:
    with recorded(tmp_path / "root") as journal:
        for path in (tmp_path / "root" / "blobs").rglob("*"):
            if path.is_file():
                path.unlink()
        record = RootSource(journal.root, "default").record("clean")
        assert record is not None
        view = turn_view(record, 23)
        assert view is not None
        assert "not at hand" in text_of(view)
