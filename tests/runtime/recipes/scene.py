"""One order is charged once, behind each recipe: `python -m tests.runtime.recipes.scene RECIPE ROOT WORLD URL HOW`.

HOW: `kill` dies by SIGKILL between the effect and its result; `fine` does not. WORLD: a file with one line per charge.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trajlake.runtime import Call, Journal
from trajlake.runtime.models import openai_chat

TASK = "charge order 7"


def openai_body(text: str | None, *calls: tuple[str, str, str]) -> bytes:
    """A chat completion that says `text` or makes calls of (id, tool, arguments)."""
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None, "annotations": []}
    if calls:
        named = [{"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in calls]
        message["tool_calls"] = named
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop", "logprobs": None}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    body = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m-1", "choices": [choice], "usage": usage}
    return json.dumps(body).encode()


def anthropic_body(text: str | None, *calls: tuple[str, str, str]) -> bytes:
    """The same as a message of Anthropic's."""
    blocks: list[Any] = [] if text is None else [{"type": "text", "text": text}]
    blocks += [{"type": "tool_use", "id": i, "name": n, "input": json.loads(a)} for i, n, a in calls]
    usage = {"input_tokens": 10, "output_tokens": 5}
    stop = "tool_use" if calls else "end_turn"
    body = {"id": "m1", "type": "message", "role": "assistant", "model": "m-1", "content": blocks}
    return json.dumps({**body, "stop_reason": stop, "stop_sequence": None, "usage": usage}).encode()


class World:
    """What was charged, by the outside's own count; and what the tool does right after a charge."""

    def __init__(self, ledger: Path, after: Callable[[], None]) -> None:
        self.ledger, self.after = ledger, after

    def charge(self, key: str, order: str) -> dict[str, Any]:
        """Charge once per key: the service honours it."""
        if key not in self.charges():
            with self.ledger.open("a") as file:
                file.write(f"{key}\n")
        self.after()
        return {"charged": order}

    def charges(self) -> list[str]:
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []


def charge_tool(journal: Journal, world: World, approve: Any) -> Any:
    @journal.tool(effect="idempotent", approve=approve)
    def charge(order: str, *, call: Call) -> dict[str, Any]:
        """Charge an order."""
        return world.charge(call.key, order)

    return charge


def own_loop(t: Any) -> None:
    t.context.user(t.task)
    for turn in t.turns(max=5):
        reply = turn.model()
        turn.tools(reply.calls)
        if not reply.calls:
            t.finish(reply.text)


def openai_client(journal: Journal, world: World, url: str, approve: Any) -> tuple[Any, Any]:
    from openai import OpenAI

    from trajlake.runtime.recipes.openai_client import openai_client as recipe

    charge_tool(journal, world, approve)
    return own_loop, recipe(OpenAI(api_key="k", base_url=url), "m")


def anthropic_client(journal: Journal, world: World, url: str, approve: Any) -> tuple[Any, Any]:
    from anthropic import Anthropic

    from trajlake.runtime.recipes.anthropic_client import anthropic_client as recipe

    charge_tool(journal, world, approve)
    return own_loop, recipe(Anthropic(api_key="k", base_url=url), "m")


def mcp(journal: Journal, world: World, url: str, approve: Any) -> tuple[Any, Any]:
    from mcp.server.mcpserver import Context, MCPServer

    from trajlake.runtime.recipes import mcp_tools

    def charge(order: str, context: Any) -> dict[str, Any]:
        """Charge an order."""
        return world.charge(context.request_context.meta["trajlake/key"], order)

    charge.__annotations__["context"] = Context[Any, Any]
    server = MCPServer("shop")
    server.add_tool(charge)
    asyncio.run(mcp_tools.register(journal, server, effects={"charge": "idempotent"}, approve=approve))
    return own_loop, openai_chat("m", base_url=url, key_env=None)


def langgraph(journal: Journal, world: World, url: str, approve: Any) -> tuple[Any, Any]:
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    from trajlake.runtime.recipes.funnel import Funnel
    from trajlake.runtime.recipes.langgraph_nodes import model_node, tool_of

    tool = charge_tool(journal, world, approve)

    async def agent(t: Any) -> None:
        async for turn in t.turns(max=1):
            funnel = Funnel(t, turn)
            graph = StateGraph(MessagesState)
            graph.add_node("model", model_node(funnel))
            graph.add_node("tools", ToolNode([tool_of(funnel, tool)]))
            graph.add_edge(START, "model")
            graph.add_conditional_edges("model", tools_condition)
            graph.add_edge("tools", "model")
            found = await funnel.run(graph.compile().ainvoke({"messages": [{"role": "user", "content": t.task}]}))
            t.finish(found["messages"][-1].content)

    return agent, openai_chat("m", base_url=url, key_env=None)


def openai_agents(journal: Journal, world: World, url: str, approve: Any) -> tuple[Any, Any]:
    from agents import Agent, RunConfig, Runner

    from trajlake.runtime.recipes.funnel import Funnel
    from trajlake.runtime.recipes.openai_agents import model_of, tool_of

    tool = charge_tool(journal, world, approve)

    async def agent(t: Any) -> None:
        async for turn in t.turns(max=1):
            funnel = Funnel(t, turn)
            helper: Any = Agent(
                name="h", instructions="be brief", model=model_of(funnel), tools=[tool_of(funnel, tool)]
            )
            found = await funnel.run(Runner.run(helper, t.task, run_config=RunConfig(tracing_disabled=True)))
            t.finish(found.final_output)

    return agent, openai_chat("m", base_url=url, key_env=None)


def pydantic_ai(journal: Journal, world: World, url: str, approve: Any) -> tuple[Any, Any]:
    from pydantic_ai import Agent

    from trajlake.runtime.recipes.funnel import Funnel
    from trajlake.runtime.recipes.pydantic_ai_agent import model_of, tool_of

    tool = charge_tool(journal, world, approve)

    async def agent(t: Any) -> None:
        async for turn in t.turns(max=1):
            funnel = Funnel(t, turn)
            helper: Any = Agent(model_of(funnel), instructions="be brief", tools=[tool_of(funnel, tool)])
            t.finish((await funnel.run(helper.run(t.task))).output)

    return agent, openai_chat("m", base_url=url, key_env=None)


RECIPES: dict[str, Callable[[Journal, World, str, Any], tuple[Any, Any]]] = {
    one.__name__: one for one in (openai_client, anthropic_client, mcp, langgraph, openai_agents, pydantic_ai)
}


def run(recipe: str, journal: Journal, world: World, url: str, approve: Any = None) -> tuple[Any, Any]:
    """Run the trajectory `t`; return (outcome, agent)."""
    agent, model = RECIPES[recipe](journal, world, url, approve)
    if asyncio.iscoroutinefunction(agent):
        return asyncio.run(journal.arun(agent, "t", task=TASK, model=model)), agent
    return journal.run(agent, "t", task=TASK, model=model), agent


def main(recipe: str, root: str, ledger: str, url: str, how: str) -> None:
    def after() -> None:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)

    with Journal.open(root) as journal:
        outcome, _ = run(recipe, journal, World(Path(ledger), after), url)
        print(json.dumps([outcome.status, outcome.result]))


if __name__ == "__main__":
    main(*sys.argv[1:])
