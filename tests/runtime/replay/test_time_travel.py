"""Back to a turn: the list as it was delivered, the cut, and the full output behind it (the worked case)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from trajlake.runtime import Allow, Journal, cut
from trajlake.runtime.branches.time_travel import nearest_checkpoint, text_of, turn_view
from trajlake.runtime.models import ScriptedReply, scripted
from trajlake.runtime.replaying.record import Record
from trajlake.runtime.replaying.sources import RootSource

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


class EveryThirdTurn:
    """A policy that allows everything and keeps a checkpoint of every third turn."""

    version = "1"
    checkpoint_every_turns = 3
    checkpoints_keep = 100

    def __call__(self, call: Any, state: Any) -> Any:
        del call, state
        return Allow()


def checkpointed(root: Path) -> Record:
    with Journal.open(root, policy=EveryThirdTurn()) as journal:

        @journal.tool(effect="read")
        def look(n: int) -> str:
            return f"seen {n}"

        def says(context: Any) -> ScriptedReply:
            return ScriptedReply(text=f"step {context.turn}", calls=[("look", {"n": context.turn})])

        def agent(t: Any) -> None:
            t.context.system("You look.")
            t.context.user(t.task)
            for turn in t.turns(max=20):
                turn.tools(turn.model().calls)
                t.vars["at"] = turn.number
                t.vars[f"v{turn.number % 4}"] = "x"
                if turn.number % 4 == 2:
                    del t.vars["v2"]
                if turn.number % 7 == 6:
                    turn.compact(keep=2, summary="looked so far")

        journal.run(agent, "looks", task="look", model=scripted(says), budget={"tool_calls": 99, "usd": "1"})
        found = RootSource(journal.root, "default").record("looks")
    assert found is not None
    return found


def test_a_turn_is_the_same_from_the_nearest_checkpoint_as_from_the_beginning(tmp_path: Path) -> None:
    record = checkpointed(tmp_path / "root")
    whole = replace(record, outline=replace(record.outline, notable=()))
    used = set()
    for turn in range(-1, 20):
        start = nearest_checkpoint(record, turn)
        used.add(None if start is None else start.sequence_number)
        assert nearest_checkpoint(whole, turn) is None
        assert turn_view(record, turn) == turn_view(whole, turn), f"turn {turn}"
    assert len(used) >= 6, "each turn starts at the newest before it"
    early = [event for event in record.read() if event.sequence_number < max(one or 0 for one in used)]
    for event in early:
        event.__dict__.pop("body", None)
    assert turn_view(record, 19) is not None
    unread = [event for event in early if "body" not in event.__dict__ and event.type != "MessageAdded"]
    assert len(unread) > len(early) * 0.8, "what lies before the checkpoint is not read"


def test_a_checkpoint_that_is_gone_or_of_another_history_is_passed_over(tmp_path: Path) -> None:
    record = checkpointed(tmp_path / "root")
    wanted = turn_view(record, 19)
    roots = {event.body.root for event in record.outline.of_type("CheckpointSaved")}

    def without(sha256: str) -> bytes:
        if sha256 in roots:
            raise LookupError(sha256)
        return record.blob(sha256)

    assert turn_view(replace(record, blob=without), 19) == wanted
    events = [
        msgspec.structs.replace(event, hash=b"x" * 32) if event.type == "CheckpointSaved" or event.turn < 18 else event
        for event in record.read()
    ]
    assert turn_view(replace(record, read=lambda: iter(events)), 19) == wanted
