"""JSON by its text: typed decoding that keeps the exact source text of parts, and survives what msgspec refuses.

msgspec is fast but refuses lone surrogates, NaN and invalid UTF-8, all of which occur in real files. The slow
path reads the same structs with the standard library, which accepts them; bytes that are no UTF-8 become lone
surrogates (`surrogateescape`) and go back to the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Iterator, Mapping
from functools import lru_cache
from json.decoder import WHITESPACE, scanstring  # type: ignore[attr-defined]
from typing import Any, Final, TypeVar, cast, get_type_hints

import msgspec

T = TypeVar("T", bound=msgspec.Struct)
_scan: Final = json.JSONDecoder().raw_decode
_any: Final = msgspec.json.Decoder()


class NotJson(ValueError):
    """The text is no JSON value; the message says where."""


def text_of(raw: msgspec.Raw | bytes) -> str:
    """Return source bytes as text; bytes that are no UTF-8 become lone surrogates."""
    return str(raw, "utf-8", "surrogateescape")


def value_of(raw: msgspec.Raw | bytes) -> Any:
    """Return the value of a JSON text. Raises `NotJson`."""
    try:
        return _any.decode(raw)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
        return value_of_text(text_of(raw))
    except RecursionError:
        raise NotJson("nested too deeply") from None


def value_of_text(text: str) -> Any:
    """Return the value of a JSON text that msgspec may refuse (lone surrogates, NaN). Raises `NotJson`."""
    try:
        return json.loads(text)
    except RecursionError:
        raise NotJson("nested too deeply") from None
    except ValueError as error:
        raise NotJson(str(error)) from None


def decode(raw: msgspec.Raw | bytes, kind: type[T]) -> T | None:
    """Return `raw` as the struct `kind` whose `Raw` fields hold exact text; None if it is no object at all.

    Fields must be typed `Raw`, `list[Raw]` or `Any` with defaults. Raises `NotJson`.
    """
    decoder, raw_fields, list_fields = _shape(cast(Hashable, kind))
    try:
        return decoder.decode(raw)  # type: ignore[no-any-return]
    except msgspec.ValidationError:
        if _first(raw) != 0x7B:
            value_of(raw)
            return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    except RecursionError:
        raise NotJson("nested too deeply") from None
    return _decode_slowly(text_of(raw), kind, raw_fields, list_fields)


def members(text: str, at: int = 0) -> Iterator[tuple[str, int, int]]:
    """Yield (key, start, end) for each member of the object at `at`; start and end bound the value's text."""
    at = _skip(text, at)
    if text[at : at + 1] != "{":
        raise NotJson(f"expected an object at character {at}")
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        return
    while True:
        if text[at : at + 1] != '"':
            raise NotJson(f"expected a key at character {at}")
        key, at = _guarded(scanstring, text, at + 1)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise NotJson(f"expected ':' at character {at}")
        start = _skip(text, at + 1)
        _, end = _guarded(_scan, text, start)
        yield key, start, end
        at = _skip(text, end)
        if text[at : at + 1] == "}":
            return
        if text[at : at + 1] != ",":
            raise NotJson(f"expected ',' at character {at}")
        at = _skip(text, at + 1)


def elements(text: str, at: int = 0) -> Iterator[tuple[int, int]]:
    """Yield (start, end) for each element of the array at `at`."""
    at = _skip(text, at)
    if text[at : at + 1] != "[":
        raise NotJson(f"expected an array at character {at}")
    at = _skip(text, at + 1)
    if text[at : at + 1] == "]":
        return
    while True:
        _, end = _guarded(_scan, text, at)
        yield at, end
        at = _skip(text, end)
        if text[at : at + 1] == "]":
            return
        if text[at : at + 1] != ",":
            raise NotJson(f"expected ',' at character {at}")
        at = _skip(text, at + 1)


def raw_elements(raw: msgspec.Raw | bytes) -> list[msgspec.Raw] | None:
    """Return the exact texts of an array's elements; None if `raw` is no array. Raises `NotJson`."""
    if _first(raw) != 0x5B:
        return None
    try:
        return _raw_list.decode(raw)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
        text = text_of(raw)
        return [_raw(text[start:end]) for start, end in elements(text)]
    except RecursionError:
        raise NotJson("nested too deeply") from None


def raw_members(raw: msgspec.Raw | bytes) -> dict[str, msgspec.Raw] | None:
    """Return the exact texts of an object's members (of a repeated key the last); None if it is no object."""
    if _first(raw) != 0x7B:
        return None
    try:
        return _raw_dict.decode(raw)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
        text = text_of(raw)
        return {key: _raw(text[start:end]) for key, start, end in members(text)}
    except RecursionError:
        raise NotJson("nested too deeply") from None


def object_text(parts: Mapping[str, msgspec.Raw], *, without: Collection[str] = ()) -> str:
    """Return the text of an object made of exact member texts, some left out."""
    kept = (f"{json.dumps(key)}:{text_of(raw)}" for key, raw in parts.items() if key not in without)
    return "{" + ",".join(kept) + "}"


def string_of(raw: msgspec.Raw | bytes) -> str | None:
    """Return the decoded string where `raw` is a JSON string, else None."""
    if _first(raw) != 0x22:
        return None
    value = value_of(raw)
    return value if isinstance(value, str) else None


def is_absent(raw: msgspec.Raw | bytes) -> bool:
    """Return whether a `Raw` field was absent from its object."""
    return memoryview(raw).nbytes == 0


_raw_list: Final = msgspec.json.Decoder(list[msgspec.Raw])
_raw_dict: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode("utf-8", "surrogateescape"))


def _first(raw: msgspec.Raw | bytes) -> int:
    stripped = bytes(raw)[:64].lstrip() or bytes(raw).lstrip()
    return stripped[0] if stripped else 0


def _skip(text: str, at: int) -> int:
    return int(WHITESPACE.match(text, at).end())


def _guarded(scan: Any, text: str, at: int) -> tuple[Any, int]:
    try:
        value, end = scan(text, at)
    except RecursionError:
        raise NotJson("nested too deeply") from None
    except (ValueError, StopIteration) as error:
        raise NotJson(str(error) or f"no value at character {at}") from None
    return value, end


def _decode_slowly(text: str, kind: type[T], raw_fields: frozenset[str], list_fields: frozenset[str]) -> T | None:
    start = _skip(text, 0)
    if text[start : start + 1] != "{":
        value_of_text(text)
        return None
    names = {field.encode_name: field.name for field in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    last = start
    for key, begin, end in members(text, start):
        last = end
        name = names.get(key)
        if name is None:
            continue
        part = text[begin:end]
        if name in raw_fields:
            values[name] = _raw(part)
        elif name in list_fields and part.startswith("["):
            values[name] = [_raw(part[a:b]) for a, b in elements(part)]
        elif name not in list_fields:
            values[name] = value_of_text(part)
    rest = text[text.index("}", last) + 1 :] if last >= start else ""
    if rest.strip():
        raise NotJson("text after the end of the value")
    return kind(**values)


@lru_cache(maxsize=256)
def _shape(kind: Any) -> tuple[msgspec.json.Decoder[Any], frozenset[str], frozenset[str]]:
    hints = get_type_hints(kind)
    raw_fields = frozenset(name for name, hint in hints.items() if hint is msgspec.Raw)
    list_fields = frozenset(name for name, hint in hints.items() if hint == list[msgspec.Raw])
    return msgspec.json.Decoder(kind), raw_fields, list_fields
