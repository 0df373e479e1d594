"""LangGraph, both ways round.

A graph inside a trajectory: `model_node` and `tool_of` in the graph that an agent function runs through a funnel.
A trajectory inside a graph: `durable_node` makes an agent function a node. Its trajectory is named by thread, node and
step (and by the number of its `Send`, and the task of the graph around a subgraph), so a graph that is started again
goes on with it; what waits for a person interrupts the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from ..journal import Journal
from ..tools import Tool
from .funnel import Funnel

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool


def model_node(funnel: Funnel, tools: Sequence[str] | None = None, **options: Any) -> Callable[..., Any]:
    """Return a node over `MessagesState` that asks the trajectory's model."""
    from langchain_core.messages import AIMessage, convert_to_openai_messages

    async def node(state: dict[str, Any]) -> dict[str, Any]:
        reply = await funnel.model(convert_to_openai_messages(state["messages"]), tools=tools, **options)
        calls = reply.item.get("tool_calls") or []
        message = AIMessage(
            reply.text, additional_kwargs={"tool_calls": calls} if calls else {}, id=f"m{reply.sequence_number}"
        )
        return {"messages": [message]}

    return node


def tool_of(funnel: Funnel, tool: Tool) -> BaseTool:
    """Return a registered tool as LangChain's, for a stock `ToolNode` (run the graph with `ainvoke`)."""
    from langchain_core.messages import ToolMessage
    from langchain_core.tools import BaseTool

    class Funnelled(BaseTool):
        def _run(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError("run the graph with ainvoke")

        async def ainvoke(self, input: Any, config: Any = None, **_: Any) -> Any:  # noqa: A002 - LangChain's name
            del config
            result = await funnel.tool(input["id"], tool.name, input["args"])
            return ToolMessage(result.text, tool_call_id=input["id"], name=tool.name)

    return Funnelled(name=tool.name, description=tool.description or tool.name, args_schema=dict(tool.parameters))


def durable_node(journal: Journal, agent: Callable[..., Any], name: str, **options: Any) -> Callable[..., Any]:
    """Return a node that runs `agent` as a trajectory; its task is the state, its result the node's update.

    The graph needs a checkpointer and a `thread_id`.
    """
    from langchain_core.runnables import RunnableConfig
    from langgraph.types import interrupt

    async def node(state: dict[str, Any], config: RunnableConfig) -> Any:
        place = _place(name, config["configurable"]["thread_id"], config["metadata"])
        while True:
            outcome = await journal.arun(agent, place, task=dict(state), **options)
            if outcome.status == "completed":
                return outcome.result
            if outcome.status != "parked":
                raise RuntimeError(f"trajectory {place!r} {outcome.status}: {outcome.result}")
            interrupt([{"trajectory": place, "question": one.question} for one in outcome.waiting_for])

    node.__annotations__["config"] = RunnableConfig  # LangGraph reads the type, which this module has no name for
    return node


def _place(name: str, thread_id: str, task: Mapping[str, Any]) -> str:
    place = f"{thread_id}/{name}.{task['langgraph_step']}"
    kind, number = task["langgraph_path"][:2]
    around = task["langgraph_checkpoint_ns"].rpartition("|")[0]
    place += f".{number}" if kind == "__pregel_push" else ""
    return f"{place}@{sha256(around.encode()).hexdigest()[:16]}" if around else place
