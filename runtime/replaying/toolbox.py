"""Tools and a policy without a root: enough to replay with, where opening the journal would need one.

A module of agents whose journal is opened elsewhere offers `journal_for_replay() -> Toolbox`, and `trajlake replay`
finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from ..tools import Tool, ToolOptions, make_tool


class Toolbox:
    """What a replay uses of a `Journal`; `tool` registers as `Journal.tool` does. Nothing here runs or writes."""

    ports_for_reading: Any = None

    def __init__(self, policy: Any = None) -> None:
        self.policy = policy
        self.tools: dict[str, Tool] = {}
        self.resolvers: dict[str, Callable[..., Any]] = {}

    @overload
    def tool(self, function: Callable[..., Any]) -> Tool: ...

    @overload
    def tool(self, function: None = None, **options: Any) -> Callable[[Callable[..., Any]], Tool]: ...

    def tool(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Register a tool; a decorator, with or without options."""

        def register(body: Callable[..., Any]) -> Tool:
            tool = make_tool(body, ToolOptions(**options))
            self.tools[tool.name] = tool
            return tool

        return register if function is None else register(function)
