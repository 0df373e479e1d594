"""Claude Code files: one reply per message id, exact texts, nothing lost, growth without renumbering."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.manifest import stated
from tests.ingest.reading import all_arguments, by_trajectory, jsonl, read
from trajlake.ingest.formats.conformance import check
from trajlake.ingest.formats.contract import BadSource
from trajlake.ingest.formats.registry import importer
from trajlake.ingest.sources import Source
from trajlake.schemas.events import (
    Compacted,
    ContextBuilt,
    MessageAdded,
    ModelReplied,
    SourceKept,
    TaskStarted,
    ToolResult,
)

# Where the manifest is wrong, and why. Its `unans.` pairs by id text alone.
# * shape catalogue: the result in line 9 carries no id but names its assistant record (sourceToolAssistantUUID a1),
#   whose only call has no id either: it is answered. One call is open, not two.
# * subagent child: the only result follows the only call; neither has an id.
# * edge cases: the result of tool_edge_002 stands under a misspelt key ("contenst"): no reader can deliver it, and
#   toolu_todowrite_002 has none. Two calls are open, not one.
UNANSWERED = {"as__shape_catalogue_2.1.x.jsonl": 1, "as__subagent_child.jsonl": 0, "cclog__edge_cases.jsonl": 2}

# The manifest measures a list of blocks as its JSON (83), and sees no answer in the child; delivered are these texts.
LONGEST = {"as__shape_catalogue_2.1.x.jsonl": 12, "as__subagent_child.jsonl": 17}


def user(text: Any, uuid: str, parent: str | None, session: str = "s1", **more: Any) -> dict[str, Any]:
    return {"type": "user", "uuid": uuid, "parentUuid": parent, "sessionId": session,
            "timestamp": "2026-01-01T00:00:00.000Z", "message": {"role": "user", "content": text}, **more}  # fmt: skip


def block(
    message_id: str, content: Any, uuid: str, parent: str, stop: str | None = None, out: int = 1, **more: Any
) -> dict[str, Any]:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 5, "output_tokens": out}
    message = {"id": message_id, "type": "message", "role": "assistant", "model": "claude-x", "content": [content],
               "stop_reason": stop, "usage": usage}  # fmt: skip
    return {"type": "assistant", "uuid": uuid, "parentUuid": parent, "sessionId": "s1",
            "timestamp": "2026-01-01T00:00:01.000Z", "message": message, **more}  # fmt: skip


def call(call_id: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "Bash", "input": arguments}


def result(call_id: str, text: str) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": call_id, "content": text}]


THINK = {"type": "thinking", "thinking": "hm"}
LONG = [
    user("do it", "u1", None),
    block("m1", THINK, "a1", "u1"),
    block("m1", call("c1", command="ls"), "a2", "a1", out=3),
    user(result("c1", "one"), "r1", "a2"),
    block("m1", call("c2", command="pwd"), "a3", "a2", stop="tool_use", out=7),
    user(result("c2", "two"), "r2", "a3"),
    block("m2", {"type": "text", "text": "done"}, "a4", "r2", stop="end_turn", out=4),
    user("thanks", "u2", "a4"),
]


def test_every_turn_call_and_result_of_the_real_files_is_there(shared_data: Path) -> None:
    for name, counts in stated(shared_data, "claude-code").items():
        got = read("claude-code", shared_data / "claude-code" / name)
        assert len(got.of(ModelReplied)) == counts.turns, name
        assert len(got.calls) == counts.calls, name
        assert got.unanswered == UNANSWERED.get(name, counts.unanswered), name
        longest = max((len(one.output) for one in got.of(ToolResult) if isinstance(one.output, str)), default=0)
        assert longest == LONGEST.get(name, counts.longest_output), name


def test_arguments_and_outputs_of_the_real_files_are_the_source_texts(shared_data: Path) -> None:
    for path in sorted((shared_data / "claude-code").glob("hive__*.jsonl")):
        got = read("claude-code", path)
        source_text = path.read_text()
        arguments, outputs = [], []
        for line in source_text.splitlines():
            content = (json.loads(line).get("message") or {}).get("content")
            for part in content if isinstance(content, list) else []:
                if part["type"] == "tool_use":
                    arguments.append(part["input"])
                elif part["type"] == "tool_result":
                    outputs.append(part["content"])
        texts = all_arguments(got)
        assert [json.loads(str(text)) for text in texts] == arguments
        assert all(str(text) in source_text for text in texts)
        assert sorted(one.output for one in got.of(ToolResult)) == sorted(
            text if isinstance(text, str) else "".join(part["text"] for part in text) for text in outputs
        )


def test_every_record_of_the_real_files_is_accounted_for(shared_data: Path) -> None:
    for path in sorted((shared_data / "claude-code").glob("*.jsonl")):
        got = read("claude-code", path)
        assert sum(got.loss.seen.values()) == len([line for line in path.read_text().splitlines() if line.strip()])
        assert check(importer("claude-code"), Source.of_path(str(path)), cuts=200) == []


def test_blocks_of_one_message_id_are_one_reply_with_its_usage_counted_once() -> None:
    got = read("claude-code", jsonl(*LONG))
    first, second = got.of(ModelReplied)
    assert [len(first.calls), len(second.calls)] == [2, 0]
    assert [part["type"] for part in json.loads(first.raw)["content"]] == ["thinking", "tool_use", "tool_use"]
    assert got.usage() == (2 * 105, 2 * 90, 2 * 5, 7 + 4)
    assert all_arguments(got) == ['{"command": "ls"}', '{"command": "pwd"}']


def test_a_result_written_between_the_blocks_follows_the_whole_reply() -> None:
    got = read("claude-code", jsonl(*LONG))
    kinds = [type(item.payload).__name__ for item in got.items]
    assert kinds == ["TaskStarted", "MessageAdded", "ContextBuilt", "ModelReplied", "ToolResult", "ToolResult",
                     "ContextBuilt", "ModelReplied", "MessageAdded"]  # fmt: skip
    assert [one.action_id for one in got.of(ToolResult)] == ["3.0", "3.1"]
    assert got.of(ContextBuilt)[1].append == (3, 4, 5)


def test_a_session_cut_at_any_byte_gives_a_prefix_of_its_events() -> None:
    data = jsonl(*LONG)
    whole = read("claude-code", data).items
    for end in range(len(data)):
        try:
            part = read("claude-code", data[:end]).items
        except BadSource:
            continue
        assert part[1:] == whole[1 : len(part)], f"cut at byte {end}"


def test_an_unfinished_last_reply_is_held_back_until_the_source_shows_more() -> None:
    cut = read("claude-code", jsonl(*LONG[:3]))
    assert not cut.of(ModelReplied)
    assert cut.loss.held_back == {"assistant": 2}
    assert len(read("claude-code", jsonl(*LONG[:3]), ended=True).calls) == 1


def test_a_call_that_says_it_is_finished_is_imported_and_stays_unanswered() -> None:
    got = read("claude-code", jsonl(LONG[0], block("m1", call("c1", a=1), "a1", "u1", stop="tool_use")))
    assert (len(got.calls), got.unanswered) == (1, 1)


def test_a_record_repeated_under_its_uuid_adds_nothing() -> None:
    assert read("claude-code", jsonl(*LONG[:7], *LONG)).counts == read("claude-code", jsonl(*LONG)).counts


def test_lone_surrogates_nul_duplicate_keys_and_bad_bytes_come_back_exactly() -> None:
    arguments = r'{"a": "\udcff", "a": "x\u0000y", "n": 1.0}'
    line = (
        r'{"type":"assistant","uuid":"a1","parentUuid":"u1","sessionId":"s1","timestamp":"2026-01-01T00:00:01Z",'
        r'"message":{"role":"assistant","model":"m","stop_reason":"tool_use","content":'
        r'[{"type":"tool_use","id":"c1","name":"T","input":' + arguments + "}]}}\n"
    )
    answer = b'{"type":"user","uuid":"r1","parentUuid":"a1","sessionId":"s1","message":{"role":"user","content":'
    answer += b'[{"type":"tool_result","tool_use_id":"c1","content":"bad \\udc80 nul \\u0000 byte \xff"}]}}\n'
    got = read("claude-code", jsonl(LONG[0]) + line.encode() + answer)
    assert all_arguments(got) == [arguments]
    from trajlake.schemas.values import from_tree

    assert from_tree(got.of(ToolResult)[0].output) == "bad \udc80 nul \x00 byte \udcff"
    assert check(importer("claude-code"), Source.of_bytes(jsonl(LONG[0]) + line.encode() + answer)) == []


def test_a_torn_last_line_is_reported_and_a_corrupt_line_kept() -> None:
    data = jsonl(LONG[0]) + b'{"type":"user", broken\n' + jsonl(*LONG[1:]) + b'{"type":"us'
    got = read("claude-code", data)
    assert len(got.kept("corrupt line")) == 1
    assert [problem.partition(":")[0] for problem in got.loss.problems] == ["line 2", "line 10"]
    assert got.counts["ModelReplied"] == 2


def test_a_record_nested_too_deeply_is_kept_as_text() -> None:
    deep = b'{"type":"user","sessionId":"s1","message":' + b"[" * 30_000 + b"]" * 30_000 + b"}\n"
    got = read("claude-code", jsonl(LONG[0]) + deep)
    assert got.kept("corrupt line")[0].payload.raw == deep.decode().strip()


@pytest.mark.parametrize("session", ["", "  ", "x" * 4096, "a\0b", "../../etc/passwd", "/etc/passwd", "a\\..\\b"])
def test_a_hostile_session_id_is_refused_with_its_place(session: str) -> None:
    with pytest.raises(BadSource, match="line 1"):
        read("claude-code", jsonl(user("x", "u1", None, session)))


def test_sidechains_are_trajectories_of_their_own_below_the_session() -> None:
    side = user("sub task", "x1", None, isSidechain=True, agentId="ab12")
    got = read("claude-code", jsonl(LONG[0], side, *LONG[1:]))
    starts = {item.trajectory_id: item.payload for item in got.items if isinstance(item.payload, TaskStarted)}
    assert set(starts) == {"claude-code/s1", "claude-code/s1/agent-ab12"}
    assert starts["claude-code/s1/agent-ab12"].parent.trajectory_id == "claude-code/s1"
    assert starts["claude-code/s1"].parent is None


def test_compaction_becomes_an_item_that_replaces_the_context() -> None:
    boundary = {"type": "system", "subtype": "compact_boundary", "uuid": "b1", "parentUuid": None, "sessionId": "s1",
                "compactMetadata": {"trigger": "auto", "preTokens": 1234}}  # fmt: skip
    summary = user("so far: ...", "u9", "b1", isCompactSummary=True)
    after = block("m3", {"type": "text", "text": "on"}, "a9", "u9", stop="end_turn")
    got = read("claude-code", jsonl(*LONG, boundary, summary, after))
    (compacted,) = got.of(Compacted)
    assert (compacted.summary, compacted.trigger, compacted.tokens_before) == ("so far: ...", "auto", 1234)
    place = next(n for n, item in enumerate(got.items) if item.payload is compacted)
    assert got.of(ContextBuilt)[-1].append == (place,)
    assert got.of(ContextBuilt)[-1].keep == 0


def test_a_prompt_that_goes_back_in_the_graph_drops_what_lies_behind_its_parent() -> None:
    other = user("instead do that", "u3", "r2")
    answer = block("m4", {"type": "text", "text": "ok"}, "a7", "u3", stop="end_turn")
    got = read("claude-code", jsonl(*LONG, other, answer))
    built = got.of(ContextBuilt)
    assert built[2].keep == 4
    assert got.loss.notes["branch: a prompt goes back to an earlier record"] == 1


def test_a_refused_call_is_a_refused_result() -> None:
    text = "The user doesn't want to proceed with this tool use. The tool use was rejected"
    got = read("claude-code", jsonl(*LONG[:2], block("m1", call("c1"), "a2", "a1", stop="tool_use"),
                                    user([{"type": "tool_result", "tool_use_id": "c1", "content": text,
                                           "is_error": True}], "r1", "a2"), user("no", "u2", "r1")))  # fmt: skip
    assert [one.status for one in got.of(ToolResult)] == ["refused"]


def test_unknown_records_are_kept_raw_under_their_type() -> None:
    strange = {"type": "hologram", "sessionId": "s1", "payload": {"x": 1}}
    got = read("claude-code", jsonl(*LONG, strange))
    assert json.loads(got.of(SourceKept)[-1].raw) == strange
    assert got.loss.kept == {"hologram": 1}


def test_messages_keep_their_shape(shared_data: Path) -> None:
    got = read("claude-code", shared_data / "claude-code" / "cclog-1.7.0__user__image.jsonl")
    (message,) = got.of(MessageAdded)
    assert [part["type"] for part in message.wire["content"]] == ["image", "text"]
    assert len(by_trajectory(got.items)) == 1
