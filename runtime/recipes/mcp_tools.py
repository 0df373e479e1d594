"""Tools of an MCP server as journal tools: recorded, settled, approved like any other.

    await mcp_tools.register(journal, "https://host/mcp", effects={"search": "read", "pay": "external"})

`server` is what `mcp.Client` takes: a URL, `StdioServerParameters`, a server in this process. A server's own hints are
not believed: a tool that `effects` does not name is `external`. The idempotency key travels as
`_meta["trajlake/key"]`; only a server that honours it may be declared `idempotent`. Each call opens a connection of its
own, so that it may run in any thread or loop, and beside others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ..journal import Journal
from ..tools import Call, Tool, ToolError


async def register(
    journal: Journal, server: Any, *, effects: Mapping[str, str] | None = None, **options: Any
) -> list[Tool]:
    """Register every tool of a server (`options` as of `journal.tool`), and return them."""
    from mcp import Client

    async with Client(server) as client:
        found = (await client.list_tools()).tools
    wanted = effects or {}
    if unknown := set(wanted) - {one.name for one in found}:
        raise ValueError(f"mcp_tools.register: the server has no tool named {', '.join(sorted(unknown))}")
    made = []
    for one in found:
        more = {"name": one.name, "parameters": one.input_schema, "effect": wanted.get(one.name, "external"), **options}
        made.append(journal.tool(_body(server, one.name, one.description or ""), **more))
    return made


def _body(server: Any, name: str, description: str) -> Callable[..., Any]:
    async def body(*, call: Call, **arguments: Any) -> Any:
        from mcp import Client

        # A protocol error proves nothing, a tool may raise any code: it passes, and the effect is in doubt.
        async with Client(server) as client:
            answer = await client.call_tool(name, arguments, meta={"trajlake/key": call.key})
        text = "\n".join(one.text for one in answer.content if one.type == "text")
        if answer.is_error:
            raise ToolError(text)
        if answer.structured_content is not None:
            return answer.structured_content
        plain = all(one.type == "text" for one in answer.content)
        return text if plain else [msgspec.json.decode(one.model_dump_json()) for one in answer.content]

    body.__doc__ = description
    return body
