"""The reports as text: `sql/reports/*.sql` and `sql/curation/*.sql`, each with a header: what it answers, in which
units, with which caveats.

A report is one select over the tables and views of `connect()`. It asks for its range by itself, through two variables
of the session (`report_from`, `report_to`: dates, each may be missing), so that `trajlake sql -f` runs the same file.
`report_now`, where set, is the clock of ages.
"""

from __future__ import annotations

import datetime as dt
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from trajlake.runtime.cli_errors import UserError

from .sql_text import sql_files

if TYPE_CHECKING:
    import duckdb

HEADER_FIELDS: Final = ("grain", "inputs", "owner", "range")


class Report(NamedTuple):
    """One report: `columns` are (name, meaning with its unit) in the order of the result."""

    name: str
    question: str
    grain: str
    inputs: tuple[str, ...]
    owner: str
    range: str
    columns: tuple[tuple[str, str], ...]
    caveats: str
    sql: str


@cache
def reports() -> dict[str, Report]:
    """Return name -> report, in the order of their names."""
    found = sql_files("reports") | sql_files("curation")
    return {name: parse(name, found[name]) for name in sorted(found)}


def report(name: str) -> Report:
    """Return the report of that name; raises `UserError` with the names that come closest."""
    found = reports().get(name)
    if found is None:
        import difflib

        near = difflib.get_close_matches(name, reports(), n=3, cutoff=0.4)
        hint = f"did you mean {', '.join(near)}? " if near else ""
        raise UserError(f"report: no report {name!r}; {hint}'trajlake report' lists them")
    return found


def parse(name: str, text: str) -> Report:
    """Read the header of a report's file; raises `ValueError` naming what is missing from it."""
    head = [line[2:] for line in text.splitlines() if line.startswith("--")]
    title, _, question = head[0].strip().partition(": ")
    fields: dict[str, str] = {}
    columns: list[tuple[str, str]] = []
    current = ""
    for line in head[1:]:
        if not line.startswith("   "):
            current, _, fields[current] = line.strip().partition(": ")
            current = current.rstrip(":")
        elif current == "columns":
            column, _, meaning = line.strip().partition(" ")
            columns.append((column, meaning.strip()))
        else:
            fields[current] += " " + line.strip()
    missing = [field for field in (*HEADER_FIELDS, "caveats") if not fields.get(field)]
    if title != name or not question or missing or not columns:
        raise ValueError(f"sql: {name}.sql: header without {', '.join(missing) or 'name, question or columns'}")
    inputs = tuple(fields["inputs"].split(", "))
    more = fields["owner"], fields["range"]
    return Report(name, question, fields["grain"], inputs, *more, tuple(columns), fields["caveats"], text)


def set_range(connection: duckdb.DuckDBPyConnection, first: dt.date | None, last: dt.date | None) -> None:
    """Tell the session the days that reports look at, both included; None leaves that side open."""
    for name, day in (("report_from", first), ("report_to", last)):
        if day is not None:
            connection.execute(f"set variable {name} = date '{day.isoformat()}'")
