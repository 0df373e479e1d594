"""A lake of any size for the audits' bar: valid chains, real payload shapes up to 1 KB, derived rows, real commits.

One trajectory of a hundred events is written through the real event types and derived once; the lake repeats it under
other ids, keys and texts, chains it anew, and commits the files with `commit_run`. One trajectory of each file breaks
one rule, so that the run must find exactly as many violations as there are files.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import duckdb
import polars as pl

from tests.sql.audit_story import Row, Story, digest, tables_of
from trajlake.pipelines.lakehouse.arrow_schema import polars_schema
from trajlake.pipelines.lakehouse.commit import commit_run, head_handle
from trajlake.pipelines.lakehouse.lake import Lake, now_text
from trajlake.pipelines.lakehouse.snapshot import FileAdd, RunFile
from trajlake.pipelines.lakehouse.table_files import write_files
from trajlake.schemas.chain import genesis
from trajlake.schemas.events import (
    ConstraintAccepted,
    MessageAdded,
    ObligationDischarged,
    ObligationOpened,
    Predicate,
    TaskEnded,
)
from trajlake.schemas.tables import SNAPSHOT_TABLES

ID, PAD = "TRAJECTORY-ID", "PADDING"
TENANTS = ("acme", "globex", "initech", "umbrella")
EVENTS_PER_TRAJECTORY = 102
PAD_MAX = 25
"""Repeats of a 32-character text that fill up a payload: at most 800 bytes."""


def template(*, is_broken: bool) -> dict[str, list[Row]]:
    """Return the tables of one trajectory; a broken one dispatches its last call without an allow."""
    s = Story(ID, budget={"turns": "50", "usd": "100"})
    said = s.add(MessageAdded(role="user", wire={"role": "user", "content": PAD}, item_hash=digest("m")))
    s.show(said)
    s.add(ConstraintAccepted(constraint_id="c", text="no deploys", predicate=Predicate(tool="deploy*")))
    s.add(ObligationOpened(obligation_id="o", text="report"))
    for turn in range(12):
        s.turn = turn
        calls = s.think("pay", "pay", cost={"usd": "0.05"}, text=PAD)
        for call in calls:
            if not (is_broken and turn == 9 and call.endswith(".1")):
                s.allow(call)
            s.intend(call, key=f"{ID}-{call}", effect="external" if turn % 3 == 0 else "read")
            s.show(s.result(call, output=PAD))
        if s.next == 76:
            s.add(ObligationDischarged(obligation_id="o", how="reported"))
    while s.next < EVENTS_PER_TRAJECTORY - 1:
        s.add(MessageAdded(role="user", wire={"role": "user", "content": PAD}, item_hash=digest("m")))
    s.add(TaskEnded(status="completed"))
    assert s.next == EVENTS_PER_TRAJECTORY
    return tables_of([s])


def build(path: str, events: int, *, days: int = 10) -> int:
    """Make a lake of about `events` events at `path`; return how many violations it holds."""
    lake = Lake.open(path, create=True)
    at = lake.newest()
    files = len(TENANTS) * days
    per_file = max(2, events // EVENTS_PER_TRAJECTORY // files)
    whole, broken = template(is_broken=False), template(is_broken=True)
    adds: dict[str, list[FileAdd]] = {name: [] for name in SNAPSHOT_TABLES}
    for place in range(files):
        tenant, day = TENANTS[place % len(TENANTS)], dt.date(2026, 11, 1) + dt.timedelta(days=place // len(TENANTS))
        for name, frame in _frames(place, tenant, day, per_file, whole, broken):
            adds[name] += write_files(
                frame, SNAPSHOT_TABLES[name], lake.path(name), "1-bench", at.partition_by, f"{place:04d}"
            )
    run = RunFile(
        number=1,
        name="1-bench",
        kind="compact",
        created_at=now_text(),
        partition_by=at.partition_by,
        adds=adds,
        removes={},
    )
    commit_run(lake, run, head_handle(lake, at))
    return files


def _frames(
    place: int, tenant: str, day: dt.date, count: int, whole: dict[str, list[Row]], broken: dict[str, list[Row]]
) -> Iterator[tuple[str, pl.DataFrame]]:
    connection = duckdb.connect()
    connection.execute("set TimeZone = 'UTC'")
    ids = pl.DataFrame({"i": range(count), "id": [f"{tenant}-{place:03d}-{n:06d}" for n in range(count)]})
    for name in SNAPSHOT_TABLES:
        schema = polars_schema(SNAPSHOT_TABLES[name])
        frames = []
        for tables, these in ((broken, ids[:1]), (whole, ids[1:])):
            if tables.get(name):
                rows = pl.DataFrame(tables[name], schema=schema)
                frames.append(_repeated(connection, rows, these, tenant, day))
        if not frames:
            continue
        frame = pl.concat(frames).select(pl.col(column).cast(kind) for column, kind in schema.items())
        if name == "events":
            frame = _chained(frame)
            heads = frame.filter(pl.col("sequence_number") == EVENTS_PER_TRAJECTORY - 1).select(
                "trajectory_id", pl.col("cryptographic_hash").alias("head")
            )
        elif name == "trajectories":
            frame = frame.join(heads, on="trajectory_id").with_columns(pl.col("head").alias("head_hash")).drop("head")
        yield name, frame
    connection.close()


def _repeated(connection: Any, rows: pl.DataFrame, ids: pl.DataFrame, tenant: str, day: dt.date) -> pl.DataFrame:
    """Repeat rows for every id; ids, keys and padding in text columns become that trajectory's own."""
    changed = {"payload", "idempotency_key", "arguments"} & set(rows.columns)
    texts = [
        f"""replace(replace(template."{name}", '{ID}', ids.id), '{PAD}',
            repeat(md5(ids.id || row_no), cast(hash(ids.id, row_no) % {PAD_MAX} as integer))) as "{name}" """
        for name in changed
    ]
    kept = [
        f'template."{name}"' for name in rows.columns if name not in changed | {"tenant", "trajectory_id", "started_on"}
    ]
    connection.register("template", rows.with_row_index("row_no"))
    connection.register("ids", ids)
    found = pl.DataFrame(
        connection.sql(
            f"select ids.id as trajectory_id, {', '.join([*kept, *texts])} from ids, template order by ids.i, row_no"
        ).to_arrow_table()
    )
    extra = {"tenant": pl.lit(tenant)} | ({"started_on": pl.lit(day)} if "started_on" in rows.columns else {})
    return found.with_columns(**extra)


def _chained(frame: pl.DataFrame) -> pl.DataFrame:
    """Fill in commitments and hashes. Rows come in order of trajectory and number."""
    columns = frame.select(
        "tenant", "trajectory_id", "sequence_number", "event_type", "schema_version", "fencing_token", "turn",
        pl.col("recorded_at").dt.epoch("us"), "salt", "payload",
    )  # fmt: skip
    commitments, hashes, before = [], [], ""
    for tenant, trajectory_id, number, kind, version, token, turn, at, salt, payload in columns.iter_rows():
        if number == 0:
            before = genesis(tenant, trajectory_id).hex()
        bound = sha256(f"{salt}\n{payload}".encode()).hexdigest()
        envelope = f"{before}\n{tenant}\n{trajectory_id}\n{number}\n{kind}\n{version}\n{token}\n{turn}\n{at}\n{bound}"
        before = sha256(envelope.encode()).hexdigest()
        commitments.append(bound)
        hashes.append(before)
    return frame.with_columns(pl.Series("commitment", commitments), pl.Series("cryptographic_hash", hashes))
