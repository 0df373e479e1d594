"""Record only: a program as it is, through a wrapped transport."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.runtime.model_server import ModelServer, event_stream, model_server
from trajlake.runtime import Journal
from trajlake.runtime.models import openai_chat
from trajlake.runtime.recipes.record_only import Recording, recording
from trajlake.runtime.root_log import RootLog
from trajlake.schemas.chain import verify
from trajlake.schemas.history import canonical

from .scene import anthropic_body, openai_body


@pytest.fixture
def served() -> Iterator[ModelServer]:
    with model_server() as server:
        yield server


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.open(tmp_path / "root") as opened:
        yield opened


def events(journal: Journal) -> list[Any]:
    found = canonical(RootLog(journal.root).read("default", "t", None).events).events
    assert verify(found) == []
    return found


def client(record: Recording, url: str) -> Any:
    from openai import OpenAI

    http = httpx.Client(transport=record.wrap(httpx.HTTPTransport()))
    return OpenAI(api_key="secret-key", base_url=url, max_retries=0, http_client=http)


def ask(program: Any, messages: list[Any], **more: Any) -> Any:
    return program.chat.completions.create(model="m", messages=messages, **more).choices[0].message


def test_a_programs_calls_are_turns_and_its_messages_are_found_again(journal: Journal, served: ModelServer) -> None:
    first = openai_body(None, ("call_1", "look", "{}"))
    served.says(first)
    served.says(openai_body("done"))
    with recording(journal, "t", task="look") as record:
        program = client(record, served.url)
        messages: list[Any] = [{"role": "user", "content": "look"}]
        reply = ask(program, messages, temperature=0.5)
        messages += [reply.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": "call_1", "content": "7"}]
        assert ask(program, messages).content == "done"
    found = events(journal)
    replies = [event for event in found if event.type == "ModelReplied"]
    assert [event.turn for event in replies] == [0, 1]
    assert replies[0].body.raw == first.decode()
    assert [event.body.role for event in found if event.type == "MessageAdded"] == ["user", "tool"]
    built = [event.body for event in found if event.type == "ContextBuilt"]
    assert built[1].keep == 1
    assert "0.5" in json.dumps([built[0].stored])
    assert found[-2].body.status == "completed"
    assert "secret-key" not in repr(found)


def test_a_stream_reaches_the_program_and_its_whole_reply_the_record(journal: Journal, served: ModelServer) -> None:
    pieces = [{"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"content": one}}]} for one in ("do", "ne")]
    last = {"id": "c", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    served.streams(event_stream(*pieces, last, "[DONE]"))
    with recording(journal, "t", task="x") as record:
        asked = [{"role": "user", "content": "x"}]
        stream = client(record, served.url).chat.completions.create(model="m", messages=asked, stream=True)
        assert "".join(one.choices[0].delta.content or "" for one in stream) == "done"
    (reply,) = [event.body for event in events(journal) if event.type == "ModelReplied"]
    assert json.loads(reply.raw)["choices"][0]["message"]["content"] == "done"


def test_what_fails_reaches_the_program_as_it_came_and_is_recorded(journal: Journal, served: ModelServer) -> None:
    from openai import RateLimitError

    served.says(b'{"error": {"message": "slow down"}}', status=429)
    served.says(openai_body("done"))
    with recording(journal, "t", task="x") as record:
        program = client(record, served.url)
        asked = [{"role": "user", "content": "x"}]
        with pytest.raises(RateLimitError, match="slow down"):
            ask(program, asked)
        assert ask(program, asked).content == "done"
        nowhere = client(record, "http://127.0.0.1:9")
        with pytest.raises(Exception, match="Connection error"):
            ask(nowhere, asked)
    statuses = [event.body.status for event in events(journal) if event.type == "ModelReplied"]
    assert statuses == ["error", "kept", "error"]


def test_a_program_that_fails_ends_its_recording_and_nothing_is_added_to_it(
    journal: Journal, served: ModelServer
) -> None:
    served.says(openai_body("one"))
    served.says(openai_body("two"))
    asked = [{"role": "user", "content": "x"}]

    def program(failing: bool) -> None:
        with recording(journal, "t", task="x") as record:
            ask(client(record, served.url), asked)
            if failing:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        program(failing=True)
    assert events(journal)[-2].body.status == "failed"
    with pytest.raises(Exception, match="over"):
        program(failing=False)


def test_a_killed_program_started_again_goes_on_in_a_new_turn(journal: Journal, served: ModelServer) -> None:
    served.says(openai_body("one"))
    served.says(openai_body("two"))
    asked = [{"role": "user", "content": "x"}]

    def cut(t: Any) -> None:
        for turn in t.turns():
            turn.model(openai_chat("m", base_url=served.url, key_env=None), tools=[], messages=asked)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        journal.run(cut, "t", task="x")
    with recording(journal, "t", task="x") as record:
        assert ask(client(record, served.url), asked).content == "two"
    replies = [event for event in events(journal) if event.type == "ModelReplied"]
    assert [event.turn for event in replies] == [0, 1]


@pytest.mark.parametrize("sent", [b'{"role": "user", "content": "x"}', b'{"messages": ["x"]}', b"[]", b"no JSON"])
def test_what_is_no_model_call_goes_through_unrecorded(journal: Journal, sent: bytes) -> None:
    inner = httpx.MockTransport(lambda request: httpx.Response(200, content=request.content))
    with recording(journal, "t", task="x") as record:
        program = httpx.Client(transport=record.wrap(inner))
        assert program.post("http://nowhere/v1/threads/X/messages", content=sent).content == sent
    assert not [event for event in events(journal) if event.type == "ModelReplied"]


class Slow(httpx.AsyncBaseTransport):
    """Answers all but the first request, which it keeps."""

    def __init__(self) -> None:
        self.arrived, self.given_up = asyncio.Event(), asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if not self.arrived.is_set():
            self.arrived.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.given_up.set()
        return httpx.Response(200, content=openai_body("done"), headers={"content-type": "application/json"})


ASKED: Any = {"model": "m", "messages": [{"role": "user", "content": "x"}]}


def test_a_call_the_program_gives_up_is_recorded_and_the_next_one_is_answered(journal: Journal) -> None:
    async def program(record: Recording) -> Any:
        slow = Slow()
        async with httpx.AsyncClient(transport=record.wrap(slow), timeout=None) as web:
            call = asyncio.ensure_future(web.post("http://nowhere/chat/completions", json=ASKED))
            await slow.arrived.wait()
            queued = asyncio.ensure_future(web.post("http://nowhere/chat/completions", json=ASKED))
            await asyncio.sleep(0)
            queued.cancel()
            call.cancel()
            await asyncio.gather(call, queued, return_exceptions=True)
            await asyncio.wait_for(slow.given_up.wait(), 30)
            return (await asyncio.wait_for(web.post("http://nowhere/chat/completions", json=ASKED), 30)).json()

    with recording(journal, "t", task="x") as record:
        assert asyncio.run(program(record))["choices"][0]["message"]["content"] == "done"
    assert [event.body.status for event in events(journal) if event.type == "ModelReplied"] == ["error", "kept"]


def test_leaving_the_block_in_a_loop_with_calls_under_way_fails_them(journal: Journal) -> None:
    async def program() -> list[Any]:
        slow = Slow()
        with recording(journal, "t", task="x") as record:
            web = httpx.AsyncClient(transport=record.wrap(slow), timeout=None)
            calls = [asyncio.ensure_future(web.post("http://n/chat/completions", json=ASKED)) for _ in range(2)]
            await slow.arrived.wait()
        return await asyncio.gather(*calls, return_exceptions=True)

    ended: list[Any] = []
    runs = threading.Thread(target=lambda: ended.extend(asyncio.run(program())), daemon=True)
    runs.start()
    runs.join(60)
    assert [str(one) for one in ended] == ["the recording ended before the call was answered"] * 2
    assert events(journal)[-2].body.status == "completed"


@pytest.mark.long
def test_anthropic_clients_under_asyncio_are_recorded_too(journal: Journal, served: ModelServer) -> None:
    import httpx2
    from anthropic import AsyncAnthropic

    served.says(anthropic_body("done"))

    async def program(record: Recording) -> str:
        http = httpx2.AsyncClient(transport=record.wrap(httpx2.AsyncHTTPTransport()))
        client = AsyncAnthropic(api_key="k", base_url=served.url, max_retries=0, http_client=http)
        asked: Any = {"model": "m", "max_tokens": 10, "system": "brief", "messages": [{"role": "user", "content": "x"}]}
        message: Any = await client.messages.create(**asked)
        return str(message.content[0].text)

    with recording(journal, "t", task="x") as record:
        assert asyncio.run(program(record)) == "done"
    found = events(journal)
    assert [event.body.role for event in found if event.type == "MessageAdded"] == ["system", "user"]
