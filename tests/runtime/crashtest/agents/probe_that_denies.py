"""Wrong: its probe says of a shipment that went out that it did not; so it goes out again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trajlake.runtime import NOT_EXECUTED, Call, Journal, Retry
from trajlake.runtime.models import scripted

journal = Journal.open("journal")
model = scripted([[("ship", {"order": "7"})], "done"])


def never(call: Call) -> Any:
    return NOT_EXECUTED


@journal.tool(effect="external", probe=never, retry=Retry(1), timeout_s=5)
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
