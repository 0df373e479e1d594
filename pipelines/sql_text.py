"""The project's SQL: one statement per file, named after its object. Text from the package, never from data."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def sql_files(folder: str) -> dict[str, str]:
    """Return name -> text of every statement in `sql/<folder>`, sorted by name."""
    found = (files("trajlake.sql") / folder).iterdir()
    return {
        entry.name.removesuffix(".sql"): entry.read_text(encoding="utf-8")
        for entry in sorted(found, key=lambda entry: entry.name)
        if entry.name.endswith(".sql")
    }


def literal(text: str) -> str:
    """Return `text` as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """Return `name` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
