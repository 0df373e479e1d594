"""What `trajlake sql` refuses: a statement that could change a file of the lake. Everything else is the user's to do.

Tables are views, so `insert`, `update` and `delete` have nothing to act on. What is left are statements that write
files: `copy ... to` goes to one named place outside the lake, so that results can be exported; `attach` and `export
database` are refused, and the configuration is locked, since a log or a spill could be put anywhere. It guards against
a slip, not against a person who may write to the lake's folder anyway.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from trajlake.runtime.cli_errors import UserError

from .lakehouse.places import is_remote

if TYPE_CHECKING:
    import duckdb

REFUSED: Final = frozenset({"ATTACH", "EXPORT", "COPY_DATABASE"})
WRAPPERS: Final = frozenset({"EXPLAIN", "PREPARE"})
"""Statements that may hold another one: not one that writes."""


def lock(connection: duckdb.DuckDBPyConnection) -> None:
    """Fix the configuration; session variables (`set variable`) stay free."""
    connection.execute("set lock_configuration = true")


def check(statement: Any, lake: str) -> None:
    """Raise `UserError` for a statement that could write into `lake`."""
    kind, words = statement.type.name, _tokens(statement.query)
    if kind in REFUSED or (kind in WRAPPERS and any(word in ("copy", "attach") for _, word in words)):
        raise UserError(
            f"sql: {kind.lower()} is not for here: a lake is only read; copy (select ...) to 'FILE' exports"
        )
    if kind == "COPY":
        _check_copy(words, lake)


def _check_copy(words: list[tuple[str, str]], lake: str) -> None:
    depth = 0
    for place, (_, word) in enumerate(words):
        depth += {"(": 1, ")": -1}.get(word, 0)
        if depth or word != "to":
            continue
        sort, target = words[place + 1] if place + 1 < len(words) else ("", "")
        if sort != "string_const" or target[:1] != "'" or any(word == "filename_pattern" for _, word in words):
            raise UserError("sql: copy ... to: name the file as a text in single quotes, without filename_pattern")
        _check_target(target[1:-1].replace("''", "'"), lake)
        return


def _check_target(target: str, lake: str) -> None:
    if "://" in target:
        raise UserError(f"sql: copy to {ascii(target)}: results go to a local file")
    if is_remote(lake):
        return
    place = os.path.realpath(os.path.expanduser(target))
    root = os.path.realpath(lake.removeprefix("file://"))
    if os.path.commonpath([place, root]) in (place, root):
        raise UserError(f"sql: copy to {ascii(target)}: that is the lake, which is only read; name a file elsewhere")


def _tokens(text: str) -> list[tuple[str, str]]:
    """Return (sort, text) of every token but comments; keywords and names in lower case."""
    import duckdb

    data = text.encode()
    found = duckdb.tokenize(text)
    ends = [at for at, _ in found[1:]] + [len(data)]
    tokens = []
    for (at, sort), end in zip(found, ends, strict=True):
        word = data[at:end].decode(errors="replace").strip()
        if sort.name != "comment":
            tokens.append((sort.name, word if sort.name == "string_const" else word.lower()))
    return tokens
