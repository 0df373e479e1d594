"""`trajlake pin` and `trajlake unpin`: files that vacuum leaves alone."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from trajlake.runtime.cli_errors import EXIT_DONE, UserError
from trajlake.runtime.settings import load


def pin(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="name of the pin; without one, list")] = None,
    snapshot: Annotated[int | None, typer.Option("--snapshot", help="pin this one (default: the newest)")] = None,
    table: Annotated[list[str] | None, typer.Option("--table", help="a table to pin (default: all)")] = None,
    lake: Annotated[str | None, typer.Option("--lake", help="the lake")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print pins as JSON, one a line")] = False,
) -> int:
    """Keep a snapshot's files under a name, whatever maintenance does, until they are unpinned; or list all pins.

    The pin counts on return. It is withdrawn at once where the snapshot has expired meanwhile or lacks an erasure
    that was asked for. A later erasure gives the pin files without the text and raises its epoch.
    """
    settings = load(lake=lake)
    from trajlake.pipelines.lakehouse.lake import Lake
    from trajlake.pipelines.lakehouse.pins import Pin, all_pins, files_to_pin, put_pin
    from trajlake.schemas.tables import SNAPSHOT_TABLES

    opened = Lake.open(settings.lake)
    pins = all_pins(opened)
    if name is not None:
        tables = tuple(table or SNAPSHOT_TABLES)
        unknown = sorted(set(tables) - set(SNAPSHOT_TABLES))
        if unknown:
            raise UserError(f"--table {unknown[0]}: no snapshot table; one of {', '.join(SNAPSHOT_TABLES)}")
        at = opened.newest() if snapshot is None else opened.snapshot(snapshot)
        detail = {"kind": "snapshot", "table_versions": at.tables}
        files = files_to_pin(opened, at, tables)
        pins = [
            put_pin(
                opened,
                Pin(name=name, snapshot=at.number, erasure_epoch=at.erasure_epoch, files=files, detail=detail),
            )
        ]
    for one in pins:
        files_count = sum(len(paths) for paths in one.files.values())
        shown = {"name": one.name, "snapshot": one.snapshot, "erasure_epoch": one.erasure_epoch, "files": files_count}
        if as_json:
            print(msgspec.json.encode(shown).decode())
        else:
            print(f"{one.name}  snapshot {one.snapshot}  epoch {one.erasure_epoch}  {files_count:,} files")
    return EXIT_DONE


def unpin(
    name: Annotated[str, typer.Argument(help="name of the pin")],
    lake: Annotated[str | None, typer.Option("--lake", help="the lake")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print what was done as JSON")] = False,
) -> int:
    """Lift a pin. Its files go with the next `trajlake maintain`, unless a kept snapshot or another pin names them."""
    settings = load(lake=lake)
    from trajlake.pipelines.lakehouse.lake import Lake
    from trajlake.pipelines.lakehouse.pins import lift_pin, read_pin

    opened = Lake.open(settings.lake)
    read_pin(opened, name)
    lift_pin(opened, name)
    print(msgspec.json.encode({"name": name, "unpinned": True}).decode() if as_json else f"{name}: unpinned")
    return EXIT_DONE
