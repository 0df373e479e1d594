"""A run in the making: the Adds and Removes of every table, then the run file, then the commit.

`run_until_won` is the loop of every run that is no compaction: finish what is half-done, read the snapshot, then the
ledgers, draft, commit; a lost race begins again on what the winner left.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import polars as pl
from deltalake import DeltaTable

from trajlake.pipelines.lakehouse.commit import (
    Step,
    add_new_columns,
    commit_run,
    finish_half_done,
    head_handle,
    no_step,
)
from trajlake.pipelines.lakehouse.lake import DataFile, Lake, files_of, now_text
from trajlake.pipelines.lakehouse.lake_errors import LakeDamaged, RunLost
from trajlake.pipelines.lakehouse.ledger import append_ledger
from trajlake.pipelines.lakehouse.rewrite import without
from trajlake.pipelines.lakehouse.snapshot import Cursor, FileAdd, FileRemove, RunFile, Snapshot
from trajlake.pipelines.lakehouse.table_files import write_files
from trajlake.schemas.tables import SNAPSHOT_TABLES

ATTEMPTS = 20

Found = TypeVar("Found")


class Draft:
    """Adds and Removes of one run, collected table by table. Files it writes carry the run's name."""

    def __init__(self, lake: Lake, snapshot: Snapshot, handle: DeltaTable, run: str) -> None:
        self.lake, self.snapshot, self.handle, self.run = lake, snapshot, handle, run
        self.new_columns: dict[str, list[str]] = {}
        self.adds: dict[str, list[FileAdd]] = {}
        self.removes: dict[str, list[FileRemove]] = {}

    def files(self, table: str) -> list[DataFile]:
        """Return the files that the run finds in a table: those of `events` from the handle it will commit on."""
        if table == "events":
            return files_of(self.handle, self.lake.path("events"))
        return self.lake.files(self.snapshot, table)

    def remaining(self, table: str) -> list[DataFile]:
        """Return the files found in a table that the run has not taken out yet."""
        gone = {remove.path for remove in self.removes.get(table, [])}
        return [file for file in self.files(table) if file.relative not in gone]

    def add(self, table: str, adds: Sequence[FileAdd]) -> None:
        if adds:
            self.adds.setdefault(table, []).extend(adds)

    def remove(self, table: str, files: Sequence[DataFile]) -> None:
        gone = [FileRemove(path=file.relative, size=file.size, partition=file.partition) for file in files]
        if gone:
            self.removes.setdefault(table, []).extend(gone)

    def write(self, table: str, rows: pl.DataFrame, part: str) -> list[FileAdd]:
        directory, described = self.lake.path(table), SNAPSHOT_TABLES[table]
        adds = write_files(rows, described, directory, self.run, self.snapshot.partition_by, part)
        self.add(table, adds)
        return adds

    def drop(self, table: str, keys: pl.DataFrame, on: tuple[str, str] = ("tenant", "trajectory_id")) -> int:
        """Take out every row whose `on` columns stand in `keys`; return how many."""
        done = without(
            self.remaining(table), SNAPSHOT_TABLES[table], self.lake.path(table), keys, self.run,
            self.snapshot.partition_by, on,
        )  # fmt: skip
        self.add(table, done.adds)
        if done.removes:
            self.removes.setdefault(table, []).extend(done.removes)
        return done.rows_dropped

    def run_file(self, kind: str, report: Mapping[str, Any], **changes: Any) -> RunFile:
        """Return the run as a document; cursors, epoch and stale tables are the snapshot's unless `changes` say."""
        run = RunFile(
            number=self.snapshot.number + 1, name=self.run, kind=kind, created_at=now_text(),
            partition_by=self.snapshot.partition_by, adds=self.adds, removes=self.removes,
            cursors=dict[str, Cursor](self.snapshot.cursors), erasure_epoch=self.snapshot.erasure_epoch,
            stale=self.snapshot.stale, report=dict(report), new_columns=self.new_columns,
        )  # fmt: skip
        return msgspec.structs.replace(run, **changes)


def new_run_name(snapshot: Snapshot) -> str:
    """Return a name for the run that would follow `snapshot`."""
    return f"{snapshot.number + 1}-{secrets.token_hex(8)}"


def open_draft(lake: Lake) -> Draft:
    """Read the newest snapshot and return a draft on it. Ledgers are read after this. Raises `RunLost`."""
    snapshot = lake.newest()
    handle = head_handle(lake, snapshot)
    columns = add_new_columns(lake, snapshot)
    if columns:
        handle = head_handle(lake, snapshot)
    draft = Draft(lake, snapshot, handle, new_run_name(snapshot))
    draft.new_columns = columns
    return draft


def run_until_won(
    lake: Lake,
    make: Callable[[Draft], RunFile | None],
    step: Step = no_step,
    before: Callable[[], object] = lambda: None,
) -> Snapshot | None:
    """Draft and commit until a run of ours has won; return its snapshot, or None where `make` finds nothing to do.

    `make` gets a fresh draft at each attempt, after `before`, and reads the ledgers itself. Raises `RunLost` after
    `ATTEMPTS` races.
    """
    for attempt in range(ATTEMPTS):
        finish_half_done(lake, step)
        before()
        try:
            draft = open_draft(lake)
            step("snapshot read")
            run = drafted(draft, make)
            if run is None:
                return None
            step("files written")
            snapshot = commit_run(lake, run, draft.handle, step)
        except RunLost:
            step("another launcher was ahead")
            if attempt + 1 == ATTEMPTS:
                raise
            continue
        note_run(lake, run)
        return snapshot
    raise AssertionError("attempts is at least 1")


def on_newest(lake: Lake, look: Callable[[Draft], Found], step: Step = no_step) -> Found:
    """Return what `look` finds on the newest snapshot once no run is half-done; again where one came in between.

    Raises `RunLost` after `ATTEMPTS` races.
    """
    for attempt in range(ATTEMPTS):
        finish_half_done(lake, step)
        try:
            return drafted(open_draft(lake), look)
        except RunLost:
            step("another launcher was ahead")
            if attempt + 1 == ATTEMPTS:
                raise
    raise AssertionError("attempts is at least 1")


def as_it_stands(lake: Lake, look: Callable[[Draft], Found]) -> Found:
    """Return what `look` finds on the newest snapshot, whatever others have half-done. Writes nothing, for dry runs.

    Begins again where the snapshot's files went meanwhile. Raises `RunLost` after `ATTEMPTS` races.
    """
    for attempt in range(ATTEMPTS):
        snapshot = lake.newest()
        try:
            draft = Draft(lake, snapshot, lake.handle("events", snapshot.tables["events"]), "dry run")
            return drafted(draft, look)
        except (RunLost, LakeDamaged):
            if attempt + 1 == ATTEMPTS or lake.newest().number == snapshot.number:
                raise
    raise AssertionError("attempts is at least 1")


def drafted(draft: Draft, make: Callable[[Draft], Found]) -> Found:
    """Call `make`. What it raises because its snapshot's files have gone meanwhile is a lost race."""
    try:
        return make(draft)
    except RunLost:
        raise
    except Exception as error:
        if draft.lake.newest().number > draft.snapshot.number:
            raise RunLost(f"snapshot {draft.snapshot.number} was left behind: {error}", "") from error
        raise


def note_run(lake: Lake, run: RunFile) -> None:
    """Note a committed run in the ledger `runs`."""
    removed = run.report.get("events_removed", 0)
    row = {
        "run": run.name, "kind": run.kind, "snapshot": run.number, "outcome": "committed", "events_added": 0,
        "events_removed": removed, "segments": 0, "seconds": float(run.report.get("seconds", 0.0)),
        "report": msgspec.json.encode(run.report).decode(),
    }  # fmt: skip
    append_ledger(lake, "runs", [row])
