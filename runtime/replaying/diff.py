"""What differs between two JSON trees, place by place: changed, missing, extra, or only in another order. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, Literal

import msgspec

Kind = Literal["changed", "missing", "extra", "reordered"]

ALIGN_MAX: Final = 400
"""Longer lists are compared place by place: aligning is quadratic."""
CHANGES_MAX: Final = 50
_encode: Final = msgspec.json.Encoder(order="sorted").encode
_WORD: Final = re.compile(r"[^\s,;\[\]\"']+")


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One difference. `path`: RFC 6901 pointer, "" for the whole. `missing`: recorded, not given now; `extra`: the
    other way round; `reordered`: the same parts in another order."""

    path: str
    kind: Kind
    expected: Any = None
    got: Any = None


def diff(expected: Any, got: Any) -> tuple[Change, ...]:
    """Return at most `CHANGES_MAX` differences between two trees of JSON values, in the order of `expected`."""
    found: list[Change] = []
    for change in _walk("", expected, got):
        found.append(change)
        if len(found) == CHANGES_MAX:
            break
    return tuple(found)


def same_parts(expected: str, got: str) -> bool:
    """Whether two different texts hold the same words: a listing in another order, for one."""
    return Counter(_WORD.findall(expected)) == Counter(_WORD.findall(got))


def _walk(path: str, expected: Any, got: Any) -> Iterator[Change]:
    if isinstance(expected, dict) and isinstance(got, dict):
        yield from _objects(path, expected, got)
    elif isinstance(expected, list) and isinstance(got, list):
        yield from _lists(path, expected, got)
    elif type(expected) is not type(got) or expected != got:
        kind: Kind = "changed"
        if isinstance(expected, str) and isinstance(got, str) and len(expected) == len(got):
            kind = "reordered" if same_parts(expected, got) else "changed"
        yield Change(path=path, kind=kind, expected=expected, got=got)


def _objects(path: str, expected: dict[str, Any], got: dict[str, Any]) -> Iterator[Change]:
    for name in [*expected, *(name for name in got if name not in expected)]:
        place = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
        if name not in got:
            yield Change(path=place, kind="missing", expected=expected[name])
        elif name not in expected:
            yield Change(path=place, kind="extra", got=got[name])
        else:
            yield from _walk(place, expected[name], got[name])


def _lists(path: str, expected: list[Any], got: list[Any]) -> Iterator[Change]:
    if expected == got:
        return
    before, after = _keys(expected), _keys(got)
    if Counter(before) == Counter(after):
        if before != after:
            yield Change(path=path, kind="reordered", expected=expected, got=got)
        else:
            yield Change(path=path, kind="changed", expected=expected, got=got)
        return
    if max(len(before), len(after)) > ALIGN_MAX:
        yield from _replaced(path, 0, expected, got)
        return
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            yield from _replaced(path, i1, expected[i1:i2], got[j1:j2])


def _replaced(path: str, at: int, expected: Sequence[Any], got: Sequence[Any]) -> Iterator[Change]:
    for place, (one, other) in enumerate(zip(expected, got, strict=False)):
        yield from _walk(f"{path}/{at + place}", one, other)
    for place in range(len(got), len(expected)):
        yield Change(path=f"{path}/{at + place}", kind="missing", expected=expected[place])
    for place in range(len(expected), len(got)):
        yield Change(path=f"{path}/{at + place}", kind="extra", got=got[place])


def _keys(items: list[Any]) -> list[bytes]:
    return [_encode(item) for item in items]
