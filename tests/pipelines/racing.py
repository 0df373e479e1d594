"""What a racing process does to a lake, and dies at: a module of its own, which the process that forks can load."""

from __future__ import annotations

import functools
import os
import random
import signal
import time
from typing import Any, NamedTuple

from tests.support.forks import Forks
from trajlake.pipelines.compaction.compact import compact
from trajlake.pipelines.forgetting.erase_places import Places
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.lake_errors import LakeError
from trajlake.pipelines.lakehouse.pins import Pin, files_to_pin, put_pin
from trajlake.pipelines.upkeep.erase import Wanted, continue_erasures, erase
from trajlake.pipelines.upkeep.holds import confirm_all
from trajlake.pipelines.upkeep.maintain import MaintainOptions, maintain


class Job(NamedTuple):
    """`dies_after`: so many steps, or the first of this name; 0 for never. `acts`: what it does, in order."""

    landing: str
    lake: str
    seed: float
    dies_after: int | str
    acts: tuple[str, ...]


ERASED = Wanted(tenant="x0", trajectory_id="t0", because="asked by letter 7")
REFUSED = Wanted(tenant="x1", trajectory_id="t1", because="asked by letter 8")


@functools.cache
def forks() -> Forks:
    """Where the processes of this test run come from."""
    return Forks("tests.pipelines.racing")


def at_once(*jobs: Job) -> list[int]:
    """Do the jobs side by side, each in a process of its own; return how each ended (0, or minus SIGKILL)."""
    return [forks().wait(pid) for pid in [forks().start(work, job) for job in jobs]]


def work(job: Job) -> None:
    """Do the job in this process. LakeError that tells of a lost race or an expired snapshot is no failure."""
    rng = random.Random(job.seed)
    done = 0

    def progress(step: str, *_: Any) -> None:
        nonlocal done
        done += 1
        if job.dies_after in (done, step):
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
