"""Random trees of agents on one budget, crashed at random places: together they never spend more than the root has."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from trajlake.runtime import BudgetExhausted, Journal
from trajlake.runtime.root_log import RootLog
from trajlake.schemas.history import canonical
from trajlake.schemas.state.budget import Budget, BudgetFold

LIVES_MAX = 40


class Crash(BaseException):
    """Ends a life: nothing is written after it."""


class Tree:
    """One tree of agents: the same in every life of one seed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed, self.dice = folder, seed, random.Random(f"{seed}/crashes")
        self.done: dict[str, int] = {}
        self.budget = {"usd": str(random.Random(seed).randint(2, 14)), "tool_calls": "30"}

    def live(self, appends: int | None) -> Any:
        """One life of the whole tree; it ends at an append if `appends` says so."""
        with Journal.open(self.folder / "root") as journal:
            self.register(journal)
            if appends is not None:
                crash_after(journal, appends)
            try:
                return journal.run(self.agent(0), "t", task=self.seed, budget=self.budget)
            except Crash:
                return None

    def register(self, journal: Journal) -> None:
        def price(call: Any) -> dict[str, str]:
            return {"usd": "1"}

        price.maximum = {"usd": "1.5"}  # type: ignore[attr-defined]

        @journal.tool(effect="idempotent", cost=price)
        def pay(n: int, *, call: Any) -> int:
            self.done[call.key] = self.done.get(call.key, 0) + 1
            return n

    def agent(self, depth: int) -> Any:
        """An agent that pays, and hands work to children, as its id and turn say."""

        def run(t: Any) -> None:
            for turn in t.turns(max=3):
                plan = random.Random(f"{self.seed}/{t.id}/{turn.number}")
                for n in range(plan.randint(0, 2)):
                    turn.call("pay", {"n": n})
                if depth < 2 and plan.random() < 0.7:
                    children = [(self.agent(depth + 1), f"c{n}", n) for n in range(plan.randint(1, 3))]
                    more = {"budget": {"usd": "0.5"}} if plan.random() < 0.2 else {}
                    try:
                        turn.spawn_all(children, limit=plan.randint(1, 3), **more)
                    except BudgetExhausted:
                        assert more
            t.finish(t.budget.left)

        return run

    def spent(self) -> Decimal:
        """What all trajectories of the tree really spent on their own."""
        root = Journal.open(self.folder / "root").root
        log = RootLog(root)
        keys = {(e.tenant, e.trajectory_id) for name in root.writers() for e in all_events(root, name)}
        total = Decimal(0)
        for tenant, trajectory_id in sorted(keys):
            events = canonical(log.read(tenant, trajectory_id, None).events).events
            total += sum(Decimal(e.body.cost.get("usd", 0)) for e in events if e.type == "ToolResult")
        return total


def all_events(root: Any, writer: str) -> Any:
    from trajlake.runtime.wal.reader import iter_events

    return iter_events(root.env, root.writer_folder(writer))


def crash_after(journal: Journal, appends: int) -> None:
    log: Any = journal.ports.log
    append = log.append
    left = [appends]

    def counted(events: Any, info: Any, *, lazy: bool = False) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise Crash
        return append(events, info, lazy=lazy)

    log.append = counted


def check(tmp_path: Path, seed: int) -> None:
    tree = Tree(tmp_path / str(seed), seed)
    limit = Decimal(tree.budget["usd"])
    outcome = tree.live(None if seed % 5 == 0 else tree.dice.randint(1, 60))
    lives = 1
    while outcome is None:
        lives += 1
        assert lives < LIVES_MAX
        assert tree.spent() <= limit, f"seed {seed}, life {lives}"
        outcome = tree.live(tree.dice.randint(1, 60) if lives < 6 else None)
    assert outcome.status == "completed", f"seed {seed}: {outcome}"
    assert tree.spent() <= limit, f"seed {seed}"
    left = Decimal(outcome.result["usd"])
    # What a crash left in doubt is settled by its key: executed, at a cost nobody knows, so its maximum is booked.
    assert limit - left >= tree.spent(), f"seed {seed}: less was booked than was spent"
    if lives == 1:
        assert limit - left == tree.spent(), f"seed {seed}: what children left over did not come back"
    root = Journal.open(tree.folder / "root").root
    fold = BudgetFold(Budget())
    for event in canonical(RootLog(root).read("default", "t", None).events).events:
        fold.apply(event)
    assert fold.held == {}, f"seed {seed}: a grant is held for ever"


def test_a_tree_of_agents_never_spends_more_than_its_root_has(tmp_path: Path) -> None:
    for seed in (1, 6):
        check(tmp_path, seed)


@pytest.mark.long
@pytest.mark.parametrize("start", [100, 110])
def test_more_trees_of_agents_never_spend_more_than_their_roots_have(tmp_path: Path, start: int) -> None:
    for seed in range(start, start + 8):
        check(tmp_path, seed)
