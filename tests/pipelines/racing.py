"""What a racing process does to a lake, and dies at: a module of its own, so that a fork server can load it."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import NamedTuple

from trajlake.pipelines.compact import compact
from trajlake.pipelines.erase import Wanted, continue_erasures, erase
from trajlake.pipelines.erase_places import Places
from trajlake.pipelines.holds import confirm_all
from trajlake.pipelines.lake import Lake
from trajlake.pipelines.lake_errors import LakeError
from trajlake.pipelines.maintain import MaintainOptions, maintain
from trajlake.pipelines.pins import Pin, files_to_pin, put_pin


class Job(NamedTuple):
    """`kill_at`: the step it dies after, 0 for never. `acts`: what it does, in order."""

    landing: str
    lake: str
    seed: float
    kill_at: int
    acts: tuple[str, ...]


ERASED = Wanted(tenant="x0", trajectory_id="t0", because="asked by letter 7")
REFUSED = Wanted(tenant="x1", trajectory_id="t1", because="asked by letter 8")


def work(job: Job) -> None:
    """Do the job in this process. LakeError that tells of a lost race or an expired snapshot is no failure."""
    rng = random.Random(job.seed)
    left = [job.kill_at]

    def progress(_: str, __: int, ___: int) -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(rng.random() * 0.01)

    places = Places(landings=(job.landing,), gone=frozenset({"all"}))
    for act in job.acts:
        if act == "compact":
            compact(job.landing, job.lake, None, progress)
        elif act == "maintain":
            maintain(job.lake, MaintainOptions(kept_days=0, commits_per_checkpoint=3), progress)
        elif act == "erase":
            erase(job.lake, ERASED, places, progress)
            continue_erasures(job.lake, places, progress)
        elif act == "refused":
            erase(job.lake, REFUSED, places, progress)
        elif act == "hold":
            confirm_all(job.lake, progress)
        elif act == "pin":
            pin(job.lake, f"pin{int(job.seed * 1e9)}", progress)


def pin(url: str, name: str, progress: object) -> None:
    lake = Lake.open(url)
    try:
        at = lake.newest()
        files = files_to_pin(lake, at, ("events", "trajectories"))
        if callable(progress):
            progress("files to pin listed", 0, 0)
        put_pin(lake, Pin(name=name, snapshot=at.number, erasure_epoch=at.erasure_epoch, files=files))
    except LakeError as error:
        if "expired" not in str(error) and "erasure" not in str(error) and "cannot load" not in str(error):
            raise
