"""The same core under asyncio: the loop never blocks, and a plain record is served to an async agent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trajlake.runtime import Call, Misuse, Retry, replay
from trajlake.runtime.models import scripted

from .conftest import Bench, Died


def tools(journal: Any, ran: list[Any]) -> None:
    @journal.tool(effect="idempotent", timeout_s=5)
    async def put(n: int, *, call: Call) -> int:
        await asyncio.sleep(0.01)
        ran.append((n, call.key))
        return n * 2

    @journal.tool(effect="read")
    def look(n: int) -> int:
        return n


async def agent(t: Any) -> None:
    t.context.system("s")
    t.context.user(t.task)
    async for turn in t.turns(max=5):
        reply = await turn.model(retry=Retry(0))
        results = await turn.tools(reply.calls)
        t.vars["sum"] = t.vars.get("sum", 0) + sum(one.output for one in results)
        extra = await turn.read("extra", coroutine)
        called = await turn.call("look", {"n": extra})
        if t.task == "die" and turn.number == 1:
            raise Died
        if not reply.calls:
            t.finish([reply.text, t.vars["sum"], called.output])


async def coroutine() -> int:
    await asyncio.sleep(0)
    return 4


MODEL = scripted([[("put", {"n": 1}), ("look", {"n": 5})], [("put", {"n": 2})], "done"])


def test_an_async_agent_runs_resumes_and_replays(bench: Bench) -> None:
    journal, ran = bench.fresh(), []
    tools(journal, ran)
    outcome = asyncio.run(journal.arun(agent, "t", task="go", model=MODEL))
    assert outcome.result == ["done", 11, 4]
    for cold in (False, True):
        assert replay(agent, bench.events(), journal=journal, cold=cold).same


def test_an_async_agent_resumes_at_its_open_turn(bench: Bench) -> None:
    journal, ran = bench.fresh(), []
    tools(journal, ran)
    with pytest.raises(Died):
        asyncio.run(journal.arun(agent, "t", task="die", model=MODEL))
    journal = bench.fresh()
    tools(journal, ran)

    async def patched(t: Any) -> None:
        t.task = "go"
        await agent(_With(t))

    assert asyncio.run(journal.arun(patched, "t", model=MODEL)).result == ["done", 11, 4]
    assert len(ran) == 2, "the calls of the open turn were served"


class _With:
    """A trajectory whose prologue is as recorded."""

    def __init__(self, t: Any) -> None:
        self._t = t
        self.task = "die"

    def __getattr__(self, name: str) -> Any:
        if name == "turns":
            self.task = "go"
        return getattr(self._t, name)


def test_many_async_agents_share_one_loop_and_one_writer(bench: Bench) -> None:
    journal, ran = bench.fresh(), []
    tools(journal, ran)

    async def main() -> list[Any]:
        runs = (journal.arun(agent, f"t{n}", task="go", model=MODEL) for n in range(20))
        return await asyncio.gather(*runs)

    assert [outcome.result for outcome in asyncio.run(main())] == [["done", 11, 4]] * 20
    assert len({key for _, key in ran}) == 40
    assert len(journal.root.writers()) == 1


def test_awaiting_the_end_waits_for_it(bench: Bench) -> None:
    journal = bench.fresh()

    async def ends(t: Any) -> None:
        async for turn in t.turns():
            await t.finish(turn.number)
            assert bench.types()[-1] == "TaskEnded"

    assert asyncio.run(journal.arun(ends, "t", task=1)).result == 0


def test_a_trajectory_belongs_to_one_task(bench: Bench) -> None:
    journal, told = bench.fresh(), []

    async def wide(t: Any) -> None:
        async for turn in t.turns():

            async def other(turn: Any = turn) -> None:
                with pytest.raises(Misuse, match="belongs to"):
                    await turn.model()
                told.append(1)

            await asyncio.gather(other(), other())
            t.finish()

    asyncio.run(journal.arun(wide, "t", task=1, model=MODEL))
    assert told == [1, 1]


def test_a_cancelled_task_leaves_its_trajectory_open_and_its_effect_in_doubt(bench: Bench) -> None:
    journal = bench.fresh()

    @journal.tool
    async def pay() -> None:
        await asyncio.sleep(30)

    async def paying(t: Any) -> None:
        async for turn in t.turns():
            await turn.call("pay")

    async def main() -> None:
        task = asyncio.create_task(journal.arun(paying, "t", task=1))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert "ToolIntent" in bench.types()
    assert "ToolResult" not in bench.types()
    assert "TaskEnded" not in bench.types()
    journal = bench.fresh()

    @journal.tool
    async def pay() -> None: ...  # noqa: F811 - the same tool in another process

    assert asyncio.run(journal.arun(paying, "t")).waiting_for[0].kind == "doubt"


def test_an_agent_of_the_other_kind_is_refused_before_anything_is_written(bench: Bench) -> None:
    journal = bench.fresh()
    with pytest.raises(Misuse, match="arun"):
        journal.run(agent, "t", task="go")
    with pytest.raises(Misuse, match="plain"):
        asyncio.run(journal.arun(lambda t: 1, "t", task="go"))
    assert bench.events() == []
