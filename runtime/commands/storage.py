"""Verbs that look after a root's files: `journal retain`, `gc`, `backup`, `restore`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from trajlake.runtime.cli_errors import EXIT_DONE, EXIT_FINDINGS, UserError, one_line
from trajlake.runtime.commands.root import JOURNAL, JSON, ROOT, open_root, print_json, settings_of
from trajlake.runtime.settings import load

if TYPE_CHECKING:
    from trajlake.runtime.root import Root
    from trajlake.runtime.upkeep.landed import LandedFiles

DRY_RUN = Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")]
LANDING = Annotated[
    str | None, typer.Option("--landing", metavar="URL", help="What must hold it first; default: root.json, settings.")
]


def retain(
    root: ROOT = None,
    landing: LANDING = None,
    older_than_hours: Annotated[float, typer.Option("--older-than-hours", min=0, help="Keep younger segments.")] = 0.0,
    open_too: Annotated[
        bool, typer.Option("--open-too", help="Also events of open trajectories: their resume then needs the landing.")
    ] = False,
    dry_run: DRY_RUN = False,
    journal: JOURNAL = None,
    as_json: JSON = False,
) -> None:
    """Drop sealed segments that the landing holds byte for byte, from the front of each writer.

    The last segment of a writer stays, and those with events of open trajectories. May be killed and run again.
    """
    from trajlake.runtime.upkeep.retention import retain as drop

    opened = open_root(settings_of(journal, root=root).journal)
    where = landing_of(opened, landing)
    if where is None:
        raise UserError(f"{opened.path}: no landing is named: give --landing; nothing else may hold what is dropped")
    report = drop(opened, where, open_too=open_too, older_than_s=older_than_hours * 3600, dry_run=dry_run)
    if as_json:
        print_json(msgspec.to_builtins(report))
        return
    verb = "would drop" if dry_run else "dropped"
    print(one_line(f"{verb} {len(report.segments)} segments, {report.bytes} bytes; all are in {report.landing}"))
    for writer, reason in sorted(report.kept.items()):
        print(one_line(f"{writer}: {reason}"))


def gc(
    root: ROOT = None, landing: LANDING = None, dry_run: DRY_RUN = False, journal: JOURNAL = None, as_json: JSON = False
) -> None:
    """Remove blobs that nothing names (24 h old), dead writers that the landing holds, old checkpoints, leftovers."""
    from trajlake.runtime.upkeep.garbage import collect_garbage

    opened = open_root(settings_of(journal, root=root).journal)
    report = collect_garbage(opened, landed=landing_of(opened, landing), dry_run=dry_run)
    if as_json:
        print_json(msgspec.to_builtins(report))
        return
    print(
        f"{'would remove' if dry_run else 'removed'} {len(report.blobs)} blobs ({report.bytes} bytes), "
        f"{len(report.writers)} writers, checkpoints of {len(report.checkpoints)} trajectories, "
        f"{len(report.leftovers)} temporary files"
    )


def backup(
    to: Annotated[str, typer.Argument(metavar="FOLDER", help="A new folder for the backup.")],
    journal: JOURNAL = None,
    as_json: JSON = False,
) -> None:
    """Copy a root, beside everything that runs on it. Whole when it holds backup.json, which is written last."""
    from trajlake.runtime.upkeep.backup import back_up

    opened = open_root(settings_of(journal).journal)
    manifest = back_up(opened, to)
    if as_json:
        shown = {"root": opened.path, "to": to, "files": len(manifest.files), "bytes": manifest.size_bytes}
        print_json({**shown, "taken_at": manifest.taken_at})
        return
    print(one_line(f"{to}: {len(manifest.files)} files, {manifest.size_bytes} bytes of {opened.path}"))


def restore(
    source: Annotated[str, typer.Argument(metavar="BACKUP", help="The folder of the backup.")],
    root: Annotated[str, typer.Argument(metavar="ROOT", help="The new root.")],
    as_json: JSON = False,
) -> int:
    """Make a root from a backup. No old token is given again; open trajectories wait for a person's --accept-loss.

    Exit code 1 if there is something to know first (printed on stderr).
    """
    from trajlake.runtime.env import REAL_ENV
    from trajlake.runtime.upkeep.restore import restore as build

    report = build(REAL_ENV, source, root)
    if as_json:
        print_json(msgspec.to_builtins(report))
    else:
        print(
            one_line(
                f"{report.root}: {report.trajectories} trajectories, {report.writers} writers, {report.blobs} blobs, "
                f"{report.bytes} bytes"
            )
        )
    for warning in report.warnings:
        print(f"trajlake: {one_line(warning)}", file=sys.stderr)
    return EXIT_FINDINGS if report.warnings else EXIT_DONE


def landing_of(root: Root, flag: str | None) -> LandedFiles | None:
    """The landing that a flag, the root or the settings name; None if none does."""
    from trajlake.runtime.upkeep.landed import open_landed

    url = flag or root.facts.stores.get("landing")
    if url is None:
        settings = load()
        url = settings.landing if settings.origins["landing"] != "default" else None
    return None if url is None else open_landed(url, root.env)
