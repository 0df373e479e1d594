"""Append to a ledger: each write is a commit of its own, read at the newest version, never overwritten."""

from __future__ import annotations

import datetime as dt
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import polars as pl
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.transaction import AddAction

from trajlake.pipelines.lakehouse.arrow_schema import arrow_schema, polars_schema
from trajlake.pipelines.lakehouse.lake import Lake, files_of
from trajlake.pipelines.lakehouse.places import store_errors, sync_all
from trajlake.pipelines.lakehouse.run_report import RunReport
from trajlake.pipelines.lakehouse.table_files import write_files
from trajlake.schemas.tables import TABLES

APPLICATION: Final = "trajlake"


def append_ledger(lake: Lake, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append rows to a ledger, durably. `row_id` and `at` are filled in where they are absent."""
    _append(lake, name, rows, lake.handle(name), CommitProperties(max_commit_retries=50))


def append_in_order(lake: Lake, name: str, row_of: Callable[[int], Mapping[str, Any]]) -> int:
    """Append one row under the next number of the ledger (an erasure's epoch), durably; return that number.

    The number is committed as an app transaction on the handle it was read from, so that no two rows get the same.
    """
    while True:
        handle = lake.handle(name)
        number = (handle.transaction_version(APPLICATION) or 0) + 1
        properties = CommitProperties(max_commit_retries=0, app_transactions=[Transaction(APPLICATION, number)])
        try:
            _append(lake, name, [row_of(number)], handle, properties)
            return number
        except Exception:
            if lake.handle(name).version() == handle.version():
                raise
            # Another's row has the number; or ours has, and the answer was lost: `_append` looks at that.


def _append(
    lake: Lake, name: str, rows: Sequence[Mapping[str, Any]], handle: DeltaTable, properties: CommitProperties
) -> None:
    table = TABLES[name]
    now = dt.datetime.now(dt.UTC)
    whole = [{"row_id": secrets.token_hex(16), "at": now, **row} for row in rows]
    schema = polars_schema(table)
    frame = pl.DataFrame({column: [row.get(column) for row in whole] for column in schema}, schema=schema)
    adds = write_files(frame, table, lake.path(name), "ledger", (), secrets.token_hex(4))
    sync_all([lake.path(name, add.path) for add in adds], lake.url)
    hooks = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
    try:
        with store_errors(lake.url):
            handle.create_write_transaction(
                [AddAction(add.path, add.size, {}, int(time.time() * 1000), True, add.stats) for add in adds],
                "append",
                Schema.from_arrow(arrow_schema(table)),
                [],
                commit_properties=properties,
                post_commithook_properties=hooks,
            )
    except Exception:
        # An error is not a loss: the answer to a commit that stands may have been lost on the way.
        if not {add.path for add in adds} <= {file.relative for file in files_of(lake.handle(name), lake.path(name))}:
            raise
    version = lake.handle(name).version()
    log = lake.path(name, "_delta_log")
    sync_all([os.path.join(log, f"{n:020d}.json") for n in range(handle.version() + 1, version + 1)], lake.url)


def append_run(lake: Lake, report: RunReport) -> None:
    """Note a committed run in the ledger `runs`."""
    row = {
        "run": report.run,
        "kind": "compact",
        "snapshot": report.snapshot,
        "outcome": report.outcome,
        "events_added": report.events_added,
        "events_removed": report.events_removed,
        "segments": report.segments_taken,
        "seconds": report.seconds,
        "report": msgspec.json.encode(report).decode(),
    }
    append_ledger(lake, "runs", [row])
