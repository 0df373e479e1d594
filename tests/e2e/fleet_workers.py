"""The workers of a fleet: one agent per shop, over one journal. FLEET names the folder of the scene.

`trajlake recover` imports this module too, as a user's would be.
"""

from __future__ import annotations

import http.client
import json
import os
import time
from pathlib import Path
from typing import Any

from tests.e2e.fleet_services import SETTLE_AFTER_S, SHOPS, TIMEOUT_S
from trajlake.runtime import NOT_EXECUTED, UNKNOWN, Busy, Call, Executed, Journal, NotExecuted, Retry
from trajlake.runtime.leases import generations, lease, lease_keeper

FOLDER = Path(os.environ["FLEET"])
LEASE_S = 2.0


def shorten_leases() -> None:
    """A lease of two seconds instead of a minute, so that a stopped worker loses it while the test runs."""
    for function in (lease_keeper.LeaseKeeper.__init__, lease.take_lease):
        defaults = function.__kwdefaults__
        assert defaults is not None
        defaults["duration_s"] = LEASE_S
        if "renew_every_s" in defaults:
            defaults["renew_every_s"] = LEASE_S / 4
    for module in (generations, lease_keeper):
        vars(module)["DISPATCH_MARGIN_S"] = 0.5


shorten_leases()
journal = Journal.open(FOLDER / "root", principal="fleet")


def ask(shop: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """One request; whatever goes wrong on the way is raised."""
    port = json.loads((FOLDER / "ports.json").read_text())[shop]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S * 0.9)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def charge(shop: str, name: str, call: Call) -> Any:
    assert call.deadline is not None
    status, body = ask(shop, "POST", "/charge", {"name": name, "key": call.key, "deadline": call.deadline})
    if status == 503 and body == {"charged": False}:
        raise NotExecuted("the shop says that it did not charge")
    if status != 200:
        raise RuntimeError(f"the shop answers {status}")
    return body["receipt"]


def was_charged(call: Call) -> Any:
    status, body = ask("probe", "GET", f"/charge/{call.key}")
    if status != 200:
        return UNKNOWN
    return Executed(call.arguments["name"], evidence=call.key) if body["charged"] else NOT_EXECUTED


@journal.tool(effect="idempotent", timeout_s=TIMEOUT_S, retry=Retry(9, wait_s=0.01))
def charge_keys(name: str, *, call: Call) -> Any:
    return charge("keys", name, call)


@journal.tool(timeout_s=TIMEOUT_S, settle_after_s=SETTLE_AFTER_S, probe=was_charged, retry=Retry(9, wait_s=0.01))
def charge_probe(name: str, *, call: Call) -> Any:
    return charge("probe", name, call)


@journal.tool(timeout_s=TIMEOUT_S, retry=Retry(9, wait_s=0.01))
def charge_neither(name: str, *, call: Call) -> Any:
    return charge("neither", name, call)


def buy(t: Any) -> None:
    """Charge one order, however often nothing came of it, and write down the receipt."""
    shop, name = t.task["shop"], t.task["name"]
    for turn in t.turns(max=20):
        result = turn.call(f"charge_{shop}", {"name": name})
        t.vars["seen"] = [*t.vars.get("seen", []), result.status]
        if result.status == "ok":
            t.finish({"order": name, "turn": turn.number})


def orders(count: int) -> list[tuple[str, str]]:
    """(Shop, id) of every order, a third of them for each shop."""
    return [(SHOPS[number % 3], f"{SHOPS[number % 3]}-{number:03}") for number in range(count)]


def work(me: int, workers: int, count: int) -> None:
    """Bring on every order that nobody else works on, beginning with one's own share, until none is left.

    Marks in the folder spare the others a look: what has ended, and what waits for a person.
    """
    mine = orders(count)
    start = me * count // workers
    left = [*mine[start:], *mine[:start]]
    while left:
        before = len(left)
        for shop, name in list(left):
            if (FOLDER / "over" / name).exists() or _bring_on(shop, name):
                left.remove((shop, name))
        if len(left) == before:
            time.sleep(0.05)
    journal.close()


def _bring_on(shop: str, name: str) -> bool:
    """True once nothing is left to do for an order but a person's answer, which only `neither` may need."""
    try:
        outcome = journal.run(buy, name, task={"shop": shop, "name": name})
    except Busy:
        return False
    if outcome.status == "parked" and shop != "neither":
        return False  # its key or its probe gave no answer this time; the next entry asks again
    (FOLDER / "over" / name).touch()
    return True
