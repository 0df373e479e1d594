"""Wrong: counts in a local variable that no resume brings back."""

from __future__ import annotations

from typing import Any

from trajlake.runtime import Journal
from trajlake.runtime.models import scripted

journal = Journal.open("journal")
model = scripted([[("look", {"at": "a"})], [("look", {"at": "b"})], "done"])


@journal.tool(effect="read")
def look(at: str) -> str:
    return at.upper()


def agent(t: Any) -> None:
    seen = 0
    for turn in t.turns(max=5):
        reply = turn.model()
        seen += len(turn.tools(reply.calls))
        if not reply.calls:
            t.finish(seen)
