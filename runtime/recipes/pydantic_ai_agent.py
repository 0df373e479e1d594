"""Pydantic AI inside a trajectory: its agent loop and typed outputs; our model calls, tools and approvals.

funnel = Funnel(t, turn)
helper = Agent(model_of(funnel), instructions=..., tools=[tool_of(funnel, charge)])
answer = (await funnel.run(helper.run(t.task))).output
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..tools import Tool
from .funnel import Funnel
from .openai_agents import client_of

if TYPE_CHECKING:
    from pydantic_ai import Tool as PydanticTool
    from pydantic_ai.models.openai import OpenAIChatModel


def model_of(funnel: Funnel, **options: Any) -> OpenAIChatModel:
    """Return a model for `pydantic_ai.Agent`; `options` go to every `turn.model` (purpose, retry)."""
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return OpenAIChatModel("journal", provider=OpenAIProvider(openai_client=client_of(funnel, **options)))


def tool_of(funnel: Funnel, tool: Tool) -> PydanticTool[Any]:
    """Return a registered tool as Pydantic AI's; it is run by the trajectory, which keeps its retries."""
    from pydantic_ai import RunContext
    from pydantic_ai import Tool as PydanticTool

    async def invoke(context: RunContext[Any], **arguments: Any) -> str:
        return (await funnel.tool(context.tool_call_id or "", tool.name, arguments)).text

    return PydanticTool.from_schema(invoke, tool.name, tool.description, dict(tool.parameters), takes_ctx=True)
