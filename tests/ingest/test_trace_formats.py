"""otlp (gen_ai old and new, OpenInference, AI SDK, SDK dumps) and langfuse: real files and every spelling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.reading import Read, all_arguments, jsonl, read
from trajlake.ingest.formats.conformance import by_trajectory, check
from trajlake.ingest.formats.registry import importer
from trajlake.ingest.sources import Source
from trajlake.schemas.events import ContextBuilt, MessageAdded, ModelReplied, TaskStarted, ToolResult
from trajlake.schemas.values import from_tree

TRACE = "0af7651916cd43dd8448eb211c80319c"


def document(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode()


def value_of(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, list):
        return {"arrayValue": {"values": [value_of(one) for one in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": [{"key": key, "value": value_of(one)} for key, one in value.items()]}}
    return {"stringValue": value}


def span(number: int, start: int, attributes: dict[str, Any], parent: int = 1, **more: Any) -> dict[str, Any]:
    made = {"traceId": TRACE, "spanId": f"{number:016x}", "parentSpanId": f"{parent:016x}" if parent else "",
            "name": f"span {number}", "startTimeUnixNano": str(10**18 + start * 10**9),
            "endTimeUnixNano": str(10**18 + start * 10**9 + 5 * 10**8),
            "attributes": [{"key": key, "value": value_of(value)} for key, value in attributes.items()],
            **more}  # fmt: skip
    if not parent:
        del made["parentSpanId"]
    return made


def batch(*spans: dict[str, Any]) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}]}


AGENT = span(1, 0, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}, parent=0)
ASKED = [{"role": "user", "parts": [{"type": "text", "content": "what?"}]}]
CALLED = [{"role": "assistant", "parts": [{"type": "text", "content": "let me see"},
           {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"at": 1.0}}]}]  # fmt: skip
ANSWERED = [{"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "seen"}]}]
SAID = [{"role": "assistant", "parts": [{"type": "text", "content": "this"}]}]

NEW = [
    {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.input.messages": json.dumps(ASKED),
     "gen_ai.output.messages": json.dumps(CALLED), "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 3,
     "gen_ai.usage.cache_read.input_tokens": 4, "gen_ai.response.finish_reasons": ["tool_calls"]},
    {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.output.messages": json.dumps(SAID),
     "gen_ai.input.messages": json.dumps([*ASKED, *CALLED, *ANSWERED]), "gen_ai.usage.input_tokens": 20,
     "gen_ai.usage.output_tokens": 2},
]  # fmt: skip
STRUCTURED = [
    {**told, "gen_ai.input.messages": json.loads(told["gen_ai.input.messages"]),
     "gen_ai.output.messages": json.loads(told["gen_ai.output.messages"])}
    for told in NEW
]  # fmt: skip
FLAT = [
    {"gen_ai.system": "openai", "gen_ai.request.model": "m", "llm.request.type": "chat",
     "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "what?",
     "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "let me see",
     "gen_ai.completion.0.tool_calls.0.id": "c1", "gen_ai.completion.0.tool_calls.0.name": "look",
     "gen_ai.completion.0.tool_calls.0.arguments": '{"at": 1.0}', "gen_ai.usage.prompt_tokens": 10,
     "gen_ai.usage.completion_tokens": 3, "gen_ai.usage.cache_read_input_tokens": 4},
    {"gen_ai.system": "openai", "gen_ai.request.model": "m", "llm.request.type": "chat",
     "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "what?",
     "gen_ai.prompt.1.role": "assistant", "gen_ai.prompt.1.content": "let me see",
     "gen_ai.prompt.1.tool_calls.0.id": "c1", "gen_ai.prompt.1.tool_calls.0.name": "look",
     "gen_ai.prompt.1.tool_calls.0.arguments": '{"at": 1.0}',
     "gen_ai.prompt.2.role": "tool", "gen_ai.prompt.2.tool_call_id": "c1", "gen_ai.prompt.2.content": "seen",
     "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "this",
     "gen_ai.usage.prompt_tokens": 20, "gen_ai.usage.completion_tokens": 2},
]  # fmt: skip
OPENINFERENCE = [
    {"openinference.span.kind": "LLM", "llm.model_name": "m", "llm.input_messages.0.message.role": "user",
     "llm.input_messages.0.message.contents.0.message_content.type": "text",
     "llm.input_messages.0.message.contents.0.message_content.text": "what?",
     "llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "let me see",
     "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c1",
     "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "look",
     "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": '{"at": 1.0}',
     "llm.token_count.prompt": 10, "llm.token_count.completion": 3, "llm.token_count.prompt_details.cache_read": 4},
    {"openinference.span.kind": "LLM", "llm.model_name": "m", "llm.input_messages.0.message.role": "user",
     "llm.input_messages.0.message.content": "what?", "llm.input_messages.1.message.role": "assistant",
     "llm.input_messages.1.message.content": "let me see",
     "llm.input_messages.1.message.tool_calls.0.tool_call.id": "c1",
     "llm.input_messages.1.message.tool_calls.0.tool_call.function.name": "look",
     "llm.input_messages.1.message.tool_calls.0.tool_call.function.arguments": '{"at": 1.0}',
     "llm.input_messages.2.message.role": "tool", "llm.input_messages.2.message.tool_call_id": "c1",
     "llm.input_messages.2.message.content": "seen", "llm.output_messages.0.message.role": "assistant",
     "llm.output_messages.0.message.content": "this", "llm.token_count.prompt": 20, "llm.token_count.completion": 2},
]  # fmt: skip
AI_SDK = [
    {"ai.operationId": "ai.generateText.doGenerate", "ai.model.id": "m", "gen_ai.request.model": "m",
     "ai.prompt.messages": json.dumps([{"role": "user", "content": [{"type": "text", "text": "what?"}]}]),
     "ai.response.text": "let me see", "ai.usage.promptTokens": 10, "ai.usage.completionTokens": 3,
     "ai.response.toolCalls": '[{"toolCallId": "c1", "toolName": "look", "args": "{\\"at\\": 1.0}"}]',
     "ai.usage.cachedInputTokens": 4},
    {"ai.operationId": "ai.generateText.doGenerate", "ai.model.id": "m", "gen_ai.request.model": "m",
     "ai.prompt.messages": json.dumps([
         {"role": "user", "content": [{"type": "text", "text": "what?"}]},
         {"role": "assistant", "content": [{"type": "text", "text": "let me see"},
          {"type": "tool-call", "toolCallId": "c1", "toolName": "look", "input": {"at": 1.0}}]},
         {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "toolName": "look",
          "output": {"type": "text", "value": "seen"}}]}]),
     "ai.response.text": "this", "ai.usage.promptTokens": 20, "ai.usage.completionTokens": 2},
]  # fmt: skip
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look", "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.call.arguments": '{"at": 1.0}', "gen_ai.tool.call.result": "seen, and more"}  # fmt: skip


@pytest.mark.parametrize("calls", [NEW, STRUCTURED, FLAT, OPENINFERENCE, AI_SDK], ids=["new", "structured", "flat",
                         "openinference", "ai-sdk"])  # fmt: skip
def test_every_convention_gives_the_same_conversation(calls: list[dict[str, Any]]) -> None:
    got = read("otlp", document(batch(AGENT, span(2, 1, calls[0]), span(3, 2, TOOL), span(4, 3, calls[1]))))
    assert [one.role for one in got.of(MessageAdded)] == ["user"]
    assert [from_tree(one.wire)["content"] for one in got.of(ModelReplied)] == ["let me see", "this"]
    assert [json.loads(str(text)) for text in all_arguments(got)] == [{"at": 1.0}]
    assert [(one.output, one.full_output) for one in got.of(ToolResult)] == [("seen", "seen, and more")]
    assert got.usage() == (30, 4, 0, 5)
    assert [(built.keep, len(built.append)) for built in got.of(ContextBuilt)] == [(0, 1), (1, 2)]
    assert not got.loss.notes


def test_arguments_as_text_keep_their_spelling() -> None:
    flat = FLAT[0] | {"gen_ai.completion.0.tool_calls.0.arguments": '{"at":1.0,  "at": 2}'}
    got = read("otlp", document(batch(AGENT, span(2, 1, flat))))
    assert all_arguments(got) == ['{"at":1.0,  "at": 2}']


def test_messages_as_span_events_are_read() -> None:
    events = [
        {"name": "gen_ai.user.message", "attributes": [{"key": "content", "value": {"stringValue": "what?"}}]},
        {"name": "gen_ai.choice", "attributes": [
            {"key": "finish_reason", "value": {"stringValue": "stop"}},
            {"key": "message", "value": {"stringValue": '{"role": "assistant", "content": "this"}'}}]},
    ]  # fmt: skip
    got = read("otlp", document(batch(AGENT, span(2, 1, {"gen_ai.operation.name": "chat"}, events=events))))
    assert [from_tree(one.wire)["content"] for one in got.of(MessageAdded)] == ["what?"]
    assert [from_tree(one.wire)["content"] for one in got.of(ModelReplied)] == ["this"]


def test_a_span_without_content_is_a_reply_with_its_usage() -> None:
    bare = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 5}
    got = read("otlp", document(batch(AGENT, span(2, 1, bare))))
    assert (len(got.of(ModelReplied)), got.usage()) == (1, (5, 0, 0, 0))


def test_a_sub_agent_is_a_trajectory_that_names_its_parent() -> None:
    inner = span(5, 2, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "sub"}, parent=3)
    got = read(
        "otlp", document(batch(AGENT, span(2, 1, NEW[0]), span(3, 2, TOOL), inner, span(6, 3, NEW[0], parent=5)))
    )
    starts = {item.trajectory_id: item.payload for item in got.items if isinstance(item.payload, TaskStarted)}
    assert set(starts) == {f"otlp/{TRACE}", f"otlp/{TRACE}/{5:016x}"}
    assert starts[f"otlp/{TRACE}/{5:016x}"].parent.trajectory_id == f"otlp/{TRACE}"


def test_in_lines_a_trace_waits_for_its_root_and_late_spans_are_kept() -> None:
    lines = [batch(span(2, 1, NEW[0])), batch(span(3, 2, TOOL)), batch(AGENT), batch(span(9, 9, NEW[1]))]
    source = Source.of_bytes(jsonl(*lines), "spans.jsonl")
    assert read("otlp", Source.of_bytes(jsonl(*lines[:2]), "spans.jsonl")).loss.held_back == {"span": 2}
    got = read("otlp", source)
    assert (len(got.of(ModelReplied)), got.unanswered, len(got.kept("late model span"))) == (1, 0, 1)
    assert check(importer("otlp"), source, cuts=10) == []
    assert len(read("otlp", Source.of_bytes(jsonl(*lines[:2]), "spans.jsonl"), ended=True).of(ModelReplied)) == 1


def test_spans_as_the_python_sdk_dumps_them_are_read() -> None:
    dumped = {"name": "chat m", "context": {"trace_id": f"0x{TRACE}", "span_id": "0x2", "trace_state": "[]"},
              "kind": "SpanKind.CLIENT", "parent_id": None, "start_time": "2026-01-01T00:00:00.000000Z",
              "end_time": "2026-01-01T00:00:01.500000Z", "status": {"status_code": "ERROR", "description": "boom"},
              "attributes": NEW[0]}  # fmt: skip
    got = read("otlp", document([dumped]))
    (reply,) = got.of(ModelReplied)
    assert (reply.status, reply.error, reply.duration_ms) == ("error", "boom", 1500.0)


def test_the_real_otlp_document_has_every_span_call_argument_and_output(shared_data: Path) -> None:
    path = shared_data / "otlp-derived" / "nilenso_ask_github_gc.otlp.json"
    spans = json.loads(path.read_text())["resourceSpans"][0]["scopeSpans"][0]["spans"]
    told = [{one["key"]: next(iter(one["value"].values())) for one in s["attributes"]} for s in spans]
    chats = [one for one in told if one.get("gen_ai.operation.name") == "chat"]
    tools = [one for one in told if one.get("gen_ai.operation.name") == "execute_tool"]
    key = "llm.output_messages.0.message.tool_calls.{}.tool_call.function.arguments"
    arguments = [one[key.format(n)] for one in chats for n in range(200) if key.format(n) in one]
    got = read("otlp", path)
    assert len(got.of(ModelReplied)) == len(chats)
    assert all_arguments(got) == arguments
    outputs = {one["gen_ai.tool.call.id"]: one["output.value"] for one in tools}
    assert {one.provider_id: from_tree(one.output) for one in got.of(ToolResult)} == outputs
    assert sum(got.loss.seen.values()) == len(spans)
    assert check(importer("otlp"), Source.of_path(str(path))) == []


def test_the_real_ai_sdk_spans_have_their_replies_prompts_tokens_and_times(shared_data: Path) -> None:
    path = shared_data / "openinference" / "vercel_v6_all-spans.json"
    spans = json.loads(path.read_text())
    calls = [one for one in spans if one["attributes"]["ai.operationId"].endswith(("doGenerate", "doStream"))]
    got = read("otlp", path)
    texts = [one["attributes"].get("ai.response.text", one["attributes"].get("ai.response.object")) for one in calls]
    assert sorted(from_tree(one.wire)["content"] for one in got.of(ModelReplied)) == sorted(texts)
    assert got.usage() == (
        sum(one["attributes"]["gen_ai.usage.input_tokens"] for one in calls), 0, 0,
        sum(one["attributes"]["gen_ai.usage.output_tokens"] for one in calls),
    )  # fmt: skip
    prompts = sum(len(json.loads(one["attributes"]["ai.prompt.messages"])) for one in calls)
    assert len(got.of(MessageAdded)) == prompts
    times = {item.recorded_at for item in got.items if isinstance(item.payload, ModelReplied)}
    assert times == {one["endTime"][0] * 1_000_000 + one["endTime"][1] // 1_000 for one in calls}
    assert sum(got.loss.seen.values()) == len(spans)
    assert check(importer("otlp"), Source.of_path(str(path))) == []


def test_a_hostile_span_id_of_an_agent_refuses_its_trace_and_no_other() -> None:
    inner = span(5, 2, {"gen_ai.operation.name": "invoke_agent"}, parent=1, spanId="..")
    bad = [AGENT, span(2, 1, NEW[0]), inner, {**span(6, 3, NEW[0]), "parentSpanId": ".."}]
    good = [{**one, "traceId": TRACE[::-1]} for one in (AGENT, span(2, 1, NEW[0]))]
    got = read("otlp", document(batch(*bad, *good)))
    assert {item.trajectory_id for item in got.items} == {f"otlp/{TRACE[::-1]}"}
    assert (got.loss.skipped, got.loss.problem_count) == ({"hostile id": 4}, 1)


# -- Langfuse


def langfuse_facts(path: Path) -> tuple[list[dict[str, Any]], tuple[int, int]]:
    observations = json.loads(path.read_text())["observations"]
    generations = [one for one in observations if one["type"] == "GENERATION"]
    return generations, (
        sum(one["usageDetails"]["input"] for one in generations),
        sum(one["usageDetails"]["output"] for one in generations),
    )


# file -> calls, unanswered: counted by hand in the files (the manifest does not look inside `additional_kwargs`
# and leaves out `final_result`, which nothing answers).
LANGFUSE = {"langgraph-python-2025-08-22.trace.json": (1, 0), "openai-agents-2025-09-30.trace.json": (1, 0),
            "pydantic-ai-tools-2025-12-04.trace.json": (4, 1)}  # fmt: skip


@pytest.mark.parametrize("name", LANGFUSE)
def test_the_real_langfuse_traces_have_every_generation_call_result_and_token(shared_data: Path, name: str) -> None:
    path = shared_data / "langfuse" / name
    generations, (shown, made) = langfuse_facts(path)
    got = read("langfuse", path)
    assert len(got.of(ModelReplied)) == len(generations)
    assert (len(got.calls), got.unanswered) == LANGFUSE[name]
    usage = got.usage()
    assert (usage[0], usage[3]) == (shown, made)
    text = path.read_text()
    for argument in all_arguments(got):
        assert (
            str(argument) in text
            or json.dumps(argument)[1:-1] in text
            or json.dumps(json.dumps(argument)[1:-1])[1:-1] in text
        )
    outer = json.loads(text)
    copies = len(outer["trace"].get("observations", []))
    assert sum(got.loss.seen.values()) == len(outer["observations"]) + copies + 1
    assert check(importer("langfuse"), Source.of_path(str(path))) == []
    at = [item.recorded_at for item in got.items if isinstance(item.payload, ModelReplied)]
    assert at == sorted(at)


def test_langfuse_results_are_the_outputs_of_the_tools(shared_data: Path) -> None:
    got = read("langfuse", shared_data / "langfuse" / "pydantic-ai-tools-2025-12-04.trace.json")
    outputs = {one.tool: from_tree(one.output) for one in got.of(ToolResult)}
    assert set(outputs) == {"get_pun_suggestion", "get_dad_joke_suggestion", "get_one_liner_suggestion"}
    assert outputs["get_pun_suggestion"].startswith("Pun idea: Play on words")
    agents = read("langfuse", shared_data / "langfuse" / "openai-agents-2025-09-30.trace.json")
    assert [one.output for one in agents.of(ToolResult)] == ["The weather in Tokyo is sunny."]


def observation(number: int, kind: str, start: int, **more: Any) -> dict[str, Any]:
    return {"id": f"o{number}", "type": kind, "name": more.pop("name", kind), "parentObservationId": None,
            "startTime": f"2026-01-01T00:00:{start:02}Z", "endTime": f"2026-01-01T00:00:{start + 1:02}Z",
            **more}  # fmt: skip


def langfuse_trace(as_text: bool) -> bytes:
    def told(value: Any) -> Any:
        return json.dumps(value) if as_text else value

    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":1}'}}
    asked, called = {"role": "user", "content": "what?"}, {"role": "assistant", "content": "hm", "tool_calls": [call]}
    answered = {"role": "tool", "tool_call_id": "c1", "content": "seen"}
    rows = [
        observation(3, "GENERATION", 6, input=told([asked, called, answered]), model="m",
                    output=told({"role": "assistant", "content": "this"}), usageDetails={"input": 9, "output": 1}),
        observation(2, "TOOL", 4, name="look", input=told({"at": 1}), output=told("seen")),
        observation(1, "GENERATION", 1, input=told([asked]), output=told(called), model="m",
                    usageDetails={"input": 5, "output": 2, "input_cache_read": 4, "total": 11}),
    ]  # fmt: skip
    return document({"trace": {"id": "t1", "projectId": "p", "scores": [{"value": 1}]}, "observations": rows})


def test_langfuse_fields_as_text_and_as_data_give_the_same_events() -> None:
    text, data = read("langfuse", langfuse_trace(True)), read("langfuse", langfuse_trace(False))
    for kind in (MessageAdded, ModelReplied, ToolResult):
        assert [one.item_hash for one in text.of(kind)] == [one.item_hash for one in data.of(kind)]
    assert [from_tree(one.wire)["content"] for one in data.of(ModelReplied)] == ["hm", "this"]
    assert (data.usage(), data.unanswered) == ((18, 4, 0, 3), 0)
    assert json.loads(data.kept("trace")[0].payload.raw)["scores"] == [{"value": 1}]


def test_langfuse_one_bad_trace_stops_none_of_the_others() -> None:
    good = json.loads(langfuse_trace(False))
    bad = {**good, "trace": {**good["trace"], "id": "../../etc"}}
    got: Read = read("langfuse", document([bad, {"id": "x", "observations": None}, good]))
    assert list(by_trajectory(got.items)) == ["langfuse/t1"]
    assert got.loss.problem_count == 2
