"""The positive control: a small lake in which every control must find exactly what is known to be there.

`sql/fixtures` holds its rows (one file per table, JSON lines), the expected findings and the parameters. A test-only
writer made them through the real event types; a test makes them again and compares. Each audit runs this first: SQL
that finds nothing there proves nothing elsewhere.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Final, NamedTuple

import msgspec

from trajlake.schemas.tables import TABLES, Table

from .audit_controls import Control
from .audit_run import Finding, findings, run_controls
from .audit_session import Retention, Scope, Session

EXPECTED: Final = "expected"
PARAMETERS: Final = "parameters"
MEMORY_LIMIT: Final = "512MiB"
Row = Mapping[str, Any]


class FixtureParameters(msgspec.Struct, frozen=True, kw_only=True):
    """What the session is told beside the tables."""

    now: dt.datetime
    sla_minutes: int
    scan: bool
    retention: tuple[tuple[str, str, int | None, int | None], ...] = ()
    compatible: tuple[tuple[int, int], ...] = ()

    def scope(self) -> Scope:
        return Scope(
            now=self.now,
            sla_minutes=self.sla_minutes,
            retention=tuple(Retention(*row) for row in self.retention),
            compatible=self.compatible,
        )


class Fixture(NamedTuple):
    """Rows by table, expected findings, parameters."""

    tables: dict[str, list[dict[str, Any]]]
    expected: list[dict[str, Any]]
    parameters: FixtureParameters


class PositiveControl(NamedTuple):
    """What the fixture showed. `missing` and `unexpected` are lines that name control, trajectory and event."""

    fired: bool
    expected: int
    missing: list[str]
    unexpected: list[str]


def positive_control(selected: Sequence[Control], fixture: Fixture | None = None) -> PositiveControl:
    """Run `selected` on the fixture and compare with what is known to be there."""
    known = fixture or read_fixture()
    ids = {control.id for control in selected}
    wanted = [row for row in known.expected if row["control"] in ids]
    unexpected = run_fixture(selected, known)
    missing = []
    for row in wanted:
        match = next((finding for finding in unexpected if _is(finding, row)), None)
        if match is None:
            missing.append(_line(row))
        else:
            unexpected.remove(match)
    missing += [f"{name}: the fixture holds nothing for it" for name in ids - {row["control"] for row in wanted}]
    surplus = [_line(finding._asdict()) for finding in unexpected]
    return PositiveControl(not missing and not surplus, len(wanted), sorted(missing), sorted(surplus))


def run_fixture(selected: Sequence[Control], fixture: Fixture) -> list[Finding]:
    """Return what `selected` finds in a fixture."""
    with Session(fixture.parameters.scope(), memory_limit=MEMORY_LIMIT) as session:
        load_rows(session, fixture.tables)
        session.build_facts(selected)
        run_controls(session, selected, scanned=fixture.parameters.scan)
        return findings(session)


def load_rows(session: Session, tables: Mapping[str, Sequence[Row]]) -> None:
    """Make every table of a lake in `session`, with these rows; a column that a row lacks is null."""
    import polars as pl

    from ..lakehouse.arrow_schema import polars_schema

    for name, table in TABLES.items():
        schema = polars_schema(table)
        columns = {column: [row.get(column) for row in tables.get(name, ())] for column in schema}
        frame = pl.DataFrame(columns, schema=schema)
        session.connection.register("frame", frame)
        session.connection.execute(f"create table {name} as select * from frame")
        session.connection.unregister("frame")


def read_fixture() -> Fixture:
    """Return the built-in fixture."""
    folder = files("trajlake.sql") / "fixtures"
    tables: dict[str, list[dict[str, Any]]] = {}
    for name, table in TABLES.items():
        entry = folder / f"{name}.jsonl"
        if entry.is_file():
            tables[name] = [_typed(table, msgspec.json.decode(line)) for line in entry.read_bytes().splitlines()]
    expected = [msgspec.json.decode(line) for line in (folder / f"{EXPECTED}.jsonl").read_bytes().splitlines()]
    parameters = msgspec.json.decode((folder / f"{PARAMETERS}.json").read_bytes(), type=FixtureParameters)
    return Fixture(tables, expected, parameters)


def write_fixture(
    folder: str, tables: Mapping[str, Sequence[Row]], expected: Sequence[Row], parameters: FixtureParameters
) -> None:
    """Write a fixture as `read_fixture` reads it: a null column is left out, tables without rows have no file."""
    os.makedirs(folder, exist_ok=True)
    for name in TABLES:
        lines = [msgspec.json.encode({k: v for k, v in row.items() if v is not None}) for row in tables.get(name, ())]
        if lines:
            _write(os.path.join(folder, f"{name}.jsonl"), b"\n".join(lines) + b"\n")
    _write(os.path.join(folder, f"{EXPECTED}.jsonl"), b"\n".join(map(msgspec.json.encode, expected)) + b"\n")
    _write(os.path.join(folder, f"{PARAMETERS}.json"), msgspec.json.format(msgspec.json.encode(parameters)) + b"\n")


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


def _typed(table: Table, row: dict[str, Any]) -> dict[str, Any]:
    for column in table.columns:
        value = row.get(column.name)
        if isinstance(value, str) and column.type == "timestamp":
            row[column.name] = dt.datetime.fromisoformat(value)
        elif isinstance(value, str) and column.type == "date":
            row[column.name] = dt.date.fromisoformat(value)
    return row


def _is(finding: Finding, row: Row) -> bool:
    """Whether a finding is the expected one: same control, same event, and saying what it must."""
    return all(
        getattr(finding, name) == row[name] for name in ("control", "trajectory_id", "sequence_number")
    ) and finding.detail.startswith(row.get("says", ""))


def _line(row: Row) -> str:
    number = row["sequence_number"]
    return f"{row['control']}: {row['trajectory_id'] or 'the lake'} at {'no event' if number is None else number}"
