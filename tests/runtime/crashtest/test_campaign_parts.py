"""Parts of a crash test, without its processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trajlake.runtime.crashing.campaign import Campaign, Choice
from trajlake.runtime.crashing.life import Plan, write_told
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
