"""The tags of single values: how a bytes, a date, an odd number or an odd text is written, and read back.

A tag is an object with one key that begins with one `$`. Its content is JSON, chosen so that SQL can read it.
Containers and classes, which hold further values, are in `values.py`.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import pathlib
import re
import sys
import uuid
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from .limits import SAFE_INTEGER_MAX

Tag = dict[str, Any]
_DECIMAL_DIGITS_MAX: Final = 4000
"""Longer integers are written in hexadecimal: Python refuses to convert them to and from decimal."""

_ODD: Final = re.compile("[\\\\\0\ud800-\udfff]")
_ESCAPE: Final = re.compile(r"\\(\\|u[0-9a-f]{4}|)")
_INTEGER: Final = re.compile(r"-?[0-9]+|-?0x[0-9a-f]+")


class Refused(Exception):
    """A value has no exact form; the codec adds the path and raises `InvalidValue`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []


def is_odd_text(text: str) -> bool:
    """Return whether `text` must be tagged: it holds U+0000 or a lone surrogate."""
    if "\0" in text:
        return True
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def write_text(text: str) -> Tag:
    """Return the tag of an odd text: U+0000, surrogates and the backslash become `\\uXXXX` and `\\\\`."""
    return {"$str": _ODD.sub(lambda m: "\\\\" if m[0] == "\\" else f"\\u{ord(m[0]):04x}", text)}


def write_integer(value: int) -> Tag | int:
    """Return an integer as it is, or its tag beyond ±(2^53-1)."""
    if -SAFE_INTEGER_MAX <= value <= SAFE_INTEGER_MAX:
        return value
    # log10(2) is about 0.301: an estimate by bits avoids the conversion that Python would refuse.
    long = value.bit_length() * 0.302 > _DECIMAL_DIGITS_MAX
    return {"$int": hex(value) if long else str(value)}


def write_float(value: float) -> Tag | float:
    """Return a finite float as it is (-0.0 included), or the tag of NaN and the infinities."""
    if value - value == 0:
        return value
    return {"$float": "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"}


def _write_datetime(value: dt.datetime) -> Tag:
    return {"$datetime": _with_zone(value, value.replace(tzinfo=None, fold=0).isoformat())}


def _write_time(value: dt.time) -> Tag:
    return {"$time": _with_zone(value, value.replace(tzinfo=None, fold=0).isoformat())}


def _with_zone(value: dt.datetime | dt.time, local: str) -> Any:
    """Return ISO text where it says all; else [local text, zone, fold]; zone null, name, or [seconds, name]."""
    zone = value.tzinfo
    if type(zone) is dt.timezone:
        offset = zone.utcoffset(None)
        plain = dt.timezone(offset)
        if zone.tzname(None) == plain.tzname(None):
            if not value.fold and offset.microseconds == 0:
                return value.isoformat()
            return [local, [offset.total_seconds(), None], value.fold]
        return [local, [offset.total_seconds(), zone.tzname(None)], value.fold]
    if zone is None:
        return [local, None, value.fold] if value.fold else local
    key = _zone_key(zone)
    if key is not None:
        return [local, key, value.fold]
    raise Refused(f"its time zone is a {type(zone).__name__}; use datetime.timezone or zoneinfo.ZoneInfo")


def _zone_key(zone: Any) -> str | None:
    # zoneinfo is slow to import and absent from most values.
    zoneinfo = sys.modules.get("zoneinfo")
    if zoneinfo is None or type(zone) is not zoneinfo.ZoneInfo:
        return None
    key: str | None = zone.key
    return key


def _zone(written: Any) -> dt.tzinfo | None:
    if written is None:
        return None
    if isinstance(written, str):
        from zoneinfo import ZoneInfo

        return ZoneInfo(written)
    seconds, name = written
    offset = dt.timedelta(seconds=seconds)
    return dt.timezone(offset) if name is None else dt.timezone(offset, name)


def _read_datetime(content: Any) -> dt.datetime:
    if isinstance(content, str):
        return dt.datetime.fromisoformat(content)
    local, zone, fold = content
    return dt.datetime.fromisoformat(local).replace(tzinfo=_zone(zone), fold=fold)


def _read_time(content: Any) -> dt.time:
    if isinstance(content, str):
        return dt.time.fromisoformat(content)
    local, zone, fold = content
    return dt.time.fromisoformat(local).replace(tzinfo=_zone(zone), fold=fold)


def _read_float(content: Any) -> float:
    if content not in ("NaN", "Infinity", "-Infinity"):
        raise ValueError(f"{content!r} is none of NaN, Infinity, -Infinity")
    return float(content)


def _read_integer(content: str) -> int:
    if _INTEGER.fullmatch(content) is None:
        raise ValueError(f"{content[:40]!r} is no integer")
    return int(content, 16) if "x" in content else int(content)


def _read_text(content: str) -> str:
    # A backslash that begins no escape leaves group 1 empty, and int("") raises.
    return _ESCAPE.sub(lambda m: "\\" if m[1] == "\\" else chr(int(m[1][1:], 16)), content)


def _read_bytes(content: str) -> bytes:
    return base64.b64decode(content, validate=True)


def write_bytes(value: bytes) -> Tag:
    """Return the tag of bytes: padded base64 of RFC 4648, section 4."""
    return {"$bytes": binascii.b2a_base64(value, newline=False).decode()}


WRITE: Final[dict[type, Callable[[Any], Any]]] = {
    bytes: write_bytes,
    bytearray: lambda value: {"$bytearray": binascii.b2a_base64(value, newline=False).decode()},
    dt.datetime: _write_datetime,
    dt.date: lambda value: {"$date": value.isoformat()},
    dt.time: _write_time,
    dt.timedelta: lambda value: {"$timedelta": [value.days, value.seconds, value.microseconds]},
    Decimal: lambda value: {"$decimal": str(value)},
    complex: lambda value: {"$complex": [write_float(value.real), write_float(value.imag)]},
    uuid.UUID: lambda value: {"$uuid": str(value)},
    pathlib.PurePosixPath: lambda value: {"$path": ["pure_posix", _path_text(value)]},
    pathlib.PureWindowsPath: lambda value: {"$path": ["pure_windows", _path_text(value)]},
    type(pathlib.Path()): lambda value: {"$path": ["path", _path_text(value)]},
}
"""By exact type. A subclass is another type and is refused, since its own state would be lost."""

READ: Final[dict[str, Callable[[Any], Any]]] = {
    "$str": _read_text,
    "$int": _read_integer,
    "$float": _read_float,
    "$bytes": _read_bytes,
    "$bytearray": lambda content: bytearray(_read_bytes(content)),
    "$datetime": _read_datetime,
    "$date": dt.date.fromisoformat,
    "$time": _read_time,
    "$timedelta": lambda content: dt.timedelta(*content),
    "$decimal": Decimal,
    "$complex": lambda content: complex(*(_read_float(x["$float"]) if isinstance(x, dict) else x for x in content)),
    "$uuid": uuid.UUID,
    "$path": lambda content: _PATHS[content[0]](_read_text(content[1])),
}
READ_ERRORS: Final = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, InvalidOperation)

_PATHS: Final[dict[str, type[pathlib.PurePath]]] = {
    "pure_posix": pathlib.PurePosixPath,
    "pure_windows": pathlib.PureWindowsPath,
    "path": pathlib.Path,
}


def _path_text(value: pathlib.PurePath) -> str:
    # File names that are no UTF-8 reach Python as lone surrogates.
    return str(write_text(str(value))["$str"])
