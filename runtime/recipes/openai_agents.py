"""The OpenAI Agents SDK inside a trajectory: its loop, handoffs and guardrails; our model calls, tools and approvals.

funnel = Funnel(t, turn)
helper = Agent(name="helper", instructions=..., model=model_of(funnel), tools=[tool_of(funnel, charge)])
answer = await funnel.run(Runner.run(helper, t.task, run_config=RunConfig(tracing_disabled=True)))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..tools import Tool
from .funnel import Funnel
from .transport import JournalTransport

if TYPE_CHECKING:
    from agents import FunctionTool, OpenAIChatCompletionsModel


def client_of(funnel: Funnel, **options: Any) -> Any:
    """Return an `openai.AsyncOpenAI` that reaches the trajectory's model and no network."""
    import httpx
    from openai import AsyncOpenAI

    http = httpx.AsyncClient(transport=JournalTransport(funnel, **options))
    return AsyncOpenAI(api_key="unused", base_url="http://journal.invalid/v1", max_retries=0, http_client=http)


def model_of(funnel: Funnel, **options: Any) -> OpenAIChatCompletionsModel:
    """Return the SDK's model; `options` go to every `turn.model` (purpose, retry)."""
    from agents import OpenAIChatCompletionsModel

    return OpenAIChatCompletionsModel("journal", client_of(funnel, **options))


def tool_of(funnel: Funnel, tool: Tool) -> FunctionTool:
    """Return a registered tool as the SDK's; what a person must approve parks the trajectory, not the SDK."""
    from agents import FunctionTool

    async def invoke(context: Any, arguments: str) -> str:
        return (await funnel.tool(context.tool_call_id, tool.name, arguments)).text

    return FunctionTool(tool.name, tool.description, dict(tool.parameters), invoke, strict_json_schema=False)
