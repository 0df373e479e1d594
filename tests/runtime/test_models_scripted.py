"""The scripted model goes on where the log stands, in any process."""

from __future__ import annotations

import pytest

from trajlake.runtime.models import (
    Context,
    Model,
    ModelError,
    ScriptedCall,
    ScriptedReply,
    ToolSpec,
    read_response,
    scripted,
)

SCRIPT = ["hello", [("pay", {"cents": 5}), ScriptedCall("pay", '{"cents": 5', "same")], ScriptedReply(text="done")]


def answer(model, replies_so_far: int, heard: list[str] | None = None):
    items = [{"role": "user", "content": "go"}, *({"role": "assistant", "content": "x"} for _ in range(replies_so_far))]
    body = model.send(
        model.request(Context(items=items), [ToolSpec(name="pay")]), None if heard is None else heard.append
    )
    return read_response(model, body)


def test_the_reply_is_chosen_by_how_many_the_context_holds():
    model = scripted(SCRIPT)
    assert isinstance(model, Model)
    assert [answer(model, 2).text, answer(model, 0).text] == ["done", "hello"]
    assert answer(scripted(SCRIPT), 2).text == "done"


def test_calls_keep_ids_and_text_as_given():
    calls = answer(scripted(SCRIPT), 1).calls
    assert [(call.tool, call.provider_id, call.arguments) for call in calls] == [
        ("pay", "call_1_0", '{"cents":5}'),
        ("pay", "same", '{"cents": 5'),
    ]


def test_the_same_call_gives_the_same_bytes_in_another_process():
    context = Context(items=[])
    first, second = scripted(SCRIPT), scripted(SCRIPT)
    assert first.send(first.request(context)) == second.send(second.request(context))


def test_a_function_sees_the_context_and_may_propose_calls():
    model = scripted(lambda context: [("look", {"n": len(context.items)}), ScriptedCall("b", "{}")])
    assert [call.arguments for call in answer(model, 3).calls] == ['{"n":4}', "{}"]


def test_failures_come_first_and_are_counted_per_reply():
    model = scripted([ScriptedReply(text="late", fails_before=2), "x"])
    for _ in range(2):
        with pytest.raises(ModelError) as failure:
            answer(model, 0)
        assert failure.value.retry
    assert answer(model, 0).text == "late"
    assert answer(model, 1).text == "x"


def test_a_script_that_ends_too_soon_says_so_and_is_not_tried_again():
    with pytest.raises(ModelError, match="has 3 replies, reply 3") as failure:
        answer(scripted(SCRIPT), 3)
    assert not failure.value.retry


def test_text_is_streamed_and_usage_reported():
    heard: list[str] = []
    response = answer(scripted(SCRIPT), 0, heard)
    assert heard == ["hello"]
    assert (response.usage.input_total, response.usage.output) == (10, 5)
