"""Wrong: the agent's own code writes down what it sold, past any tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trajlake.runtime import Journal
from trajlake.runtime.models import scripted

journal = Journal.open("journal")
model = scripted(["sell", "done"])


def agent(t: Any) -> None:
    for turn in t.turns(max=3):
        reply = turn.model()
        with Path("sold").open("a") as file:
            file.write(reply.text)
        if reply.text == "done":
            t.finish()
