"""One attempt over HTTP: what may be tried again, what may have been paid for, and where the key never shows."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time

import pytest

from tests.runtime.model_server import model_server
from trajlake.runtime.models import Context, ModelError, Response, asend, http, openai_chat, read_response
from trajlake.runtime.models import wire as wire_module
from trajlake.runtime.models.protocol import Model

KEY = "sk-very-secret"
GOOD = b'{"choices":[{"message":{"role":"assistant","content":"hi"}}]}'


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("SOME_KEY", KEY)
    with model_server() as served:
        yield served


def failure_of(model: Model, request: bytes = b"{}") -> ModelError:
    with pytest.raises(ModelError) as failure:
        model.send(request)
    return failure.value


def model(served, **options):
    return http("m", f"{served.url}/ask?v=1", **{"key_env": "SOME_KEY", "timeout_s": 5.0} | options)


@pytest.mark.parametrize(
    ("status", "retry", "spend_unknown"),
    [(400, False, False), (401, False, False), (404, False, False), (408, True, False), (429, True, False),
     (500, True, True), (503, True, True), (529, True, True), (302, False, False)],
)  # fmt: skip
def test_a_refusal_says_whether_to_try_again_and_whether_it_may_have_cost(server, status, retry, spend_unknown):
    server.says(b'{"error":"no"}', status=status, headers={"Retry-After": "7", "Location": "/elsewhere"})
    failure = failure_of(model(server))
    assert (failure.status, failure.retry, failure.spend_unknown) == (status, retry, spend_unknown)
    assert (failure.body, failure.retry_after_s) == (b'{"error":"no"}', 7.0)
    assert str(status) in str(failure)
    assert len(server.asked) == 1


def test_no_server_there_cost_nothing_and_may_be_tried_again():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    failure = failure_of(http("m", f"http://127.0.0.1:{port}/", timeout_s=2))
    assert (failure.retry, failure.spend_unknown, failure.status) == (True, False, None)


def test_a_connection_that_breaks_after_the_request_may_have_cost(server):
    server.does(lambda handler: handler.connection.shutdown(socket.SHUT_RDWR))
    failure = failure_of(model(server))
    assert (failure.retry, failure.spend_unknown) == (True, True)


def test_a_body_that_ends_early_is_no_reply(server):
    def short(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(GOOD)

    server.does(short)
    failure = failure_of(model(server))
    assert failure.retry
    assert "early" in str(failure) or "broke off" in str(failure)


@pytest.mark.parametrize("slow", ["silent", "dripping"])
def test_the_timeout_covers_the_whole_attempt_however_slowly_bytes_drip(server, slow):
    stop = threading.Event()

    def answer(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        while not stop.wait(0.05):
            if slow == "dripping":
                handler.wfile.write(b" ")

    server.does(answer)
    began = time.monotonic()
    failure = failure_of(model(server, timeout_s=0.4))
    stop.set()
    assert time.monotonic() - began < 3
    assert (failure.retry, failure.spend_unknown) == (True, True)


def test_a_body_over_the_limit_is_an_error_not_a_cut_reply(server, monkeypatch):
    monkeypatch.setattr(wire_module, "BODY_MAX", 1000)
    server.says(b" " * 2000)
    failure = failure_of(model(server))
    assert not failure.retry
    assert "1000 bytes" in str(failure)


def test_the_key_is_read_at_each_send_and_its_variable_named_when_unset(server, monkeypatch):
    server.says(GOOD)
    asking = model(server)
    monkeypatch.setenv("SOME_KEY", "rotated")
    asking.send(b"{}")
    assert server.asked[0].headers["authorization"] == "Bearer rotated"
    monkeypatch.delenv("SOME_KEY")
    failure = failure_of(asking)
    assert "SOME_KEY" in str(failure)
    assert (failure.retry, failure.spend_unknown, len(server.asked)) == (False, False, 1)


@pytest.mark.parametrize("value", ["with\nnewline", "with\x00nul", "schlüssel"])
def test_an_unusable_key_is_refused_without_being_shown(server, monkeypatch, value):
    if "\x00" in value:
        monkeypatch.setattr(wire_module.REAL_ENV, "variable", {"SOME_KEY": value}.get)
    else:
        monkeypatch.setenv("SOME_KEY", value)
    failure = failure_of(model(server))
    assert value not in str(failure)
    assert server.asked == []


@pytest.mark.parametrize("status", [200, 401, 500])
def test_a_server_that_echoes_the_key_does_not_get_it_into_any_record(server, status):
    server.says(
        json.dumps({"error": f"bad key {KEY}", "choices": [{"message": {"content": KEY}}]}).encode(), status=status
    )
    if status == 200:
        shown = model(server).send(b"{}")
    else:
        failure = failure_of(model(server))
        shown = failure.body + str(failure).encode() + repr(failure.args).encode()
    assert KEY.encode() not in shown
    assert b"removed" in shown


def test_neither_model_nor_request_show_the_key(server):
    asking = model(server)
    assert KEY not in repr(asking) + repr(vars(asking)) + asking.request(Context(items=[])).decode()


def test_without_a_key_variable_no_credential_is_sent(server):
    server.says(GOOD)
    model(server, key_env=None).send(b"{}")
    assert "authorization" not in server.asked[0].headers
    assert server.asked[0].path == "/ask?v=1"


def test_own_headers_and_key_header_are_sent(server):
    server.says(GOOD)
    model(server, key_header="api-key", key_prefix="", headers={"X-Team": "blue"}).send(b"{}")
    assert server.asked[0].headers["api-key"] == KEY
    assert server.asked[0].headers["x-team"] == "blue"


@pytest.mark.parametrize("url", ["", "ftp://x/", "//x", "http://", "http://user:pw@host/"])
def test_a_url_that_is_none_or_holds_a_password_is_refused_at_once(url):
    with pytest.raises(ValueError, match="URL"):
        http("m", url)


def test_a_format_of_ones_own_is_built_and_read_by_ones_own_functions(server):
    server.says(b'{"answer":"42"}')

    def read(body: bytes) -> Response:
        text = json.loads(body)["answer"]
        return Response(
            text=text, calls=(), item={"role": "assistant", "content": text}, item_pointer=None, usage=None,
            stop_reason=None, served_model="", response_id="",
        )  # fmt: skip

    own = http(
        "m", server.url, format="mine/1", build=lambda name, context, tools: json.dumps([name]).encode(), read=read
    )
    assert isinstance(own, Model)
    body = own.send(own.request(Context(items=[])), lambda _: None)
    assert server.asked[0].tree == ["m"]
    assert read_response(own, body).text == "42"


def test_an_unknown_format_is_refused_with_the_known_ones_named():
    with pytest.raises(ValueError, match="there are openai"):
        http("m", "http://localhost/", format="mine/1")
    with pytest.raises(ValueError, match="both"):
        http("m", "http://localhost/", read=lambda body: None)


def test_under_asyncio_the_loop_runs_on_and_deltas_arrive_in_it(server):
    def slowly(handler):
        time.sleep(0.2)
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()
        for data in ({"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]},):
            handler.wfile.write(f"data: {json.dumps(data)}\n\ndata: [DONE]\n\n".encode())

    server.does(slowly)
    heard: list[tuple[str, bool]] = []
    here = threading.get_ident()

    async def scene() -> int:
        ticks = 0
        asked = asyncio.create_task(
            asend(openai_chat("m", base_url=server.url, key_env=None), b"{}",
                  lambda text: heard.append((text, threading.get_ident() == here)))
        )  # fmt: skip
        while not asked.done():
            await asyncio.sleep(0.01)
            ticks += 1
        assert read_response("openai.chat/1", await asked).text == "hi"
        return ticks

    assert asyncio.run(scene()) > 5
    assert heard == [("hi", True)]
