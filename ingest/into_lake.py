"""Straight into a lake in one process, without Beam: an inbox inside the lake, shipped and compacted at once.

`ingest` may not import `pipelines`, so the last step is called by name: the entry point `lake_commit` of group
`trajlake.stores` is `compact(landing, lake) -> report with as_json()`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Any, Final

from trajlake.runtime.cli_errors import EXIT_COULD_NOT_RUN, UserError
from trajlake.runtime.root import Root

from .import_run import ImportOptions, Outcome, import_paths
from .landing_store import open_landing
from .shipper import Shipper

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
    outcomes = import_paths(root, paths, options, progress)
    if all(outcome.error for outcome in outcomes):
        return outcomes, None
    Shipper(root, open_landing(landing, root.env, link=True)).run()
    return outcomes, commit(landing, lake)


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
