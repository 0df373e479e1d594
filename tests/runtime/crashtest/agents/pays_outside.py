"""Wrong: pays by calling its tool itself, not through the turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trajlake.runtime import Journal
from trajlake.runtime.models import scripted

journal = Journal.open("journal")
model = scripted(["pay", "done"])


@journal.tool(effect="external")
def pay(cents: int) -> None:
    with Path("bank").open("a") as bank:
        bank.write(f"{cents}\n")


def agent(t: Any) -> None:
    for turn in t.turns(max=3):
        reply = turn.model()
        if reply.text == "pay":
            pay(990)
            t.vars["paid"] = True
        else:
            t.finish(t.vars["paid"])
