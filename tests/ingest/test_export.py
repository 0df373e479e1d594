"""Exports: ATIF comes out as it went in and validates twice, texts survive, every target says what it cannot hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import atif
import pytest
from msgspec import structs

from tests.ingest import atif_rules
from tests.ingest.reading import all_arguments, jsonl, read
from trajlake.ingest.export import atif as atif_export
from trajlake.ingest.export.source import RootSource
from trajlake.ingest.export.turns import Conversation, Losses
from trajlake.ingest.import_run import ImportOptions, import_paths
from trajlake.runtime.root import Root
from trajlake.schemas.events import ModelReplied, ToolResult
from trajlake.schemas.values import from_tree

Command = Callable[..., CompletedProcess[str]]
FOLDERS = ("atif", "atif-derived", "claude-code", "codex", "inspect", "inspect-derived", "langfuse", "mini-swe-agent",
           "openai-chat", "openhands", "otlp-derived", "openinference", "pi", "kimi", "swe-agent", "openai-responses",
           "anthropic-messages")  # fmt: skip


@pytest.fixture(scope="module")
def imported(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root that holds every small real file."""
    path = tmp_path_factory.mktemp("export") / "root"
    outcomes = import_paths(
        Root.open(str(path)), [str(shared_data / one) for one in FOLDERS], ImportOptions(format="auto")
    )
    assert not [one for one in outcomes if one.error]
    return path


def names(root: Path, prefix: str = "") -> list[str]:
    found = RootSource(Root.open(str(root), create=False), "default").trajectory_ids()
    return [one for one in found if one.startswith(prefix)]


def exported(
    trajlake: Command, root: Path, target: str, *ids: str, folder: Path, options: tuple[str, ...] = ()
) -> list[Path]:
    done = trajlake("export", *ids, "--to", target, "--journal", str(root), "--out", str(folder), *options)
    assert done.returncode == 0, done.stderr
    return sorted(path for path in folder.iterdir() if path.is_file())


def test_what_went_in_as_atif_comes_out_equal(
    trajlake: Command, imported: Path, shared_data: Path, tmp_path: Path
) -> None:
    sources = [
        json.loads(path.read_text()) for one in ("atif", "atif-derived") for path in (shared_data / one).glob("*.json")
    ]
    assert len(sources) == 6
    made = [
        json.loads(path.read_text()) for path in exported(trajlake, imported, "atif", "atif/*", folder=tmp_path / "out")
    ]
    assert len(made) == len(sources)
    for document in sources:
        assert document in made, document.get("session_id")


def test_losses_of_many_are_told_as_a_sum(trajlake: Command, imported: Path, tmp_path: Path) -> None:
    wanted = ("export", "mini-swe-agent/*", "openai-chat/*", "--to", "otlp", "--journal", str(imported), "--out")
    told = trajlake(*wanted, str(tmp_path / "a")).stderr.splitlines()
    each = trajlake(*wanted, str(tmp_path / "b"), "--each").stderr.splitlines()
    assert len(told) < len(each)
    kinds = {line.split(" cannot hold ")[1].split(" ", 1)[1] for line in each}
    assert len(told) == len(kinds), "one line for each kind"
    assert all(" trajectories: cannot hold " in line for line in told)


def atif_document(**more: Any) -> dict[str, Any]:
    return {
        "schema_version": "ATIF-v1.8", "session_id": "s", "trajectory_id": "top",
        "agent": {"name": "a", "version": "1", "extra": {"x": None}},
        "steps": [
            {"step_id": 1, "source": "user", "message": [{"type": "text", "text": "go"}],
             "timestamp": "2026-01-01T00:00:00"},
            {"step_id": 2, "source": "agent", "message": "", "reasoning_content": "hm", "tool_calls": [
                {"tool_call_id": "c", "function_name": "f", "arguments": {"n": 1.0}},
                {"tool_call_id": "c", "function_name": "f", "arguments": {}}],
             "observation": {"results": [{"source_call_id": "c", "content": "1"},
                                         {"source_call_id": "c", "content": None, "extra": {"k": 1}}]},
             "metrics": {"prompt_tokens": 5, "cached_tokens": 2, "cost_usd": 0.1}},
            {"step_id": 3, "source": "agent", "message": "old", "is_copied_context": True,
             "observation": {"results": [{"content": "seen before"}]}},
            {"step_id": 4, "source": "system", "message": "note", "observation": {"results": [{"content": "x"}]}},
            {"step_id": 5, "source": "agent", "message": "nothing seen", "observation": {"results": []}},
        ],
        "extra": {"anything": [1, None]}, **more,
    }  # fmt: skip


def test_sub_agents_copied_steps_and_repeated_ids_come_back_too(trajlake: Command, tmp_path: Path) -> None:
    inner = {**atif_document(), "trajectory_id": "inner"}
    document = atif_document(subagent_trajectories=[inner])
    (tmp_path / "in.json").write_text(json.dumps(document))
    assert trajlake("import", "atif", "in.json", "--journal", "root").returncode == 0
    done = trajlake("export", "atif/top", "--to", "atif", "--journal", "root")
    assert json.loads(done.stdout) == document
    assert atif_rules.findings(document) == []


def test_every_trajectory_as_atif_validates_against_the_package_and_harbors_rules(
    trajlake: Command, imported: Path, tmp_path: Path
) -> None:
    paths = exported(trajlake, imported, "atif", "*", folder=tmp_path / "out")
    assert len(paths) == len(names(imported))
    for path in paths:
        document = json.loads(path.read_text())
        atif.Trajectory.model_validate(document)
        assert atif_rules.findings(document) == [], path.name


def test_calls_arguments_results_and_tokens_survive_the_way_through_atif(
    trajlake: Command, imported: Path, tmp_path: Path
) -> None:
    (name,) = names(imported, "pi/")
    source = RootSource(Root.open(str(imported), create=False), "default")
    turns = Conversation(source.events(name), source.blob)
    (path,) = exported(trajlake, imported, "atif", name, folder=tmp_path / "out")
    back = read("atif", path)
    replies = [event.body for event in turns.events if event.type == "ModelReplied"]
    calls = [call for turn in turns.turns for call in getattr(turn, "calls", [])]
    assert len(back.of(ModelReplied)) == len(replies)
    assert [json.loads(str(text)) for text in all_arguments(back)] == [
        json.loads(str(call.arguments)) for call in calls
    ]
    assert back.usage()[0] == sum(one.usage.input_total or 0 for one in replies if one.usage)
    answered = [call.answer.output for call in calls if call.answer is not None]
    assert sorted(str(from_tree(one.output)) for one in back.of(ToolResult)) == sorted(map(str, answered))


def test_openai_chat_goes_round_without_double_encoding(
    trajlake: Command, imported: Path, shared_data: Path, tmp_path: Path
) -> None:
    source = json.loads((shared_data / "openai-chat" / "nilenso_ask_github_gc.json").read_text())
    (name,) = names(imported, "openai-chat/")
    (path,) = exported(trajlake, imported, "openai-chat", name, folder=tmp_path / "out")
    (line,) = path.read_text().splitlines()
    made = json.loads(line)
    wanted = [call["function"]["arguments"] for one in source["messages"] for call in one.get("tool_calls") or []]
    assert [call["function"]["arguments"] for one in made["messages"] for call in one.get("tool_calls") or []] == wanted
    again = read("openai-chat", line.encode())
    assert all_arguments(again) == wanted
    assert made["tools"] == source["tools"]
    assert {one["tool_call_id"] for one in made["messages"] if one["role"] == "tool"} == {
        one["tool_call_id"] for one in source["messages"] if one["role"] == "tool"
    }


def chat(*messages: dict[str, Any]) -> bytes:
    return jsonl({"id": "x", "messages": list(messages)})


def called(arguments: Any) -> dict[str, Any]:
    function = {"name": "f", "arguments": arguments}
    calls = [{"id": f"c{number}", "type": "function", "function": function} for number in range(2)]
    return {"role": "assistant", "content": "beside", "tool_calls": calls}


def test_openai_chat_keeps_parallel_calls_and_text_beside_them_and_arguments_either_way(
    trajlake: Command, tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_bytes(chat({"role": "user", "content": "go"}, called('{"n":1.0}'),
                                             {"role": "tool", "tool_call_id": "c1", "content": "B"},
                                             {"role": "tool", "tool_call_id": "c0", "content": "A"}))  # fmt: skip
    assert trajlake("import", "openai-chat", "in.jsonl", "--journal", "root").returncode == 0
    text = json.loads(trajlake("export", "openai-chat/*", "--to", "openai-chat", "--journal", "root").stdout)
    data = json.loads(
        trajlake("export", "openai-chat/*", "--to", "openai-chat", "--arguments", "dict", "--journal", "root").stdout
    )
    assert text["messages"][1] == called('{"n":1.0}')
    assert data["messages"][1] == called({"n": 1.0})
    assert [one["content"] for one in text["messages"][2:]] == ["A", "B"]


def test_a_call_without_an_answer_is_named(trajlake: Command, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(chat({"role": "user", "content": "go"}, called("not json")))
    assert trajlake("import", "openai-chat", "in.jsonl", "--journal", "root").returncode == 0
    done = trajlake("export", "openai-chat/*", "--to", "openai-chat", "--journal", "root")
    assert "cannot hold 2 calls without an answer" in done.stderr
    as_atif = trajlake("export", "openai-chat/*", "--to", "atif", "--journal", "root", "--out", "out", "--json")
    (report,) = json.loads(as_atif.stdout)
    assert report["cannot_hold"]["arguments that are no JSON object (their text is in extra)"] == 2
    document = json.loads(next((tmp_path / "out").iterdir()).read_text())
    assert [one["extra"] for one in document["steps"][1]["tool_calls"]] == [{"arguments_text": "not json"}] * 2


def test_hub_traces_begin_with_a_session_and_hold_every_call(trajlake: Command, imported: Path, tmp_path: Path) -> None:
    for name in (*names(imported, "pi/"), *names(imported, "kimi/")):
        source = RootSource(Root.open(str(imported), create=False), "default")
        turns = Conversation(source.events(name), source.blob)
        folder = tmp_path / name.replace("/", "-")
        (path,) = exported(trajlake, imported, "hf-traces", name, folder=folder)
        first, *rest = [json.loads(line) for line in path.read_text().splitlines()]
        assert (first["type"], {"harness", "id"} <= set(first)) == ("session", True)
        assert {line["type"] for line in rest} == {"message"}
        told = [call["id"] for line in rest for call in line["message"].get("toolCalls", [])]
        assert told == [call.call_id for turn in turns.turns for call in getattr(turn, "calls", [])]
        assert sum(1 for line in rest if line["message"]["role"] == "tool") == sum(
            1 for event in turns.events if event.type == "ToolResult"
        )


def test_otlp_reads_back_as_the_same_conversation(trajlake: Command, imported: Path, tmp_path: Path) -> None:
    for name in (*names(imported, "openai-chat/"), *names(imported, "mini-swe-agent/django")):
        source = RootSource(Root.open(str(imported), create=False), "default")
        turns = Conversation(source.events(name), source.blob)
        folder = tmp_path / name.replace("/", "-")
        (path,) = exported(trajlake, imported, "otlp", name, folder=folder)
        back = read("otlp", path)
        replies = [event.body for event in turns.events if event.type == "ModelReplied"]
        assert len(back.of(ModelReplied)) == len(replies)
        calls = [call for turn in turns.turns for call in getattr(turn, "calls", [])]
        assert all_arguments(back) == [call.arguments for call in calls]
        assert [from_tree(one.output) for one in back.of(ToolResult)] == [
            call.answer.output for call in calls if call.answer
        ]
        assert back.usage()[3] == sum(one.usage.output or 0 for one in replies if one.usage)


def test_otlp_of_a_long_session_is_many_lines_that_read_back_as_one_trace(
    trajlake: Command, imported: Path, tmp_path: Path
) -> None:
    (name,) = names(imported, "pi/")
    (path,) = exported(trajlake, imported, "otlp", name, folder=tmp_path / "out", options=("--prompts", "new"))
    assert path.stat().st_size < 4_000_000
    (full,) = exported(trajlake, imported, "otlp", names(imported, "claude-code/5e41")[0], folder=tmp_path / "full")
    assert len(full.read_text().splitlines()) > 2
    back = read("otlp", full)
    assert len({item.trajectory_id for item in back.items}) == 1
    assert (len(back.calls), back.unanswered) == (42, 0)


def test_jsonl_holds_the_events_word_for_word_and_their_blobs_beside(
    trajlake: Command, imported: Path, tmp_path: Path
) -> None:
    (name,) = names(imported, "mini-swe-agent/psf")
    events = RootSource(Root.open(str(imported), create=False), "default").events(name)
    (path,) = exported(trajlake, imported, "jsonl", name, folder=tmp_path / "out")
    lines = path.read_text().splitlines()
    assert len(lines) == len(events)
    for line, event in zip(lines, events, strict=True):
        assert (event.payload or b"").decode() in line
        assert json.loads(line)["hash"] == event.hash.hex()
    assert max(one.stat().st_size for one in (tmp_path / "out" / "blobs").iterdir()) > 868_167


def test_a_lake_exports_the_same_lines_as_the_root(trajlake: Command, shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "mini-swe-agent" / "psf__requests-1142.traj.json"
    assert trajlake("import", "mini-swe-agent", str(path), "--lake", "lake").returncode == 0
    assert trajlake("import", "mini-swe-agent", str(path), "--journal", "root").returncode == 0
    for target in ("jsonl", "openai-chat"):
        lake = trajlake("export", "mini-swe-agent/*", "--to", target, "--lake", "lake")
        root = trajlake("export", "mini-swe-agent/*", "--to", target, "--journal", "root")
        assert lake.returncode == 0, lake.stderr
        assert (lake.stdout, lake.stderr) == (root.stdout, root.stderr)


def test_a_lone_surrogate_and_nul_leave_as_legal_json(trajlake: Command, tmp_path: Path) -> None:
    line = rb'{"id":"x","messages":[{"role":"user","content":"\ud83d \u0000"},{"role":"assistant","content":"ok"}]}'
    (tmp_path / "in.jsonl").write_bytes(line)
    assert trajlake("import", "openai-chat", "in.jsonl", "--journal", "root").returncode == 0
    for target in ("atif", "openai-chat", "hf-traces", "otlp", "jsonl"):
        done = trajlake("export", "openai-chat/x", "--to", target, "--journal", "root")
        assert done.returncode == 0, done.stderr
        assert r"\ud83d \u0000" in done.stdout.replace(r"\\", "\\"), target
        for one in done.stdout.splitlines():
            json.loads(one)


def test_erased_events_are_counted_and_the_rest_is_exported(imported: Path) -> None:
    (name,) = names(imported, "openai-chat/")
    source = RootSource(Root.open(str(imported), create=False), "default")
    events = source.events(name)
    gone = [structs.replace(one, payload=None, salt=None) if n in (0, 2) else one for n, one in enumerate(events)]
    conversation, losses = Conversation(gone, source.blob), Losses()
    assert len(atif_export.document(conversation, losses)["steps"]) > 10
    assert losses.counts["erased events"] == 2


@pytest.mark.parametrize(("arguments", "message"), [
    (("nobody", "--to", "atif"), "no such trajectory"),
    (("x*", "--to", "atif"), "no trajectory begins with 'x'"),
    (("x", "--to", "nothing"), "is no format"),
    (("x", "--to", "openai-chat", "--arguments", "both"), "give 'str' or 'dict'"),
])  # fmt: skip
def test_bad_input_is_one_line_and_exit_code_2(
    trajlake: Command, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "in.jsonl").write_bytes(chat({"role": "user", "content": "go"}, {"role": "assistant", "content": "ok"}))
    assert trajlake("import", "openai-chat", "in.jsonl", "--journal", "root").returncode == 0
    done = trajlake("export", *arguments, "--journal", "root")
    assert (done.returncode, message in done.stderr, done.stderr.count("\n")) == (2, True, 1)
