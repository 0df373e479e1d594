"""A correct agent: it notes an order in its workspace, looks up a price, charges by key, ships with a probe, asks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trajlake.runtime import NOT_EXECUTED, Call, Executed, Journal, Retry
from trajlake.runtime.models import scripted

journal = Journal.open("journal")
model = scripted(
    [
        [("note", {"text": "order 7"}), ("price", {"of": "lamp"})],
        [("charge", {"cents": 990}), ("ship", {"order": "7"})],
        [("tell", {"text": "shipped"})],
        "done",
    ]
)


def rows(name: str) -> list[str]:
    """What a service of the outside world holds."""
    return Path(name).read_text().splitlines() if Path(name).exists() else []


def add(name: str, *row: object) -> None:
    with Path(name).open("a") as file:
        file.write(json.dumps(row) + "\n")


@journal.tool(effect="local")
def note(text: str) -> int:
    return Path("work/note.txt").write_text(text)


@journal.tool(effect="read", retry=Retry(1))
def price(of: str) -> int:
    return len(of) * 100


@journal.tool(effect="idempotent")
def charge(cents: int, *, call: Call) -> str:
    if not any(call.key in row for row in rows("bank")):
        add("bank", call.key, cents)
    return "charged"


def shipped(call: Call) -> Any:
    return Executed("on its way") if any(call.key in row for row in rows("depot")) else NOT_EXECUTED


@journal.tool(effect="external", probe=shipped, timeout_s=5)
def ship(order: str, *, call: Call) -> str:
    add("depot", call.key, order)
    return "on its way"


@journal.tool(effect="external", approve=True)
def tell(text: str) -> None:
    add("customer", text)


def agent(t: Any) -> None:
    """Runs what the model proposes, and counts in what outlives a turn."""
    t.context.user(str(t.task))
    for turn in t.turns(max=9):
        reply = turn.model()
        given = turn.tools(reply.calls)
        t.vars["calls"] = t.vars.get("calls", 0) + len(given)
        t.vars["seen_at"] = turn.now().isoformat()
        if not reply.calls:
            t.finish({"text": reply.text, "calls": t.vars["calls"]})
