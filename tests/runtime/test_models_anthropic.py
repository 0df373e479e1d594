"""The Anthropic messages format: bodies, byte-exact arguments, streams that equal the unstreamed reply."""

from __future__ import annotations

import json

import pytest

from tests.runtime.model_server import event_stream, model_server
from trajlake.runtime.models import Context, ModelError, ToolSpec, anthropic, read_response, result_item
from trajlake.schemas.events import ProposedCall, Usage

BODY = b"""{"id":"msg_1","type":"message","role":"assistant","model":"claude-x-1","content":[
 {"type":"text","text":"Let me "},
 {"type":"tool_use","id":"toolu_1","name":"pay","input": {"cents":  5.0, "to":"\\u00e9"}},
 {"type":"text","text":"see"},{"type":"tool_use","id":"toolu_2","name":"noop","input":{}}],
 "stop_reason":"tool_use","usage":{"input_tokens":10,"cache_read_input_tokens":90,"cache_creation_input_tokens":5,
 "output_tokens":7}}"""


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-ant-secret")
    with model_server() as served:
        yield served


def model(served, **options):
    return anthropic("claude-x", base_url=f"{served.url}/v1", **{"key_env": "SOME_KEY", "timeout_s": 5.0} | options)


def test_system_items_go_on_top_and_results_of_parallel_calls_into_one_message(server):
    call = ProposedCall(tool="pay", provider_id="toolu_1")
    context = Context(
        items=[
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "pay twice"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "pay", "input": {}}]},
            result_item("anthropic.messages/1", call, "ok"),
            result_item("anthropic.messages/1", ProposedCall(tool="pay", provider_id="toolu_2"), "no", failed=True),
            {"role": "user", "content": "and now?"},
        ],
        parameters={"max_tokens": 50},
    )
    request = json.loads(model(server).request(context, [ToolSpec(name="pay", schema={"type": "object"})]))
    assert request["system"] == [{"type": "text", "text": "be brief"}]
    assert request["max_tokens"] == 50
    assert request["tools"] == [{"name": "pay", "description": "", "input_schema": {"type": "object"}}]
    assert [message["role"] for message in request["messages"]] == ["user", "assistant", "user"]
    assert request["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"},
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": "no", "is_error": True},
        {"type": "text", "text": "and now?"},
    ]


def test_building_a_request_leaves_the_context_as_it_was(server):
    items = [{"role": "user", "content": [{"type": "text", "text": "a"}]}, {"role": "user", "content": "b"}]
    before = json.dumps(items)
    model(server).request(Context(items=items))
    assert json.dumps(items) == before


def test_the_key_and_the_api_version_stand_in_headers_of_their_own(server):
    server.says(BODY)
    assert model(server).send(b"{}") == BODY
    (asked,) = server.asked
    assert asked.path == "/v1/messages"
    assert asked.headers["x-api-key"] == "sk-ant-secret"
    assert asked.headers["anthropic-version"]
    assert "authorization" not in asked.headers


def test_arguments_are_the_exact_slice_of_the_body_and_usage_counts_the_cache_in():
    response = read_response("anthropic.messages/1", BODY)
    assert [(call.tool, call.provider_id, call.pointer, call.arguments) for call in response.calls] == [
        ("pay", "toolu_1", "/content/1/input", '{"cents":  5.0, "to":"\\u00e9"}'),
        ("noop", "toolu_2", "/content/3/input", "{}"),
    ]
    assert not response.arguments_in_place
    assert response.text == "Let me see"
    assert response.usage == Usage(input_total=105, cached_read=90, cache_write=5, output=7)
    assert (response.served_model, response.response_id, response.stop_reason) == ("claude-x-1", "msg_1", "tool_use")
    assert response.item == {"role": "assistant", "content": json.loads(BODY)["content"]}
    assert response.item_pointer is None


def block(index: int, kind: dict, *deltas: dict) -> list[dict]:
    return [
        {"type": "content_block_start", "index": index, "content_block": kind},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def message(*blocks: list[dict], stop: str = "tool_use") -> bytes:
    return event_stream(
        {"type": "message_start", "message": {
            "id": "msg_2", "role": "assistant", "model": "claude-x-1", "content": [], "stop_reason": None,
            "usage": {"input_tokens": 3, "output_tokens": 1},
        }},
        {"type": "ping"},
        *(event for each in blocks for event in each),
        {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    )  # fmt: skip


def pieces_of(text: str) -> list[dict]:
    return [{"type": "input_json_delta", "partial_json": text[at : at + 4]} for at in range(0, len(text), 4)]


def test_a_stream_gives_arguments_as_the_model_emitted_them(server):
    emitted = '{"cents":  5.0, "to": "\\u00e9", "to": "x"}'
    server.streams(
        message(
            block(0, {"type": "thinking", "thinking": ""}, {"type": "thinking_delta", "thinking": "hm"},
                  {"type": "signature_delta", "signature": "sig"}),
            block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Let "},
                  {"type": "text_delta", "text": "me"}),
            block(2, {"type": "tool_use", "id": "toolu_1", "name": "pay", "input": {}}, *pieces_of(emitted)),
            block(3, {"type": "tool_use", "id": "toolu_2", "name": "noop", "input": {}}),
        )
    )  # fmt: skip
    heard: list[str] = []
    raw = model(server).send(b"{}", heard.append)
    assert heard == ["Let ", "me"]
    assert server.asked[0].tree == {"stream": True}
    response = read_response("anthropic.messages/1", raw)
    assert [call.arguments for call in response.calls] == [emitted, "{}"]
    assert response.usage == Usage(input_total=3, output=9)
    assert response.stop_reason == "tool_use"
    assert json.loads(raw)["content"][0] == {"type": "thinking", "thinking": "hm", "signature": "sig"}


def test_arguments_cut_off_by_the_token_limit_are_kept_as_text(server):
    server.streams(
        message(
            block(0, {"type": "tool_use", "id": "1", "name": "pay", "input": {}}, *pieces_of('{"cents": ')),
            stop="max_tokens",
        )
    )
    response = read_response("anthropic.messages/1", model(server).send(b"{}", lambda _: None))
    assert [call.arguments for call in response.calls] == ['{"cents": ']
    assert response.stop_reason == "max_tokens"


@pytest.mark.parametrize(("kind", "retry"), [("overloaded_error", True), ("invalid_request_error", False), ("", False)])
def test_an_error_inside_a_stream_says_whether_another_attempt_may_help(server, kind, retry):
    server.streams(event_stream({"type": "error", "error": {"type": kind}}))
    with pytest.raises(ModelError, match=kind or "an error") as failure:
        model(server).send(b"{}", lambda _: None)
    assert failure.value.retry is retry


def test_a_stream_without_its_end_is_an_error(server):
    server.streams(message(block(0, {"type": "text", "text": "half"})).replace(b'"message_stop"', b'"ping"'))
    with pytest.raises(ModelError, match="before the reply was complete"):
        model(server).send(b"{}", lambda _: None)


@pytest.mark.parametrize("raw", [b"", b"{}", b'{"content":"text"}', b'{"content":[1]}'])
def test_a_body_of_another_shape_is_a_model_error(raw):
    with pytest.raises(ModelError, match="is no anthropic"):
        read_response("anthropic.messages/1", raw)
