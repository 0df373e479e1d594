"""Ship, compact, maintain, erase as a process that is to be killed, or whose servers are: it tells where it is.

A module of its own, so that the process that forks can load it.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.forks import Forks
from trajlake.ingest.landing_store import open_landing
from trajlake.ingest.shipper import Shipper
from trajlake.ingest.stores.postgres_database import Database
from trajlake.ingest.stores.postgres_warm import PostgresWarmTier
from trajlake.ingest.warm import WarmShipper
from trajlake.pipelines.compaction.compact import compact
from trajlake.pipelines.forgetting.erase_places import Places
from trajlake.pipelines.lakehouse.lake_errors import LakeDamaged, LakeError
from trajlake.pipelines.lakehouse.run_report import CompactOptions
from trajlake.pipelines.upkeep.erase import Wanted, erase
from trajlake.pipelines.upkeep.maintain import MaintainOptions, maintain
from trajlake.runtime.replicas.replica import Frame
from trajlake.runtime.root import Root

VERBS: Final = ("ship", "compact", "maintain", "erase")
TWO_WORKERS: Final = CompactOptions(
    runner="FnApiRunner",
    beam_options=("--direct_num_workers=2", "--direct_running_mode=multi_processing"),
    bucket_bytes=1 << 16,
)
REFUSED: Final = 7
"""How a process ends whose server did not answer: one line for its user, and it is to be run again."""

Progress = Callable[..., None]


class Where(NamedTuple):
    """What the verbs are given. `environment` tells how object storage is reached, where it is."""

    journal: str
    landing: str
    lake: str
    warm: str
    environment: tuple[tuple[str, str], ...] = ()


class Order(NamedTuple):
    """At its step number `halts_at` (0 for none) the process makes the file `mark`; `waits`: until it is gone again."""

    verb: str
    where: Where
    erased: str
    halts_at: int = 0
    mark: str = ""
    waits: bool = False
    workers: bool = False


@functools.cache
def forks() -> Forks:
    """Where the processes of this test run come from."""
    return Forks("tests.pipelines.killed_verbs")


def obey(order: Order) -> None:
    """Do what is asked, in this process."""
    os.environ.update(order.where.environment)
    done = 0

    def progress(*_: Any) -> None:
        nonlocal done
        done += 1
        if done == order.halts_at:
            Path(order.mark).touch()
            while order.waits and os.path.exists(order.mark):
                time.sleep(0.002)

    try:
        do(order, progress)
    except LakeDamaged:
        raise
    except (LakeError, OSError) as error:
        print(f"refused: {error}")
        sys.exit(REFUSED)


def do(order: Order, progress: Progress) -> None:
    """Do it once. Raises what the verb raises."""
    where = order.where
    if order.verb == "ship":
        root = Root.open(where.journal, create=False)
        Shipper(root, open_landing(where.landing, root.env), progress).run()
        shipper = WarmShipper(root, Telling(where.warm, progress))
        try:
            shipper.run()
        finally:
            shipper.close()
    elif order.verb == "compact":
        compact(where.landing, where.lake, TWO_WORKERS if order.workers else None, progress)
    elif order.verb == "maintain":
        maintain(where.lake, MaintainOptions(kept_days=0, commits_per_checkpoint=2), progress)
    else:
        places = Places(landings=(where.landing,), warm=(where.warm,), gone=frozenset({"all"}))
        erase(where.lake, Wanted(tenant="t", trajectory_id=order.erased, because="letter"), places, progress)


class Telling(PostgresWarmTier):
    """A warm tier that says when it begins an insert and when it has ended it."""

    def __init__(self, url: str, progress: Progress) -> None:
        super().__init__(Database(url))
        self._progress = progress

    def insert(self, writer: str, frames: Sequence[Frame], *, from_lsn: int, prepared: Any = None) -> int:
        self._progress("begins to insert")
        known = super().insert(writer, frames, from_lsn=from_lsn, prepared=prepared)
        self._progress("inserted")
        return known
