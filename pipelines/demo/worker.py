"""A worker process of the demo: `python -m trajlake.pipelines.demo.worker FOLDER SHOP_URL ORDER... [--stall]`.

One order runs in this thread, several run concurrently under asyncio. Prints one JSON line per outcome.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from trajlake.runtime import Journal, Outcome

from .fulfilment import afulfil, fulfil, model_for, open_journal


def main(arguments: list[str]) -> int:
    folder, shop_url, *orders = [argument for argument in arguments if argument != "--stall"]
    workspace = Path(folder) / "workspace"
    journal = open_journal(Path(folder) / "journal", shop_url, workspace, stall="--stall" in arguments)
    if len(orders) == 1:
        outcomes = {orders[0]: _run_one(journal, orders[0], workspace)}
    else:
        outcomes = asyncio.run(_run_many(journal, orders, workspace))
    for order, outcome in outcomes.items():
        line = {"order": order, "status": outcome.status, "result": outcome.result}
        sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
    journal.close()
    return 0 if all(outcome.status == "completed" for outcome in outcomes.values()) else 1


def _run_one(journal: Journal, order: str, workspace: Path) -> Outcome:
    return journal.run(fulfil, order, task={"order": order}, model=model_for(order), workspace=workspace)


async def _run_many(journal: Journal, orders: list[str], workspace: Path) -> dict[str, Outcome]:
    runs = [
        journal.arun(afulfil, order, task={"order": order}, model=model_for(order), workspace=workspace)
        for order in orders
    ]
    return dict(zip(orders, await asyncio.gather(*runs), strict=True))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
