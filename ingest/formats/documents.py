"""Records out of JSON documents and JSON lines, each with its exact text and its place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from trajlake.runtime.cli_errors import UserError

from ..sources import HEAD_SIZE, Source
from .contract import BadSource, Loss
from .json_text import NotJson, raw_elements, value_of

WHOLE: Final = "whole file"
"""The place of what a whole document says."""
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._@+-]+")


class Document(NamedTuple):
    """One JSON value of a source: `place` is a pointer (`/3`) or a line (`line 4`), "" for the whole file."""

    raw: msgspec.Raw
    place: str


def safe_stem(source: Source) -> str:
    """Return the source's name as part of an id: unsafe characters become `-`."""
    return _UNSAFE.sub("-", source.stem).strip("-.")[:120] or "unnamed"


def read_document(source: Source) -> msgspec.Raw:
    """Return the one JSON value of a source as text; raise `BadSource` if it is none (empty, cut short)."""
    data = source.read()
    if not data.strip():
        raise BadSource(source.name, "", "is empty: nothing to import")
    try:
        value_of(data)
    except NotJson as error:
        where = place_of(data, str(error))
        raise BadSource(source.name, where, f"is no JSON ({error}); the file may be cut short") from None
    return msgspec.Raw(data)


def place_of(data: bytes, message: str) -> str:
    """Return where a JSON error stands, as line and column, from the standard library's message."""
    found = re.search(r"line (\d+) column (\d+)", message)
    return f"line {found[1]} column {found[2]}" if found else f"byte {len(data)}"


def is_lines(source: Source) -> bool:
    """Return whether a source is JSON lines: its first line is a whole object (also when no line follows yet)."""
    first = source.head().lstrip().partition(b"\n")[0]
    if not first.startswith(b"{"):
        return False
    if len(first) >= HEAD_SIZE - 64:
        first = next((line.data for line in source.lines() if line.data.strip()), b"")
    try:
        value_of(first)
    except NotJson:
        return False
    return True


def read_records(source: Source, loss: Loss) -> Iterator[Document]:
    """Yield the records of a source: its lines if it is JSON lines, else the elements of its array, else itself.

    Of JSON lines a torn last line is reported, a corrupt one with its bytes, which the source's blob alone holds; a
    damaged document raises `BadSource`.
    """
    if is_lines(source):
        yield from _read_lines(source, loss)
        return
    raw = read_document(source)
    parts = raw_elements(raw)
    if parts is None:
        yield Document(raw, "")
    else:
        for index, part in enumerate(parts):
            yield Document(part, f"/{index}")


def _read_lines(source: Source, loss: Loss) -> Iterator[Document]:
    for line in source.lines(loss.problem):
        if not line.data.strip():
            continue
        try:
            value_of(line.data)
        except NotJson as error:
            if not line.whole:
                loss.problem(f"line {line.number}", f"the last line is cut short ({error}); earlier lines stand")
                loss.skip("torn last line")
                return
            last = line.offset + len(line.data)
            loss.problem(f"line {line.number}", f"is no JSON ({error}); left out: bytes {line.offset} to {last}")
            loss.skip("corrupt line")
            continue
        yield Document(msgspec.Raw(line.data), f"line {line.number}")


def under(place: str, pointer: str) -> str:
    """Return the place of a part: a pointer below a pointer, or beside a line or a message."""
    return f"{place} {pointer}" if place.startswith(("line", "message")) else f"{place}{pointer}"


def refuse(source: Source, what: str) -> UserError:
    """Return the error for a source that is some other format."""
    return BadSource(source.name, "", f"{what}; 'trajlake import auto' names the format it finds")


def first_value(head: bytes) -> Any:
    """Return the first JSON value of a source's head where it is whole (a line, or all of a small file), else None."""
    for data in (head, head.lstrip().partition(b"\n")[0]):
        try:
            return value_of(data)
        except NotJson:
            continue
    return None
