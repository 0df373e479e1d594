"""What a lake says to imports into it: which sources it holds through bulk imports, and whose events.

A bulk import leaves only its loss reports in the root of the inbox, one file per run (`bulk/<run>.json`): they tell an
unchanged folder without an engine. Events and sources it imported are asked of the lake itself, by the
entry point `lake_bulk` (`ingest` may not import `pipelines`), and only for trajectories that a report names.

Of a lake in object storage nothing stays on this host: its table `imports` has the reports.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Any, Final

import msgspec

from trajlake.runtime.cli_errors import EXIT_COULD_NOT_RUN, UserError
from trajlake.runtime.durable_folders import DurableFolders
from trajlake.runtime.env import read_file, write_atomically
from trajlake.runtime.root import Root
from trajlake.schemas.envelope import Event

from .loss_report import LossReport

BULK_FOLDER: Final = "bulk"
BULK_GROUP: Final = "trajlake.stores"
BULK_NAME: Final = "lake_bulk"
_RUN: Final = re.compile(r"\d+-[0-9a-f]+\.json")

HeldRows = tuple[dict[int, bytes], Event | None]


def lake_bulk() -> Any | None:
    """Return the module that deals with lakes in bulk imports, None where none is installed."""
    for point in entry_points(group=BULK_GROUP):
        if point.name == BULK_NAME:
            return point.load()
    return None


def reports_of(lake: str, door: Callable[[], Any | None] = lake_bulk) -> list[LossReport] | None:
    """Return every loss report that a lake's table `imports` holds; None where there is no lake."""
    side = door()
    if side is None:
        raise not_installed()
    texts = side.loss_reports(lake)
    return None if texts is None else [msgspec.json.decode(text, type=LossReport) for text in texts]


def not_installed() -> UserError:
    """Return what to say where the lake's side is not there."""
    return UserError(
        "nothing installed can deal with a lake (entry points 'lake_commit' and 'lake_bulk' of "
        f"'{BULK_GROUP}'); reinstall trajlake, or import --journal",
        exit_code=EXIT_COULD_NOT_RUN,
    )


class LakeSide:
    """One lake as seen by an import into it, with the root in its inbox. Nothing is read before it is asked for."""

    def __init__(self, lake: str, root: Root, tenant: str, door: Callable[[], Any | None] = lake_bulk) -> None:
        self.lake = lake.removeprefix("file://")
        self.root = root
        self.tenant = tenant
        self.is_remote = lake.startswith("s3://")
        self.door = door
        self._reports: dict[tuple[str, int], LossReport] | None = None
        self._trajectories: set[str] = set()

    def reports(self) -> dict[tuple[str, int], LossReport]:
        """Return the loss reports of this tenant that the root has not, by (sha256 of the source, mapping version)."""
        if self._reports is None:
            self._reports = {}
            for report in self._read():
                if report.tenant == self.tenant:
                    self._reports[report.sha256, report.mapping_version] = report
                    self._trajectories.update(report.trajectories)
        return self._reports

    def held(self, trajectory_id: str, token: int) -> HeldRows:
        """Return hashes by number, and event 0, of what the lake alone holds of a trajectory."""
        self.reports()
        if trajectory_id not in self._trajectories:
            return {}, None
        found: HeldRows = self._door().held_events(self.lake, self.tenant, trajectory_id, token)
        return found

    def source(self, sha256: str) -> bytes | None:
        """Return the bytes of a source of which a report speaks, None for any other."""
        if not any(sha256 == digest for digest, _ in self.reports()):
            return None
        found: bytes | None = self._door().source_bytes(self.lake, self.tenant, sha256)
        return found

    def trajectories(self) -> set[tuple[str, str]]:
        """Return (tenant, id) of what the lake alone holds: all of it, or by the reports of bulk imports."""
        if self.is_remote:
            return set(self._door().trajectories(self.lake))
        return {(report.tenant, name) for report in self._read() for name in report.trajectories}

    def note(self, run: str, reports: list[LossReport]) -> None:
        """Store the reports of a run that has been committed. A kill before it costs a second look, nothing else."""
        folder = f"{self.root.path}/{BULK_FOLDER}"
        DurableFolders(self.root.env, self.root.path).ensure(folder)
        write_atomically(self.root.env, f"{folder}/{run}.json", msgspec.json.encode(reports))
        self._reports = None

    def _door(self) -> Any:
        door = self.door()
        assert door is not None  # it wrote the reports that brought us here, or made the inbox
        return door

    def _read(self) -> Iterator[LossReport]:
        if self.is_remote:
            yield from reports_of(self.lake, self.door) or ()
            return
        folder = f"{self.root.path}/{BULK_FOLDER}"
        try:
            names = self.root.env.listdir(folder)
        except FileNotFoundError:
            return
        for name in sorted(names):
            if _RUN.fullmatch(name):
                yield from msgspec.json.decode(read_file(self.root.env, f"{folder}/{name}"), type=list[LossReport])
