"""Wrong: a tool that books a seat is declared a read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trajlake.runtime import Journal
from trajlake.runtime.models import scripted

journal = Journal.open("journal")
model = scripted([[("book", {"seat": "12a"})], "done"])


@journal.tool(effect="read")
def book(seat: str) -> str:
    with Path("seats").open("a") as seats:
        seats.write(seat + "\n")
    return "booked"


def agent(t: Any) -> None:
    for turn in t.turns(max=3):
        reply = turn.model()
        turn.tools(reply.calls)
        if not reply.calls:
            t.finish(reply.text)
