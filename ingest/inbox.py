"""Where an import into a lake puts its events on their way: a root and a landing, shipped and compacted at the end.

A lake on a disk has its inbox inside, for good: it knows what was imported before. A lake in object storage says that
itself; its inbox is a folder of this host, made for one import and gone with it, so that no text stays outside the lake
and any host may import next.

`ingest` may not import `pipelines`, so the last step is called by name: the entry point `lake_commit` of group
`trajlake.stores` is `compact(landing, lake) -> report with as_json()`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import entry_points
from typing import Any, Final

from trajlake.runtime.cli_errors import UserError
from trajlake.runtime.durable_folders import DurableFolders
from trajlake.runtime.root import Root
from trajlake.runtime.wal.journal_errors import JournalError
from trajlake.runtime.wal.reader import list_segments
from trajlake.runtime.wal.writer_options import WriterOptions

from .lake_side import LakeSide, lake_bulk, not_installed
from .landing_store import open_landing
from .shipper import Shipper

INBOX: Final = "_trajlake/inbox"
COMMIT_GROUP: Final = "trajlake.stores"
COMMIT_NAME: Final = "lake_commit"


class Inbox:
    """The inbox of one lake, open. `side` is the lake as imports see it."""

    def __init__(self, lake: str, folder: str, tenant: str) -> None:
        self.lake = lake
        self.root = Root.open(f"{folder}/journal")
        self.landing = f"{folder}/landing"
        self.side = LakeSide(lake, self.root, tenant)
        self._commit = lake_commit()

    def commit(self) -> dict[str, Any]:
        """Ship and compact what was imported; return the compaction's report. Queryable on return."""
        DurableFolders(self.root.env, self.landing.rpartition("/")[0]).ensure(self.landing)
        self._seal_left_behind()
        Shipper(self.root, open_landing(self.landing, self.root.env, link=True)).run()
        return self._commit(self.landing, self.lake)

    def _seal_left_behind(self) -> None:
        """Seal what a killed import has appended: its events are known, so that no import would append to it again.

        Only sealed segments are shipped. Writers that live are left alone, damaged ones to `trajlake journal verify`.
        """
        for writer in self.root.writers():
            if all(segment.is_sealed for segment in list_segments(self.root.env, self.root.writer_folder(writer))):
                continue
            with suppress(JournalError):
                self.root.claim(writer, WriterOptions(), create=False).close()


@contextmanager
def open_inbox(lake: str, tenant: str) -> Iterator[Inbox]:
    """Open the inbox of a lake for one import. Raises `UserError` for a lake that is neither on a disk nor s3://."""
    if lake.startswith("s3://"):
        door = lake_bulk()
        if door is None:
            raise not_installed()
        with door.inbox(lake) as folder:
            yield Inbox(lake, folder, tenant)
        return
    if "://" in lake and not lake.startswith("file://"):
        raise UserError(f"{lake}: a lake is a folder or s3://BUCKET/PREFIX")
    yield Inbox(lake, f"{lake.removeprefix('file://').rstrip('/')}/{INBOX}", tenant)


def lake_commit() -> Callable[[str, str], dict[str, Any]]:
    """Return the function that compacts a landing into a lake; raise `UserError` where none is installed."""
    for point in entry_points(group=COMMIT_GROUP):
        if point.name == COMMIT_NAME:
            compact = point.load()
            return lambda landing, lake: _as_data(compact(landing, lake))
    raise not_installed()


def _as_data(report: Any) -> dict[str, Any]:
    data = report.as_json() if hasattr(report, "as_json") else report
    return data if isinstance(data, dict) else {"report": data}
