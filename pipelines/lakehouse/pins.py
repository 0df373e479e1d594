"""Pins: named lists of files that a data set needs, which vacuum leaves alone until the pin is lifted.

A pin is a list of files, not a Delta version: it survives vacuum and log clean-up. It counts once, after its put, its
snapshot is found and the ledger holds no erasure which that snapshot lacks; else it is withdrawn. Source:
design/lake.md, *Retention, holds, erasure, pins*. `all_pins` is what vacuum asks before it removes a file.
"""

from __future__ import annotations

import os
import re
from typing import Any, Final

import msgspec

from trajlake.pipelines.lakehouse.lake import Lake
from trajlake.pipelines.lakehouse.lake_errors import LakeError
from trajlake.pipelines.lakehouse.places import entries, exists, make_directory, put_if_absent, read, remove
from trajlake.pipelines.lakehouse.protocol import pin_counts
from trajlake.pipelines.lakehouse.snapshot import STATE_DIRECTORY, Snapshot

FOLDER: Final = "pins"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """`files`: table -> paths below the lake, sorted. `members`: (tenant, trajectory_id) of what the set holds."""

    format: int = 1
    name: str
    snapshot: int
    erasure_epoch: int
    files: dict[str, list[str]]
    members: list[tuple[str, str]] = []
    detail: dict[str, Any] = {}


def pin_path(lake: Lake, name: str) -> str:
    """Return the path of a pin's file; raise `LakeError` for a name that is none."""
    if _NAME.fullmatch(name) is None:
        raise LakeError(f"pin {ascii(name)}: a name is 1-128 characters of A-Z a-z 0-9 . _ -")
    return lake.path(STATE_DIRECTORY, FOLDER, f"{name}.json")


def put_pin(lake: Lake, pin: Pin) -> Pin:
    """Put a pin, durable on return, unless one of that name and content stands; return it.

    Raises `LakeError` where another pin has the name, where its snapshot is gone, and where an erasure has been asked
    for since that snapshot: cut the set again from the newest one.
    """
    path = pin_path(lake, pin.name)
    make_directory(os.path.dirname(path))
    if not put_if_absent(path, msgspec.json.encode(pin)):
        standing = read_pin(lake, pin.name)
        if standing != pin:
            raise LakeError(f"pin {pin.name}: stands already for other files; lift it or choose another name")
        return pin
    problem = None
    if pin.snapshot not in lake.snapshot_numbers():
        problem = f"snapshot {pin.snapshot} has expired"
    elif not pin_counts(is_expired=False, snapshot_epoch=pin.erasure_epoch, ledger_epoch=newest_epoch(lake)):
        problem = f"an erasure was asked for that snapshot {pin.snapshot} lacks"
    if problem is not None:
        lift_pin(lake, pin.name)
        raise LakeError(f"pin {pin.name}: {problem}; compact and cut the set from a newer snapshot")
    return pin


def read_pin(lake: Lake, name: str) -> Pin:
    """Return a pin by name; raise `LakeError` where there is none."""
    try:
        return msgspec.json.decode(read(pin_path(lake, name)), type=Pin)
    except FileNotFoundError:
        known = ", ".join(one.name for one in all_pins(lake)) or "none"
        raise LakeError(f"pin {name}: there is none of that name (there are: {known})") from None
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise LakeError(f"{pin_path(lake, name)}: no pin: {error}") from None


def lift_pin(lake: Lake, name: str) -> bool:
    """Remove a pin; return whether there was one. Its files go with the next vacuum, unless a snapshot names them."""
    path = pin_path(lake, name)
    return exists(path) and remove(path)


def all_pins(lake: Lake) -> list[Pin]:
    """Return every pin of a lake, by name."""
    names = entries(lake.path(STATE_DIRECTORY, FOLDER))
    return [read_pin(lake, name.removesuffix(".json")) for name in names if name.endswith(".json")]


def pinned_files(lake: Lake) -> set[str]:
    """Return the paths below the lake of every file that a pin names: vacuum leaves them."""
    return {path for pin in all_pins(lake) for paths in pin.files.values() for path in paths}


def files_to_pin(lake: Lake, snapshot: Snapshot, tables: tuple[str, ...]) -> dict[str, list[str]]:
    """Return table -> paths below the lake of all files that `snapshot` names for `tables`."""
    return {table: sorted(f"{table}/{file.relative}" for file in lake.files(snapshot, table)) for table in tables}


def newest_epoch(lake: Lake) -> int:
    """Return the newest erasure epoch that the ledger has asked for; 0 without any."""
    from trajlake.pipelines.lakehouse.parquet_files import read_parquet

    files = lake.ledger_files("erasures")
    epochs = [one for path in files for one in read_parquet(path, ["epoch"])["epoch"]]
    return max((int(one) for one in epochs if one is not None), default=0)
