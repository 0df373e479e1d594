"""Wrong: counts in a global of its module, which dies with the process."""

from __future__ import annotations

from typing import Any

from trajlake.runtime import Journal
from trajlake.runtime.models import scripted

journal = Journal.open("journal")
model = scripted([[("look", {"at": "a"})], [("look", {"at": "b"})], "done"])


@journal.tool(effect="read")
def look(at: str) -> str:
    return at.upper()


seen = 0


def agent(t: Any) -> None:
    global seen
    for turn in t.turns(max=5):
        reply = turn.model()
        seen += len(turn.tools(reply.calls))
        if not reply.calls:
            t.finish(seen)
