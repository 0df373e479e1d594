"""The gateway as ASGI middleware, asked by the worker's client over a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from trajlake.runtime.gateway import (
    EffectUnknown,
    Gateway,
    GatewayError,
    KeyConflict,
    ResultNotKept,
    StaleToken,
    VerdictRefused,
)
from trajlake.runtime.gateway_asgi import GatewayMiddleware
from trajlake.runtime.gateway_client import HttpGateway, HttpRequest
from trajlake.runtime.gateway_signing import SignedCall, Unsigned, check_signature, signed_headers
from trajlake.runtime.tools import Call, NotExecuted

SECRET = b"a secret of thirty-two bytes...."
PAY = HttpRequest(path="/pay?to=bob", body=b'{"cents":5}')


def call(key="k1", token=1, arguments_hash="h1", trajectory_id="orders/№7", attempt=1) -> Call:
    return Call(
        tool="pay", key=key, token=token, attempt=attempt, tenant="default", trajectory_id=trajectory_id,
        action_id="1.0", arguments_hash=arguments_hash,
    )  # fmt: skip


class Service:
    """An ASGI app that counts what it did and answers as told."""

    def __init__(self) -> None:
        self.did: list[tuple[str, bytes, str]] = []
        self.status = 200
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b'{"paid":5}'
        self.delay_s = 0.0
        self.error: Exception | None = None

    async def __call__(self, scope, receive, send) -> None:
        body = (await receive())["body"]
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.did.append((scope["path"], body, headers.get("idempotency-key", "")))
        await asyncio.sleep(self.delay_s)
        if self.error is not None:
            raise self.error
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        for part in (self.body[:3], self.body[3:]):
            await send({"type": "http.response.body", "body": part, "more_body": part is not self.body[3:]})


@contextlib.contextmanager
def served(app):
    """Serve an ASGI app on a free port of the loopback."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path, _, query = self.path.partition("?")
            scope = {
                "type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
                "query_string": query.encode(),
                "headers": [(name.lower().encode(), value.encode()) for name, value in self.headers.items()],
            }  # fmt: skip
            asyncio.run(self.run_app(scope, body))

        async def run_app(self, scope, body) -> None:
            parts = [body[:10], body[10:]]

            async def receive():
                return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

            async def send(message):
                if message["type"] == "http.response.start":
                    self.send_response(message["status"])
                    for name, value in message["headers"]:
                        self.send_header(name.decode(), value.decode())
                    self.send_header("Connection", "close")
                    self.end_headers()
                else:
                    self.wfile.write(message["body"])

            self.close_connection = True
            with contextlib.suppress(RuntimeError, BrokenPipeError):
                await app(scope, receive, send)

        def log_message(self, *arguments) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def service():
    return Service()


@pytest.fixture
def url(service, tmp_path):
    gateway = Gateway(str(tmp_path / "g.sqlite"), result_size_max_bytes=10_000, wait_max_s=5)
    app = GatewayMiddleware(service, gateway, secrets={"default": SECRET, "weak": b"short"}, body_size_max_bytes=5000)
    with served(app) as address:
        yield address


@pytest.fixture
def client(url, monkeypatch):
    monkeypatch.setenv("SHOP_SECRET", SECRET.decode())
    return HttpGateway(url, secret_env="SHOP_SECRET", timeout_s=10)


def test_a_repeat_gets_the_kept_response_and_the_service_sees_one_request(client, service):
    service.headers = [(b"content-type", b"application/json"), (b"x-receipt", b"42")]
    first = client.send(call(), PAY)
    again = client.send(call(attempt=2), PAY)
    assert (first.status, first.body, first.kept) == (200, b'{"paid":5}', False)
    assert (again.status, again.body, again.kept) == (200, b'{"paid":5}', True)
    assert service.did == [("/pay", b'{"cents":5}', "k1")]


def test_a_refusal_of_the_service_is_kept_like_any_response(client, service):
    service.status = 402
    assert [client.send(call(), PAY).status for _ in range(2)] == [402, 402]
    assert len(service.did) == 1


def test_stale_tokens_and_other_arguments_are_refused(client, service):
    client.announce("default", "orders/№7", 3)
    with pytest.raises(StaleToken, match="lower than 3"):
        client.send(call(token=2), PAY)
    with pytest.raises(StaleToken):
        client.announce("default", "orders/№7", 2)
    client.send(call(token=3), PAY)
    with pytest.raises(KeyConflict):
        client.send(call(token=3, arguments_hash="h2"), PAY)
    assert len(service.did) == 1


@pytest.mark.parametrize("how", ["status", "exception"])
def test_a_5xx_or_a_crash_of_the_service_is_unknown_until_a_verdict(client, service, how):
    service.status, service.error = (503, None) if how == "status" else (200, RuntimeError("boom"))
    with pytest.raises((EffectUnknown, OSError)):
        client.send(call(), PAY)
    service.status, service.error = 200, None
    with pytest.raises(EffectUnknown):
        client.send(call(), PAY)
    assert len(service.did) == 1
    client.verdict_not_executed("default", "orders/№7", "k1", 1)
    assert client.send(call(), PAY).status == 200
    with pytest.raises(VerdictRefused):
        client.verdict_not_executed("default", "orders/№7", "k1", 1)


def test_a_service_that_says_nothing_happened_frees_the_key(client, service):
    service.status, service.headers = 503, [(b"Trajlake-Not-Executed", b"1")]
    for attempt in (1, 2):
        with pytest.raises(NotExecuted):
            client.send(call(attempt=attempt), PAY)
    service.status, service.headers = 200, []
    assert client.send(call(attempt=3), PAY).status == 200
    assert len(service.did) == 3


def test_a_response_too_large_to_keep_is_given_once_and_counts_as_executed(client, service):
    service.body = b"x" * 20_000
    assert len(client.send(call(), PAY).body) == 20_000
    with pytest.raises(ResultNotKept):
        client.send(call(), PAY)
    assert len(service.did) == 1


def test_a_repeat_while_the_first_runs_waits_for_its_response(client, service):
    service.delay_s = 0.4
    answers: list = []
    threads = [threading.Thread(target=lambda: answers.append(client.send(call(), PAY))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.kept for answer in answers) == [False, True, True, True]
    assert len(service.did) == 1


def test_a_caller_that_goes_away_loses_the_answer_but_not_the_result(client, service, url, monkeypatch):
    service.delay_s = 0.5
    hasty = HttpGateway(url, secret_env="SHOP_SECRET", timeout_s=0.1)
    with pytest.raises(OSError, match="timed out"):
        hasty.send(call(), PAY)
    assert client.send(call(attempt=2), PAY).kept
    assert len(service.did) == 1


def test_a_first_attempt_that_cannot_connect_is_not_executed_a_later_one_unknown(client, monkeypatch):
    nowhere = HttpGateway("http://127.0.0.1:9", secret_env="SHOP_SECRET", timeout_s=1)
    with pytest.raises(NotExecuted):
        nowhere.send(call(), PAY)
    with pytest.raises(OSError):
        nowhere.send(call(attempt=2), PAY)
    with pytest.raises(OSError):
        nowhere.announce("default", "t", 1)
    monkeypatch.delenv("SHOP_SECRET")
    with pytest.raises(NotExecuted, match="SHOP_SECRET"):
        client.send(call(), PAY)


def test_something_else_than_a_gateway_is_noticed_when_announcing(service, monkeypatch):
    monkeypatch.setenv("SHOP_SECRET", SECRET.decode())
    with served(service) as address, pytest.raises(GatewayError, match="is there a gateway"):
        HttpGateway(address, secret_env="SHOP_SECRET").announce("default", "t", 1)


@pytest.mark.parametrize("url", ["", "shop:80", "ftp://x/", "http://user:pw@x/", "http://x/?a=1"])
def test_a_url_that_is_none_is_refused_at_once(url):
    with pytest.raises(ValueError, match="gateway URL"):
        HttpGateway(url, secret_env="X")


# -- signatures ------------------------------------------------------------------------------------------------------


def ask(url: str, headers: dict[str, str], body: bytes = PAY.body, path: str = PAY.path):
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=5)
    connection.request("POST", path, body, headers)
    answer = connection.getresponse()
    found = (answer.status, answer.headers.get("trajlake-answer"))
    connection.close()
    return found


def signed(secret=SECRET, now_s=None, body=PAY.body, path=PAY.path, **fields) -> dict[str, str]:
    who = SignedCall(
        **{"tenant": "default", "trajectory_id": "t", "token": 1, "key": "k", "arguments_hash": "h"} | fields
    )
    return signed_headers(
        secret, who, method="POST", path=path, body=body, now_s=int(time.time()) if now_s is None else now_s
    )


FORGERIES = {
    "no signature": dict,
    "another secret": lambda: signed(b"x" * 32),
    "another body": lambda: signed(body=b"{}"),
    "another path": lambda: signed(path="/refund"),
    "a higher token": lambda: signed() | {"trajlake-token": "99"},
    "another key": lambda: signed() | {"idempotency-key": "k2"},
    "other arguments": lambda: signed() | {"trajlake-arguments": "h2"},
    "another trajectory": lambda: signed() | {"trajlake-trajectory": "u"},
    "another tenant": lambda: signed() | {"trajlake-tenant": "weak"},
    "a tenant with a weak secret": lambda: signed(b"short", tenant="weak"),
    "a tenant nobody knows": lambda: signed(bytes(32), tenant="who"),
    "an old request": lambda: signed(now_s=int(time.time()) - 400),
    "a request from the future": lambda: signed(now_s=int(time.time()) + 400),
    "a later time": lambda: signed(now_s=int(time.time()) - 400) | {"trajlake-time": str(int(time.time()))},
    "a token that is no number": lambda: signed() | {"trajlake-token": "one"},
    "token 0": lambda: signed(token=0),
    "no key": lambda: signed(key=""),
    "no arguments": lambda: signed(arguments_hash=""),
    "an odd signature": lambda: signed() | {"trajlake-signature": "\xff" * 64},
}


@pytest.mark.parametrize("forgery", sorted(FORGERIES))
def test_a_forged_request_reaches_nothing(url, service, forgery):
    assert ask(url, FORGERIES[forgery]()) == (401, "unsigned")
    assert service.did == []


def test_a_signed_request_is_let_through_as_it_is(url, service):
    assert ask(url, signed()) == (200, None)
    assert service.did == [("/pay", PAY.body, "k")]


def test_a_body_over_the_limit_is_refused_before_anything(url, service):
    body = b"x" * 6000
    assert ask(url, signed(body=body), body) == (413, "too_large")
    assert service.did == []


def test_the_signature_covers_what_the_module_says_it_covers():
    who = SignedCall(tenant="default", trajectory_id="a/№", token=5, key="k", arguments_hash="h")
    headers = signed_headers(SECRET, who, method="post", path="/p?q=1", body=b"b", now_s=1000)
    assert headers["trajlake-signature"] == "89df49f9db2a461e75f62b899c2719b5457b06579a9b3be6d08683d512058d59"
    assert check_signature({"default": SECRET}, headers, method="POST", path="/p?q=1", body=b"b", now_s=1000) == who
    with pytest.raises(Unsigned, match="away from this clock"):
        check_signature({"default": SECRET}, headers, method="POST", path="/p?q=1", body=b"b", now_s=1301)


def test_a_cancelled_request_runs_on_in_the_service_and_its_response_is_kept(tmp_path, service):
    service.delay_s = 0.3
    gateway = Gateway(str(tmp_path / "g.sqlite"))
    middleware = GatewayMiddleware(service, gateway, secrets={"default": SECRET})
    headers = [(name.encode(), value.encode()) for name, value in signed().items()]
    scope = {
        "type": "http", "method": "POST", "path": "/pay", "raw_path": b"/pay", "query_string": b"to=bob",
        "headers": headers,
    }  # fmt: skip
    sent: list = []

    async def receive():
        return {"type": "http.request", "body": PAY.body}

    async def send(message):
        sent.append(message)

    async def scene():
        request = asyncio.create_task(middleware(scope, receive, send))
        await asyncio.sleep(0.1)
        request.cancel()
        await asyncio.sleep(0.5)
        assert sent == []
        await middleware(scope, receive, send)

    asyncio.run(scene())
    assert (sent[0]["status"], sent[1]["body"]) == (200, b'{"paid":5}')
    assert (b"trajlake-answer", b"kept") in sent[0]["headers"]
    assert len(service.did) == 1


def test_websockets_are_not_let_through_and_lifespan_is(service):
    seen: list = []

    async def app(scope, receive, send):
        seen.append(scope["type"])

    middleware = GatewayMiddleware(app, None, secrets={})
    asyncio.run(middleware({"type": "lifespan"}, None, None))
    with pytest.raises(RuntimeError, match="websocket"):
        asyncio.run(middleware({"type": "websocket"}, None, None))
    assert seen == ["lifespan"]
