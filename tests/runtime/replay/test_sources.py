"""Where records come from: a root read by place, copies and take-overs, older and newer schemas, imports, the demo."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.recorded import journal_of, long_agent, long_model, look_tool, put_into_root, record_agent
from trajlake.runtime import Journal, replay
from trajlake.runtime.replaying import record as records
from trajlake.runtime.replaying import sources
from trajlake.runtime.replaying.sources import RootSource
from trajlake.runtime.root import Root
from trajlake.schemas.envelope import Event


def recorded(turns: int, name: str = "long", width: int = 0) -> list[Event]:
    return record_agent(long_agent(turns), name, tools=look_tool(), model=long_model(width))


def keys(events: Iterable[Event]) -> list[tuple[int, bytes, bytes | None]]:
    return [(event.sequence_number, event.hash, event.payload) for event in events]


@pytest.mark.parametrize("seal", [True, False])
@pytest.mark.parametrize("held", [0, 1 << 30])
def test_a_root_gives_the_same_events_whole_or_by_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int, seal: bool
) -> None:
    monkeypatch.setattr(sources, "HELD_MAX_BYTES", held)
    events = {name: recorded(turns, name) for name, turns in (("long", 40), ("other", 3))}
    root = put_into_root(tmp_path / "root", [*events.values(), events["long"]], seal=seal)
    source = RootSource(root, "default")
    assert source.trajectory_ids() == ["long", "other"]
    assert source.record("nobody") is None
    for name, expected in events.items():
        record = source.record(name)
        assert record is not None
        for _ in range(2):
            assert keys(record.read()) == keys(expected), "also when it is read again"
        assert (record.outline.count, record.outline.last_turn) == (len(expected), expected[-1].turn)
        assert keys(event for _, found in record.turns() for event in found) == keys(expected)
    record = source.record("long")
    assert record is not None
    for cold in (False, True):
        assert replay(long_agent(40), record, journal=journal_of(look_tool()), cold=cold).same


@pytest.mark.long
def test_memory_holds_a_turn_and_the_state_not_the_record(tmp_path: Path, project: Path) -> None:
    peaks = []
    for turns in (60, 600):
        root = tmp_path / f"r{turns}"
        put_into_root(root, [recorded(turns, width=30_000)])
        done = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.replay_side", str(root), str(turns)],
            cwd=project, env={"REPLAY_BENCH_ROOT": str(tmp_path / "j"), "PYTHONPATH": str(project), "PATH": "/bin"},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        verdict, peak = done.stdout.split()
        assert verdict == "same"
        peaks.append(int(peak) / 1024)
    assert peaks[1] - peaks[0] < 12, f"600 turns hold 18 MB of replies; the peaks were {peaks} MiB"


def test_an_older_schema_is_upcast_and_a_newer_one_refused_by_name() -> None:
    event = recorded(2)[1]
    renamed = msgspec.structs.replace(event, schema_version=1, payload=b'{"speaker":"system","wire":1,"item_hash":"h"}')
    steps = {("MessageAdded", 1): lambda body: {"role": body["speaker"], "wire": body["wire"], "item_hash": "h"}}
    found = records.as_current(renamed, current=2, steps=steps)
    assert (found.body.role, found.hash) == ("system", event.hash)
    newer = [msgspec.structs.replace(one, schema_version=9 if one.turn == 1 else 1) for one in recorded(2)]
    report = replay(long_agent(2), newer, journal=journal_of(look_tool()))
    assert report.verdict == "refused"
    assert "schema version 9" in report.cause
    assert "upgrade" in report.cause


def test_recorded_drift_of_the_prologue_is_honoured(journal: Journal, record_run: Any) -> None:
    """The prompt was changed while the trajectory stood open: the record says so, and both harnesses are the same."""
    from trajlake.runtime.models import scripted

    def agent_saying(prompt: str, *, dies: bool = False) -> Any:
        def agent(t: Any) -> None:
            t.context.system(prompt)
            t.context.user(t.task)
            for turn in t.turns(max=4):
                reply = turn.model()
                if dies and turn.number == 1:
                    raise KeyError("died")
                if turn.number == 2:
                    t.finish(reply.text)

        return agent

    model = scripted(["a", "b", "c"])
    with pytest.raises(KeyError):
        record_run(agent_saying("old", dies=True), model)
    events = record_run(agent_saying("new"), model)
    assert any(event.type == "DriftDetected" for event in events)
    for prompt in ("new", "old"):
        for cold in (False, True):
            assert replay(agent_saying(prompt), events, journal=journal, cold=cold).same
    assert replay(agent_saying("third"), events, journal=journal).component == "system prompt"


def test_a_turn_that_a_person_closed_is_not_held_against_the_harness(journal: Journal, record_run: Any) -> None:
    from trajlake.runtime.models import scripted

    def agent_with(*, dies: bool) -> Any:
        def agent(t: Any) -> None:
            t.context.user(t.task)
            for turn in t.turns(max=4):
                reply = turn.model()
                if turn.number == 1:
                    if dies:
                        raise KeyError("died")
                    t.vars["late"] = 1
                if turn.number == 2:
                    t.finish(reply.text)

        return agent

    model = scripted(["a", "b", "c"])
    with pytest.raises(KeyError):
        record_run(agent_with(dies=True), model)
    events = record_run(agent_with(dies=False), model, close_turn=True, because="stuck")
    for cold in (False, True):
        report = replay(agent_with(dies=False), events, journal=journal, cold=cold)
        assert report.same, report.text()


@pytest.mark.long
def test_every_import_format_is_checked_at_its_level_and_says_what_is_missing(
    tmp_path: Path, shared_data: Path, trajlake: Any
) -> None:
    left_out = ("LICENSES", "multi-agent")
    folders = [one for one in sorted(shared_data.iterdir()) if one.is_dir() and one.name not in left_out]
    size = lambda path: path.stat().st_size  # noqa: E731
    files = [min((one for one in folder.rglob("*") if one.is_file()), key=size) for folder in folders]
    done = trajlake("import", "auto", *map(str, files), "--journal", "root")
    assert done.returncode in (0, 1), done.stderr
    done = trajlake("replay", "--all", "--journal", "root", "--jobs", "1", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    reports = json.loads(done.stdout)["reports"]
    formats = {report["notes"][0].split()[2].rstrip(":") for report in reports}
    assert len(formats) >= 12, sorted(formats)
    root = RootSource(Root.open(tmp_path / "root", create=False), "default")
    for report in reports:
        assert report["verdict"] == "same", report
        level, missing = report["notes"]
        assert "the harness's code" in missing
        record = root.record(report["id"])
        assert record is not None
        events = list(record.read())
        counted = Counter(event.type for event in events)
        has = {"contexts": "ContextBuilt", "authorizations": "Authorized", "intents": "ToolIntent"}
        for word, kind in has.items():
            assert (f", {word}" in missing) is (counted[kind] == 0), (word, report)
        assert f"at level '{'context' if counted['ContextBuilt'] else 'actions'}'" in level
        calls = sum(len(event.body.calls) for event in events if event.type == "ModelReplied")
        answered = len({event.body.action_id for event in events if event.type == "ToolResult"})
        assert (f"{calls - answered} of {calls} results of calls" in missing) is (answered < calls), report


def test_an_imported_record_that_was_changed_differs_where_it_was(tmp_path: Path, trajlake: Any) -> None:
    chat = {"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}
    (tmp_path / "chat.jsonl").write_text(json.dumps(chat) + "\n")
    assert trajlake("import", "openai-chat", "chat.jsonl", "--journal", "root").returncode == 0
    source = RootSource(Root.open(tmp_path / "root", create=False), "default")
    record = source.record(source.trajectory_ids()[0])
    assert record is not None
    nobody: Any = None
    assert replay(nobody, record, journal=nobody).notes[0].endswith("(1 of 1 contexts), without running a harness")
    events = list(record.read())
    for event in events:
        if event.type == "MessageAdded":
            event.__dict__["body"] = msgspec.structs.replace(event.body, item_hash="0" * 64)
    changed = replay(nobody, replace(record, read=lambda: iter(events)), journal=nobody)
    assert (changed.verdict, changed.operation, changed.source) == ("differs", "model act", "environment")
    without = [event for event in events if event.type not in ("MessageAdded", "ContextBuilt")]
    level = replay(nobody, replace(record, read=lambda: iter(without)), journal=nobody)
    assert "at level 'actions'" in level.notes[0]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_fifty_thousand_events_twenty_at_once_never_abort(tmp_path: Path, project: Path) -> None:
    events = recorded(8_200)
    assert len(events) >= 50_000
    put_into_root(tmp_path / "root", [events])
    command = [sys.executable, "-m", "tests.benchmarks.replay_side", str(tmp_path / "root"), "8200"]
    environment = {"REPLAY_BENCH_ROOT": str(tmp_path / "j"), "PYTHONPATH": str(project), "PATH": "/bin"}
    sides = [
        subprocess.Popen(command, cwd=project, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(20)
    ]
    told = [side.communicate()[0].split() for side in sides]
    assert [one[0] for one in told] == ["same"] * 20
    assert max(int(one[1]) for one in told) < 200 * 1024
