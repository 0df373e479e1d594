"""Partition values and the paths they make: any text is safe, and the same text always gives the same path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final
from urllib.parse import quote

MODEL_SIZE_MAX: Final = 150
"""Percent-encoded bytes of a `model` value: with `model=` it must stay a file name (255 bytes)."""
_NULL_MARK: Final = "__HIVE_DEFAULT_PARTITION__"


def model_partition(model: str, version: str) -> str:
    """Return the value of the column `model`: `id@version`, `id` where there is no version, `unknown` for neither.

    A name too long for a directory is cut and ends in `~` and 8 hex digits of its hash; `trajectories` has it whole.
    """
    name = f"{model or 'unknown'}@{version}" if version else model or "unknown"
    if len(quote(name, safe="")) <= MODEL_SIZE_MAX:
        return name
    digest = sha256(name.encode()).hexdigest()[:8]
    kept = name
    while len(quote(kept, safe="")) > MODEL_SIZE_MAX - 9:
        kept = kept[: -max(1, len(kept) // 16)]
    return f"{kept}~{digest}"


def partition_path(columns: Sequence[str], values: Mapping[str, str]) -> str:
    """Return `column=value/…` with every value percent-encoded, "" for a table without partitions."""
    return "/".join(f"{column}={encoded(values[column])}" for column in columns)


def encoded(value: str) -> str:
    """Return a value as a path component. `_` alone is encoded where readers would take it for null."""
    text = quote(value, safe="")
    return text.replace("_", "%5F") if value == _NULL_MARK else text
