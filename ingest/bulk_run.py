"""Imports much that is new straight into a lake: events to rows to data files, file by file, on every core.

No journal, no landing, no second reading: what is written counts with the run's one commit, and a kill before it leaves
files that nothing names. A source of which lake or root know something already is not for this way (`NotFresh`): it
goes by the root, which numbers its tail and finds what was changed. Rows are the same by either way.
"""

from __future__ import annotations

import gc
import io
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Final, NamedTuple, cast

from trajlake.runtime.wal.journal_errors import JournalError
from trajlake.schemas.envelope import Event
from trajlake.schemas.ids import trajectory_key

from .bulk_team import Helper, NotFresh, Share, Work, asked, received
from .import_run import ImportOptions, ImportRun, Outcome, info_of
from .lake_side import LakeSide
from .loss_report import LossReport, report_text
from .many_files import PROCESSES_MAX, dealt
from .numbering import Held, Numbered
from .parcels import Parcel
from .sources import Source

WORTH_BYTES: Final = 16 * 1024 * 1024
"""Below this the way by the root is as fast, and it keeps a journal."""
BATCH_SIZE_BYTES: Final = 1024 * 1024
"""Sources that a process takes at a time."""
FILE_SIZE_MAX_BYTES: Final = 16 * 1024 * 1024
"""Larger sources go by the root, which holds a part of them at a time; here a source is held whole."""


class BulkDone(NamedTuple):
    """What a bulk import did: outcomes of the sources it took, paths of those it left, and the run's report."""

    outcomes: list[Outcome]
    left: list[str]
    report: dict[str, Any]


def worth_it(sources: Sequence[Source]) -> bool:
    """Return whether there is enough for a bulk import, and whether this process can share it out."""
    if not all(source.is_local for source in sources):
        return False
    sizes = [source.size or 0 for source in sources]
    enough = sum(size for size in sizes if size <= FILE_SIZE_MAX_BYTES) >= WORTH_BYTES
    return enough and threading.active_count() == 1 and "fork" in multiprocessing.get_all_start_methods()


def import_bulk(side: LakeSide, groups: Sequence[Sequence[Source]], options: ImportOptions) -> BulkDone | None:
    """Import groups of fresh local sources (those that may copy one another stand in one group), in one commit.

    None where nothing was committed: the lake is not one for bulk imports, or another run came first. Raises
    `JournalError` if a process dies; then nothing was committed either.
    """
    door = side.door()
    if door is None:
        return None
    small = [[one.path for one in group if (one.size or 0) <= FILE_SIZE_MAX_BYTES] for group in groups]
    large = [one.path for group in groups for one in group if (one.size or 0) > FILE_SIZE_MAX_BYTES]
    work = Work(side, dealt([group for group in small if group], BATCH_SIZE_BYTES), options)
    team: list[Helper] = []
    gc.freeze()  # a helper's collector that looked at what is loaded would copy its pages
    try:
        for _ in range(_processes(len(work.batches)) - 1):
            team.append(Helper(work, team))
        begun = asked(
            work.context,
            lambda: door.begin(side.lake, options.tenant),
            team,
            meanwhile=lambda: door.foresee(side.lake),
        )
        if begun is None:
            return None
        plan, known = begun
        for helper in team:
            helper.tell((plan, known))
        rows = door.writer(plan)
        shares = _write_all(work, team, rows, plan, known)
        reports = [one for share in shares for one in share.reports]
        stored = [blob for share in shares for blob in share.stored]
        report = door.commit(plan, rows, stored, [report_text(one).decode() for one in reports])
    finally:
        gc.unfreeze()
        for helper in team:
            helper.end()
    if report is None:
        return None
    side.note(plan.run, reports)
    outcomes = [outcome for share in shares for outcome in share.outcomes]
    return BulkDone(outcomes, [path for share in shares for path in share.left] + large, report)


def _processes(batches: int) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(PROCESSES_MAX, cores, batches))


def _write_all(work: Work, team: Sequence[Helper], rows: Any, plan: Any, known: Any) -> list[Share]:
    """Write what helpers send; while they have nothing ready, read sources here too. Return what each process did."""
    own = BulkRun(work.side, work.options, lambda: (plan, known))
    shares, open_pipes = [own.share], [helper.pipe for helper in team]
    mine: list[str] | None = []
    while open_pipes or mine is not None:
        for pipe in cast("list[Connection]", wait(open_pipes, None if mine is None else 0)):
            message = received(pipe)
            if isinstance(message, Share):
                shares.append(message)
                open_pipes.remove(pipe)
            else:
                rows.add(message)
        mine = None if mine is None else work.next()
        if mine is not None:
            rows.add(own.parcel_of(mine))
    own.finish()
    return shares


def _held_whole(path: str) -> Source:
    """Return a source whose bytes are read once."""
    with open(path, "rb") as stream:
        data = stream.read()
    return Source(path, lambda: io.BytesIO(data), size=len(data), path=path)


class BulkRun(ImportRun):
    """One process that turns sources into parcels of events. `plan` gives what the lake's side decided, once asked."""

    def __init__(self, side: LakeSide, options: ImportOptions, plan: Callable[[], tuple[Any, Any]]) -> None:
        super().__init__(side.root, options, side)
        self._door: Any = side.door()
        self._lake = side.lake
        self.share = Share([], [], [], [])
        self._plan = plan
        self._objects: Any = None
        self._known: Any = None
        self._parcel = Parcel()
        self._mine: set[str] = set()
        self._fresh: set[str] = set()
        self._events: list[Event] = []
        self._blobs: dict[str, bytes] = {}

    def parcel_of(self, paths: Sequence[str]) -> Parcel:
        """Import sources; return their events. What became of each is in `share`."""
        self._parcel = Parcel()
        for path in paths:
            try:
                source = _held_whole(path)
            except OSError as error:
                self.share.outcomes.append(Outcome(name=path, error=f"{path}: {error.strerror}"))
                continue
            try:
                self.share.outcomes.append(self.import_source(source))
            except NotFresh:
                self.share.left.append(path)
        return self._parcel

    def finish(self) -> None:
        """Make the objects durable and note them in `share`."""
        self._syncing.shutdown()
        if self._objects is not None:
            self.share.stored.extend(self._objects.stored())

    def _held_of(self, trajectory_id: str, mapping_version: int) -> Held:  # noqa: ARG002 - fresh under any version
        if trajectory_id in self._mine or self._held.has(trajectory_key(self.options.tenant, trajectory_id)):
            raise NotFresh(trajectory_id)
        self._fresh.add(trajectory_id)
        return Held([], None)

    def _append_all(self, numbered: Iterable[Numbered]) -> None:
        """Hold the events of one source until it is whole: it may still turn out not to be fresh."""
        self._fresh, self._events, self._blobs = set(), [], {}
        for one in numbered:
            self._events.append(one.event)
            for blob in one.blobs:
                self._blobs[blob.sha256] = blob.data

    def _finish(self, source: Source, report: LossReport) -> None:
        if self._objects is None:
            plan, self._known = self._plan()
            self._objects = self._door.objects(plan)
        tenant, known = self.options.tenant, self._known
        if report.sha256 in known.sources or report.sha256 in known.blobs:
            raise NotFresh(source.name)
        if not (known.trajectories.isdisjoint(self._fresh) and known.blobs.isdisjoint(self._blobs)):
            raise NotFresh(source.name)
        try:
            for sha256, data in self._blobs.items():
                self._objects.put(tenant, sha256, data)
            with source.stored() as stream:
                self._objects.put_source(tenant, report.sha256, stream.read())
        except OSError as error:
            # No fault of this source: the lake takes no more, so that the whole import ends here.
            raise JournalError(f"{self._lake}: cannot be written: {error}") from error
        starts = (event for event in self._events if event.sequence_number == 0)
        self._parcel.add(self._events, {event.trajectory_id: info_of(event) for event in starts})
        self._mine |= self._fresh
        self.share.reports.append(report)
