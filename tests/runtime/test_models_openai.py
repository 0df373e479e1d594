"""The OpenAI chat format: bodies, byte-exact arguments, streams that equal the unstreamed reply."""

from __future__ import annotations

import json

import msgspec
import pytest

from tests.runtime.model_server import event_stream, model_server
from trajlake.runtime.models import Context, ModelError, ToolSpec, openai_chat, read_response
from trajlake.schemas.events import Usage

ODD_ARGUMENTS = '{"q": "caf\\u00e9",\n  "n": 1.0, "n": 2, "s": "\\ud83d"}'


def body(message: dict, **top) -> bytes:
    whole = {"id": "c-1", "object": "chat.completion", "model": "m-2026", **top}
    return json.dumps(
        {**whole, "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}]}
    ).encode()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-very-secret")
    with model_server() as served:
        yield served


def model(served, **options):
    return openai_chat("m", base_url=f"{served.url}/v1", **{"key_env": "SOME_KEY", "timeout_s": 5.0} | options)


def test_a_request_holds_items_tools_and_parameters_and_no_key(server):
    context = Context(
        items=[
            {"role": "system", "content": "be brief"},
            {"role": "assistant", "content": None, "refusal": None, "annotations": [], "tool_calls": [{"id": "x"}]},
            {"role": "tool", "tool_call_id": "x", "content": "done"},
        ],
        parameters={"temperature": 0},
    )
    request = model(server).request(context, [ToolSpec(name="pay", description="Pay.", schema={"type": "object"})])
    assert json.loads(request) == {
        "model": "m",
        "temperature": 0,
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "assistant", "tool_calls": [{"id": "x"}]},
            {"role": "tool", "tool_call_id": "x", "content": "done"},
        ],
        "tools": [
            {"type": "function", "function": {"name": "pay", "description": "Pay.", "parameters": {"type": "object"}}}
        ],
    }
    assert request == model(server).request(
        context, [ToolSpec(name="pay", description="Pay.", schema={"type": "object"})]
    )


def test_one_send_is_one_request_with_the_key_in_its_header_and_the_body_back_verbatim(server):
    answer = b'  {"id":"c","choices":[{"message":{"role":"assistant","content":"hi"}}]}\n'
    server.says(answer)
    assert model(server).send(b'{"model":"m"}') == answer
    (asked,) = server.asked
    assert (asked.path, asked.body) == ("/v1/chat/completions", b'{"model":"m"}')
    assert asked.headers["authorization"] == "Bearer sk-very-secret"


def test_arguments_come_back_byte_for_byte_with_the_pointer_that_leads_to_them():
    calls = [
        {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": ODD_ARGUMENTS}},
        {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": "{broken"}},
        {"id": "c3", "type": "custom", "custom": {"name": "sh", "input": "ls -l"}},
    ]
    raw = body({"content": "looking", "tool_calls": calls})
    response = read_response("openai.chat/1", raw)
    assert [(call.tool, call.provider_id, call.arguments) for call in response.calls] == [
        ("find", "call_1", ODD_ARGUMENTS),
        ("find", "call_1", "{broken"),
        ("sh", "c3", "ls -l"),
    ]
    for call in response.calls:
        place = json.loads(raw)
        for step in call.pointer.split("/")[1:]:
            place = place[int(step)] if step.isdigit() else place[step]
        assert place == call.arguments
    assert response.arguments_in_place
    assert (response.text, response.stop_reason, response.served_model) == ("looking", "stop", "m-2026")
    assert (response.response_id, response.item_pointer) == ("c-1", "/choices/0/message")
    assert response.item == json.loads(raw)["choices"][0]["message"]


def test_a_server_that_sends_arguments_as_an_object_gives_the_objects_exact_text():
    raw = body({"tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {}}}]}).replace(
        b'"arguments": {}', b'"arguments": {"a":  1.50}'
    )
    response = read_response("openai.chat/1", raw)
    assert response.calls[0].arguments == '{"a":  1.50}'
    assert not response.arguments_in_place


def test_the_old_function_call_is_a_call():
    response = read_response(
        "openai.chat/1", body({"content": None, "function_call": {"name": "f", "arguments": "{}"}})
    )
    assert [(call.tool, call.pointer) for call in response.calls] == [
        ("f", "/choices/0/message/function_call/arguments")
    ]
    assert response.text == ""


@pytest.mark.parametrize(
    ("reported", "usage"),
    [
        (None, None),
        ({}, Usage()),
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 30,
                "prompt_tokens_details": {"cached_tokens": 80},
                "completion_tokens_details": {"reasoning_tokens": 12},
            },
            Usage(input_total=100, cached_read=80, output=30, reasoning=12),
        ),
        ({"prompt_tokens": 5, "prompt_cache_hit_tokens": 3}, Usage(input_total=5, cached_read=3)),
        ({"prompt_tokens": -1, "completion_tokens": True, "prompt_tokens_details": None}, Usage()),
    ],
)
def test_usage_is_normalised_and_what_is_not_reported_stays_unknown(reported, usage):
    assert read_response("openai.chat/1", body({"content": "x"}, usage=reported)).usage == usage


@pytest.mark.parametrize(("stated", "kept"), [("tenant-7", "tenant-7"), (None, ""), (7, "")])
def test_the_cache_key_that_the_provider_reports_is_kept(stated, kept):
    assert read_response("openai.chat/1", body({"content": "hi"}, prompt_cache_key=stated)).cache_key == kept


def test_text_in_parts_is_joined():
    parts = [{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}]
    assert read_response("openai.chat/1", body({"content": parts})).text == "ab"


@pytest.mark.parametrize("raw", [b"", b"<html>", b"[]", b"{}", b'{"choices":[]}', b'{"choices":[{}]}', b"\xff"])
def test_a_body_of_another_shape_is_a_model_error_that_keeps_it(raw):
    with pytest.raises(ModelError, match="is no openai") as failure:
        read_response("openai.chat/1", raw)
    assert failure.value.body == raw


def chunk(delta: dict, finish: str | None = None, **top) -> dict:
    return {"id": "s-1", "model": "m-2026", **top, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


STREAM = event_stream(
    chunk({"role": "assistant", "content": ""}, prompt_cache_key="tenant-7"),
    chunk({"content": "Hel"}),
    chunk({"content": "lo \N{GRINNING FACE}"}),
    chunk(
        {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "pay", "arguments": ""}}]}
    ),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"cents":'}}]}),
    chunk({"tool_calls": [{"index": 1, "id": "call_2", "function": {"name": "pay", "arguments": "{}"}}]}),
    chunk({"tool_calls": [{"index": 0, "function": {"name": "pay", "arguments": " 5}"}}]}),
    chunk({}, "tool_calls"),
    {"id": "s-1", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}},
    "[DONE]",
)


@pytest.mark.parametrize("size", [1, 7, 100, len(STREAM)])
def test_a_stream_cut_anywhere_gives_the_reply_that_no_stream_would_give(server, size):
    pieces = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
    server.streams(*pieces)
    heard: list[str] = []
    raw = model(server).send(b'{"model":"m","temperature":0}', heard.append)
    assert "".join(heard) == "Hello \N{GRINNING FACE}"
    assert server.asked[0].tree == {
        "model": "m", "temperature": 0, "stream": True, "stream_options": {"include_usage": True}
    }  # fmt: skip
    response = read_response("openai.chat/1", raw)
    assert [(call.tool, call.provider_id, call.arguments) for call in response.calls] == [
        ("pay", "call_1", '{"cents": 5}'),
        ("pay", "call_2", "{}"),
    ]
    assert (response.stop_reason, response.response_id, response.usage.input_total) == ("tool_calls", "s-1", 7)
    assert response.cache_key == "tenant-7"
    assert msgspec.json.decode(raw)["object"] == "chat.completion"


def test_carriage_returns_comments_and_a_missing_last_newline_are_understood(server):
    server.streams(
        b": keep-alive\r\n\r\nevent: x\r\ndata:" + json.dumps(chunk({"content": "ok"}, "stop")).encode() + b"\r",
        b"\n\r\n", b"data: [DONE]", chunked=False,
    )  # fmt: skip
    assert read_response("openai.chat/1", model(server).send(b"{}", lambda _: None)).text == "ok"


@pytest.mark.parametrize(
    "stream",
    [
        event_stream(chunk({"content": "half"})),
        event_stream(chunk({"content": "half"}), "[DONE]"),
        event_stream(chunk({"content": "half"}), {"error": {"message": "overloaded"}}),
        event_stream(chunk({"content": "half"}), "{torn"),
        b"",
    ],
)
def test_a_stream_that_breaks_off_is_an_error_never_half_a_reply(server, stream):
    server.streams(stream)
    with pytest.raises(ModelError) as failure:
        model(server).send(b"{}", lambda _: None)
    assert failure.value.retry
    assert failure.value.spend_unknown


def test_a_server_that_does_not_stream_when_asked_still_gives_its_reply(server):
    server.says(body({"content": "whole"}))
    assert read_response("openai.chat/1", model(server).send(b"{}", lambda _: None)).text == "whole"
