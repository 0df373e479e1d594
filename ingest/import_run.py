"""Imports source files into a root: read, number, append what is new, then blob and loss report.

Order on disk, so that a kill at any moment leaves something a second run completes: blobs that events name,
the events, the source's blob, the loss report. The report is the proof that a file is wholly in: an unchanged
file is then passed over without being read again.

One bad file stops no other: what it is refused for is an `Outcome` with `error`, and nothing of it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, Self

import msgspec

from trajlake.runtime.cli_errors import UserError
from trajlake.runtime.root import Root
from trajlake.runtime.wal.frame import TrajectoryInfo
from trajlake.runtime.wal.ticket import Ticket
from trajlake.runtime.wal.writer import Writer
from trajlake.schemas.envelope import Event
from trajlake.schemas.errors import SchemaError
from trajlake.schemas.events import TaskStarted
from trajlake.schemas.ids import check_tenant

from .copies import Copies, families
from .formats.contract import BadSource, Importer, Loss, ReadOptions
from .formats.detect import detect
from .formats.registry import AUTO, importer
from .held_events import HeldEvents
from .lake_side import LakeSide
from .loss_report import LossReport, find_report, write_report
from .numbering import Held, Numbered, Numbering
from .sources import Source, find_sources, shown

CHUNK_SIZE_MAX_BYTES: Final = 8 * 1024 * 1024
"""Payload bytes of one file that are held before the first is appended: smaller files go in whole or not at all."""
FILES_PER_BARRIER: Final = 64
SYNCS_AT_ONCE: Final = 8
SOURCE_AT_ONCE_MAX_BYTES: Final = 4 * 1024 * 1024
"""Sources up to this size are stored several at a time; larger ones one by one, so that memory stays bounded."""

UNDATED: Final = "trajectories whose source tells no time: they stand at 1970-01-01"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one file. `error` is the one line for which it was refused, else ""."""

    name: str
    format: str = ""
    error: str = ""
    unchanged: bool = False
    events_added: int = 0
    events_known: int = 0
    report: LossReport | None = None


class ImportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`format` is a format's name or `auto`; the rest as in `ReadOptions`."""

    format: str = AUTO
    tenant: str = "default"
    ended: bool = False
    following: bool = False


class ImportRun:
    """One process importing into one root. Not for several threads. Close it: that makes all of it durable."""

    def __init__(self, root: Root, options: ImportOptions, side: LakeSide | None = None) -> None:
        self.root = root
        self.options = options
        self.side = side
        self._held = HeldEvents(root, check_tenant(options.tenant), side)
        self._copies = Copies(root, options.tenant, side)
        self._writer: Writer | None = None
        self._infos: dict[str, TrajectoryInfo] = {}
        self._ticket: Ticket | None = None
        self._finished: list[tuple[Source, LossReport]] = []
        self._syncing = ThreadPoolExecutor(SYNCS_AT_ONCE, "trajlake-import")
        if options.format != AUTO:
            importer(options.format)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, paths: Sequence[str]) -> Iterator[Outcome]:
        """Import everything that `paths` name, yielding each file's outcome. See `find_sources` for paths."""
        sources: dict[str, Source] = {}
        explicit: set[str] = set()
        for path in paths:
            try:
                found = find_sources([path], self._suffixes())
            except UserError as error:
                yield Outcome(name=path, error=str(error))
                continue
            if len(found) == 1 and found[0].path == path:
                explicit.add(path)
            sources.update({source.path or source.name: source for source in found})
        listed = [sources[key] for key in sorted(sources)]
        yield from self._sift(self._import_all(families(listed, self._format_of(listed))), explicit)

    def _format_of(self, sources: Sequence[Source]) -> Importer | None:
        """Return the importer that orders the files: the one asked for, or with `auto` that of Claude Code files."""
        if self.options.format != AUTO:
            return importer(self.options.format)
        return importer("claude-code") if len(sources) > 1 else None

    def _suffixes(self) -> Sequence[str]:
        wanted: Sequence[str] = ()
        if self.options.format != AUTO:
            wanted = getattr(importer(self.options.format), "suffixes", ())
        return wanted

    def _import_all(self, groups: list[list[Source]]) -> Iterator[Outcome]:
        from .many_files import import_many, processes_for

        listed = [source for group in groups for source in group]
        processes = processes_for(listed)
        if processes > 1:
            paths = [[source.path for source in group] for group in groups]
            yield from import_many(self.root, paths, self.options, processes, self.side)
            return
        for source in listed:
            yield self.import_source(source)
            if len(self._finished) >= FILES_PER_BARRIER:
                self.flush()
        self.flush()

    def _sift(self, outcomes: Iterable[Outcome], explicit: set[str]) -> Iterator[Outcome]:
        """Files that no format recognises, and that nobody named, are errors only where nothing else was found."""
        recognised, passed_over = 0, []
        for outcome in outcomes:
            if outcome.error and not outcome.format and outcome.name not in explicit:
                passed_over.append(outcome)
            else:
                recognised += 1
                yield outcome
        for outcome in passed_over:
            yield msgspec.structs.replace(outcome, error="", unchanged=True) if recognised else outcome

    def import_source(self, source: Source) -> Outcome:
        """Import one file; durable after the next `flush`. Damage and refusals are in the outcome, not raised."""
        format_name = ""
        try:
            reader = detect(source) if self.options.format == AUTO else importer(self.options.format)
            format_name = reader.name
            return self._import(source, reader)
        except (UserError, SchemaError, OSError) as error:
            line = str(error)
            return Outcome(
                name=source.name, format=format_name, error=line if source.name in line else f"{source.name}: {line}"
            )

    def _import(self, source: Source, reader: Importer) -> Outcome:
        source.refuse_bomb()
        sha256 = source.sha256()
        known = self._report_of(sha256, reader.mapping_version)
        if known is not None:
            if self.options.format not in (AUTO, known.format):
                raise BadSource(source.name, "", f"was imported as {known.format} before, and cannot be another")
            return _is_in(source, known)
        loss = Loss()
        opening = self._copies.opening(source, reader)
        options = ReadOptions(
            tenant=self.options.tenant,
            ended=self.options.ended,
            following=self.options.following,
            copied=self._copies.copied(source, reader, opening),
        )
        version = reader.mapping_version
        numbering = Numbering(self.options.tenant, version, lambda name: self._held_of(name, version))
        self._append_all(numbering.number(reader.read(source, options, loss)))
        if numbering.undated:
            loss.note(UNDATED, numbering.undated)
        tally = loss.as_report()
        report = LossReport(
            tenant=self.options.tenant,
            sha256=sha256,
            mapping_version=version,
            format=reader.name,
            name=source.stem if not source.path else shown(source.path.rpartition("/")[2]),
            bytes=source.size or 0,
            trajectories=numbering.trajectories(),
            conflicts=numbering.conflicts,
            ended=self.options.ended,
            opening=opening,
            **tally,
        )
        self._finish(source, report)
        return Outcome(
            name=source.name,
            format=reader.name,
            events_added=numbering.added,
            events_known=numbering.known,
            report=report,
        )

    def unchanged(self, source: Source) -> Outcome | None:
        """Return the outcome of a source that is wholly in already, None for any other."""
        with suppress(UserError, OSError):
            reader = detect(source) if self.options.format == AUTO else importer(self.options.format)
            known = self._report_of(source.sha256(), reader.mapping_version)
            if known is not None and self.options.format in (AUTO, known.format):
                return _is_in(source, known)
        return None

    def _report_of(self, sha256: str, mapping_version: int) -> LossReport | None:
        """Return the report of a source that is wholly in, as far as this import wants it."""
        known = find_report(self.root, sha256, mapping_version, self.options.tenant)
        if known is None and self.side is not None:
            known = self.side.reports().get((sha256, mapping_version))
        if known is None or (self.options.ended and not known.ended and known.records.get("held_back")):
            return None
        return known

    def _finish(self, source: Source, report: LossReport) -> None:
        """All of a source's events are appended: its own bytes and its report follow with the next `flush`."""
        self._finished.append((source, report))

    def _held_of(self, trajectory_id: str, mapping_version: int) -> Held:
        held = self._held.of(trajectory_id, mapping_version)
        if held.start is not None:
            self._infos[trajectory_id] = info_of(held.start)
        return held

    def _append_all(self, numbered: Iterable[Numbered]) -> None:
        chunk: list[Numbered] = []
        size = 0
        for one in numbered:
            chunk.append(one)
            size += len(one.event.payload or b"") + sum(len(blob.data) for blob in one.blobs)
            if size >= CHUNK_SIZE_MAX_BYTES:
                self._append(chunk)
                chunk, size = [], 0
        self._append(chunk)

    def _append(self, chunk: list[Numbered]) -> None:
        """Append events, blobs first; neighbours of one trajectory go in one call."""
        if self._writer is None and chunk:
            self._writer = self.root.claim_writer()
        group: list[Event] = []
        blobs = {blob.sha256: blob.data for one in chunk for blob in one.blobs}
        for _ in self._syncing.map(lambda data: self.root.blobs.put(self.options.tenant, data), blobs.values()):
            pass
        for one in chunk:
            if group and group[-1].trajectory_id != one.event.trajectory_id:
                self._append_group(group)
                group = []
            group.append(one.event)
        if group:
            self._append_group(group)

    def _append_group(self, events: list[Event]) -> None:
        assert self._writer is not None
        first = events[0]
        if first.sequence_number == 0:
            self._infos[first.trajectory_id] = info_of(first)
        self._ticket = self._writer.append(events, self._infos[first.trajectory_id], lazy=True)
        for event in events:
            self._held.note(event)

    def flush(self) -> None:
        """Make all files so far durable, then store their sources and reports.

        Each file is a few syncs that wait for each other only within the file, so several files sync at once.
        """
        if self._ticket is not None:
            self._ticket.wait()
            self._ticket = None
        finished, self._finished = self._finished, []
        small = [one for one in finished if one[1].bytes <= SOURCE_AT_ONCE_MAX_BYTES]
        for _ in self._syncing.map(self._store, small):
            pass
        for one in finished:
            if one[1].bytes > SOURCE_AT_ONCE_MAX_BYTES:
                self._store(one)

    def _store(self, finished: tuple[Source, LossReport]) -> None:
        source, report = finished
        with source.stored() as stream:
            self.root.blobs.put(self.options.tenant, stream.read())
        write_report(self.root, report)

    def close(self) -> None:
        """Flush, seal and free the writer."""
        try:
            self.flush()
        finally:
            self._syncing.shutdown()
            if self._writer is not None:
                self._writer.close()
                self._writer = None


def _is_in(source: Source, known: LossReport) -> Outcome:
    events = sum(known.trajectories.values())
    return Outcome(name=source.name, format=known.format, unchanged=True, events_known=events, report=known)


def info_of(event: Event) -> TrajectoryInfo:
    """Return what segments and partitions say of a trajectory, from its event 0."""
    body = event.body
    assert isinstance(body, TaskStarted)
    started = datetime.fromtimestamp(event.recorded_at / 1_000_000, UTC)
    return TrajectoryInfo(
        tenant=event.tenant,
        trajectory_id=event.trajectory_id,
        model=body.model,
        model_version=body.model_version,
        started_on=started.strftime("%Y-%m-%d"),
    )


def import_paths(
    root: Root, paths: Sequence[str], options: ImportOptions, progress: Callable[[Outcome], None] = lambda _: None
) -> list[Outcome]:
    """Import `paths` into a root; durable on return. `progress` gets each file's outcome as it comes."""
    outcomes = []
    with ImportRun(root, options) as run:
        for outcome in run.run(paths):
            progress(outcome)
            outcomes.append(outcome)
    return outcomes


__all__ = ["BadSource", "ImportOptions", "ImportRun", "Outcome", "import_paths"]
