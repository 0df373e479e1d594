"""A program for the tests of killed processes: `python -m tests.runtime.agent.killed_agent ROOT WORLD TOOL HOW`.

It runs one agent that charges an order once. HOW: `kill` dies by SIGKILL between the effect and its result, `fine`
does not. WORLD is a file that holds one line per charge: the outside world's own count.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from trajlake.runtime import NOT_EXECUTED, Call, Executed, Journal
from trajlake.runtime.models import scripted


def agent_of(journal: Journal, ledger: Path, tool: str, how: str) -> tuple[Callable[[Any], None], Any]:
    """Register the tools on `journal`; return the agent and its model."""

    def lines() -> list[str]:
        return ledger.read_text().splitlines() if ledger.exists() else []

    def charge(order: str, call: Call) -> dict[str, Any]:
        if tool != "by_key" or f"{call.key} {order}" not in lines():
            with ledger.open("a") as file:
                file.write(f"{call.key} {order}\n")
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return {"charged": order}

    def probe(call: Call) -> Any:
        found = [line for line in lines() if line.startswith(call.key)]
        return Executed({"charged": call.arguments["order"]}, evidence=found[0]) if found else NOT_EXECUTED

    @journal.tool(effect="idempotent")
    def by_key(order: str, *, call: Call) -> dict[str, Any]:
        return charge(order, call)

    @journal.tool(probe=probe)
    def by_probe(order: str, *, call: Call) -> dict[str, Any]:
        return charge(order, call)

    @journal.tool
    def by_person(order: str, *, call: Call) -> dict[str, Any]:
        return charge(order, call)

    def agent(t: Any) -> None:
        t.context.user("charge order 7")
        for turn in t.turns():
            reply = turn.model()
            results = turn.tools(reply.calls)
            t.vars["statuses"] = [*t.vars.get("statuses", []), *(result.status for result in results)]
            if not reply.calls:
                t.finish([reply.text, t.vars["statuses"]])

    return agent, scripted([[(tool, {"order": "7"})], "done"])


def main(root: str, world: str, tool: str, how: str) -> None:
    """Run the trajectory and print what came of it."""
    journal = Journal.open(root)
    agent, model = agent_of(journal, Path(world), tool, how)
    outcome = journal.run(agent, "charge-7", task="charge order 7", model=model)
    questions = [waiting.action_id for waiting in outcome.waiting_for]
    print(msgspec.json.encode([outcome.status, outcome.result, questions]).decode())
    journal.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
