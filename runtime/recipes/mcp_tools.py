"""Tools of an MCP server as journal tools: recorded, settled, approved like any other.

    await mcp_tools.register(journal, "https://host/mcp", effects={"search": "read", "pay": "external"})

`server` is what `mcp.Client` takes: a URL, `StdioServerParameters`, a server in this process. A server's own hints are
not believed: a tool that `effects` does not name is `external`. The idempotency key travels as
`_meta["trajlake/key"]`; only a server that honours it may be declared `idempotent`. Each call opens a connection of its
own, so that it may run in any thread or loop, and beside others. A parameter named `call` is offered as `call_`.
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
        names = _names(one.name, one.input_schema)
        schema = _renamed(one.input_schema, {theirs: ours for ours, theirs in names.items()})
        more = {"name": one.name, "parameters": schema, "effect": wanted.get(one.name, "external"), **options}
        made.append(journal.tool(_body(server, one.name, one.description or "", names), **more))
    return made


def _names(tool: str, schema: Mapping[str, Any]) -> dict[str, str]:
    """Ours -> the server's, for a parameter whose name a body cannot take: the runtime passes its `Call` as `call`."""
    known = schema.get("properties", {})
    if "call" in known and "call_" in known:
        raise ValueError(f"mcp_tools.register: {tool} has parameters call and call_; one must be renamed at the server")
    return {"call_": "call"} if "call" in known else {}


def _renamed(schema: Mapping[str, Any], names: Mapping[str, str]) -> Mapping[str, Any]:
    if not names:
        return schema
    properties = {names.get(name, name): one for name, one in schema["properties"].items()}
    return {**schema, "properties": properties, "required": [names.get(one, one) for one in schema.get("required", ())]}


def _body(server: Any, name: str, description: str, names: Mapping[str, str]) -> Callable[..., Any]:
    async def body(*, call: Call, **arguments: Any) -> Any:
        from mcp import Client

        arguments = {names.get(one, one): value for one, value in arguments.items()}
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
