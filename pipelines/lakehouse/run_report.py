"""What a run tells people, and what `compact` is asked."""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import msgspec

from trajlake.pipelines.lakehouse.lake_errors import LakeError
from trajlake.pipelines.lakehouse.landing import DeclaredLost

Outcome = Literal["committed", "nothing_to_do", "dry_run"]
BUCKET_BYTES: int = 384 << 20
"""Segment bytes per bucket: a reducer holds about three times that in memory."""


_WORKERS: Final = re.compile(r"--(?:direct_num_workers|num_workers|parallelism)=(\d{1,4})")
"""How FnApiRunner, Dataflow and Flink are told."""


class CompactOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to compact. `partition_by` counts only where the lake is new.

    `derive=False` fills `events` and `quarantine` only and marks the other tables stale; the next run that derives
    rebuilds them. `settle_after_s`: leave trajectories that have not ended that long ago. `runner`: a Beam runner's
    name and `beam_options` its flags; None runs in this process, without Beam. `landing_stays=False`: landing is an
    inbox that goes once its rows are in, so that its writers leave no cursor, and its rows no writer.
    """

    derive: bool = True
    settle_after_s: float | None = None
    dry_run: bool = False
    declare_lost: tuple[DeclaredLost, ...] = ()
    partition_by: tuple[str, ...] | None = None
    runner: str | None = None
    beam_options: tuple[str, ...] = ()
    bucket_bytes: int = BUCKET_BYTES
    landing_stays: bool = True
    attempts: int = 5

    def __post_init__(self) -> None:
        if self.bucket_bytes < 1 << 16 or self.attempts < 1:
            raise LakeError("compact: bucket_bytes must be at least 65536 and attempts at least 1")
        if self.settle_after_s is not None and self.settle_after_s < 0:
            raise LakeError("compact: --settle-after must not be negative")

    @property
    def workers(self) -> int:
        """How many workers the Beam options ask for; 1 where they do not say."""
        asked = [_WORKERS.fullmatch(option) for option in self.beam_options]
        return next((max(1, int(match[1])) for match in asked if match), 1)

    @property
    def workers_here(self) -> int:
        """How many of them are processes of this host."""
        return self.workers if any(option.startswith("--direct_num_workers") for option in self.beam_options) else 1


class RunReport(msgspec.Struct, kw_only=True):
    """What a run read, wrote and left. Names of segments are below landing.

    `forgotten`: erased trajectories that landed again; what of them `landing_left` must stay for now. `staging_left`:
    staged texts that this host's disk does not let go.
    """

    outcome: Outcome = "nothing_to_do"
    snapshot: int = 0
    run: str = ""
    segments_taken: int = 0
    tails_read: int = 0
    segments_waiting: list[tuple[str, str]] = []
    segments_corrupt: list[tuple[str, str]] = []
    strangers: list[str] = []
    events_added: int = 0
    events_removed: int = 0
    duplicates: int = 0
    superseded: int = 0
    held_back: int = 0
    conflicts: int = 0
    expired: int = 0
    trajectories_touched: int = 0
    forgotten: list[tuple[str, str]] = []
    forgotten_blobs: list[tuple[str, str]] = []
    landing_left: list[str] = []
    staging_left: list[str] = []
    blobs_stored: int = 0
    blobs_missing: list[tuple[str, str]] = []
    imports_added: int = 0
    finished_other: bool = False
    lost_races: int = 0
    bytes_read: int = 0
    bytes_added: int = 0
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data
