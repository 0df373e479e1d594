"""A program that records a trajectory, branches it, and is killed after a number of appended events; then goes on.

`killed_branch.py FOLDER branch N` kills itself when event N of the branch has been queued and made durable;
`killed_branch.py FOLDER resume 0` goes on, replays, and prints how it ended.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from trajlake.runtime import Journal, Stubs, UnknownTrajectory, branch, replay, resume_branch
from trajlake.runtime.agent.errors import AgentError
from trajlake.runtime.branches.branch_session import BranchSession
from trajlake.runtime.models import ScriptedReply, scripted
from trajlake.runtime.replaying.sources import RootSource
from trajlake.schemas.envelope import Event

FOLDER = Path(sys.argv[1]) if __name__ == "__main__" else Path()


def note(text: str) -> None:
    with (FOLDER / "calls").open("a") as out:
        out.write(text + "\n")


def says(context: Any) -> ScriptedReply:
    if context.turn < 3:
        return ScriptedReply(calls=[("step", {"n": context.turn})])
    return ScriptedReply(text="counted")


def agent(t: Any) -> None:
    t.context.system("You count." if t.id == "one" else "You count again.")
    t.context.user(t.task)
    for turn in t.turns(max=5):
        reply = turn.model()
        turn.tools(reply.calls)
        t.vars["turns"] = t.vars.get("turns", 0) + 1
        if not reply.calls:
            t.finish(t.vars["turns"])


def killed_at(point: int) -> None:
    append = BranchSession.append

    def append_and_die(self: BranchSession, payload: Any, *, turn: int | None = None) -> Event:
        event = append(self, payload, turn=turn)
        if self.trajectory_id != "one" and event.sequence_number == point:
            assert self.ticket is not None
            self.ticket.wait(30)
            os._exit(9)
        return event

    BranchSession.append = append_and_die  # type: ignore[method-assign]


def main() -> None:
    journal = Journal.open(FOLDER / "root")
    model = scripted(says, name="counting", version="1")

    @journal.tool(effect="idempotent")
    def step(n: int) -> str:
        note(f"one:{n}")
        return f"step {n} done"

    def stub(n: int) -> str:
        note(f"stub:{n}")
        return f"stubbed {n}"

    stubs = Stubs(step=stub)
    if sys.argv[2] == "branch":
        journal.run(agent, "one", task="count", model=model)
        killed_at(int(sys.argv[3]))
        branch(journal, "one", 1, "killed", agent=agent, model=model, tools=stubs)
        return
    try:
        outcome = resume_branch(journal, "one~1.0", agent=agent, model=model, tools=stubs)
    except (UnknownTrajectory, AgentError) as error:
        print(f"did not begin: {error}")
        return
    record = RootSource(journal.root, "default").record("one~1.0")
    assert record is not None
    print(outcome.status, outcome.result, replay(agent, record, journal=journal).verdict)


if __name__ == "__main__":
    main()
