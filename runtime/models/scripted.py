"""`scripted`: a model without a network, for tests, demos and crash tests.

The n-th reply of the script answers the call whose context holds n replies already, so a process that resumes after
a crash goes on in the script where the log stands. After a compaction that count starts lower: use a function then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from .openai_format import FORMAT, read
from .protocol import Context, Delta, ModelError, Response, ToolSpec


class ScriptedCall(msgspec.Struct, frozen=True):
    """A call to propose. `arguments` is a dict, or the text itself (malformed text too). `id` "" makes one up."""

    tool: str
    arguments: Mapping[str, Any] | str = "{}"
    id: str = ""


class ScriptedReply(msgspec.Struct, frozen=True, kw_only=True):
    """One reply. `fails_before`: that many attempts at it fail first, in each process. `usage` in the API's names."""

    text: str = ""
    calls: Sequence[ScriptedCall | tuple[str, Mapping[str, Any] | str]] = ()
    fails_before: int = 0
    usage: Mapping[str, Any] = msgspec.field(default_factory=lambda: {"prompt_tokens": 10, "completion_tokens": 5})


Reply = ScriptedReply | str | Sequence[ScriptedCall | tuple[str, Mapping[str, Any] | str]]
"""A whole reply, or a text alone, or calls alone."""


class ScriptedModel:
    """A `Model` of format `openai.chat/1`. Any thread may call."""

    format = FORMAT

    def __init__(self, script: Sequence[Reply] | Callable[[Context], Reply], name: str, version: str) -> None:
        self.name = name
        self.version = version
        self._script = script
        self._failed: dict[int, int] = {}
        self._lock = threading.Lock()

    def request(self, context: Context, tools: Sequence[ToolSpec] = ()) -> bytes:
        """Return the request body; a script that is a function is asked here, since it sees the context."""
        number = sum(item.get("role") == "assistant" for item in context.items)
        body: dict[str, Any] = {"model": self.name, "reply": number, "tools": [tool.name for tool in tools]}
        if callable(self._script):
            body["says"] = _reply(self._script(context))
        return msgspec.json.encode(body)

    def send(self, request: bytes, on_delta: Delta | None = None) -> bytes:
        body = msgspec.json.decode(request)
        number = body["reply"]
        reply = msgspec.convert(body["says"], ScriptedReply) if "says" in body else self._nth(number)
        with self._lock:
            failed = self._failed.get(number, 0)
            if failed < reply.fails_before:
                self._failed[number] = failed + 1
                raise ModelError(f"scripted failure {failed + 1} of {reply.fails_before}", retry=True, status=503)
        if on_delta is not None and reply.text:
            on_delta(reply.text)
        return _body(self.name, number, reply)

    def read(self, body: bytes) -> Response:
        return read(body)

    def _nth(self, number: int) -> ScriptedReply:
        assert not callable(self._script)
        if number >= len(self._script):
            raise ModelError(f"the script has {len(self._script)} replies, reply {number} was asked for", retry=False)
        return _reply(self._script[number])


def scripted(
    script: Sequence[Reply] | Callable[[Context], Reply], *, name: str = "scripted", version: str = "1"
) -> ScriptedModel:
    """Return a model that says what `script` says: a list of replies, or a function of the context (keep it pure)."""
    return ScriptedModel(script, name, version)


def _reply(reply: Reply) -> ScriptedReply:
    if isinstance(reply, ScriptedReply):
        return reply
    return ScriptedReply(text=reply) if isinstance(reply, str) else ScriptedReply(calls=reply)


def _body(name: str, number: int, reply: ScriptedReply) -> bytes:
    calls = [call if isinstance(call, ScriptedCall) else ScriptedCall(*call) for call in reply.calls]
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if calls:
        message["tool_calls"] = [
            {
                "id": call.id or f"call_{number}_{index}",
                "type": "function",
                "function": {"name": call.tool, "arguments": _text(call.arguments)},
            }
            for index, call in enumerate(calls)
        ]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    whole = {"id": f"scripted-{number}", "object": "chat.completion", "created": 0, "model": name}
    return msgspec.json.encode({**whole, "choices": [choice], "usage": dict(reply.usage)})


def _text(arguments: Mapping[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else msgspec.json.encode(dict(arguments)).decode()
