"""`trajlake sql`: ask a lake in SQL, once, from a file, or in a shell."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer

from trajlake.runtime.cli_errors import UserError
from trajlake.runtime.settings import load

if TYPE_CHECKING:
    import duckdb

ROWS_PER_FETCH: Final = 4096
PROMPT: Final = "trajlake> "
HELP: Final = "End a statement with ; . Also .tables  .columns TABLE  .help  .quit"


def sql(
    query: Annotated[
        str | None, typer.Argument(help="One or more statements. Absent: standard input, a shell on a terminal.")
    ] = None,
    lake: Annotated[str | None, typer.Option("--lake", help="The lake: a folder or a URL.")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read the statements from this file.")] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Show this tenant's rows only.")] = None,
    snapshot: Annotated[int | None, typer.Option("--snapshot", help="Read this snapshot, not the newest.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print an array of row objects.")] = False,
) -> None:
    """Query every table and view of a lake with DuckDB."""
    if query is not None and file is not None:
        raise UserError("sql: give either a query or -f FILE, not both")
    text = query if file is None else _read(file)
    from ..connect import connect
    from ..sql_guard import lock

    place = load(lake=lake).lake
    connection = connect(place, snapshot, tenant=tenant)
    lock(connection)
    if text is not None:
        run(connection, text, as_json, sys.stdout, place)
    elif sys.stdin.isatty():
        _shell(connection, as_json, place)
    else:
        _piped(connection, sys.stdin.read(), as_json, place)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not UTF-8 text at byte {error.start}") from None


def run(connection: duckdb.DuckDBPyConnection, text: str, as_json: bool, out: TextIO, lake: str) -> None:
    """Run every statement of `text`; print the rows of the last one (of each one as a table without --json).

    One that could write into `lake` is refused.
    """
    import duckdb

    from ..sql_guard import check

    try:
        statements = connection.extract_statements(text)
        if not statements:
            raise UserError('sql: no statement; try trajlake sql "select * from trajectories"')
        for place, statement in enumerate(statements, start=1):
            check(statement, lake)
            connection.execute(statement)
            if as_json and place == len(statements):
                print_json(connection, out)
            elif not as_json and connection.description:
                print_table(connection, out)
    except duckdb.Error as error:
        raise UserError(f"sql: {first_line(error)}") from None


def first_line(error: Exception) -> str:
    """DuckDB's message without the drawing of the statement below it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    kept = [line for line in lines if not line.startswith(("LINE ", "^"))]
    return " ".join(kept) or type(error).__name__


def _rows(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    while batch := connection.fetchmany(ROWS_PER_FETCH):
        yield from batch


def print_json(connection: duckdb.DuckDBPyConnection, out: TextIO) -> None:
    """Stream an array of objects: integers exact, times in ISO 8601, blobs as hex, NaN and infinities as null."""
    from ..row_json import row_encoder

    names = [column[0] for column in connection.description or ()]
    encode = row_encoder(names)
    separator = "[\n"
    for row in _rows(connection):
        out.write(separator + encode(row))
        separator = ",\n"
    out.write("[]\n" if separator == "[\n" else "\n]\n")


def print_table(connection: duckdb.DuckDBPyConnection, out: TextIO) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in connection.description or ():
        numeric = str(column[1]).upper() in ("NUMBER", "BIGINT", "INTEGER", "DOUBLE", "HUGEINT")
        table.add_column(Text(column[0]), justify="right" if numeric else "left", overflow="fold")
    count = 0
    for row in _rows(connection):
        table.add_row(*(Text("" if value is None else str(value)) for value in row))
        count += 1
    wide = None if out.isatty() else 10_000
    Console(file=out, width=wide, highlight=False).print(table)
    out.write(f"{count} row{'' if count == 1 else 's'}\n")


def _piped(connection: duckdb.DuckDBPyConnection, text: str, as_json: bool, lake: str) -> None:
    """Run what comes through a pipe: statements, and dot commands between them as in the shell."""
    pending: list[str] = []
    for line in text.splitlines():
        if not line.startswith("."):
            pending.append(line)
            continue
        if any(one.strip() for one in pending):
            run(connection, "\n".join(pending), as_json, sys.stdout, lake)
        pending = []
        if not _dot(connection, line.split()):
            return
    if any(one.strip() for one in pending) or not text.strip():
        run(connection, "\n".join(pending), as_json, sys.stdout, lake)


def _shell(connection: duckdb.DuckDBPyConnection, as_json: bool, lake: str) -> None:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  # line editing, where this Python has it
    sys.stdout.write(HELP + "\n")
    pending = ""
    while True:
        try:
            line = input(PROMPT if not pending else "     ...> ")
        except EOFError:
            sys.stdout.write("\n")
            return
        except KeyboardInterrupt:
            sys.stdout.write("\n")
            pending = ""
            continue
        if not pending and line.strip().startswith("."):
            if not _dot(connection, line.split()):
                return
            continue
        pending = f"{pending}\n{line}" if pending else line
        if pending.strip() and pending.rstrip().endswith(";"):
            statement, pending = pending, ""
            try:
                run(connection, statement, as_json, sys.stdout, lake)
            except UserError as error:
                sys.stdout.write(f"{error}\n")


def _dot(connection: duckdb.DuckDBPyConnection, words: list[str]) -> bool:
    """Run one dot command; return False when the shell is to end."""
    if words[0] in (".quit", ".exit", ".q"):
        return False
    if words[0] == ".tables":
        names = connection.execute(
            "select view_name from duckdb_views() where not internal and not temporary order by 1"
        ).fetchall()
        sys.stdout.write("  ".join(name for (name,) in names) + "\n")
    elif words[0] == ".columns" and len(words) == 2:
        columns = connection.execute(
            "select column_name, data_type from duckdb_columns() where table_name = ? order by column_index", [words[1]]
        ).fetchall()
        sys.stdout.write("".join(f"{name}  {kind}\n" for name, kind in columns) or f"no table {words[1]!r}\n")
    else:
        sys.stdout.write(HELP + "\n")
    return True
