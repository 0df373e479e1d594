"""Inspect AI logs: `.eval` archives (deflate, zstd, whole or chunked samples, unfinished runs) and `.json` logs.

A sample is a trajectory, known by its uuid (a retried run copies finished samples: they add nothing), in older
logs by run, sample and epoch. What belongs to the run as a whole is a trajectory of its own without replies,
`inspect/<eval id>`: its specification first, results and status when the log is finished.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import msgspec

from trajlake.schemas.events import ImportSource
from trajlake.schemas.events.life import EndStatus

from ..sources import Source
from .build import Trajectory, first_record_hash, label, session_id, time_us
from .contract import BadSource, Item, Loss, ReadOptions
from .documents import refuse
from .inspect_events import NAME, SampleRun
from .inspect_sample import NO_RAW, Sample
from .inspect_zip import Archive, DamagedMember, spool
from .json_spans import big_elements, big_members, compact
from .json_text import NotJson, raw_members, value_of

START: Final = "_journal/start.json"
HEADER: Final = "header.json"
SPECIFICATION: Final = ("eval", "plan")
NOT_OF_THE_RUN: Final = ("version", "samples", "location", "etag")
"""Top-level fields of a log that say nothing about the run: `version` is the file's own."""
SUMMARIES: Final = re.compile(r"summaries\.json|_journal/summaries/\d+\.json")
WHOLE_SAMPLE: Final = re.compile(r"samples/[^/]+\.json")
SHELL: Final = re.compile(r"(samples/[^/]+)/sample\.json")


class Inspect:
    """The importer `inspect`."""

    name = NAME
    mapping_version = 0

    def sniff(self, head: bytes, name: str) -> int:
        if head.startswith(b"PK\x03\x04"):
            known = b"_journal/" in head or b"header.json" in head or b"samples/" in head
            return 97 if known else (60 if name.endswith(".eval") else 0)
        start = head.lstrip()[:4096]
        is_log = start.startswith(b"{") and b'"eval"' in start and b'"version"' in start[:200]
        return 95 if is_log and (b'"task"' in start or b'"eval_id"' in start or b'"run_id"' in start) else 0

    def read(self, source: Source, options: ReadOptions, loss: Loss) -> Iterator[Item]:
        with source.open() as stream:
            is_archive = stream.read(4) == b"PK\x03\x04"
        log = _Log(source, options, loss)
        yield from log.archive(Archive(source)) if is_archive else log.document()


class _Log:
    def __init__(self, source: Source, options: ReadOptions, loss: Loss) -> None:
        self.source, self.options, self.loss = source, options, loss
        self.ready: list[Item] = []
        self.model = ""
        self.run = ""

    def archive(self, archive: Archive) -> Iterator[Item]:
        """Read a `.eval` archive."""
        finished = HEADER in archive
        if not finished and START not in archive:
            raise refuse(self.source, f"holds neither {HEADER} nor {START}")
        name = HEADER if finished else START
        try:
            parts = big_members(archive.read(name))
        except (DamagedMember, NotJson) as error:
            raise BadSource(self.source.name, name, str(error)) from None
        if archive.repeated:
            self.loss.note("member repeated under its name: the last counts", archive.repeated)
        reductions = self._extra(archive, "reductions.json")
        yield from self._header(parts, finished, reductions)
        for member in archive.names():
            yield from self._member(archive, member, finished)

    def document(self) -> Iterator[Item]:
        """Read a `.json` log."""
        buffer = spool(self.source)
        if not buffer[:1]:
            raise BadSource(self.source.name, "", "is empty: nothing to import")
        try:
            parts = big_members(buffer)
        except NotJson as error:
            raise BadSource(self.source.name, "", f"is no JSON ({error}); the file may be cut short") from None
        if "eval" not in parts:
            raise refuse(self.source, "holds no Inspect log (eval, samples)")
        samples = big_elements(parts["samples"]) if "samples" in parts else []
        finished = "status" in parts and value_of(parts["status"]) != "started"
        yield from self._header(parts, finished, None)
        for index, raw in enumerate(samples):
            yield from self._sample(f"/samples/{index}", partial(Sample.whole, raw))

    def _extra(self, archive: Archive, name: str) -> msgspec.Raw | None:
        try:
            return msgspec.Raw(bytes(archive.read(name))) if name in archive else None
        except DamagedMember as error:
            self.loss.problem(name, f"{error}; left out")
            return None

    def _member(self, archive: Archive, name: str, finished: bool) -> Iterator[Item]:
        if WHOLE_SAMPLE.fullmatch(name):
            yield from self._sample(name, lambda: Sample.whole(archive.read(name)))
        elif found := SHELL.fullmatch(name):
            yield from self._sample(name, lambda: Sample.chunked(archive, found[1]))
        elif name in (HEADER, "reductions.json") or (name == START and not finished):
            pass
        elif name == START:
            self.loss.skip("journal (stands in the header)")
        elif SUMMARIES.fullmatch(name):
            self.loss.skip("summaries (stand in the samples)")
        elif name.startswith("samples/") and not _is_hostile(name):
            pass  # chunks, read with their sample
        else:
            self.loss.skip("unknown member")
            self.loss.problem(ascii(name[:120]), "is no known member; left out, the source keeps it")

    def _header(self, parts: dict[str, msgspec.Raw], finished: bool, reductions: msgspec.Raw | None) -> Iterator[Item]:
        """The run's own trajectory."""
        place = "header"
        told = raw_members(parts.get("eval", NO_RAW)) or {}
        self.model = label(_value(told, "model"))
        self.run = label(_value(told, "eval_id")) or label(_value(told, "run_id")) or "unnamed"
        trajectory = Trajectory(
            session_id(NAME, self.run, self.source.name, place),
            ImportSource(
                format=NAME,
                session=self.run,
                first_record_hash=first_record_hash(self.run.encode()),
                producer="inspect_ai",
            ),
            self.ready.append,
            self.loss,
            agent=label(_value(told, "task")),
        )
        trajectory.place = place
        trajectory.model = self.model
        trajectory.set_task(label(_value(told, "task")))
        at = time_us(_value(told, "created"))
        for key in SPECIFICATION:
            if key in parts:
                self._keep(trajectory, key, parts[key], at, f"{place} /{key}")
        if finished:
            stats = _value(parts, "stats")
            at = time_us(stats.get("completed_at")) if isinstance(stats, dict) else None
            rest = {key: raw for key, raw in parts.items() if key not in (*SPECIFICATION, *NOT_OF_THE_RUN, "status")}
            if reductions is not None:
                rest.setdefault("reductions", reductions)
            for key in sorted(rest):
                self._keep(trajectory, key, rest[key], at, f"{place} /{key}")
            status = label(_value(parts, "status"))
            trajectory.end(end_status(status), reason=status, at=at, place=f"{place} /status")
        self.loss.map("header")
        trajectory.settle()
        yield from self._drain()

    def _keep(self, trajectory: Trajectory, kind: str, raw: msgspec.Raw, at: int | None, place: str) -> None:
        text = compact(bytes(raw)).decode("utf-8", "surrogateescape")
        if text not in ("null", "[]", "{}", "false"):
            trajectory.keep(f"eval {kind}", text, at=at, place=place)
            self.loss.keep(f"eval {kind}")

    def _sample(self, place: str, load: Callable[[], Sample]) -> Iterator[Item]:
        if _is_hostile(place.removeprefix("/")):
            self.loss.skip("hostile member name")
            self.loss.problem(ascii(place[:120]), "has a hostile name; left out, the source keeps it")
            return
        try:
            sample: Sample = load()
            run = SampleRun(sample, self._session(sample), self.source.name, self.options.tenant, self.model,
                            self.ready.append, self.loss)  # fmt: skip
        except (DamagedMember, NotJson) as error:
            self.loss.skip("damaged sample")
            self.loss.problem(place, f"{error}; this sample is left out")
            return
        except BadSource as error:
            self.loss.skip("hostile id")
            self.loss.problem(place, str(error))
            return
        try:
            for raw, where in sample.events():
                run.event(raw, where)
                yield from self._drain()
        except (DamagedMember, NotJson) as error:
            self.loss.problem(place, f"{error}; its events end there")
        run.finish()
        yield from self._drain()

    def _session(self, sample: Sample) -> str:
        uuid = label(sample.value("uuid"))
        return uuid or f"{self.run}/{label(sample.value('id'))}_epoch_{label(sample.value('epoch') or 1)}"

    def _drain(self) -> Iterator[Item]:
        yield from self.ready
        self.ready.clear()


def end_status(status: str) -> EndStatus:
    """Return how a run ended by the log's status."""
    if status == "success":
        return "completed"
    return "cancelled" if status == "cancelled" else "failed"


def _is_hostile(name: str) -> bool:
    return name.startswith("/") or "\\" in name or "\0" in name or any(part in ("..", ".") for part in name.split("/"))


def _value(parts: dict[str, msgspec.Raw], key: str) -> Any:
    return value_of(parts[key]) if key in parts else None


IMPORTER: Final = Inspect()
