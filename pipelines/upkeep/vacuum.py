"""Our own vacuum: files, content objects and run files that no kept snapshot, pin or pending erasure names.

Never Delta's: that one removes the files of a run under way. Every file carries the name of the run that wrote it; it
goes only once that run is decided, which its snapshot says. Snapshots are marked expired first, then pins are listed,
then files go. May be killed at any moment and run again, and beside running launchers.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import time
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

import msgspec

from trajlake.pipelines.forgetting.decide import decision_of
from trajlake.pipelines.lakehouse.commit import Step, no_step
from trajlake.pipelines.lakehouse.content_store import object_of
from trajlake.pipelines.lakehouse.lake import Lake, now_text
from trajlake.pipelines.lakehouse.lake_errors import LakeError
from trajlake.pipelines.lakehouse.parquet_files import read_parquet
from trajlake.pipelines.lakehouse.pins import all_pins
from trajlake.pipelines.lakehouse.places import is_remote, remove, size, sync_directory, walk
from trajlake.pipelines.lakehouse.protocol import keep_snapshots, may_remove
from trajlake.pipelines.lakehouse.snapshot import STATE_DIRECTORY, Expired, put_expired, run_path
from trajlake.pipelines.lakehouse.standing import read_standing
from trajlake.schemas.tables import SNAPSHOT_TABLES

KEPT_DAYS: Final = 7.0
TEMPORARY_KEPT_S: Final = 86_400.0
_RUN_NAME: Final = re.compile(r"(\d+-[0-9a-f]{16})")


class VacuumReport(msgspec.Struct, kw_only=True):
    """What went. `expired` are snapshots marked now; `kept` those that may be read."""

    dry_run: bool = False
    expired: list[int] = []
    kept: list[int] = []
    data_files: int = 0
    objects: int = 0
    run_files: int = 0
    bytes: int = 0


class Named(NamedTuple):
    """What must stay, as paths below the lake: `by_snapshots` and `by_pins`; `pending_runs` by the run's name."""

    by_snapshots: set[str]
    by_pins: set[str]
    pending_runs: set[str]


def vacuum(
    lake: Lake, *, kept_s: float = KEPT_DAYS * 86_400, now: float | None = None, dry_run: bool = False,
    only_objects: bool = False, step: Step = no_step,
) -> VacuumReport:  # fmt: skip
    """Expire snapshots older than `kept_s`, then remove what nothing names. `only_objects`: the content store alone."""
    report = VacuumReport(dry_run=dry_run)
    decided = set(lake.all_snapshot_numbers())
    moment = time.time() if now is None else now
    ages = {n: moment - _seconds(lake.any_snapshot(n).created_at) for n in lake.snapshot_numbers()}
    kept = keep_snapshots(ages, kept_s)
    report.kept, report.expired = kept.kept, kept.expire
    if not dry_run:
        for number in kept.expire:
            put_expired(lake.url, Expired(snapshot=number, why="older than the time snapshots are kept", at=now_text()))
            step("snapshot expired")
    named = what_is_named(lake, set(kept.expire))
    step("pins listed")
    places = [_objects(lake)] if only_objects else [data_files(lake), _objects(lake), _run_files(lake)]
    kinds = ["objects"] if only_objects else ["data_files", "objects", "run_files"]
    for kind, files in zip(kinds, places, strict=True):
        for path, run in files:
            free = may_remove(
                run, snapshots=decided, is_named=path in named.by_snapshots, is_pinned=path in named.by_pins,
                pending_runs=named.pending_runs,
            )  # fmt: skip
            if free:
                _remove(lake, path, kind, report)
                step("file removed")
    if not dry_run:
        _sweep_temporaries(lake, moment)
    return report


def what_is_named(lake: Lake, without: Collection[int] = ()) -> Named:
    """Return what kept snapshots (but those in `without`), pins and pending erasures name. Snapshots come first."""
    by_snapshots: set[str] = set()
    for number in lake.snapshot_numbers():
        if number not in without:
            by_snapshots |= _named_by(lake, number)
    by_pins: set[str] = set()
    for pin in all_pins(lake):
        for table, paths in pin.files.items():
            by_pins.update(paths)
            if table == "blobs":
                by_pins |= {name for path in paths for name in objects_in(lake.path(path))}
    return Named(by_snapshots, by_pins, pending_runs(lake))


def _named_by(lake: Lake, number: int) -> set[str]:
    """Return what a snapshot names; nothing if somebody expires it at this moment."""
    named: set[str] = set()
    try:
        snapshot = lake.snapshot(number)
        named.add(run_path(lake.url, snapshot.run).removeprefix(f"{lake.url}/"))
        for table in SNAPSHOT_TABLES:
            for file in lake.files(snapshot, table):
                named.add(f"{table}/{file.relative}")
                if table == "blobs":
                    named |= objects_in(file.path)
    except (LakeError, OSError):
        if number in lake.snapshot_numbers():
            raise
        return set()
    return named


def pending_runs(lake: Lake) -> set[str]:
    """Return the runs that applied an erasure which is not complete: files they wrote for pins may not be named yet."""
    runs = set()
    for erasure in read_standing(lake).erasures:
        if erasure.state in ("requested", "pending"):
            found = decision_of(lake, erasure)
            if found is not None and found[1] == "applied":
                runs.add(found[0].run)
    return runs


def objects_in(blobs_file: str) -> set[str]:
    """Return the paths below the lake of the content objects that a file of `blobs` lists."""
    rows = read_parquet(blobs_file, ["path"])
    return {object_of(path) for path in rows["path"]}


def data_files(lake: Lake) -> Iterator[tuple[str, str]]:
    """Yield (path below the lake, run) of every data file of the snapshot tables on disk."""
    for table in SNAPSHOT_TABLES:
        yield from _walk(lake, table, ".parquet")


def _objects(lake: Lake) -> Iterator[tuple[str, str]]:
    for path, run in _walk(lake, "cas", ""):
        yield path, path.rsplit(".", 1)[-1] if run else run


def _run_files(lake: Lake) -> Iterator[tuple[str, str]]:
    yield from _walk(lake, f"{STATE_DIRECTORY}/runs", ".json")


def _walk(lake: Lake, top: str, ending: str) -> Iterator[tuple[str, str]]:
    """Yield (path below the lake, name of the run that wrote it) of the files under `top`."""
    for below in walk(lake.path(top), without="_delta_log"):
        name = below.rpartition("/")[2]
        match = _RUN_NAME.search(name.split(".", 1)[1] if not ending and "." in name else name)
        if name.endswith(ending) and not name.endswith(".tmp") and match is not None:
            yield f"{top}/{below}", match[1]


def _remove(lake: Lake, path: str, kind: str, report: VacuumReport) -> None:
    where = lake.path(path)
    try:
        found = size(where)
    except FileNotFoundError:
        return  # another vacuum was faster
    if report.dry_run or remove(where):
        setattr(report, kind, getattr(report, kind) + 1)
        report.bytes += found


def _sweep_temporaries(lake: Lake, now: float) -> None:
    """Remove what killed puts left a day ago or earlier; a put to object storage leaves nothing."""
    if is_remote(lake.url):
        return
    for top in ("cas", STATE_DIRECTORY):
        for folder, folders, names in os.walk(lake.path(top)):
            if "inbox" in folders:
                folders.remove("inbox")
            for name in names:
                path = os.path.join(folder, name)
                try:
                    if name.endswith(".tmp") and os.path.getmtime(path) < now - TEMPORARY_KEPT_S:
                        os.unlink(path)
                except FileNotFoundError:
                    continue


def remove_now(lake: Lake, paths: set[str], step: Step = no_step) -> int:
    """Remove files (below the lake) for good, durably; return how many were there."""
    folders = set()
    gone = 0
    for path in sorted(paths):
        if not remove(lake.path(path)):
            continue
        gone += 1
        folders.add(os.path.dirname(lake.path(path)))
        step("old file removed")
    for folder in folders:
        sync_directory(folder)
    return gone


def _seconds(text: str) -> float:
    return dt.datetime.fromisoformat(text).timestamp()
