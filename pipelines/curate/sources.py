"""What a set is cut from: tables of one snapshot and the findings of one version of the ledger, all named by files.

The first cut takes them from the lake; a rebuild takes the same files from the pin.
"""

from __future__ import annotations

import os
from typing import Any, Final

import msgspec
import polars as pl

from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.snapshot import Snapshot

from .scan import known_findings, scanned
from .tasks import read_table

PINNED_TABLES: Final = ("events", "trajectories", "judgements", "blobs")
TRUNCATED_REASONS: Final = ("length", "max_tokens", "max_output_tokens", "MAX_TOKENS", "model_length", "incomplete")
TRAJECTORY_COLUMNS: Final = [
    "tenant", "trajectory_id", "kind", "status", "agent", "task", "subjects", "source_format", "model_id",
    "conflicts", "held_back", "in_doubt", "head_hash", "last_sequence", "erasure_epoch",
    "branch_of_tenant", "branch_of_trajectory_id", "branch_of_sequence",
]  # fmt: skip


class Sources:
    """Tables of a snapshot as frames. `findings` are those of the ledger's files at the time, or of a pin."""

    def __init__(self, lake: Lake, snapshot: Snapshot, ledger: list[str] | None = None) -> None:
        self.lake = lake
        self.snapshot = snapshot
        self.ledger = ledger

    def trajectories(self, group: str) -> pl.DataFrame:
        """Return trajectories that are no judgements, with `task_id`, `task_key` and `split_group`, by key."""
        rows = read_table(self.lake, self.snapshot, "trajectories", TRAJECTORY_COLUMNS)
        rows = rows.filter(pl.col("kind") != "judgement").sort("tenant", "trajectory_id")
        columns = rows.select("task", "agent", "tenant", "trajectory_id").iter_rows()
        named = [_task(task, agent, tenant, name, group) for task, agent, tenant, name in columns]
        return rows.with_columns(
            pl.Series("task_id", [one[0] for one in named], pl.String),
            pl.Series("task_key", [one[1] for one in named], pl.String),
            pl.Series("split_group", [one[2] for one in named], pl.String),
        )

    def judgements(self) -> pl.DataFrame:
        return read_table(self.lake, self.snapshot, "judgements")

    def findings(self) -> pl.DataFrame:
        return known_findings(self.lake, None if self.ledger is None else [self.lake.path(one) for one in self.ledger])

    def ledger_files(self) -> list[str]:
        """Return the findings' files as paths below the lake."""
        if self.ledger is not None:
            return self.ledger
        return sorted(os.path.relpath(path, self.lake.url) for path in self.lake.ledger_files("secrets"))

    def scanned_heads(self) -> pl.DataFrame:
        """Return tenant, trajectory_id, head_hash of what this version of the scanner has read."""
        return (
            scanned(self.lake)
            .filter(pl.col("trajectory_id").is_not_null())
            .select("tenant", "trajectory_id", "head_hash")
        )

    def lineage(self, trajectories: pl.DataFrame) -> pl.DataFrame:
        """Return one row for each branch and ancestor: what of the ancestor the branch inherits."""
        above = {
            row[:2]: row[2:]
            for row in trajectories.filter(pl.col("branch_of_trajectory_id").is_not_null())
            .select("tenant", "trajectory_id", "branch_of_tenant", "branch_of_trajectory_id", "branch_of_sequence")
            .iter_rows()
        }
        rows = []
        for place in above:
            at: Any = above.get(place)
            while at is not None:
                rows.append((*place, *at))
                at = above.get(at[:2])
        names = {
            "tenant": pl.String,
            "trajectory_id": pl.String,
            "ancestor_tenant": pl.String,
            "ancestor_id": pl.String,
            "last": pl.Int64,
        }
        return pl.DataFrame(rows, schema=names, orient="row")


def _task(task: str | None, agent: str | None, tenant: str, trajectory_id: str, group: str) -> tuple[str, str, str]:
    """Return (task id, task key, split group). Equal tasks have equal keys; without one it is a task of its own."""
    import hashlib

    if task is None:
        return trajectory_id, f"{tenant}\n{trajectory_id}", f"{tenant}\n{trajectory_id}"
    key = hashlib.sha256(task.encode()).hexdigest()[:32]
    tree = msgspec.json.decode(task)
    task_id = key[:16]
    if isinstance(tree, dict):
        named = next(
            (tree[name] for name in ("task_id", "instance_id", "id", "sample_id") if tree.get(name) is not None), None
        )
        task_id = task_id if named is None else str(named)
    if group == "agent":
        return task_id, key, agent or ""
    if group.startswith("/"):
        found = pointer(tree, group)
        return task_id, key, key if found is None else msgspec.json.encode(found).decode()
    return task_id, key, key


def pointer(tree: Any, path: str) -> Any:
    """Return the value at an RFC 6901 pointer, None where there is none."""
    for part in path.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(tree, dict):
            tree = tree.get(name)
        elif isinstance(tree, list) and name.isdecimal() and int(name) < len(tree):
            tree = tree[int(name)]
        else:
            return None
    return tree
