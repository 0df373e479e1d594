"""Wrong: its probe says of a shipment that never went out that it did; so it never goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trajlake.runtime import Call, Executed, Journal
from trajlake.runtime.models import scripted

journal = Journal.open("journal")
model = scripted([[("ship", {"order": "7"})], "done"])


def always(call: Call) -> Any:
    return Executed("on its way")


@journal.tool(effect="external", probe=always, timeout_s=5)
def ship(order: str) -> str:
    with Path("depot").open("a") as depot:
        depot.write(order + "\n")
    return "on its way"


def agent(t: Any) -> None:
    for turn in t.turns(max=3):
        reply = turn.model()
        turn.tools(reply.calls)
        if not reply.calls:
            t.finish(reply.text)
