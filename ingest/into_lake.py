"""Straight into a lake in one process, without Beam: an inbox inside the lake, shipped and compacted at once.

`ingest` may not import `pipelines`, so the last step is called by name: the entry point `lake_commit` of group
`trajlake.stores` is `compact(landing, lake) -> report with as_json()`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.metadata import entry_points
from typing import Any, Final

from trajlake.runtime.cli_errors import EXIT_COULD_NOT_RUN, UserError
from trajlake.runtime.durable_folders import DurableFolders
from trajlake.runtime.env import exists
from trajlake.runtime.journal_errors import JournalError
from trajlake.runtime.reader import list_segments
from trajlake.runtime.root import Root
from trajlake.runtime.writer_options import WriterOptions

from .bulk_run import import_bulk, worth_it
from .import_run import ImportOptions, ImportRun, Outcome
from .lake_side import LakeSide
from .landing_store import open_landing
from .shipper import Shipper
from .sources import Source

INBOX: Final = "_trajlake/inbox"
COMMIT_GROUP: Final = "trajlake.stores"
COMMIT_NAME: Final = "lake_commit"


def inbox_of(lake: str) -> tuple[str, str]:
    """Return (root, landing) of a lake's inbox. The root must be local: for a remote lake, import and ship apart."""
    if "://" in lake and not lake.startswith("file://"):
        raise UserError(f"{lake}: 'import --lake' takes a local lake; import --journal, ship and compact reach others")
    folder = lake.removeprefix("file://").rstrip("/")
    return f"{folder}/{INBOX}/journal", f"{folder}/{INBOX}/landing"


def import_into_lake(
    lake: str, paths: Sequence[str], options: ImportOptions, progress: Callable[[Outcome], None] = lambda _: None
) -> tuple[list[Outcome], dict[str, Any] | None]:
    """Import, ship and compact; queryable on return. The second value is the compaction's report, or None where
    nothing could be imported at all and no lake was made."""
    commit = lake_commit()
    journal, landing = inbox_of(lake)
    root = Root.open(journal)
    side = LakeSide(lake, root, options.tenant)
    outcomes = []
    with LakeRun(side, options) as run:
        for outcome in run.run(paths):
            progress(outcome)
            outcomes.append(outcome)
    if all(outcome.error for outcome in outcomes):
        return outcomes, None
    DurableFolders(root.env, landing.rpartition("/")[0]).ensure(landing)
    seal_left_behind(root)
    Shipper(root, open_landing(landing, root.env, link=True)).run()
    report = commit(landing, lake)
    return outcomes, run.bulk if run.bulk and report.get("outcome") == "nothing_to_do" else report


def seal_left_behind(root: Root) -> None:
    """Seal what a killed import has appended: its events are known, so that no import would append to it again.

    Only sealed segments are shipped. Writers that live are left alone, damaged ones to `trajlake journal verify`.
    """
    for writer in root.writers():
        if all(segment.is_sealed for segment in list_segments(root.env, root.writer_folder(writer))):
            continue
        with suppress(JournalError):
            root.claim(writer, WriterOptions(), create=False).close()


class LakeRun(ImportRun):
    """An import into a lake: what is new and much goes straight in (`bulk_run.py`), the rest by the inbox's root."""

    def __init__(self, side: LakeSide, options: ImportOptions) -> None:
        super().__init__(side.root, options, side)
        self.bulk: dict[str, Any] | None = None
        self._lake = side

    def _import_all(self, groups: list[list[Source]]) -> Iterator[Outcome]:
        if worth_it([source for group in groups for source in group]):
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


def lake_commit() -> Callable[[str, str], dict[str, Any]]:
    """Return the function that compacts a landing into a lake; raise `UserError` where none is installed."""
    for point in entry_points(group=COMMIT_GROUP):
        if point.name == COMMIT_NAME:
            compact = point.load()
            return lambda landing, lake: _as_data(compact(landing, lake))
    raise UserError(
        f"nothing installed can commit to a lake (entry point '{COMMIT_NAME}' of '{COMMIT_GROUP}'); "
        "reinstall trajlake, or import --journal",
        exit_code=EXIT_COULD_NOT_RUN,
    )


def _as_data(report: Any) -> dict[str, Any]:
    data = report.as_json() if hasattr(report, "as_json") else report
    return data if isinstance(data, dict) else {"report": data}
