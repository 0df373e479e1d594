"""Ships a root to a landing: checkpoints, blobs before the segment that names them, sealed segments, import reports.

Every step may be repeated: what stands there already is passed over, so a killed run goes on where it was and a
second run puts nothing. Segments carry their own checksums and blobs their hash; a put is whole or not there.
Only sealed segments are shipped: their bytes never change again. Rules: design/journal.md, *The root*.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from trajlake.runtime.checkpoints.checkpoint import CheckpointFiles, Record, objects_of_record
from trajlake.runtime.env import read_file
from trajlake.runtime.root import Root
from trajlake.runtime.wal.columns import scan_columns
from trajlake.runtime.wal.journal_errors import JournalError, SegmentCorrupt
from trajlake.runtime.wal.lost_seal import lost_seal
from trajlake.runtime.wal.reader import SegmentFile, gaps, list_segments, read_segment
from trajlake.schemas.blobs import blob_hashes
from trajlake.schemas.ids import trajectory_key

from .landing_store import DAY_S, LandingStore
from .loss_report import LossReport, all_report_files

PUTS_AT_ONCE: Final = 8
_BLOB_KEY: Final = re.compile(rb'"\$blob":"([0-9a-f]{64})"')
_NAMES_A_BLOB: Final = (b'"$blob"', b'"changes"')


class ShipReport(msgspec.Struct, kw_only=True):
    """What one run did. `waiting`: unsealed segments with a writer alive or dead; `missing`: why segments stayed, or
    that the root itself lacks some.
    """

    landing: str
    segments_shipped: int = 0
    segments_there: int = 0
    blobs_put: int = 0
    blobs_there: int = 0
    imports_put: int = 0
    bytes_put: int = 0
    waiting: int = 0
    missing: list[str] = []


class Shipper:
    """Ships one root to one landing. Reads only; may run beside live writers and beside other shippers."""

    def __init__(self, root: Root, landing: LandingStore, progress: Callable[[str], None] = lambda _: None) -> None:
        self.root = root
        self.landing = landing
        self._progress = progress
        self._shipped: set[str] = set()
        self._fresh: set[str] = set()
        self._counting = threading.Lock()

    def run(self) -> ShipReport:
        """Ship all that is sealed and not there yet. Raises OSError where the landing does not take it."""
        report = ShipReport(landing=self.landing.url)
        for record in CheckpointFiles(self.root.env, self.root.path).all():
            self._checkpoint(record, report)
        for writer in self.root.writers():
            segments = list_segments(self.root.env, self.root.writer_folder(writer))
            report.missing += [str(gap) for gap in gaps(segments)]
            for place, segment in enumerate(segments):
                if segment.is_sealed:
                    self._segment(writer, segment, report)
                else:
                    report.waiting += 1
                    self._unsealed(segments, place, report)
        self._imports(report)
        return report

    def _checkpoint(self, record: Record, report: ShipReport) -> None:
        """Put what a checkpoint needs, then the file that says that it is in use."""
        key = trajectory_key(record.tenant, record.trajectory_id).hex()
        name, data = f"checkpoints/{key}/{record.covers:020d}-{record.root}.json", msgspec.json.encode(record)
        if name in self._shipped or self.landing.size_and_age_s(name) is not None:
            self._shipped.add(name)
            return
        try:
            needed = sorted(objects_of_record(self.root.blobs, record))
        except JournalError as error:
            report.missing.append(f"{name}: {error}")
            return
        if not all(self._put_blobs([(record.tenant, sha256) for sha256 in needed], report)):
            report.missing.append(f"{name}: needs objects that neither root nor landing holds")
            return
        self.landing.put(name, data)
        self._shipped.add(name)
        report.bytes_put += len(data)

    def _segment(self, writer: str, segment: SegmentFile, report: ShipReport) -> None:
        name = f"writers/{writer}/{segment.first_lsn:020d}-{segment.last_lsn:020d}.seg"
        stored = None if name in self._shipped else self.landing.size_and_age_s(name)
        if name in self._shipped or (stored is not None and stored[0] == segment.size_bytes):
            self._shipped.add(name)
            report.segments_there += 1
            return
        try:
            blobs = sorted(self._blobs_of(segment))
        except SegmentCorrupt as error:
            report.missing.append(f"{name}: {error}")
            return
        absent = [blob for blob, there in zip(blobs, self._put_blobs(blobs, report), strict=True) if not there]
        if absent:
            what = f"names {len(absent)} blobs that neither root nor landing holds, {absent[0][1]} first"
            report.missing.append(f"{name}: {what}")
            return
        self.landing.put_file(name, segment.path)
        for tenant, sha256 in blobs:
            self._look_again(tenant, sha256, report)
        self._shipped.add(name)
        report.segments_shipped += 1
        report.bytes_put += segment.size_bytes
        self._progress(name)

    def _unsealed(self, segments: Sequence[SegmentFile], place: int, report: ShipReport) -> None:
        """Tell of a segment that waits for good: it was sealed, and is so no more."""
        if place + 1 == len(segments) and segments[place].size_bytes == segments[place].header.size_bytes:
            return  # the active one: nothing to be proved, and large to read
        try:
            proof = lost_seal(segments, place, read_segment(self.root.env, segments[place].path).end)
        except FileNotFoundError:
            return
        except SegmentCorrupt as error:
            report.missing.append(str(error))
            return
        if proof:
            what = f"{segments[place].path}: its SEAL is damaged or gone ({proof})"
            report.missing.append(f"{what}; run 'trajlake journal verify'")

    def _blobs_of(self, segment: SegmentFile) -> set[tuple[str, str]]:
        """Return (tenant, sha256) of every blob that a segment names. Raises `SegmentCorrupt` if it is not whole."""
        data = read_file(self.root.env, segment.path)
        columns = scan_columns(data, segment.path)
        if not any(mark in data for mark in _NAMES_A_BLOB):
            return set()
        tenants = {one.tenant for one in columns.trajectories}
        if len(tenants) == 1 and b'"changes"' not in data:
            # A `$blob` key is only ever the codec's: in user data it has one more `$`, inside texts a backslash.
            (tenant,) = tenants
            return {(tenant, sha256.decode()) for sha256 in _BLOB_KEY.findall(data)}
        events = read_segment(self.root.env, segment.path).events()
        return {(event.tenant, sha256) for event in events for sha256 in blob_hashes(event.type, event.payload)}

    def _put_blobs(self, blobs: Sequence[tuple[str, str]], report: ShipReport) -> list[bool]:
        if len(blobs) < 2:
            return [self._blob(tenant, sha256, report) for tenant, sha256 in blobs]
        with ThreadPoolExecutor(PUTS_AT_ONCE, "trajlake-ship") as pool:
            return list(pool.map(lambda blob: self._blob(blob[0], blob[1], report), blobs))

    def _blob(self, tenant: str, sha256: str, report: ShipReport) -> bool:
        """Put a blob unless landing's copy is younger than a day; False if neither side has it."""
        path = f"blobs/{tenant}/{sha256[:2]}/{sha256}"
        if path in self._fresh:
            return True
        stored = self.landing.size_and_age_s(path)
        if stored is not None and stored[1] < DAY_S:
            self._fresh.add(path)
            report.blobs_there += 1
            return True
        try:
            size = self.root.env.stat(self.root.blobs.path(tenant, sha256)).size_bytes
        except FileNotFoundError:
            report.blobs_there += stored is not None
            return stored is not None
        self.landing.put_file(path, self.root.blobs.path(tenant, sha256))
        self._fresh.add(path)
        with self._counting:
            report.blobs_put += 1
            report.bytes_put += size
        return True

    def _look_again(self, tenant: str, sha256: str, report: ShipReport) -> None:
        path = f"blobs/{tenant}/{sha256[:2]}/{sha256}"
        if self.landing.size_and_age_s(path) is None:
            self._fresh.discard(path)
            self._blob(tenant, sha256, report)

    def _imports(self, report: ShipReport) -> None:
        files = [one for one in all_report_files(self.root) if f"imports/{one[0]}" not in self._shipped]
        if files:
            with ThreadPoolExecutor(PUTS_AT_ONCE, "trajlake-ship") as pool:
                list(pool.map(lambda one: self._import(one[0], one[1], one[2], report), files))

    def _import(self, name: str, data: bytes, found: LossReport, report: ShipReport) -> None:
        path = f"imports/{name}"
        if self.landing.get(path) != data:
            if not self._blob(found.tenant, found.sha256, report):
                report.missing.append(f"{path}: its source {found.sha256} is in neither root nor landing")
                return
            self.landing.put(path, data)
            with self._counting:
                report.imports_put += 1
                report.bytes_put += len(data)
        self._shipped.add(path)
