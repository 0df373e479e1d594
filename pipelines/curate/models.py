"""Which models' replies are targets: by served model and system number, never by the partition's name."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

import polars as pl

from .policy import Models


def any_glob(column: pl.Expr, patterns: Iterable[str]) -> pl.Expr:
    """Return whether a text column matches one of the shell patterns; false for none."""
    found = pl.lit(False)
    for pattern in patterns:
        expression = fnmatch.translate(pattern).replace("\\Z", "$").replace("\\z", "$")
        found |= column.str.contains(f"^{expression}")
    return found


def allowed(models: Models) -> pl.Expr:
    """Return whether a target with `target_models` and `target_systems` is on the list; an empty list admits none."""
    found = pl.lit(False)
    for rule in models.rules():
        one = any_glob(pl.col("target_models"), [rule.served_model])
        if rule.system_no:
            one &= pl.col("target_systems").is_in(rule.system_no)
        found |= one
    return found
