"""Derived tables of the trajectories a run touches, each computed from their canonical events alone.

The same function serves a run and a rebuild, so that a rebuilt table has the same rows. Payloads are decoded per
event type, into structs that name only the fields a table needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import polars as pl

from trajlake.pipelines.derived.canonicalize import Judged
from trajlake.pipelines.derived.derive_actions import tool_calls
from trajlake.pipelines.derived.derive_authority import approvals
from trajlake.pipelines.derived.derive_model import model_calls
from trajlake.pipelines.derived.derive_records import blob_refs, checkpoints, judgements
from trajlake.pipelines.derived.derive_trajectories import trajectories
from trajlake.pipelines.derived.touched import Touched

if TYPE_CHECKING:
    from collections.abc import Callable

BY_EVENTS: Final[dict[str, Callable[[Touched], pl.DataFrame]]] = {
    "model_calls": model_calls,
    "tool_calls": tool_calls,
    "judgements": judgements,
    "blob_refs": blob_refs,
    "approvals": approvals,
    "checkpoints": checkpoints,
}
DERIVED: Final = (*BY_EVENTS, "trajectories")
"""Tables whose rows follow from `events` of the same trajectory (and, for `trajectories`, from the tables above)."""


def derive(counting: pl.DataFrame, judged: Judged, aside: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return the rows of every derived table for the trajectories in `counting` (canonical rows, sorted).

    `aside` are their rows that do not count; `judged` gives ids and lines.
    """
    touched = Touched.of(counting, judged)
    tables = {name: function(touched) for name, function in BY_EVENTS.items()}
    tables["trajectories"] = trajectories(touched, aside, tables)
    return tables
