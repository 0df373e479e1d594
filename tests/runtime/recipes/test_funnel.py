"""What passes through a funnel: siblings side by side, failures out of the framework's reach, and graphs around it."""

from __future__ import annotations

import asyncio
import operator
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

from tests.runtime.model_server import model_server
from trajlake.runtime import Diverged, Journal, Misuse, NotExecuted, ToolError
from trajlake.runtime.models import openai_chat, scripted
from trajlake.runtime.recipes import mcp_tools
from trajlake.runtime.recipes.funnel import Funnel
from trajlake.runtime.recipes.langgraph_nodes import durable_node
from trajlake.runtime.recipes.openai_agents import client_of

from .scene import openai_body


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.open(tmp_path / "root") as opened:
        yield opened


def through(work: Any) -> Any:
    """An agent that runs `work(funnel)` in one turn; what the framework would swallow, this framework swallows."""

    async def careless(funnel: Funnel) -> Any:
        try:
            return await work(funnel)
        except Exception:
            return "swallowed"

    async def agent(t: Any) -> None:
        async for turn in t.turns(max=1):
            funnel = Funnel(t, turn)
            t.finish(await funnel.run(careless(funnel)))

    return agent


def test_calls_of_one_reply_run_beside_each_other(journal: Journal) -> None:
    both = threading.Barrier(2, timeout=30)

    @journal.tool(effect="read")
    def meet(n: int) -> int:
        both.wait()
        return n

    async def work(funnel: Funnel) -> Any:
        reply = await funnel.model([{"role": "user", "content": "go"}])
        found = await asyncio.gather(*(funnel.tool(one.provider_id, one.tool, one.arguments) for one in reply.calls))
        return [one.output for one in found]

    model = scripted([[("meet", {"n": 1}), ("meet", {"n": 2})]])
    assert asyncio.run(journal.arun(through(work), "t", task="go", model=model)).result == [1, 2]


def test_what_is_asked_between_two_calls_stays_between_them(journal: Journal) -> None:
    done: list[Any] = []

    @journal.tool(effect="read")
    def look(n: int) -> int:
        done.append(n)
        return n

    async def work(funnel: Funnel) -> Any:
        reply = await funnel.model([{"role": "user", "content": "go"}])
        first, second = (funnel.tool(one.provider_id, one.tool, one.arguments) for one in reply.calls)
        await asyncio.gather(first, funnel.tool("", "look", {"n": 2}), second)
        return done

    model = scripted([[("look", {"n": 1}), ("look", {"n": 3})]])
    assert asyncio.run(journal.arun(through(work), "t", task="go", model=model)).result == [1, 2, 3]


def test_a_call_without_an_id_is_nobodys_proposal(journal: Journal) -> None:
    @journal.tool(effect="read")
    def look(n: int) -> int:
        return n

    async def work(funnel: Funnel) -> Any:
        await funnel.model([{"role": "user", "content": "go"}])
        return (await funnel.tool("", "look", {"n": 2})).output

    with model_server() as server:
        server.says(openai_body(None, ("", "look", '{"n": 1}')))
        model = openai_chat("m", base_url=server.url, key_env=None)
        assert asyncio.run(journal.arun(through(work), "t", task="go", model=model)).result == 2


def test_what_an_operation_raises_passes_a_framework_that_catches_everything(journal: Journal) -> None:
    texts = iter(["first", "second"])

    async def work(funnel: Funnel) -> Any:
        await funnel.model([{"role": "user", "content": next(texts)}])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(journal.arun(through(work), "t", task="go", model=scripted(["a"])))
    with pytest.raises(Diverged):
        asyncio.run(journal.arun(through(work), "t", model=scripted(["a"])))


def test_a_streamed_request_is_refused_by_name(journal: Journal) -> None:
    async def work(funnel: Funnel) -> Any:
        client = client_of(funnel)
        try:
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}], stream=True)
        except Exception as error:
            return str(error.__cause__ or error)

    outcome = asyncio.run(journal.arun(through(work), "t", task="go", model=scripted(["a"])))
    assert "streaming off" in outcome.result


@pytest.mark.long
def test_an_mcp_server_says_what_came_of_a_call(journal: Journal) -> None:
    from mcp import MCPError
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError as ServerError

    server = MCPServer("shop")

    def look(order: str) -> str:
        if order == "gone":
            raise ServerError("no such order")
        if order == "refused":
            raise MCPError(-32602, "not begun")
        return f"order {order}"

    server.add_tool(look)
    (tool,) = asyncio.run(mcp_tools.register(journal, server))
    assert tool.effect == "external", "a server's hints are not believed"
    call: Any = type("Call", (), {"key": "k"})
    assert asyncio.run(tool.function(order="7", call=call)) == {"result": "order 7"}
    with pytest.raises(ToolError, match="no such order"):
        asyncio.run(tool.function(order="gone", call=call))
    with pytest.raises(BaseException) as unknown:
        asyncio.run(tool.function(order="refused", call=call))
    assert not isinstance(unknown.value, ToolError | NotExecuted), "a protocol error proves nothing"

    def ring(call: str, length: int = 1) -> str:
        return call * length

    bells = MCPServer("bells")
    bells.add_tool(ring)
    (tool,) = asyncio.run(mcp_tools.register(journal, bells))
    assert (list(tool.parameters["properties"]), tool.parameters["required"]) == (["call_", "length"], ["call_"])
    assert asyncio.run(tool.function(call_="mum", call=call)) == {"result": "mum"}, "the runtime passes its own call"
    with pytest.raises(ValueError, match="no tool named pay"):
        asyncio.run(mcp_tools.register(journal, server, effects={"pay": "external"}))


def test_a_node_that_waits_for_a_person_interrupts_its_graph_and_acts_once(journal: Journal) -> None:
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.types import Command

    charged = []

    @journal.tool(approve=True)
    def charge(order: str) -> str:
        charged.append(order)
        return "ok"

    async def agent(t: Any) -> None:
        async for turn in t.turns(max=2):
            reply = await turn.model(messages=[{"role": "user", "content": "charge"}]) if turn.number == 0 else None
            if reply is None:
                t.finish({"messages": [{"role": "assistant", "content": "charged"}]})
            else:
                await turn.tools(reply.calls)

    model = scripted([[("charge", {"order": "7"})]])
    graph: Any = StateGraph(MessagesState)
    graph.add_node("pay", durable_node(journal, agent, "pay", model=model))
    graph.add_edge(START, "pay")
    app = graph.compile(checkpointer=InMemorySaver())
    place: Any = {"configurable": {"thread_id": "thread-1"}}
    stopped = asyncio.run(app.ainvoke({"messages": []}, place))
    (question,) = stopped["__interrupt__"][0].value
    assert charged == []
    waiting = asyncio.run(journal.arun(agent, question["trajectory"], model=model)).waiting_for
    journal.approve(question["trajectory"], waiting[0].action_id, actor="ops")
    done = asyncio.run(app.ainvoke(Command(resume="looked"), place))
    assert done["messages"][-1].content == "charged"
    assert charged == ["7"]


def test_each_task_of_a_fan_out_has_a_trajectory_of_its_own_and_keeps_it(journal: Journal) -> None:
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import START, StateGraph
    from langgraph.types import Command, Send

    @journal.tool(approve=True)
    def charge(order: str) -> str:
        return order

    async def agent(t: Any) -> None:
        async for turn in t.turns(max=1):
            t.finish({"found": [(await turn.call("charge", {"order": t.task["order"]})).output]})

    fields: Any = TypedDict(
        "Fields", {"order": Annotated[str, operator.add], "found": Annotated[list[str], operator.add]}
    )
    part: Any = StateGraph(fields)
    part.add_node("pay", durable_node(journal, agent, "pay"))
    part.add_edge(START, "pay")
    whole: Any = StateGraph(fields)
    whole.add_node("pay", durable_node(journal, agent, "pay"))
    whole.add_node("part", part.compile())
    sent = [Send(name, {"order": f"{name} {n}", "found": []}) for name in ("pay", "part") for n in (1, 2)]
    whole.add_conditional_edges(START, lambda _: sent, ["pay", "part"])
    app = whole.compile(checkpointer=InMemorySaver())
    place: Any = {"configurable": {"thread_id": "thread-1"}}
    stopped = asyncio.run(app.ainvoke({"order": "", "found": []}, place))["__interrupt__"]
    for one in stopped:
        (question,) = one.value
        (waiting,) = asyncio.run(journal.arun(agent, question["trajectory"])).waiting_for
        journal.approve(question["trajectory"], waiting.action_id, actor="ops")
    done = asyncio.run(app.ainvoke(Command(resume={one.id: "looked" for one in stopped}), place))
    assert sorted(done["found"]) == ["part 1", "part 2", "pay 1", "pay 2"]


def test_a_client_asks_through_a_transport_with_its_own_parameters(journal: Journal) -> None:
    async def work(funnel: Funnel) -> Any:
        asked: Any = {"model": "m", "messages": [{"role": "user", "content": "x"}], "temperature": 0.25}
        return (await client_of(funnel).chat.completions.create(**asked)).choices[0].message.content

    with model_server() as server:
        server.says(openai_body("hello"))
        model = openai_chat("m", base_url=server.url, key_env=None)
        assert asyncio.run(journal.arun(through(work), "t", task="go", model=model)).result == "hello"
        assert server.asked[0].tree["temperature"] == 0.25


def test_a_tool_that_is_not_registered_is_not_offered(journal: Journal) -> None:
    async def work(funnel: Funnel) -> Any:
        return await funnel.model([{"role": "user", "content": "x"}], tools=["unknown"])

    with pytest.raises(Misuse, match="unknown"):
        asyncio.run(journal.arun(through(work), "t", task="go", model=scripted(["a"])))
