"""Compaction: landed segments become rows of every table, and one snapshot.

`compact` is one process without Beam; `beam_compact` runs the same two stages on a runner. Either way only paths move
between stages, and the launcher alone commits. Source: design/lake.md, *Compaction*.
"""

from __future__ import annotations

import os
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Final

import msgspec

from trajlake.pipelines.compaction.assemble import assemble
from trajlake.pipelines.compaction.clear_again import clear_again, silent_trajectories
from trajlake.pipelines.compaction.explode import REPORT_SUFFIX, explode
from trajlake.pipelines.compaction.reduce import reduce
from trajlake.pipelines.compaction.run_plan import BucketReport, Plan, SegmentReport, read_document, write_document
from trajlake.pipelines.forgetting.decide import decided_snapshot
from trajlake.pipelines.lakehouse.commit import add_new_columns, commit_run, finish_half_done, head_handle
from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.lake_errors import RunLost
from trajlake.pipelines.lakehouse.landing import LandedSegment, Taking, list_segments, take, uncovered_tails
from trajlake.pipelines.lakehouse.ledger import append_run
from trajlake.pipelines.lakehouse.places import open_place, resolved, store_errors
from trajlake.pipelines.lakehouse.run_report import CompactOptions, RunReport
from trajlake.pipelines.lakehouse.snapshot import Snapshot
from trajlake.pipelines.lakehouse.staging import stage, staging_folder, sweep_staging, unstage
from trajlake.pipelines.lakehouse.standing import Standing
from trajlake.pipelines.lakehouse.table_files import threads
from trajlake.pipelines.progress import Progress, no_progress

BUCKETS_MAX: Final = 256
WORTH_SHARING_BYTES: Final = 64 << 20
REDUCED_AT_ONCE_BYTES: Final = 512 << 20
"""A bucket below this is not made only to give another worker something to do: each one makes files of its own."""


def compact(
    landing: str, lake: str, options: CompactOptions | None = None, progress: Progress = no_progress
) -> RunReport:
    """Take what has landed into the lake and return what was done. The lake is made where there is none.

    On return the snapshot is durable. Safe to kill at any moment and to run again, and to run twice at once: the
    loser of a race starts again on what the winner left. Raises `LakeError` kinds; bad segments never raise, they
    are listed in the report.
    """
    with store_errors(landing, lake):
        return _compact(landing, lake, options or CompactOptions(), progress)


def _compact(landing: str, lake: str, options: CompactOptions, progress: Progress) -> RunReport:
    begun = time.monotonic()
    source = resolved(landing, "landing")
    open_place(source)
    list_segments(source)
    if options.dry_run:
        return _dry_run(source, lake, options)
    opened = Lake.open(lake, create=True, partition_by=options.partition_by)
    finished_other = False

    def step(name: str) -> None:
        progress(name, 0, 0)

    for attempt in range(options.attempts):
        finished_other |= finish_half_done(opened, step) is not None
        snapshot, standing = decided_snapshot(opened, step)
        try:
            report = _one_run(source, opened, snapshot, standing, options, progress)
            break
        except RunLost:
            progress("another launcher was ahead", attempt + 1, options.attempts)
            if attempt + 1 == options.attempts:
                raise
    report.finished_other = finished_other
    report.lost_races = attempt
    report.seconds = round(time.monotonic() - begun, 3)
    if report.outcome == "committed":
        append_run(opened, report)
    return report


def _dry_run(landing: str, lake: str, options: CompactOptions) -> RunReport:
    """Say what a run would read, without touching landing or lake; a lake that is not there counts as empty."""
    opened = Lake(resolved(lake, "lake"))
    cursors = opened.newest().cursors if opened.snapshot_numbers() else {}
    segments, strangers = list_segments(landing)
    taking = take(segments, cursors, strangers, options.declare_lost)
    report = _new_report(taking)
    report.outcome, report.segments_taken = "dry_run", len(taking.segments)
    report.tails_read = sum(len(one.parts) for one in uncovered_tails(landing, taking, cursors))
    return report


def _new_report(taking: Taking) -> RunReport:
    return RunReport(
        segments_waiting=[(waiting.name, waiting.why) for waiting in taking.waiting],
        strangers=taking.strangers,
        bytes_read=sum(segment.size for segment in taking.segments),
    )


def _one_run(
    landing: str, lake: Lake, snapshot: Snapshot, standing: Standing, options: CompactOptions, progress: Progress
) -> RunReport:
    segments, strangers = list_segments(landing)
    taking = take(segments, snapshot.cursors, strangers, options.declare_lost)
    tails = uncovered_tails(landing, taking, snapshot.cursors)
    plan = _plan(landing, lake, snapshot, standing, [*taking.segments, *tails], options)
    report = _new_report(taking)
    report.snapshot = snapshot.number
    try:
        stage(lake, plan.run)
        write_document(plan.path, plan)
        progress("planned", 0, 0)
        run_it(plan, lake, snapshot, options, progress, report)
    except RunLost:
        raise
    except Exception as error:
        if lake.newest().number > snapshot.number:
            # Another run was ahead, and an erasure or vacuum may have taken the files this one was reading.
            raise RunLost(f"snapshot {snapshot.number} was left behind: {error}", "") from error
        raise
    finally:
        report.staging_left = unstage(lake, plan.staging)
        report.staging_left += sweep_staging(lake).stuck
    if report.forgotten:
        report.landing_left = clear_again(lake, landing, report, lambda name: progress(name, 0, 0))
    return report


def run_it(
    plan: Plan, lake: Lake, snapshot: Snapshot, options: CompactOptions, progress: Progress, report: RunReport
) -> None:
    """Make the stages, the run file and the commit; fill `report`."""
    reports, buckets = _stages(plan, options, progress)
    # From here on nothing may change under us: the handle that will commit is the one whose files we list.
    handle = head_handle(lake, snapshot)
    columns = add_new_columns(lake, snapshot)
    if columns:
        handle = head_handle(lake, snapshot)
    run = assemble(plan, lake, snapshot, handle, reports, buckets, report)
    if run is None:
        return
    progress("files written", 0, 0)
    run = msgspec.structs.replace(run, new_columns=columns)
    commit_run(lake, run, handle, lambda name: progress(name, 0, 0))


def _plan(
    landing: str, lake: Lake, snapshot: Snapshot, standing: Standing, segments: list[LandedSegment],
    options: CompactOptions,
) -> Plan:  # fmt: skip
    run = f"{snapshot.number + 1}-{secrets.token_hex(8)}"
    rebuild = tuple(snapshot.stale) if options.derive else ()
    size = sum(segment.size for segment in segments)
    if rebuild:
        size += 4 * sum(file.size for file in lake.files(snapshot, "events"))
    before = None
    if options.settle_after_s is not None:
        before = int((time.time() - options.settle_after_s) * 1_000_000)
    return Plan(
        lake=lake.url,
        landing=landing,
        staging=os.path.join(staging_folder(lake), run),
        run=run,
        base=snapshot.number,
        buckets=buckets_for(size, options),
        partition_by=snapshot.partition_by,
        derive=options.derive,
        rebuild=rebuild,
        settled_before=before,
        segments=tuple(segments),
        declared=options.declare_lost,
        landing_stays=options.landing_stays,
        standing=standing.needed(),
        silent=silent_trajectories(lake, snapshot, standing),
    )


def buckets_for(size: int, options: CompactOptions) -> int:
    """Return into how many buckets a run of `size` bytes goes: for workers a multiple of their number, where it pays.

    Three buckets on two workers would leave one of them idle for the time of a whole bucket. Workers of this host share
    its memory: what they reduce at once is together not much more than one process does.
    """
    bucket_bytes = min(options.bucket_bytes, max(WORTH_SHARING_BYTES, REDUCED_AT_ONCE_BYTES // options.workers_here))
    fewest = max(1, -(-size // bucket_bytes))
    shared = -(-fewest // options.workers) * options.workers
    return min(BUCKETS_MAX, shared if size >= shared * WORTH_SHARING_BYTES else fewest)


def _stages(plan: Plan, options: CompactOptions, progress: Progress) -> tuple[list[SegmentReport], list[BucketReport]]:
    """Run both stages, on a Beam runner or here, and return what every segment and bucket reported."""
    if not plan.segments and not plan.rebuild:
        return [], []
    if options.runner is not None and plan.segments:
        from trajlake.pipelines.compaction.beam_compact import run_stages

        results = run_stages(plan, options.runner, options.beam_options)
        progress("stages done", len(plan.segments), len(plan.segments))
    else:
        results = _here(plan, progress)
    names = [f"{place:06d}{REPORT_SUFFIX}" for place in range(len(plan.segments))]
    reports = [read_document(os.path.join(plan.staging, name), SegmentReport) for name in names]
    return reports, [read_document(path, BucketReport) for path in results]


def _here(plan: Plan, progress: Progress) -> list[str]:
    groups: dict[int, list[str]] = {bucket: [] for bucket in range(plan.buckets)}
    places = range(len(plan.segments))
    with ThreadPoolExecutor(threads(), thread_name_prefix="trajlake-explode") as pool:
        for place, staged in enumerate(pool.map(explode, repeat(plan.path), places)):
            for bucket, path in staged:
                groups[bucket].append(path)
            progress("segments read", place + 1, len(plan.segments))
    results = []
    for bucket, paths in groups.items():
        results.append(reduce(plan.path, bucket, paths))
        for path in paths:
            if path.endswith(".arrow"):
                os.unlink(path)
        progress("buckets written", bucket + 1, plan.buckets)
    return results
