"""A worker for the tests of races: `python -m tests.runtime.cases.racing_worker ROOT WORLD ID`.

Waits until the file WORLD/go is there, then runs the trajectory until it has an outcome, and prints that.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from trajlake.runtime import Busy, Journal
from trajlake.runtime.models import scripted


def main(root: str, world: str, trajectory_id: str) -> None:
    outside = Path(world)
    while not (outside / "go").exists():
        time.sleep(0.005)
    journal = Journal.open(root)

    @journal.tool(effect="external")
    def pay(cents: int) -> int:
        with (outside / "bank").open("a") as bank:
            bank.write(f"{trajectory_id} {cents}\n")
        time.sleep(0.05)
        return cents

    def agent(t: Any) -> None:
        for turn in t.turns(max=3):
            reply = turn.model()
            t.vars["paid"] = [*t.vars.get("paid", []), *(one.output for one in turn.tools(reply.calls))]
            if not reply.calls:
                t.finish(t.vars["paid"])

    while True:
        try:
            outcome = journal.run(agent, trajectory_id, task=1, model=scripted([[("pay", {"cents": 990})], "done"]))
            break
        except Busy:
            time.sleep(0.05)
    journal.close()
    print(msgspec.json.encode([outcome.status, outcome.result]).decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
