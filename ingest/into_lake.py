"""Straight into a lake in one process, without Beam: an inbox, shipped and compacted at once (`inbox.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from trajlake.runtime.env import exists

from .bulk_run import import_bulk, worth_it
from .import_run import ImportOptions, ImportRun, Outcome
from .inbox import open_inbox
from .lake_side import LakeSide
from .sources import Source


def import_into_lake(
    lake: str, paths: Sequence[str], options: ImportOptions, progress: Callable[[Outcome], None] = lambda _: None
) -> tuple[list[Outcome], dict[str, Any] | None]:
    """Import, ship and compact; queryable on return. The second value is the compaction's report, or None where
    nothing could be imported at all and no lake was made."""
    outcomes = []
    with open_inbox(lake, options.tenant) as inbox:
        with LakeRun(inbox.side, options) as run:
            for outcome in run.run(paths):
                progress(outcome)
                outcomes.append(outcome)
        if all(outcome.error for outcome in outcomes):
            return outcomes, None
        report = inbox.commit()
    return outcomes, run.bulk if run.bulk and report.get("outcome") == "nothing_to_do" else report


class LakeRun(ImportRun):
    """An import into a lake: what is new and much goes straight in (`bulk_run.py`), the rest by the inbox's root."""

    def __init__(self, side: LakeSide, options: ImportOptions) -> None:
        super().__init__(side.root, options, side)
        self.bulk: dict[str, Any] | None = None
        self._lake = side

    def _import_all(self, groups: list[list[Source]]) -> Iterator[Outcome]:
        if not self._lake.is_remote and worth_it([source for group in groups for source in group]):
            if self._has_imports():
                known = {one.path: outcome for group in groups for one in group if (outcome := self.unchanged(one))}
                yield from known.values()
                groups = [[one for one in group if one.path not in known] for group in groups]
            if worth_it([source for group in groups for source in group]):
                done = import_bulk(self._lake, groups, self.options)
                if done is not None:
                    self.bulk = done.report
                    yield from done.outcomes
                    left = set(done.left)
                    groups = [[one for one in group if one.path in left] for group in groups]
        yield from super()._import_all([group for group in groups if group])

    def _has_imports(self) -> bool:
        return bool(self._lake.reports()) or exists(self.root.env, f"{self.root.path}/imports")
