"""Wrong: decides by chance and clock that no record holds."""

from __future__ import annotations

import random
import time
from typing import Any

from trajlake.runtime import Journal
from trajlake.runtime.models import scripted

journal = Journal.open("journal")
model = scripted(["look", "done"])


@journal.tool(effect="read")
def look(at: str) -> str:
    return at


def agent(t: Any) -> None:
    for turn in t.turns(max=3):
        reply = turn.model()
        if random.random() < 0.5:
            turn.call("look", {"at": "left"})
        else:
            turn.call("look", {"at": "right"})
        t.vars["began"] = time.time()
        if reply.text == "done":
            t.finish(reply.text)
