"""codex, atif, pi, kimi, openai-responses, anthropic-messages: exact counts and totals of real files, and quirks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.manifest import stated
from tests.ingest.reading import Read, all_arguments, by_trajectory, jsonl, read
from trajlake.ingest.formats.conformance import check
from trajlake.ingest.formats.registry import importer
from trajlake.ingest.sources import Source
from trajlake.schemas.events import (
    ApprovalRequested,
    ApprovalResolved,
    Authorized,
    Compacted,
    ContextBuilt,
    MessageAdded,
    ModelReplied,
    TaskEnded,
    TaskStarted,
    ToolResult,
)
from trajlake.schemas.values import from_tree

FOLDERS = {
    "codex": "codex",
    "atif": "atif",
    "atif-derived": "atif",
    "pi": "pi",
    "kimi": "kimi",
    "openai-responses": "openai-responses",
    "anthropic-messages": "anthropic-messages",
}

# Where the manifest counts other things, and what is right:
# * codex catalogue: its 11 "turns" are items; they make 9 replies.
# * schema drift: a `function_call` line and its `function_result` are a call and a result (the manifest says 0 calls).
# * responses: its "turns" are messages of all roles; MCP approval requests and calls are calls too.
# * atif: its "turns" are steps.
# * kimi: 24 steps, and the model call of the compaction.
REPLIES = {
    "as__shape_catalogue_0.146.jsonl": 9, "as__schema_drift.jsonl": 2,
    "nemo_conversational_tool_use.jsonl": 34, "nemo_gdpval.jsonl": 147,
    "vercel__openai-mcp-tool-approval.1.json": 1, "vercel__openai-mcp-tool-approval.3.json": 1,
    "vercel__openai-mcp-tool-approval.4.json": 2, "assistant_tools.jsonl": 25,
    "openhands_hello-world.trajectory.json": 2, "openhands_hello-world.trajectory.no_function_calling.json": 2,
    "terminus_2_hello-world-context-summarization-linear-history.trajectory.json": 3,
    "terminus_2_hello-world-context-summarization-linear-history.trajectory.cont-1.json": 4,
}  # fmt: skip
CALLS = {
    "as__schema_drift.jsonl": (1, 0),
    "vercel__openai-mcp-tool-approval.1.json": (1, 1),
    "vercel__openai-mcp-tool-approval.3.json": (1, 1),
    "vercel__openai-mcp-tool-approval.4.json": (1, 0),
}
TOTALS = {
    "as__shape_catalogue_0.146.jsonl": (16341, 3584, 0, 81),
    "large-session.jsonl": (47526750, 43229469, 4296232, 83156),
    "assistant_tools.jsonl": (691678, 661504, 0, 5515),
    "vercel__anthropic-compaction.1.json": (61067, 0, 0, 1912),
    "vercel__openai-compaction.1.json": (51097, 0, 0, 2056),
    "nemo_conversational_tool_use.jsonl": (190826, 0, 0, 15546),
    "hive__5e41ef2f-689e-4d7d-b917-06ebc40107bc.trajectory.json": (6297359, 5504121, 749634, 22482),
    "harbor__astropy__astropy-14369.trajectory.json": (589386, 491679, 0, 15392),
}
"""input (cached included), cached read, cache write, output: the documents' own sums where they state them."""


def files(shared_data: Path, folder: str) -> list[Path]:
    return sorted((shared_data / folder).glob("*.json*"))


@pytest.mark.parametrize("folder", sorted(FOLDERS))
def test_counts_and_totals_of_the_real_files_are_exact(shared_data: Path, folder: str) -> None:
    counts = stated(shared_data, folder)
    for path in files(shared_data, folder):
        got = read(FOLDERS[folder], path)
        if path.name in counts:
            expected = counts[path.name]
            assert len(got.of(ModelReplied)) == REPLIES.get(path.name, expected.turns), path.name
            calls = CALLS.get(path.name, (expected.calls, expected.unanswered))
            assert (len(got.calls), got.unanswered) == calls, path.name
        if path.name in TOTALS:
            assert got.usage() == TOTALS[path.name], path.name


@pytest.mark.parametrize("folder", sorted(FOLDERS))
def test_real_files_conform_and_are_recognised(shared_data: Path, folder: str) -> None:
    from trajlake.ingest.formats.detect import detect

    for path in files(shared_data, folder):
        source = Source.of_path(str(path))
        assert check(importer(FOLDERS[folder]), source, cuts=60) == [], path.name
        assert detect(source).name == FOLDERS[folder], path.name


def pi_blocks(path: Path, kind: str) -> list[Any]:
    found = []
    for line in path.read_text().splitlines():
        message = json.loads(line).get("message") or {}
        found += [part for part in message.get("content") or [] if isinstance(part, dict) and part.get("type") == kind]
    return found


def test_pi_arguments_and_outputs_are_the_source_texts(shared_data: Path) -> None:
    path = shared_data / "pi" / "large-session.jsonl"
    got, text = read("pi", path), path.read_text()
    assert [json.loads(str(one)) for one in all_arguments(got)] == [
        one["arguments"] for one in pi_blocks(path, "toolCall")
    ]
    assert all(str(one) in text for one in all_arguments(got))
    messages = [json.loads(line).get("message") or {} for line in text.splitlines()]
    outputs = {one["toolCallId"]: "".join(part.get("text", "") for part in one["content"])
               for one in messages if one.get("role") == "toolResult"}  # fmt: skip
    assert {one.provider_id: from_tree(one.output) for one in got.of(ToolResult)} == outputs
    assert sum(one.status == "error" for one in got.of(ToolResult)) == 19
    assert sum(bool(one.error) for one in got.of(ModelReplied)) == 22


def test_pi_compaction_carries_what_it_keeps() -> None:
    def said(role: str, text: str) -> dict[str, Any]:
        message = {"role": role, "content": [{"type": "text", "text": text}], "stopReason": "stop"}
        return {"type": "message", "message": message}

    entries = [
        {"type": "session", "id": "p1", "timestamp": "2026-01-01T00:00:00Z", "cwd": "/", "modelId": "m"},
        said("user", "a"),
        said("assistant", "b"),
        said("user", "c"),
        {"type": "compaction", "summary": "a and b", "firstKeptEntryIndex": 3, "tokensBefore": 99},
        said("assistant", "d"),
    ]
    got = read("pi", jsonl(*entries))
    (compacted,) = got.of(Compacted)
    assert (compacted.summary, compacted.tokens_before) == ("a and b", 99)
    assert got.of(ContextBuilt)[-1].append == (6, 5)
    assert check(importer("pi"), Source.of_bytes(jsonl(*entries), "x.jsonl")) == []


def test_kimi_approvals_stand_between_the_reply_and_the_result(shared_data: Path) -> None:
    got = read("kimi", shared_data / "kimi" / "assistant_tools.jsonl")
    assert [got.counts[kind.__name__] for kind in (ApprovalRequested, ApprovalResolved, Authorized)] == [8, 8, 8]
    proposed = {one.action_id for one in got.of(Authorized)}
    assert proposed <= {one.action_id for one in got.of(ToolResult)}
    assert {one.decision for one in got.of(Authorized)} == {"allow"}
    (compacted,) = got.of(Compacted)
    assert (compacted.tokens_before, compacted.tokens_after) == (15912, 654)
    turns = {item.turn for item in got.items if isinstance(item.payload, ModelReplied)}
    assert turns == set(range(24))


def rollout(*payloads: tuple[str, dict[str, Any]]) -> bytes:
    return jsonl(*({"timestamp": f"2026-01-01T00:00:{n:02}Z", "type": kind, "payload": payload}
                   for n, (kind, payload) in enumerate(payloads)))  # fmt: skip


META = ("session_meta", {"id": "c1", "timestamp": "2026-01-01T00:00:00Z", "cli_version": "0.99"})
ASKED = ("response_item", {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]})
REASON = ("response_item", {"type": "reasoning", "summary": []})
CALL = ("response_item", {"type": "function_call", "name": "shell", "arguments": '{"a": 1}', "call_id": "k1"})
TOLD = ("event_msg", {"type": "token_count", "info": {"last_token_usage": {
    "input_tokens": 100, "cached_input_tokens": 60, "output_tokens": 9, "reasoning_output_tokens": 3}}})  # fmt: skip
ANSWER = ("response_item", {"type": "function_call_output", "call_id": "k1", "output": "ok"})
SAID = ("response_item", {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]})


def test_codex_items_up_to_a_token_count_are_one_reply() -> None:
    got = read("codex", rollout(META, ASKED, REASON, CALL, TOLD, ANSWER, SAID, TOLD))
    assert len(got.of(ModelReplied)) == 2
    assert got.usage() == (200, 120, 0, 18)
    assert all_arguments(got) == ['{"a": 1}']
    assert got.of(ToolResult)[0].output == "ok"


def test_codex_without_token_counts_closes_at_what_can_only_come_later() -> None:
    got = read("codex", rollout(META, ASKED, REASON, CALL, ANSWER, SAID, ASKED))
    assert (len(got.of(ModelReplied)), got.unanswered) == (2, 0)
    assert not read("codex", rollout(META, ASKED, REASON)).of(ModelReplied)


def test_codex_history_that_a_compaction_repeats_is_put_back_by_reference() -> None:
    image = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_image", "image_url": "data:" + "x" * 90_000}],
    }
    record = ("response_item", image)
    parts = [META, record, SAID, TOLD]
    for _ in range(50):
        parts += [("compacted", {"message": "", "replacement_history": [image]}), SAID, TOLD]
    got = read("codex", rollout(*parts))
    assert sum("image_url" in json.dumps(one.wire) for one in got.of(MessageAdded)) == 1
    assert len(got.of(Compacted)) == 50
    assert got.of(ContextBuilt)[-1].append == (2,)


def test_codex_fork_prefix_is_copied_context() -> None:
    meta = ("session_meta", {"id": "c2", "forked_from_id": "c1", "timestamp": "2026-01-01T00:00:03Z"})
    got = read("codex", rollout(meta, ASKED, SAID, ASKED, SAID, TOLD))
    assert [one.origin for one in got.of(MessageAdded)] == ["copied", "copied", "imported"]
    assert len(got.of(ModelReplied)) == 1


def test_codex_sub_agents_name_their_parent() -> None:
    meta = ("session_meta", {"id": "c3", "parent_thread_id": "c1", "timestamp": "2026-01-01T00:00:00Z"})
    (start,) = read("codex", rollout(meta, ASKED)).of(TaskStarted)
    assert start.parent.trajectory_id == "codex/c1"


def test_a_reviewers_verdict_about_an_open_call_is_an_approval() -> None:
    verdict = ("event_msg", {"type": "guardian_assessment", "target_item_id": "k1", "status": "denied",
                             "rationale": "too risky", "decision_source": "guardian"})  # fmt: skip
    got = read("codex", rollout(META, ASKED, CALL, TOLD, verdict, ANSWER))
    (decided,) = got.of(Authorized)
    assert (decided.decision, decided.reason, decided.action_id) == ("deny", "too risky", "4.0")


def test_atif_copied_steps_and_sub_agents_are_told_apart() -> None:
    sub = {"schema_version": "ATIF-v1.7", "trajectory_id": "inner", "agent": {"name": "a", "version": "1"},
           "steps": [{"step_id": 1, "source": "agent", "message": "x"}]}  # fmt: skip
    document = {"schema_version": "ATIF-v1.7", "trajectory_id": "outer", "agent": {"name": "a", "version": "1"},
                "subagent_trajectories": [sub], "steps": [
                    {"step_id": 1, "source": "agent", "message": "old", "is_copied_context": True},
                    {"step_id": 2, "source": "agent", "message": "", "tool_calls": [
                        {"tool_call_id": "d", "function_name": "f", "arguments": {"b": 1.0, "a": None}},
                        {"tool_call_id": "d", "function_name": "g", "arguments": {}}],
                     "observation": {"results": [{"source_call_id": "d", "content": "1"},
                                                 {"source_call_id": "d", "content": None}]}}]}  # fmt: skip
    got = read("atif", json.dumps(document).encode())
    assert set(by_trajectory(got.items)) == {"atif/outer", "atif/outer/inner"}
    assert [one.origin for one in got.of(MessageAdded)] == ["copied"]
    assert all_arguments(got) == ['{"b": 1.0, "a": null}', "{}"]
    assert [(one.action_id, one.output) for one in got.of(ToolResult)] == [("3.0", "1"), ("3.1", None)]


def test_responses_keep_approvals_compactions_rewards_and_token_ids(shared_data: Path) -> None:
    folder = shared_data / "openai-responses"

    def of(name: str) -> Read:
        return read("openai-responses", folder / name)

    assert len(of("vercel__openai-mcp-tool-approval.1.json").of(ApprovalRequested)) == 1
    assert [one.decision for one in of("vercel__openai-mcp-tool-approval.4.json").of(ApprovalResolved)] == ["granted"]
    assert len(of("vercel__openai-compaction.1.json").of(Compacted)) == 1
    rollouts = of("nemo_gdpval.jsonl")
    rewards = [json.loads(item.payload.raw)["reward"] for item in rollouts.kept("reward")]
    assert rewards == [json.loads(line)["reward"] for line in (folder / "nemo_gdpval.jsonl").read_text().splitlines()]
    assert len(rollouts.of(TaskEnded)) == 5
    logged = of("nemo_rl_gym_sanity_tokenids.json")
    assert all(one.token_ids is not None for one in logged.of(ModelReplied))


def test_responses_arguments_are_the_source_texts(shared_data: Path) -> None:
    for name in ("nemo_gdpval.jsonl", "nemo_conversational_tool_use.jsonl"):
        path = shared_data / "openai-responses" / name
        items = [item for line in path.read_text().splitlines() for item in json.loads(line)["response"]["output"]]
        got = read("openai-responses", path)
        assert all_arguments(got) == [item["arguments"] for item in items if item["type"] == "function_call"]
        outputs = [item["output"] for item in items if item["type"] == "function_call_output"]
        assert [one.output for one in got.of(ToolResult)] == outputs


def test_anthropic_lists_pair_results_and_server_tools_answer_inside_the_message() -> None:
    chat = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"x": 1}},
                                          {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
                                          {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r"}]},
    ]  # fmt: skip
    got = read("anthropic-messages", json.dumps(chat).encode())
    assert (len(got.calls), got.unanswered) == (2, 0)
    assert all_arguments(got) == ['{"x": 1}', "{}"]
