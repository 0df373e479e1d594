"""A correct agent under asyncio: two calls beside each other, one of them by key."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from trajlake.runtime import Call, Journal
from trajlake.runtime.models import scripted

journal = Journal.open("journal")
model = scripted([[("look", {"at": "a"}), ("charge", {"cents": 990})], "done"])


@journal.tool(effect="read")
async def look(at: str) -> str:
    await asyncio.sleep(0)
    return at.upper()


@journal.tool(effect="idempotent")
async def charge(cents: int, *, call: Call) -> str:
    bank = Path("bank")
    if call.key not in (bank.read_text() if bank.exists() else ""):
        with bank.open("a") as file:
            file.write(f"{call.key} {cents}\n")
    return "charged"


async def agent(t: Any) -> None:
    async for turn in t.turns(max=3):
        reply = await turn.model()
        given = await turn.tools(reply.calls)
        t.vars["calls"] = t.vars.get("calls", 0) + len(given)
        if not reply.calls:
            await t.finish(t.vars["calls"])
