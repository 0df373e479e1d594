"""The agents of the demo and their tools: read an order, charge it, write a receipt.

The model is scripted, the tools are real: files in a workspace and HTTP calls to the shop.
"""

from __future__ import annotations

import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

import msgspec

from trajlake.runtime import Call, Journal
from trajlake.runtime.models import scripted
from trajlake.runtime.replaying.toolbox import Toolbox

ORDERS: Final = {"order-1001": 4200, **{f"order-{2000 + n}": 500 + 25 * n for n in range(1, 13)}}
"""Order -> cents. The first one belongs to the agent that is killed, the others to the crowd."""

PROMPT: Final = "You fulfil orders. Read the order, charge it once, write the receipt, then say what you did."
STALL_S: Final = 120.0


def open_journal(root: Path, shop_url: str, workspace: Path, *, stall: bool) -> Journal:
    """Return the journal with the demo's tools. `stall`: the charge never returns, so that it can be killed there."""
    journal = Journal.open(root, principal="demo-operator")
    register(journal, shop_url, workspace, stall=stall)
    return journal


def journal_for_replay() -> Toolbox:
    """Return the tools for `trajlake replay`, which calls none of them."""
    tools = Toolbox()
    register(tools, "", Path(), stall=False)
    return tools


def register(journal: Journal | Toolbox, shop_url: str, workspace: Path, *, stall: bool) -> None:
    """Register the demo's tools."""

    @journal.tool(effect="read", version="1")
    def read_order(order: str) -> dict[str, Any]:
        """Read one order from the workspace."""
        found: dict[str, Any] = msgspec.json.decode((workspace / "orders" / f"{order}.json").read_bytes())
        return found

    @journal.tool(effect="idempotent", version="1", timeout_s=30)
    def charge(order: str, cents: int, *, call: Call) -> dict[str, Any]:
        """Charge an order. The shop honours the key, so asking again is safe."""
        request = urllib.request.Request(  # noqa: S310  # always http on loopback
            f"{shop_url}/charges",
            data=msgspec.json.encode({"order": order, "cents": cents}),
            headers={"Idempotency-Key": call.key, "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
            done: dict[str, Any] = msgspec.json.decode(answer.read())
        if stall:
            sys.stdout.write("charged\n")
            sys.stdout.flush()
            time.sleep(STALL_S)
        return done

    @journal.tool(effect="local", version="1")
    def write_receipt(order: str, text: str) -> str:
        """Write the receipt of an order into the workspace."""
        path = workspace / "receipts" / f"{order}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return f"{len(text)} characters written to {path.name}"


def model_for(order: str) -> Any:
    """Return the scripted model: three turns with a call each, then the last word."""
    cents = ORDERS[order]
    script: list[Any] = [
        [("read_order", {"order": order})],
        [("charge", {"order": order, "cents": cents})],
        [("write_receipt", {"order": order, "text": f"Receipt for {order}: {cents / 100:.2f} paid, thank you.\n"})],
        f"{order} is charged and its receipt is written.",
    ]
    return scripted(script, name="demo-model", version="1")


def fulfil(t: Any) -> None:
    """One order, turn by turn."""
    t.context.system(PROMPT)
    t.context.user(f"Please fulfil {t.task['order']}.")
    for turn in t.turns(max=10):
        reply = turn.model()
        turn.tools(reply.calls)
        if not reply.calls:
            t.finish(reply.text)


async def afulfil(t: Any) -> None:
    """The same for asyncio: many at once in one thread, under one barrier per batch."""
    t.context.system(PROMPT)
    t.context.user(f"Please fulfil {t.task['order']}.")
    async for turn in t.turns(max=10):
        reply = await turn.model()
        await turn.tools(reply.calls)
        if not reply.calls:
            await t.finish(reply.text)
