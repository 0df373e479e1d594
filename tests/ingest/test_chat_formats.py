"""openai-chat and tau-bench: exact counts and texts of the real files, the variants people have, bad documents."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.ingest.manifest import stated
from tests.ingest.reading import all_arguments, by_trajectory, jsonl, read
from trajlake.ingest.formats.conformance import check
from trajlake.ingest.formats.contract import BadSource
from trajlake.ingest.formats.registry import importer
from trajlake.ingest.sources import Source
from trajlake.schemas.events import ContextBuilt, MessageAdded, ModelReplied, TaskEnded, ToolResult

TOOLS = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"b": 1,  "a": 2}'}}]
CHAT = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": None, "tool_calls": TOOLS},
    {"role": "tool", "tool_call_id": "c1", "content": "3"},
    {"role": "assistant", "content": "three"},
]


def test_every_call_of_the_tau_bench_file_is_its_own_action_with_its_own_result(shared_data: Path) -> None:
    path = shared_data / "tau-bench" / "gpt-4o-airline.json"
    counts = stated(shared_data, "tau-bench")[path.name]
    got = read("tau-bench", path)
    runs = json.loads(path.read_text())
    assert len(by_trajectory(got.items)) == len(runs) == 200
    assert (len(got.of(ModelReplied)), len(got.calls)) == (counts.turns, counts.calls) == (2454, 1164)
    assert len({call.provider_id for call in got.calls}) == 134
    for run, items in zip(runs, by_trajectory(got.items).values(), strict=True):
        calls = [call for message in run["traj"] for call in message.get("tool_calls") or []]
        outputs = [message["content"] for message in run["traj"] if message["role"] == "tool"]
        results = [item.payload for item in items if isinstance(item.payload, ToolResult)]
        proposed = [
            (f"{number}.{index}", call.tool)
            for number, item in enumerate(items)
            if isinstance(item.payload, ModelReplied)
            for index, call in enumerate(item.payload.calls)
        ]
        assert [one.output for one in results] == outputs
        assert [(one.action_id, one.tool) for one in results] == proposed
        assert [tool for _, tool in proposed] == [call["function"]["name"] for call in calls]
    source_calls = [c["function"]["arguments"] for run in runs for m in run["traj"] for c in m.get("tool_calls") or []]
    assert all_arguments(got) == source_calls
    assert len(got.kept("reward")) == len(got.of(TaskEnded)) == 200
    rewards = [json.loads(item.payload.raw)["reward"] for item in got.kept("reward")]
    assert rewards == [run["reward"] for run in runs]
    assert check(importer("tau-bench"), Source.of_path(str(path))) == []


def test_the_chat_file_gives_its_58_calls_outputs_and_the_usage_of_its_last_reply(shared_data: Path) -> None:
    path = shared_data / "openai-chat" / "nilenso_ask_github_gc.json"
    counts = stated(shared_data, "openai-chat")[path.name]
    got = read("openai-chat", path)
    document = json.loads(path.read_text())
    assert (len(got.of(ModelReplied)), len(got.calls), got.unanswered) == (counts.turns, counts.calls, 0)
    assert max(len(one.output) for one in got.of(ToolResult)) == counts.longest_output
    by_id = {
        message["tool_call_id"]: message["content"] for message in document["messages"] if message["role"] == "tool"
    }
    assert {one.provider_id: one.output for one in got.of(ToolResult)} == by_id
    assert got.usage() == (52529, 0, 0, 9090)
    assert check(importer("openai-chat"), Source.of_path(str(path))) == []


def test_a_context_extends_the_one_before_by_what_is_new() -> None:
    got = read("openai-chat", json.dumps(CHAT).encode())
    first, second = got.of(ContextBuilt)
    assert (first.base, first.append) == (None, (1, 2))
    assert (second.base, second.keep, second.append) == (3, 2, (4, 5))


@pytest.mark.parametrize(
    "data",
    [
        json.dumps(CHAT).encode(),
        json.dumps({"messages": CHAT}).encode(),
        json.dumps([{"messages": CHAT}]).encode(),
        jsonl({"messages": CHAT}, {"messages": CHAT[:2]}),
        jsonl(*CHAT),
    ],
    ids=["list", "object", "array", "lines of conversations", "lines of messages"],
)
def test_every_wrapping_of_a_message_list_is_read(data: bytes) -> None:
    got = read("openai-chat", data)
    assert (got.counts["ModelReplied"], got.counts["ToolResult"]) == (2, 1)
    assert all_arguments(got) == ['{"b": 1,  "a": 2}']
    assert check(importer("openai-chat"), Source.of_bytes(data, "x.json")) == []


def test_arguments_as_object_keep_their_exact_text_and_malformed_ones_too() -> None:
    odd = '{"a":1, "a":{"x":  2.50}}'
    text = '[{"role":"user","content":"q"},{"role":"assistant","content":"","tool_calls":[{"id":"1","function":'
    text += '{"name":"f","arguments":' + odd + '}},{"id":"2","function":{"name":"g","arguments":"{\\"a\\": tru"}}]}]'
    assert all_arguments(read("openai-chat", text.encode())) == [odd, '{"a": tru']


def test_a_lone_surrogate_in_a_reply_is_kept_beside_its_text() -> None:
    text = '[{"role":"user","content":"q"},{"role":"assistant","content":"a\\ud800b"}]'
    (reply,) = read("openai-chat", text.encode()).of(ModelReplied)
    assert reply.wire is not None
    assert "\\ud800" in reply.raw
    assert check(importer("openai-chat"), Source.of_bytes(text.encode(), "x.json")) == []


def test_function_call_sharegpt_and_preference_pairs_are_read() -> None:
    legacy = [CHAT[1], {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
              {"role": "function", "name": "f", "content": "ok"}]  # fmt: skip
    assert read("openai-chat", json.dumps(legacy).encode()).unanswered == 0
    shared = {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}
    assert read("openai-chat", json.dumps(shared).encode()).counts["ModelReplied"] == 1
    pair = {"prompt": CHAT[:2], "chosen": [CHAT[4]], "rejected": [{"role": "assistant", "content": "no"}]}
    got = read("openai-chat", jsonl(pair))
    assert sorted(name.rpartition("/")[2] for name in by_trajectory(got.items)) == ["chosen", "rejected"]


def test_a_result_without_a_call_is_an_orphan_message() -> None:
    got = read("openai-chat", json.dumps([CHAT[1], {**CHAT[3], "tool_call_id": "zz"}, CHAT[4]]).encode())
    assert [one.role for one in got.of(MessageAdded)] == ["user", "tool"]
    assert got.loss.notes == {"orphan result": 1}


def test_an_id_repeated_while_open_pairs_in_order() -> None:
    call = {**TOOLS[0], "id": ""}
    chat = [CHAT[1], {"role": "assistant", "content": "", "tool_calls": [call, call]},
            {"role": "tool", "tool_call_id": "", "content": "first"},
            {"role": "tool", "tool_call_id": "", "content": "second"}]  # fmt: skip
    got = read("openai-chat", json.dumps(chat).encode())
    assert [(one.action_id, one.output) for one in got.of(ToolResult)] == [("3.0", "first"), ("3.1", "second")]


@pytest.mark.parametrize("format_name", ["openai-chat", "tau-bench"])
@pytest.mark.parametrize(
    "data", [b"", b"  \n", b'[{"role": "user"', b'{"x": 1}', b"not json", b"[" * 30_000 + b"]" * 30_000]
)
def test_documents_that_are_none_are_refused_by_name(format_name: str, data: bytes) -> None:
    with pytest.raises(BadSource, match=r"test\.jsonl"):
        read(format_name, data)


def test_repeated_task_and_trial_are_told_apart() -> None:
    run = {"task_id": 1, "trial": 0, "reward": 1.0, "info": {}, "traj": CHAT}
    got = read("tau-bench", json.dumps([run, run]).encode())
    assert Counter(item.trajectory_id for item in got.items) == {"tau-bench/test/1-0": 10, "tau-bench/test/1-0.2": 10}
