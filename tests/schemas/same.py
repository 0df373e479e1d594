"""Equality that a value codec must reach: type, sign of zero, order of keys, zone and fold, not only `==`."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import math
from decimal import Decimal
from typing import Any

import msgspec


def same(left: Any, right: Any) -> bool:
    """Return whether nothing that a program could see tells the two values apart."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return (math.isnan(left) and math.isnan(right)) or (
            left == right and math.copysign(1, left) == math.copysign(1, right)
        )
    if isinstance(left, complex):
        return same(left.real, right.real) and same(left.imag, right.imag)
    if isinstance(left, Decimal):
        return str(left) == str(right)
    if isinstance(left, dict):
        return same(list(left), list(right)) and all(same(left[key], right[key]) for key in left if key == key)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, (set, frozenset)):
        return len(left) == len(right) and sorted(map(repr, left)) == sorted(map(repr, right))
    if isinstance(left, (dt.datetime, dt.time)):
        return repr(left) == repr(right)
    if isinstance(left, enum.Enum):
        return left is right
    if isinstance(left, BaseException):
        return same(left.args, right.args) and str(left) == str(right)
    if isinstance(left, msgspec.Struct):
        return all(same(getattr(left, name), getattr(right, name)) for name in left.__struct_fields__)
    if dataclasses.is_dataclass(left):
        return all(same(getattr(left, f.name), getattr(right, f.name)) for f in dataclasses.fields(left))
    return bool(left == right)
