"""Ships a root to a landing: blobs before the segment that names them, sealed segments, then import reports.

Every step may be repeated: what stands there already is passed over, so a killed run goes on where it was and a
second run puts nothing. Segments carry their own checksums and blobs their hash; a put is whole or not there.
Only sealed segments are shipped: their bytes never change again. Rules: design/journal.md, *The root*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from trajlake.runtime.env import read_file
from trajlake.runtime.journal_errors import BlobMissing
from trajlake.runtime.reader import SegmentFile, list_segments, read_segment
from trajlake.runtime.root import Root
from trajlake.schemas.blobs import blob_hashes

from .landing_store import DAY_S, LandingStore
from .loss_report import all_report_files

_NAMES_A_BLOB: Final = (b'"$blob"', b'"changes"')


class ShipReport(msgspec.Struct, kw_only=True):
    """What one run did. `waiting`: unsealed segments with a writer alive or dead; `missing`: why segments stayed."""

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

    def run(self) -> ShipReport:
        """Ship all that is sealed and not there yet. Raises OSError where the landing does not take it."""
        report = ShipReport(landing=self.landing.url)
        for writer in self.root.writers():
            for segment in list_segments(self.root.env, self.root.writer_folder(writer)):
                if segment.is_sealed:
                    self._segment(writer, segment, report)
                else:
                    report.waiting += 1
        self._imports(report)
        return report

    def _segment(self, writer: str, segment: SegmentFile, report: ShipReport) -> None:
        name = f"writers/{writer}/{segment.first_lsn:020d}-{segment.last_lsn:020d}.seg"
        stored = None if name in self._shipped else self.landing.size_and_age_s(name)
        if name in self._shipped or (stored is not None and stored[0] == segment.size_bytes):
            self._shipped.add(name)
            report.segments_there += 1
            return
        data = read_file(self.root.env, segment.path)
        blobs = sorted(self._blobs_of(segment, data))
        absent = [blob for blob in blobs if not self._blob(*blob, report)]
        if absent:
            what = f"names {len(absent)} blobs that neither root nor landing holds, {absent[0][1]} first"
            report.missing.append(f"{name}: {what}")
            return
        self.landing.put(name, data)
        for tenant, sha256 in blobs:
            self._look_again(tenant, sha256, report)
        self._shipped.add(name)
        report.segments_shipped += 1
        report.bytes_put += len(data)
        self._progress(name)

    def _blobs_of(self, segment: SegmentFile, data: bytes) -> set[tuple[str, str]]:
        if not any(mark in data for mark in _NAMES_A_BLOB):
            return set()
        events = read_segment(self.root.env, segment.path).events()
        return {(event.tenant, sha256) for event in events for sha256 in blob_hashes(event.type, event.payload)}

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
            data = self.root.blobs.get(tenant, sha256)
        except BlobMissing:
            report.blobs_there += stored is not None
            return stored is not None
        self.landing.put(path, data)
        self._fresh.add(path)
        report.blobs_put += 1
        report.bytes_put += len(data)
        return True

    def _look_again(self, tenant: str, sha256: str, report: ShipReport) -> None:
        path = f"blobs/{tenant}/{sha256[:2]}/{sha256}"
        if self.landing.size_and_age_s(path) is None:
            self._fresh.discard(path)
            self._blob(tenant, sha256, report)

    def _imports(self, report: ShipReport) -> None:
        for name, data, tenant, sha256 in self._report_files():
            path = f"imports/{name}"
            if path in self._shipped:
                continue
            if self.landing.get(path) != data:
                if not self._blob(tenant, sha256, report):
                    report.missing.append(f"{path}: its source {sha256} is in neither root nor landing")
                    continue
                self.landing.put(path, data)
                report.imports_put += 1
                report.bytes_put += len(data)
            self._shipped.add(path)

    def _report_files(self) -> Iterator[tuple[str, bytes, str, str]]:
        for name, data, found in all_report_files(self.root):
            yield name, data, found.tenant, found.sha256
