"""A lake as a pin names it: the same files at the same places below the lake, wherever the lake stands today."""

from __future__ import annotations

from urllib.parse import unquote

from trajlake.pipelines.lakehouse.lake import DataFile, Lake
from trajlake.pipelines.lakehouse.lake_errors import LakeMissing
from trajlake.pipelines.lakehouse.pins import Pin, read_pin
from trajlake.pipelines.lakehouse.places import size
from trajlake.pipelines.lakehouse.snapshot import Snapshot


class PinnedLake(Lake):
    """Reads only what the pin names. Snapshots and logs may be long gone."""

    def __init__(self, path: str, pin: Pin) -> None:
        super().__init__(path)
        self.pin = pin
        self.pin_name = pin.name

    def files(self, snapshot: Snapshot, table: str) -> list[DataFile]:
        """Return the pinned files of a table; `LakeMissing` if one is gone."""
        del snapshot
        found = []
        for below in self.pin.files.get(table, ()):
            path = self.path(below)
            try:
                found_size = size(path)
            except FileNotFoundError:
                why = f"pinned by {self.pin.name} and missing; restore it, or cut the set again"
                raise LakeMissing(f"{path}: {why}") from None
            relative = below.removeprefix(f"{table}/")
            found.append(DataFile(path, relative, found_size, 0, _partition(relative), {}, {}))
        return found


def open_at(lake: str, snapshot: int, pin: str = "") -> tuple[Lake, Snapshot]:
    """Return a lake and the snapshot to read: as the lake has it, or as a pin names it."""
    opened = Lake(lake)
    if not pin:
        return opened, opened.snapshot(snapshot)
    found = read_pin(opened, pin)
    return PinnedLake(lake, found), snapshot_of(found)


def snapshot_of(pin: Pin) -> Snapshot:
    """Return what stands in for the snapshot that a pin was made at."""
    versions = pin.detail.get("table_versions", {})
    return Snapshot(
        snapshot=pin.snapshot, run="", kind="pin", created_at="", partition_by=(), tables=dict(versions),
        erasure_epoch=pin.erasure_epoch,
    )  # fmt: skip


def _partition(relative: str) -> dict[str, str]:
    parts = [part.partition("=") for part in relative.split("/")[:-1]]
    return {name: unquote(value) for name, _, value in parts}
