"""Token counts as providers and conventions spell them, as one `Usage`: `input_total` includes cached input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trajlake.schemas.events import Usage

from .anthropic_parts import count


def first_count(told: Mapping[str, Any], *keys: str) -> int | None:
    """Return the first of `keys` that holds a count; decimal text counts, as OTLP JSON writes integers."""
    for key in keys:
        value = told.get(key)
        if isinstance(value, str) and value.isdigit():
            value = int(value)
        if (found := count(value)) is not None:
            return found
    return None


def responses_usage(told: Any) -> Usage | None:
    """Return the usage of the Responses API: cached input is part of `input_tokens`."""
    if not isinstance(told, dict):
        return None
    shown, made = told.get("input_tokens_details"), told.get("output_tokens_details")
    return or_none(
        Usage(
            input_total=first_count(told, "input_tokens"),
            cached_read=first_count(shown, "cached_tokens") if isinstance(shown, dict) else None,
            output=first_count(told, "output_tokens"),
            reasoning=first_count(made, "reasoning_tokens") if isinstance(made, dict) else None,
        )
    )


def exclusive_usage(
    shown: int | None, cached_read: int | None, cache_write: int | None, output: int | None, reasoning: int | None
) -> Usage | None:
    """Return the usage of a source whose input excludes cached input (Anthropic, Inspect)."""
    parts = [one for one in (shown, cached_read, cache_write) if one is not None]
    return or_none(
        Usage(
            input_total=sum(parts) if parts else None,
            cached_read=cached_read,
            cache_write=cache_write,
            output=output,
            reasoning=reasoning,
        )
    )


def or_none(usage: Usage) -> Usage | None:
    """Return None for a usage that says nothing."""
    return None if usage == Usage() else usage
