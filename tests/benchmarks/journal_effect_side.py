"""Whole durable effects through the public API: `... WORLD AGENTS SECONDS FOLDER`: authorization, intent, call, result.

The tool does nothing and is `external`: its intent and its result are each durable before the call goes on.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from typing import Any

from tests.benchmarks.journal_load import cpu_s, print_result, told
from trajlake.runtime import Journal

CALLS_PER_TURN = 50
WARM_S = 0.3


class Times:
    """Durations of calls that began after the warm-up, by agent; and the CPU used meanwhile."""

    def __init__(self, agents: int, seconds: float) -> None:
        self.begin = time.perf_counter() + WARM_S
        self.end = self.begin + seconds
        self.taken: list[list[float]] = [[] for _ in range(agents)]
        self.cpu_s = -cpu_s()

    def note(self, agent: int, began: float) -> bool:
        now = time.perf_counter()
        if began >= self.begin:
            self.taken[agent].append(now - began)
        return now < self.end


def run(world: str, agents: int, seconds: float, folder: str) -> dict[str, Any]:
    journal = Journal.open(folder)

    if world == "threads":

        @journal.tool(effect="external", timeout_s=5)
        def act(number: int) -> int:
            return number
    else:

        @journal.tool(effect="external", timeout_s=5)
        async def act(number: int) -> int:
            return number

    times = Times(agents, seconds)

    def agent(t: Any) -> None:
        mine = int(t.task["agent"])
        for turn in t.turns(max=100_000):
            for number in range(CALLS_PER_TURN):
                began = time.perf_counter()
                turn.call("act", {"number": number})
                if not times.note(mine, began):
                    t.finish("done")
                    return

    async def aagent(t: Any) -> None:
        mine = int(t.task["agent"])
        async for turn in t.turns(max=100_000):
            for number in range(CALLS_PER_TURN):
                began = time.perf_counter()
                await turn.call("act", {"number": number})
                if not times.note(mine, began):
                    await t.finish("done")
                    return

    if world == "threads":
        threads = [
            threading.Thread(target=journal.run, args=(agent, f"a{one}"), kwargs={"task": {"agent": one}})
            for one in range(agents)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:

        async def main() -> None:
            await asyncio.gather(*(journal.arun(aagent, f"a{one}", task={"agent": one}) for one in range(agents)))

        asyncio.run(main())
    times.cpu_s += cpu_s()
    journal.close()
    return told(times.taken, seconds, times)  # type: ignore[arg-type]


def main() -> None:
    world, agents, seconds, folder = sys.argv[1:]
    print_result(run(world, int(agents), float(seconds), folder))


if __name__ == "__main__":
    main()
