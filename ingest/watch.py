"""`trajlake import … --follow`: look again every few seconds, import what was added, keep a lake current."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from trajlake.runtime.cli_errors import EXIT_DONE, UserError
from trajlake.runtime.root import Root
from trajlake.runtime.settings import Settings

from .import_run import ImportOptions, ImportRun, Outcome
from .into_lake import inbox_of, lake_commit
from .lake_side import LakeSide
from .landing_store import open_landing
from .shipper import Shipper
from .sources import find_sources

EVERY_S: Final = 2.0


def follow_paths(
    settings: Settings,
    paths: Sequence[str],
    options: ImportOptions,
    *,
    into_lake: bool,
    show: Callable[[Outcome], None],
    rounds: int | None = None,
) -> int:
    """Import changed files again and again until interrupted (or for `rounds`); with `into_lake` ship and compact.

    A file counts as changed by its size or time; unchanged ones are not opened.
    """
    journal, landing = inbox_of(settings.lake) if into_lake else (settings.journal, "")
    commit = lake_commit() if into_lake else None
    root = Root.open(journal)
    side = LakeSide(settings.lake, root, options.tenant) if into_lake else None
    seen: dict[str, tuple[int, int]] = {}
    while rounds is None or rounds > 0:
        changed = _changed(paths, seen)
        if changed:
            added = 0
            with ImportRun(root, options, side) as run:
                for outcome in run.run(changed):
                    added += outcome.events_added
                    if outcome.events_added or outcome.error:
                        show(outcome)
            if commit is not None and added:
                Shipper(root, open_landing(landing, root.env, link=True)).run()
                commit(landing, settings.lake)
        rounds = None if rounds is None else rounds - 1
        if rounds is None or rounds > 0:
            time.sleep(EVERY_S)
    return EXIT_DONE


def _changed(paths: Sequence[str], seen: dict[str, tuple[int, int]]) -> list[str]:
    changed = []
    for path in paths:
        with suppress(UserError):  # nothing there yet is no failure while watching
            for source in find_sources([path]):
                if not source.path:
                    continue
                status = os.stat(source.path)
                mark = (status.st_size, status.st_mtime_ns)
                if seen.get(source.path) != mark:
                    seen[source.path] = mark
                    changed.append(source.path)
    return changed
