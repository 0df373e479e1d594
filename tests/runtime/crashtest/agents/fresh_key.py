"""Wrong: says that its charge is idempotent, and makes up a key for each attempt."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from trajlake.runtime import Journal
from trajlake.runtime.models import scripted

journal = Journal.open("journal")
model = scripted([[("charge", {"cents": 990})], "done"])


@journal.tool(effect="idempotent")
def charge(cents: int) -> str:
    key = uuid.uuid4().hex
    bank = Path("bank")
    known = bank.read_text() if bank.exists() else ""
    if key not in known:
        with bank.open("a") as file:
            file.write(f"{key} {cents}\n")
    return "charged"


def agent(t: Any) -> None:
    for turn in t.turns(max=3):
        reply = turn.model()
        turn.tools(reply.calls)
        if not reply.calls:
            t.finish(reply.text)
