"""Parts of a crash test, without its processes."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from trajlake.runtime.crashing.campaign import Campaign, Choice
from trajlake.runtime.crashing.life import Plan, _watch_models, write_told
from trajlake.runtime.crashing.places import Told
from trajlake.runtime.crashing.processes import Ended


@pytest.mark.parametrize(("at", "keep", "stays"), [(3, False, False), (0, False, True), (3, True, True)])
def test_the_place_of_a_trial_is_removed_once_its_evidence_is_taken(
    tmp_path: Path, at: int, keep: bool, stays: bool
) -> None:
    def load() -> None:
        raise AssertionError("no life is run")

    plan = Plan(load=load, trajectory_id="t", task="go")  # type: ignore[arg-type]
    campaign = Campaign(plan, Choice(agent="x:y", keep=keep), str(tmp_path))
    trial = campaign._trial(at)
    life = next(trial)
    write_told(life.told, Told(error="it raised"))
    with pytest.raises(StopIteration) as ended:
        trial.send(Ended())
    assert ended.value.value.evidence.told.error == "it raised"
    assert os.path.isdir(campaign.place(at).folder) is stays


class Base:
    """A model; `reached` counts what leaves."""

    name = version = format = "m"
    reached = 0

    def request(self) -> bytes:
        return b""

    def send(self, request: bytes, on_delta: Any = None) -> bytes:
        self.reached += 1
        return b"reply to " + request

    async def asend(self, request: bytes, on_delta: Any = None) -> bytes:
        return await asyncio.to_thread(self.send, request, on_delta)


class Inherits(Base):
    """Sends as its base does."""


class Overrides(Base):
    """Changes what its base gave."""

    def send(self, request: bytes, on_delta: Any = None) -> bytes:
        return super().send(request, on_delta) + b"!"


def test_a_send_is_one_boundary_whichever_classes_of_a_model_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hits: list[str] = []
    module = ModuleType("seen_models")
    vars(module).update(base=Base(), inherits=Inherits(), overrides=Overrides())
    monkeypatch.setitem(sys.modules, module.__name__, module)
    agent: Any = SimpleNamespace(__module__="seen_models")
    boundaries: Any = SimpleNamespace(hit=hits.append)
    runner: Any = SimpleNamespace(agent=agent, model=None)
    _watch_models(runner, str(tmp_path), boundaries)
    for number, (kind, says) in enumerate([(Base, b""), (Inherits, b""), (Overrides, b"!")]):
        for how in ("send", "asend"):
            model, request = kind(), f"{number} {how}".encode()
            for _ in range(2):
                hits.clear()
                reply = model.send(request) if how == "send" else asyncio.run(model.asend(request))
                assert reply == b"reply to " + request + says
                assert hits == ["before: model", "after: model"], (kind, how)
            assert model.reached == 1, "asked again, it gives the reply it got"
