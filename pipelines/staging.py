"""Staging directories: what the workers of one run write for each other; worth nothing once the run is decided."""

from __future__ import annotations

import os
import shutil
import time
from typing import Final

from trajlake.pipelines.lake import Lake
from trajlake.pipelines.places import is_remote, scratch
from trajlake.pipelines.protocol import run_number
from trajlake.pipelines.snapshot import STATE_DIRECTORY

KEPT_S: Final = 86_400


def staging_folder(lake: Lake) -> str:
    """Return where the runs of this host stage: in the lake, or on this host's disk for a lake in object storage."""
    return scratch(lake.url) if is_remote(lake.url) else lake.path(STATE_DIRECTORY, "staging")


def sweep_staging(lake: Lake) -> list[str]:
    """Remove the staging of every decided run, and what dead launchers left more than a day ago; return the names.

    A launcher that still works in one of a decided run has lost already: it finds its files gone and begins again.
    Erasure counts on this, for staged rows hold texts; but of a lake in object storage it sees this host's staging and
    no other: what a killed run staged elsewhere goes when that host compacts again (OBJECT_STORAGE.md).
    """
    directory = staging_folder(lake)
    newest = lake.newest().number
    oldest = time.time() - KEPT_S
    gone = []
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        try:
            if 0 <= run_number(name) <= newest or os.path.getmtime(path) < oldest:
                shutil.rmtree(path, ignore_errors=True)
                gone.append(name)
        except FileNotFoundError:
            continue
    return gone
