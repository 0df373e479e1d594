"""Maintenance: small files and objects into large ones, snapshots expired, files vacuumed, logs tidied.

Files are merged by a run of our own, with row counts before and after; never by `optimize.compact()`, which doubles
rows when two run at once. Source: design/lake.md, *Maintenance*.
"""

from __future__ import annotations

import time
from typing import Final

import msgspec

from trajlake.pipelines.forgetting.decide import run_on_decided
from trajlake.pipelines.lakehouse.commit import finish_half_done
from trajlake.pipelines.lakehouse.grown_files import is_grown
from trajlake.pipelines.lakehouse.lake import DataFile, Lake
from trajlake.pipelines.lakehouse.lake_errors import LakeDamaged, LakeError
from trajlake.pipelines.lakehouse.log_files import all_tables, checkpoint, clean_logs
from trajlake.pipelines.lakehouse.run_draft import Draft
from trajlake.pipelines.lakehouse.snapshot import RunFile
from trajlake.pipelines.lakehouse.standing import Standing
from trajlake.pipelines.lakehouse.table_files import read_rows
from trajlake.pipelines.progress import Progress, no_progress
from trajlake.pipelines.upkeep.small_objects import pack_sources
from trajlake.pipelines.upkeep.vacuum import KEPT_DAYS, VacuumReport, vacuum
from trajlake.schemas.tables import SNAPSHOT_TABLES

SMALL_BYTES: Final = 64 << 20
TARGET_BYTES: Final = 128 << 20


class MaintainOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Files below `small_bytes` are merged into files of up to about `target_bytes`, partition by partition."""

    small_bytes: int = SMALL_BYTES
    target_bytes: int = TARGET_BYTES
    kept_days: float = KEPT_DAYS
    commits_per_checkpoint: int = 20
    dry_run: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.small_bytes <= self.target_bytes:
            raise LakeError("maintain: small_bytes must be positive and at most target_bytes")
        if self.kept_days < 0 or self.commits_per_checkpoint < 1:
            raise LakeError("maintain: --keep must not be negative and a checkpoint needs at least one commit")


class MaintainReport(msgspec.Struct, kw_only=True):
    """What maintenance did. `rows` are by table, the same before and after; `objects_packed` left for larger ones."""

    outcome: str = "nothing_to_do"
    snapshot: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rows: dict[str, int] = {}
    objects_packed: int = 0
    checkpoints: int = 0
    log_files: int = 0
    vacuum: VacuumReport = msgspec.field(default_factory=VacuumReport)
    seconds: float = 0.0


def maintain(
    lake: str, options: MaintainOptions | None = None, progress: Progress = no_progress, now: float | None = None
) -> MaintainReport:
    """Merge, expire, vacuum, checkpoint, clean. Killed at any moment it leaves a lake that a second call finishes.

    Safe beside running compactions (one of the two runs begins again) and beside queries of kept snapshots.
    """
    options = options or MaintainOptions()
    begun = time.monotonic()
    opened = Lake.open(lake)
    report = MaintainReport(outcome="dry_run" if options.dry_run else "nothing_to_do")

    def step(name: str) -> None:
        progress(name, 0, 0)

    if options.dry_run:
        _what_would_merge(opened, options, report)
    else:
        finish_half_done(opened, step)
        run = run_on_decided(opened, lambda draft, standing: _merge(draft, standing, options, report, progress), step)
        report.outcome = "committed" if run is not None else "nothing_to_do"
        for table in all_tables():
            report.checkpoints += checkpoint(opened, table, options.commits_per_checkpoint) is not None
            step(f"{table} checkpointed")
    report.snapshot = opened.newest().number
    report.vacuum = vacuum(opened, kept_s=options.kept_days * 86_400, now=now, dry_run=options.dry_run, step=step)
    report.log_files = clean_logs(opened, dry_run=options.dry_run)
    step("logs cleaned")
    report.seconds = round(time.monotonic() - begun, 3)
    return report


def _what_would_merge(lake: Lake, options: MaintainOptions, report: MaintainReport) -> None:
    """Say what would be merged, from the newest snapshot alone."""
    snapshot = lake.newest()
    for table in SNAPSHOT_TABLES:
        for group in groups_of(lake.files(snapshot, table), options):
            report.files_before += len(group)
            report.bytes_before += sum(file.size for file in group)
            report.files_after += 1


def groups_of(files: list[DataFile], options: MaintainOptions) -> list[list[DataFile]]:
    """Return the sets of files to write anew: small ones of one partition, each set at most about `target_bytes`.

    One that has grown by small row groups may stand alone in its set: in large ones what its parts share is found.
    """
    places: dict[tuple[tuple[str, str], ...], list[DataFile]] = {}
    for file in files:
        if file.size < options.small_bytes:
            places.setdefault(tuple(sorted(file.partition.items())), []).append(file)
    groups = []
    for small in places.values():
        group: list[DataFile] = []
        for file in sorted(small, key=_by_first_key):
            if group and sum(one.size for one in group) + file.size > options.target_bytes:
                groups.append(group)
                group = []
            group.append(file)
        groups.append(group)
    return [group for group in groups if len(group) > 1 or is_grown(group[0].relative)]


def _by_first_key(file: DataFile) -> tuple[str, str]:
    return str(file.minimum.get("trajectory_id") or file.minimum.get("sha256") or ""), file.relative


def _merge(
    draft: Draft, _: Standing, options: MaintainOptions, report: MaintainReport, progress: Progress
) -> RunFile | None:
    report.files_before = report.files_after = report.bytes_before = report.bytes_after = 0
    report.rows = {}
    report.objects_packed = pack_sources(draft)
    for table, described in SNAPSHOT_TABLES.items():
        groups = groups_of(draft.remaining(table), options)
        for number, group in enumerate(groups):
            rows = read_rows(group, described).sort(described.sort_by, nulls_last=True)
            before = sum(file.rows for file in group)
            adds = draft.write(table, rows, f"merged{number:04d}")
            draft.remove(table, group)
            after = sum(add.rows for add in adds)
            if not before == len(rows) == after:
                raise LakeDamaged(
                    f"{draft.lake.path(table)}: {before} rows before, {after} after merging; not committed"
                )
            report.rows[table] = report.rows.get(table, 0) + after
            report.files_before += len(group)
            report.files_after += len(adds)
            report.bytes_before += sum(file.size for file in group)
            report.bytes_after += sum(add.size for add in adds)
            progress(f"{table} merged", number + 1, len(groups))
    if not draft.adds:
        return None
    done = {"files_before": report.files_before, "files_after": report.files_after, "rows": report.rows}
    return draft.run_file("maintain", done)
