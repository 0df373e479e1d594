"""Sessions that begin with a copy of another one's records: found across the files of a run and of the root.

Files are told apart by what a session and its copies have in common near their start (`KnowsCopies.opening`);
only where two share it are they read for their record identities. In one run the smaller file is taken as the
original, whatever order the paths come in; across runs the one that was imported first.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from trajlake.runtime.cli_errors import UserError
from trajlake.runtime.root import Root
from trajlake.runtime.wal.journal_errors import BlobMissing

from .formats.contract import Importer, KnowsCopies, Lineage
from .lake_side import LakeSide
from .loss_report import all_reports
from .sources import Source


class Copies:
    """What one import run knows of openings: those of the root, and of the files it has read itself."""

    def __init__(self, root: Root, tenant: str, side: LakeSide | None = None) -> None:
        self._root = root
        self._tenant = tenant
        self._side = side
        self._lineages: dict[str, list[Lineage]] = {}
        self._alone: dict[str, Source] = {}
        self._stored: dict[str, list[tuple[str, str]]] | None = None

    def opening(self, source: Source, importer: Importer) -> str:
        """Return the opening of a source, or "" where its format has none."""
        return importer.opening(source.head()) if isinstance(importer, KnowsCopies) else ""

    def copied(self, source: Source, importer: Importer, opening: str) -> frozenset[str]:
        """Return the identities of records that other sessions with the same opening hold. Remembers this source."""
        if not opening or not isinstance(importer, KnowsCopies):
            return frozenset()
        others = self._others(opening, importer)
        first = self._alone.pop(opening, None)
        if first is not None:
            others.append(importer.lineage(first))
        if not others:
            # Most openings come once: what a session holds is looked at only when another one begins alike.
            self._alone[opening] = Source.of_path(source.path) if source.is_local else source
            return frozenset()
        mine = importer.lineage(source)
        copied: set[str] = set()
        for other in others:
            if not other.sessions & mine.sessions:
                copied |= other.records & mine.records
        others.append(mine)
        return frozenset(copied)

    def _others(self, opening: str, importer: KnowsCopies) -> list[Lineage]:
        if opening not in self._lineages:
            found = []
            for sha256, name in self._in_root().get(opening, ()):
                data = self._stored_bytes(sha256)
                if data is not None:
                    found.append(importer.lineage(Source.of_bytes(data, name)))
            self._lineages[opening] = found
        return self._lineages[opening]

    def _stored_bytes(self, sha256: str) -> bytes | None:
        try:
            return self._root.blobs.get(self._tenant, sha256)
        except BlobMissing:
            return self._side.source(sha256) if self._side else None

    def _in_root(self) -> dict[str, list[tuple[str, str]]]:
        if self._stored is None:
            self._stored = {}
            bulk = self._side.reports().values() if self._side else ()
            for report in (*all_reports(self._root), *bulk):
                if report.opening and report.tenant == self._tenant and report.trajectories:
                    self._stored.setdefault(report.opening, []).append((report.sha256, report.name))
        return self._stored


def families(sources: Iterable[Source], importer_of: object) -> list[list[Source]]:
    """Return the sources in groups of those that may copy one another, the smaller ones (the originals) first."""
    groups: dict[str, list[Source]] = {}
    for place, source in enumerate(sources):
        opening = ""
        if isinstance(importer_of, KnowsCopies):
            with suppress(UserError, OSError):
                opening = importer_of.opening(source.head())
            source.forget_head()
        groups.setdefault(opening or f"\n{place}", []).append(source)
    return [
        group if len(group) == 1 else sorted(group, key=lambda one: (one.size or 0, one.sha256()))
        for group in groups.values()
    ]
