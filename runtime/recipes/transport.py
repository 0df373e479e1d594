"""`JournalTransport`: an httpx transport through which a framework's own client asks `turn.model`, unknowingly.

    client = AsyncOpenAI(api_key="unused", base_url="http://journal/v1", max_retries=0,
                         http_client=httpx.AsyncClient(transport=JournalTransport(funnel)))

Give it to whatever takes a client. The request is taken apart, the call recorded, made by the trajectory's model (or
served from the record), and the recorded body is the answer. Every offered tool must be registered with the journal.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from ..agent.errors import Misuse
from .funnel import Funnel
from .messages import system_first


class JournalTransport:
    """For `httpx.AsyncClient(transport=...)`, also httpx2's. Chat completions and Anthropic's messages."""

    def __init__(self, funnel: Funnel, **options: Any) -> None:
        self._funnel, self._options = funnel, options

    async def handle_async_request(self, request: Any) -> Any:
        body = msgspec.json.decode(await request.aread())
        if body.pop("stream", False):
            raise Misuse("JournalTransport: a reply arrives whole; turn streaming off (deltas: turn.model on_delta)")
        for name in ("model", "stream_options"):
            body.pop(name, None)
        messages = system_first(body)
        tools = [one.get("function", one)["name"] for one in body.pop("tools", None) or []]
        reply = await self._funnel.model(messages, tools=tools, parameters=body, **self._options)
        http: Any = sys.modules[type(request).__module__.partition(".")[0]]
        return http.Response(200, headers={"content-type": "application/json"}, content=reply.raw.encode())

    async def aclose(self) -> None:
        """Nothing is held."""

    async def __aenter__(self) -> JournalTransport:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
