"""A view that begins at a checkpoint is the view that folding every event gives, wherever a worker was crashed."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from trajlake.runtime.agent import enter, life
from trajlake.runtime.agent.from_checkpoint import view_from
from trajlake.runtime.agent.session import Session
from trajlake.runtime.agent.view import View

from .test_simulated_runs import Run, check


def told(view: View) -> dict[str, Any]:
    """Everything that a view tells, whatever of it was read when."""
    actions, context = view.actions, view.context
    return {
        "actions": {name: actions.by_id[name] for name in actions.by_id},
        "approvals": actions.approvals,
        "key_owner": actions.key_owner,
        "places": {place: orders for place, orders in actions._places.items() if orders},
        "undecided": [action.action_id for action in actions.undecided()],
        "items": context.items,
        "refs": context.refs(),
        "built": context.built,
        "drifted": context.drifted,
        "budget": view.budget.frozen(),
        "vars": view.vars,
        "constraints": view.constraints,
        "goal, plan, system_no": (view.goal_seq, view.plan_seq, view.system_no),
        "applied": view.applied,
        "state": view.state,
    }


class Compared:
    """Stands in for `view_from`: what it gives is compared with the fold of every event."""

    def __init__(self) -> None:
        self.met: Counter[str] = Counter()

    def __call__(self, s: Session, before_turn: int | None = None) -> View | None:
        found = view_from(s, before_turn)
        self.met["none" if found is None else "from a checkpoint"] += 1
        if found is None:
            return None
        whole = s.new_view()
        for event in s.events[: found.applied + 1]:
            whole.apply(event)
        mine, its = told(found), told(whole)
        assert {name: value for name, value in mine.items() if value != its[name]} == {}
        assert found.stored <= whole.stored
        again = view_from(s, before_turn)  # nothing read yet, as the worker gets it
        assert again is not None
        self.met["unread"] += len(again.actions.by_id.waiting)  # type: ignore[attr-defined]
        return again


def simulate(monkeypatch: pytest.MonkeyPatch, first: int, runs: int) -> Counter[str]:
    compared = Compared()
    monkeypatch.setattr(enter, "view_from", compared)
    monkeypatch.setattr(life, "view_from", compared)
    for seed in range(first, first + runs):
        dice = random.Random(seed)
        run = Run(seed % 97, seed)
        crashes = [dice.randint(40, 400) for _ in range(3)]
        try:
            check(run, run.to_the_end(crashes))
        except BaseException as error:
            error.add_note(f"seed {seed}, crashes at {crashes}")
            raise
    return compared.met


def test_a_view_from_a_checkpoint_is_the_whole_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    met = simulate(monkeypatch, 0, 40)
    assert min(met["from a checkpoint"], met["unread"]) >= 20, met


@pytest.mark.long
def test_a_view_from_a_checkpoint_is_the_whole_fold_in_many_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    met = simulate(monkeypatch, 10_000, 700)
    assert min(met["from a checkpoint"], met["unread"]) >= 300, met
