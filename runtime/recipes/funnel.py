"""`Funnel`: a framework calls models and tools from tasks of its own; a turn belongs to one. They meet here.

    async for turn in t.turns(max=1):
        funnel = Funnel(t, turn)
        answer = await funnel.run(framework_loop(model_of(funnel), tools_of(funnel)))

The whole loop of the framework is one turn: after a crash it runs again from its start, and each model call and tool
call that is recorded is served. So it must ask for the same again (no clock, no chance of its own). Whatever an
operation raises, parking for a person too, ends the loop and comes out of `run`: a framework never gets to swallow it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ..agent.driver_async import Trajectory, Turn
from ..agent.model_call import Reply, ToolCall
from ..tools import Result
from .messages import found_again

SIBLINGS_LOOPS = 30
"""Rounds of the event loop in which calls of one reply may still join the first, to run beside it."""


@dataclass(frozen=True, slots=True)
class _Asked:
    answer: asyncio.Future[Any]
    model: Mapping[str, Any] | None = None
    call: ToolCall | None = None
    wanted: tuple[str, Any] = ("", None)


class Funnel:
    """Operations of one turn, from any task of its loop, done one after another by the turn's own task."""

    def __init__(self, t: Trajectory, turn: Turn) -> None:
        self._t, self._turn = t, turn
        self._asked: asyncio.Queue[_Asked | None] = asyncio.Queue()
        self._next: list[_Asked | None] = []
        self._proposed: defaultdict[str, deque[ToolCall]] = defaultdict(deque)

    async def run(self, loop_of_framework: Coroutine[Any, Any, Any]) -> Any:
        """Run a framework's loop to its end and return its value. Call it in the agent's own task."""
        task = asyncio.ensure_future(loop_of_framework)
        task.add_done_callback(lambda _: self._asked.put_nowait(None))
        try:
            while (asked := self._next.pop() if self._next else await self._asked.get()) is not None:
                await self._serve(asked)
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def model(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Reply:
        """`turn.model(messages=...)`. A message that the context holds already is found, in its provider's shape."""
        options["messages"] = found_again(messages, self._t.context.items)
        reply: Reply = await self._ask(model=options)
        for call in reply.calls:
            self._proposed[call.provider_id].append(call)
        return reply

    async def tool(self, provider_id: str, name: str, arguments: Any) -> Result:
        """`turn.tool` of the call that a reply proposed under this id; where none did (or without one), `turn.call`."""
        asked: dict[str, Any]
        if provider_id and self._proposed[provider_id]:
            asked = {"call": self._proposed[provider_id].popleft()}
        else:
            given = msgspec.json.decode(arguments) if isinstance(arguments, str) else arguments
            asked = {"wanted": (name, given)}
        result: Result = await self._ask(**asked)
        return result

    async def _ask(self, **what: Any) -> Any:
        answer = asyncio.get_running_loop().create_future()
        self._asked.put_nowait(_Asked(answer, **what))
        return await answer

    async def _serve(self, asked: _Asked) -> None:
        if asked.model is not None:
            _tell(asked, await self._turn.model(**asked.model))
        elif asked.call is None:
            _tell(asked, await self._turn.call(*asked.wanted))
        else:
            batch = [asked, *await self._siblings()]
            for one, result in zip(batch, await self._turn.tools([one.call for one in batch if one.call]), strict=True):
                _tell(one, result)

    async def _siblings(self) -> list[_Asked]:
        found: list[_Asked] = []
        for _ in range(SIBLINGS_LOOPS):
            await asyncio.sleep(0)
            while not self._asked.empty():
                one = self._asked.get_nowait()
                if one is None or one.call is None:
                    self._next.append(one)
                    return found
                found.append(one)
        return found


def _tell(asked: _Asked, value: Any) -> None:
    if not asked.answer.done():
        asked.answer.set_result(value)
