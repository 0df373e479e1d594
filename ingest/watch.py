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
from .inbox import open_inbox
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
    seen: dict[str, tuple[int, int]] = {}
    while rounds is None or rounds > 0:
        changed = _changed(paths, seen)
        if changed:
            if into_lake:
                with open_inbox(settings.lake, options.tenant) as inbox:
                    if _import(ImportRun(inbox.root, options, inbox.side), changed, show):
                        inbox.commit()
            else:
                _import(ImportRun(Root.open(settings.journal), options), changed, show)
        rounds = None if rounds is None else rounds - 1
        if rounds is None or rounds > 0:
            time.sleep(EVERY_S)
    return EXIT_DONE


def _import(taking: ImportRun, paths: Sequence[str], show: Callable[[Outcome], None]) -> int:
    """Import `paths`; show what was added or refused, and return how many events were added."""
    added = 0
    with taking as run:
        for outcome in run.run(paths):
            added += outcome.events_added
            if outcome.events_added or outcome.error:
                show(outcome)
    return added


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
