"""Rows of a query as JSON text that loses nothing a reader can keep."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import msgspec


def row_encoder(names: Sequence[str]) -> Callable[[Sequence[Any]], str]:
    """Return a function from a row to the JSON object with `names` as keys; a repeated name gets `_2`, `_3`, ..."""
    keys: list[str] = []
    for name in names:
        key, copy = name, 1
        while key in keys:
            copy += 1
            key = f"{name}_{copy}"
        keys.append(key)
    encoder = msgspec.json.Encoder(enc_hook=_plain, decimal_format="string")

    def encode(row: Sequence[Any]) -> str:
        return encoder.encode(dict(zip(keys, map(_cell, row), strict=True))).decode()

    return encode


def _cell(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, list | tuple):
        return [_cell(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _cell(item) for key, item in value.items()}
    return value


def _plain(value: Any) -> Any:
    return str(value)
