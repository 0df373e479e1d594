"""No credential enters an event, a snapshot, a handover sheet or a status row, and budget never comes back.

A secret is planted where secrets live: in the environment, in a tool's and a model's configuration, in a gateway, in a
principal's session. The agent works, parks, is resumed and ends; then every byte under the root is searched for it.
"""

from __future__ import annotations

import json
import os
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from trajlake.runtime import Allow, Journal, Retry
from trajlake.runtime.commands.handover import state_of_checkpoint
from trajlake.runtime.handover import sheet
from trajlake.runtime.models import openai_chat, scripted
from trajlake.runtime.root_view import RootView, status_row
from trajlake.schemas.state.budget import compare

SECRET = "sk-live-5f2e9a7c41d0"


class Service:
    """What a tool talks to: it holds a key of its own."""

    def __init__(self) -> None:
        self.key = SECRET

    def call(self, what: str) -> str:
        assert self.key == os.environ["SERVICE_TOKEN"]
        return f"did {what}"


class Policy:
    version = "1"
    checkpoint_every_turns = 1
    token = SECRET

    def __call__(self, call: Any, state: Any) -> Allow:
        return Allow()


def test_a_planted_secret_is_found_in_no_event_snapshot_sheet_or_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", SECRET)
    work = tmp_path / "work"
    work.mkdir()
    root = tmp_path / "root"
    service = Service()
    model = scripted([[("pay", {"what": "rent"})], [("fail", {})], "done"])
    model.api_key = SECRET  # type: ignore[attr-defined]
    assert SECRET not in repr(vars(openai_chat("m", key_env="SERVICE_TOKEN"))), "a key is named, never held"

    def opened() -> Journal:
        journal = Journal.open(root, policy=Policy())

        @journal.tool(effect="external", cost=lambda call: {"usd": "0.01"}, retry=Retry(1))
        def pay(what: str) -> str:
            return service.call(what)

        @journal.tool(effect="local")
        def note() -> None:
            (work / "note").write_text("noted")

        @journal.tool(effect="external", approve=True)
        def fail() -> str:
            return "ok"

        return journal

    def agent(t: Any) -> None:
        t.context.user("go")
        for turn in t.turns():
            turn.call("note")
            reply = turn.model()
            turn.tools(reply.calls)
            if not reply.calls:
                t.finish(reply.text)

    principal = {"id": "ann", "session": "session:7"}
    with opened() as journal:
        journal.resolver("session:", lambda ref: "in_force")
        outcome = journal.run(agent, "t", task="x", model=model, principal=principal, workspace=str(work))
        assert outcome.status == "parked"
        view = RootView(journal.root)
        shown = [
            json.dumps(sheet(state_of_checkpoint(journal.root, "default", "t"), 0)),
            repr(status_row(view.trajectory("default", "t"), 0)),  # type: ignore[arg-type]
        ]
        journal.approve("t", outcome.waiting_for[0].approval_id)
    with opened() as journal:
        journal.resolver("session:", lambda ref: "in_force")
        assert journal.run(agent, "t", model=model, principal=principal, workspace=str(work)).status == "completed"
    assert all(SECRET not in text for text in shown)
    for path in root.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path
    assert any(path.name.endswith(".json") for path in (root / "checkpoints").rglob("*"))


@pytest.mark.parametrize("seed", range(3))
def test_ten_resumes_never_raise_what_is_left_of_a_budget(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    limits = {"turns": "60", "model_calls": "60", "tool_calls": "80", "usd": "9"}
    lefts: list[dict[str, str]] = []

    class Stop(BaseException):
        pass

    def opened() -> Journal:
        journal = Journal.open(tmp_path / "root", policy=Policy())
        price = lambda call: {"usd": "0.03"}  # noqa: E731
        price.maximum = {"usd": "0.05"}  # type: ignore[attr-defined]

        @journal.tool(effect="idempotent", cost=price, settle_attempts=1)
        def put(n: int) -> int:
            if dice.random() < 0.3:
                raise ConnectionError("no answer")
            return n

        return journal

    def agent(t: Any) -> None:
        t.context.user("go")
        for turn in t.turns(max=50):
            lefts.append(t.budget.left)
            turn.tools(turn.model().calls)
            if dice.random() < 0.4:
                raise Stop

    model = scripted(lambda context: [("put", {"n": context.turn})])
    for life in range(10):
        with opened() as journal:
            options: dict[str, Any] = {"task": 1, "budget": limits} if life == 0 else {"budget": limits}
            try:
                outcome = journal.run(agent, "t", model=model, **options)
            except Stop:
                continue
            for waiting in outcome.waiting_for:
                journal.settle("t", waiting.action_id, executed=True, because="looked")
    assert len(lefts) >= 5, f"seed {seed}"
    for before, after in pairwise(lefts):
        for unit in limits:
            assert compare(after[unit], before[unit]) <= 0, f"seed {seed}: {unit} rose from {before} to {after}"
