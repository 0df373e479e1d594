"""`trajlake report`: answer one of the questions that are asked of every lake, or list them."""

from __future__ import annotations

import datetime as dt
import sys
from typing import Annotated

import typer

from trajlake.runtime.cli_errors import UserError
from trajlake.runtime.settings import load

from ..reports import Report, reports, set_range
from ..reports import report as named


def report(
    name: Annotated[str | None, typer.Argument(help="The report. All are listed when absent.")] = None,
    lake: Annotated[str | None, typer.Option("--lake", help="The lake: a folder or a URL.")] = None,
    first: Annotated[str | None, typer.Option("--from", metavar="DAY", help="From this UTC day on.")] = None,
    last: Annotated[str | None, typer.Option("--to", metavar="DAY", help="Up to this UTC day, included.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant's rows.")] = None,
    snapshot: Annotated[int | None, typer.Option("--snapshot", help="Read this snapshot, not the newest.")] = None,
    text: Annotated[bool, typer.Option("--sql", help="Print the statement, for 'trajlake sql -f'.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print an array of row objects.")] = False,
) -> None:
    """Answer a question about a lake: cost, errors, waits, retries, outcomes, drift."""
    if name is None:
        _list(as_json)
        return
    wanted = named(name)
    if text:
        sys.stdout.write(wanted.sql)
        return
    from_day, to_day = _day(first, "--from"), _day(last, "--to")
    if from_day is not None and to_day is not None and from_day > to_day:
        raise UserError(f"report: --from {from_day} is after --to {to_day}")
    from ..connect import connect
    from .sql import run

    place = load(lake=lake).lake
    connection = connect(place, snapshot, tenant=tenant)
    set_range(connection, from_day, to_day)
    if not as_json:
        sys.stdout.write(f"{wanted.question}\n{wanted.grain}; range: {wanted.range}\n\n")
    run(connection, wanted.sql, as_json, sys.stdout, place)
    if not as_json:
        sys.stdout.write(f"\n{wanted.caveats}\n")


def _day(text: str | None, option: str) -> dt.date | None:
    try:
        return None if text is None else dt.date.fromisoformat(text)
    except ValueError:
        raise UserError(f"report: {option} {text!r} is not a day; write it as 2026-11-30") from None


def _list(as_json: bool) -> None:
    if as_json:
        import msgspec

        listed = [_described(one) for one in reports().values()]
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(listed), indent=1).decode() + "\n")
        return
    width = max(map(len, reports()))
    for name, one in reports().items():
        sys.stdout.write(f"{name:<{width}}  {one.question}\n")


def _described(one: Report) -> dict[str, object]:
    return {
        "name": one.name,
        "question": one.question,
        "grain": one.grain,
        "range": one.range,
        "columns": dict(one.columns),
        "caveats": one.caveats,
    }
