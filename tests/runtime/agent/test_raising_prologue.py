"""An agent that raises in its prologue while it is resumed: the trajectory stays open, and the next entry goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trajlake.runtime import Journal


def test_a_trajectory_whose_resumed_agent_raised_in_its_prologue_goes_on(tmp_path: Path) -> None:
    trouble = ["in turn 1"]

    def agent(t: Any) -> None:
        if trouble == ["in the prologue"]:
            raise RuntimeError("no model configured")
        t.context.system("count")
        for turn in t.turns(max=3):
            t.vars["n"] = t.vars.get("n", 0) + 1
            if turn.number == 1 and trouble:
                raise RuntimeError("out of money")
        t.finish(t.vars["n"])

    with Journal.open(tmp_path / "root") as journal:
        with pytest.raises(RuntimeError, match="money"):
            journal.run(agent, "t", task="go")
        for _ in range(2):
            trouble[:] = ["in the prologue"]
            with pytest.raises(RuntimeError, match="configured"):
                journal.run(agent, "t")
        trouble.clear()
        assert journal.run(agent, "t").result == 3
