"""Rows of a lake in an in-memory DuckDB, made from real chained events: what the tests of SQL text stand on."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

import duckdb

from trajlake.pipelines.connect import DUCKDB_TYPES
from trajlake.pipelines.sql_text import sql_files
from trajlake.schemas.chain import commitment, genesis, make_event
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import Payload
from trajlake.schemas.tables import TABLES

DAY = dt.date(2026, 11, 30)
START_US = 1_796_000_000_000_000


def empty_lake() -> duckdb.DuckDBPyConnection:
    """Return a connection with every table of a lake, empty, and every view."""
    connection = duckdb.connect()
    connection.execute("set TimeZone = 'UTC'")
    for table in TABLES.values():
        columns = ", ".join(f'"{column.name}" {DUCKDB_TYPES[column.type]}' for column in table.columns)
        connection.execute(f"create table {table.name} ({columns})")
    for name, text in sql_files("views").items():
        connection.execute(f"create view {name} as {text}")
    return connection


def insert(connection: duckdb.DuckDBPyConnection, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Insert `rows`; a column that a row does not name is null."""
    for row in rows:
        names = ", ".join(f'"{name}"' for name in row)
        marks = ", ".join("?" for _ in row)
        connection.execute(f"insert into {table} ({names}) values ({marks})", list(row.values()))


def chain(payloads: Iterable[Payload], tenant: str = "acme", trajectory_id: str = "run 1") -> list[Event]:
    """Return chained events of one trajectory, one per payload, with fixed salts and times."""
    events: list[Event] = []
    previous = genesis(tenant, trajectory_id)
    for number, payload in enumerate(payloads):
        event = make_event(
            payload,
            tenant=tenant,
            trajectory_id=trajectory_id,
            sequence_number=number,
            fencing_token=1,
            turn=number - 1,
            recorded_at=START_US + number * 1_000_001,
            salt=bytes([number]) * 16,
            prev=previous,
        )
        events.append(event)
        previous = event.hash
    return events


def event_rows(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Return the rows of table `events` for canonical events."""
    rows = []
    for event in events:
        assert event.payload is not None
        assert event.salt is not None
        moment = dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=event.recorded_at)
        rows.append(
            {
                "tenant": event.tenant,
                "trajectory_id": event.trajectory_id,
                "sequence_number": event.sequence_number,
                "event_type": event.type,
                "schema_version": event.schema_version,
                "fencing_token": event.fencing_token,
                "turn": event.turn,
                "recorded_at": moment,
                "payload": event.payload.decode(),
                "salt": event.salt.hex(),
                "commitment": commitment(event.salt, event.payload).hex(),
                "cryptographic_hash": event.hash.hex(),
                "writer": "0" * 32,
                "lsn": event.sequence_number,
                "started_on": DAY,
                "model": "m@1",
            }
        )
    return rows


def head_row(events: list[Event], **more: Any) -> dict[str, Any]:
    """Return the row of table `trajectories` that states the head of `events`."""
    last = events[-1]
    return {
        "tenant": last.tenant,
        "trajectory_id": last.trajectory_id,
        "last_sequence": last.sequence_number,
        "head_hash": last.hash.hex(),
        "status": "open",
        **more,
    }
