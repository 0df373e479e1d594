"""The commit protocol: one run changes every table of a lake, or nothing, whoever dies when.

Order of `commit_run`: data files synced, run file put, `events` committed by compare-and-swap (this decides which
run is n+1), every other table from the run file, then snapshot n+1. `finish_half_done` does the last two for a run
that died, and comes before anything else a launcher does. Source: design/lake.md, *Snapshot*, steps 1 to 4; each
step is there because a shorter protocol lost or doubled rows (`COMMIT.md`).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Final

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.transaction import AddAction, RemoveAction

from trajlake.pipelines.lakehouse.arrow_schema import arrow_schema, partition_columns
from trajlake.pipelines.lakehouse.lake import Lake, create_table
from trajlake.pipelines.lakehouse.lake_errors import LakeDamaged, LakeUnreachable, RunLost
from trajlake.pipelines.lakehouse.log_files import LOG, mend_torn_checkpoints
from trajlake.pipelines.lakehouse.places import is_remote, make_directory, store_errors, sync_all
from trajlake.pipelines.lakehouse.protocol import has_won, is_half_done, may_build_on, must_follow
from trajlake.pipelines.lakehouse.snapshot import RunFile, Snapshot, put_run, put_snapshot, read_run
from trajlake.schemas.tables import SNAPSHOT_TABLES

APPLICATION: Final = "trajlake"
RUN_KEY: Final = "trajlake_run"

Step = Callable[[str], None]
"""Told the name of each step once it is done; tests kill the process inside it."""


def no_step(_: str) -> None:
    """Steps that nobody wants to hear of."""


def transaction_of(handle: DeltaTable) -> int:
    """Return the number of the run that `handle` holds; 0 for a table that no run has touched."""
    version = handle.transaction_version(APPLICATION)
    return 0 if version is None else version


def head_handle(lake: Lake, snapshot: Snapshot) -> DeltaTable:
    """Return the newest handle of `events` at run n, for a run that builds on snapshot n.

    File lists for Adds and Removes come from this handle, and `commit_run` commits on it: a compare-and-swap.
    Raises `RunLost` if another run is ahead.
    """
    handle = lake.handle("events")
    found = transaction_of(handle)
    if not may_build_on(found, snapshot.number):
        raise RunLost(f"events are at run {found}, not {snapshot.number}: another launcher is ahead", "")
    return handle


def add_new_columns(lake: Lake, snapshot: Snapshot) -> dict[str, list[str]]:
    """Bring the tables of an older lake to this version: new tables and new nullable columns. Returns the columns.

    Happens before a run's commit of `events`. Two launchers may do it at once.
    """
    added: dict[str, list[str]] = {}
    for name, table in SNAPSHOT_TABLES.items():
        if name not in snapshot.tables:
            create_table(lake, table, snapshot.partition_by)
        wanted = Schema.from_arrow(arrow_schema(table)).fields
        while True:
            handle = lake.handle(name)
            present = {field.name for field in handle.schema().fields}
            missing = [field for field in wanted if field.name not in present]
            if not missing:
                break
            try:
                with store_errors(lake.url):
                    handle.alter.add_columns(missing)
            except Exception:
                if lake.handle(name).version() == handle.version():
                    raise
                time.sleep(0.01)
        if handle.version() > snapshot.tables.get(name, handle.version()):
            # Only added columns lie above the snapshot: ours, or those of a launcher that died before its run.
            before = {field.name for field in lake.handle(name, snapshot.tables[name]).schema().fields}
            added[name] = [field.name for field in wanted if field.name not in before]
    return {name: columns for name, columns in added.items() if columns}


def commit_run(lake: Lake, run: RunFile, handle: DeltaTable, step: Step = no_step) -> Snapshot:
    """Commit `run` on `handle` (of `head_handle`) and return snapshot `run.number`.

    The data files of the run must be written. Raises `RunLost` if another run has the number: nothing of this one
    is then named anywhere, its files are left to vacuum. Any other error leaves a run that the next launcher
    finishes, or whose files vacuum removes.
    """
    files = [lake.path(name, add.path) for name, adds in run.adds.items() for add in adds]
    sync_all(files, lake.url)
    step("data files synced")
    make_directory(lake.path("_trajlake", "runs"))
    put_run(lake.url, run)
    step("run file put")
    failure: Exception | None = None
    try:
        with store_errors(lake.url):
            _commit(handle, "events", run)
    except Exception as error:  # noqa: BLE001
        # An error is not a loss: a hook may fail after a commit that stands. Only the log knows.
        failure = error
    step("events committed")
    won = winner(lake, run.number)
    if won is None:
        if isinstance(failure, LakeUnreachable):
            raise failure
        raise LakeDamaged(f"{lake.path('events')}: commit of run {run.name} failed: {failure}") from failure
    if not has_won(won, run.name):
        raise RunLost(f"run {won} has become snapshot {run.number}; this run ({run.name}) is void", won)
    return finish(lake, run, step)


def winner(lake: Lake, number: int) -> str | None:
    """Return the name of the run whose commit of `events` carries txn `number`, or None if there is none."""
    handle = lake.handle("events")
    if transaction_of(handle) < number:
        return None
    for limit in (16, None):
        for commit in handle.history(limit):
            name = commit.get(RUN_KEY, "")
            if isinstance(name, str) and name.startswith(f"{number}-"):
                return name
    raise LakeDamaged(f"{lake.path('events')}: no commit names run {number}; its log was cleaned too far")


def finish_half_done(lake: Lake, step: Step = no_step) -> Snapshot | None:
    """Finish the run that is in `events` but has no snapshot; None where there is none.

    Commit files above the newest snapshot that power loss left empty or torn are removed first.
    """
    newest = lake.newest()
    for name in SNAPSHOT_TABLES:
        mend_torn_checkpoints(lake.path(name, LOG))
        mend_torn_commits(lake.path(name), newest.tables.get(name, -1))
    if not is_half_done(transaction_of(lake.handle("events")), newest.number):
        return None
    number = newest.number + 1
    name_of_run = winner(lake, number)
    if name_of_run is None:
        raise LakeDamaged(f"{lake.path('events')}: ahead of snapshot {newest.number}, but no run {number} in its log")
    step("half-done run found")
    return finish(lake, read_run(lake.url, name_of_run), step)


def finish(lake: Lake, run: RunFile, step: Step = no_step) -> Snapshot:
    """Commit the other tables from the run file, sync the logs, put the snapshot; may run twice at once."""
    for name in SNAPSHOT_TABLES:
        if name != "events":
            _follow(lake, name, run)
            step(f"{name} committed")
    # A handle does not see its own commit: load again.
    tables = lake.versions()
    before = lake.any_snapshot(run.number - 1)
    sync_all(_new_commits(lake, before, tables), lake.url)
    step("logs synced")
    snapshot = Snapshot(
        snapshot=run.number,
        run=run.name,
        kind=run.kind,
        created_at=run.created_at,
        partition_by=run.partition_by,
        tables=tables,
        cursors=run.cursors,
        erasure_epoch=run.erasure_epoch,
        stale=run.stale,
        decided=run.decided,
        evolved=tuple(sorted({*before.evolved, *run.new_columns})),
        report=run.report,
    )
    put_snapshot(lake.url, snapshot)
    step("snapshot put")
    return lake.any_snapshot(run.number)


def _new_commits(lake: Lake, before: Snapshot, tables: dict[str, int]) -> list[str]:
    """Return every commit file above snapshot `before`: those of the run, and of columns or tables added for it."""
    return [
        lake.path(name, LOG, f"{version:020d}.json")
        for name, newest in tables.items()
        for version in range(before.tables.get(name, -1) + 1, newest + 1)
    ]


def _follow(lake: Lake, name: str, run: RunFile) -> None:
    while True:
        handle = lake.handle(name)
        if not must_follow(transaction_of(handle), run.number):
            return
        try:
            with store_errors(lake.url):
                _commit(handle, name, run)
            return
        except Exception:
            # Refused because another finisher came first, or a hook failed after the commit: look again.
            if transaction_of(lake.handle(name)) < run.number and lake.handle(name).version() == handle.version():
                raise


def _commit(handle: DeltaTable, name: str, run: RunFile) -> None:
    table = SNAPSHOT_TABLES[name]
    now_ms = int(time.time() * 1000)
    actions: list[AddAction | RemoveAction] = [
        AddAction(add.path, add.size, dict(add.partition), now_ms, True, add.stats) for add in run.adds.get(name, [])
    ]
    actions += [
        RemoveAction(gone.path, True, now_ms, gone.size, dict(gone.partition)) for gone in run.removes.get(name, [])
    ]
    handle.create_write_transaction(
        actions,
        "append",
        Schema.from_arrow(arrow_schema(table)),
        list(partition_columns(table, run.partition_by)),
        commit_properties=CommitProperties(
            custom_metadata={RUN_KEY: run.name}, app_transactions=[Transaction(APPLICATION, run.number)]
        ),
        # delta-rs syncs neither commits nor checkpoints, and a torn checkpoint hides a table: maintenance writes them.
        post_commithook_properties=PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
    )


def mend_torn_commits(table: str, version: int) -> list[str]:
    """Remove commit files above `version` from the first empty or torn one on; return their names.

    A live commit appears whole (delta-rs links it in place), so that a torn one is what a power loss left of a
    commit that no snapshot names; the run is then finished, or made again. An object is never torn.
    """
    if is_remote(table):
        return []
    log = os.path.join(table, LOG)
    try:
        names = sorted(name for name in os.listdir(log) if name.endswith(".json") and name[:-5].isdecimal())
    except FileNotFoundError:
        return []
    above = [name for name in names if int(name[:-5]) > version]
    torn = next((i for i, name in enumerate(above) if not _whole(os.path.join(log, name))), None)
    if torn is None:
        return []
    for name in reversed(above[torn:]):
        os.unlink(os.path.join(log, name))
    return above[torn:]


def _whole(path: str) -> bool:
    with open(path, "rb") as file:
        text = file.read()
    try:
        return bool(text.strip()) and all(isinstance(json.loads(line), dict) for line in text.splitlines())
    except ValueError:
        return False
