"""Verbs `journal ls|verify|tail|dump`: look into a root's segments. They never write."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from trajlake.runtime.cli_errors import EXIT_DONE, EXIT_FINDINGS, UserError, one_line
from trajlake.runtime.commands.root import JOURNAL, JSON, ROOT, damaged, open_root, print_json, settings_of, table
from trajlake.runtime.settings import load

if TYPE_CHECKING:
    from trajlake.runtime.root import Root
    from trajlake.schemas.envelope import Event

ONE_ID = Annotated[str | None, typer.Option("--id", metavar="ID", help="Only this trajectory.")]
OF_TENANT = Annotated[str | None, typer.Option("--tenant", help="Only this tenant's; default: all.")]


def ls(root: ROOT = None, journal: JOURNAL = None, as_json: JSON = False) -> None:
    """List writers and their segments: lsns, size, sealed or not, and whether the writer's process lives."""
    opened = open_root(settings_of(journal, root=root).journal)
    rows = list(segment_rows(opened))
    if as_json:
        print_json(rows)
        return
    headings = ("writer", "alive", "segment", "first lsn", "last lsn", "events", "bytes", "sealed")
    table(
        headings, [[_cell(row[name.replace(" ", "_")]) for name in headings] for row in rows], empty="no segments here"
    )


def segment_rows(root: Root) -> Iterator[dict[str, Any]]:
    """Yield one row per segment; a damaged one has its error in place of numbers."""
    from trajlake.runtime.wal.journal_errors import JournalError
    from trajlake.runtime.wal.reader import open_segment, read_segment, segment_numbers
    from trajlake.runtime.wal.segment_format import SUFFIX

    for writer in root.writers():
        alive = root.is_alive(writer)
        for number in segment_numbers(root.env, root.writer_folder(writer)):
            row: dict[str, Any] = {"writer": writer, "alive": alive, "segment": number, "error": ""}
            path = f"{root.writer_folder(writer)}/{number:020d}{SUFFIX}"
            facts: dict[str, Any] = dict.fromkeys(("first_lsn", "last_lsn", "events", "bytes", "sealed"))
            try:
                segment = open_segment(root.env, path)
                facts |= {"first_lsn": segment.first_lsn, "bytes": segment.size_bytes, "sealed": segment.is_sealed}
                last = segment.last_lsn if segment.is_sealed else read_segment(root.env, path).last_lsn
                facts |= {"last_lsn": last, "events": (last or 0) - segment.first_lsn + 1}
            except FileNotFoundError:
                continue
            except JournalError as error:
                row["error"] = str(error)
            yield {**row, **facts}


def verify(root: ROOT = None, journal: JOURNAL = None, as_json: JSON = False) -> int:
    """Check frames, lsns, histories, hash chains, blobs, checkpoints and lease records. Exit 1 if any is damaged.

    A torn tail (what a crash leaves of the last write) and events that are held back are notes, not damage.
    """
    from trajlake.runtime.upkeep.journal_check import Checked, check_root

    opened = open_root(settings_of(journal, root=root).journal)
    checked = Checked()
    findings = list(check_root(opened, checked))
    damage = [finding for finding in findings if not finding.is_note]
    if as_json:
        shown = [msgspec.to_builtins(finding) | {"note": finding.is_note} for finding in findings]
        print_json({"ok": not damage, "checked": msgspec.to_builtins(checked), "findings": shown})
    else:
        for finding in findings:
            print(one_line(f"{'note: ' if finding.is_note else ''}{finding.kind}: {finding.where}: {finding.detail}"))
        print(
            f"{'damaged' if damage else 'ok'}: {checked.events} events of {checked.trajectories} trajectories in "
            f"{checked.segments} segments of {checked.writers} writers, {checked.checkpoints} checkpoints, "
            f"{checked.blobs} blobs; {len(damage)} findings"
        )
    return EXIT_FINDINGS if damage else EXIT_DONE


def tail(
    root: ROOT = None,
    journal: JOURNAL = None,
    trajectory_id: ONE_ID = None,
    tenant: OF_TENANT = None,
    lines: Annotated[int, typer.Option("-n", min=0, help="How many events.")] = 20,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as events arrive.")] = False,
    as_json: JSON = False,
) -> None:
    """Show the last events of a root, by the clock of the workers that wrote them."""
    opened = open_root(settings_of(journal, root=root).journal)
    next_lsn: dict[str, int] = {}
    last: list[Event] = []
    for writer in opened.writers():
        start = 0 if trajectory_id or tenant else _near_the_end(opened, writer, lines)
        events = list(_events(opened, writer, start, trajectory_id, tenant, next_lsn))
        last = sorted([*last, *events[-lines:]], key=lambda event: event.recorded_at)[-lines:] if lines else []
    _print_events(last, as_json)
    seen: dict[str, list[tuple[str, int]]] = {}
    while follow:
        sys.stdout.flush()
        time.sleep(0.3)
        for writer in opened.writers():
            marks = _marks(opened, writer)
            if seen.get(writer) != marks:
                seen[writer] = marks
                start = next_lsn.get(writer, 0)
                _print_events(_events(opened, writer, start, trajectory_id, tenant, next_lsn), as_json)


def dump(
    root: ROOT = None,
    journal: JOURNAL = None,
    trajectory_id: ONE_ID = None,
    tenant: OF_TENANT = None,
    lsn: Annotated[int | None, typer.Option("--lsn", min=0, help="Only the event at this lsn, of each writer.")] = None,
    writer: Annotated[str | None, typer.Option("--writer", metavar="ID", help="Only this writer's events.")] = None,
    number: Annotated[
        int | None, typer.Option("--number", min=0, help="Only this sequence number of the trajectory --id.")
    ] = None,
) -> None:
    """Write every event as one line of JSON, writer by writer in lsn order; payload texts are as recorded.

    With --lsn, or --id and --number, one event is read by its place, through the index of its segment.
    """
    opened = open_root(settings_of(journal, root=root).journal)
    writers = opened.writers()
    if writer is not None:
        if writer not in writers:
            raise UserError(f"no writer {writer!r} in {opened.path}; 'trajlake journal ls' lists them")
        writers = [writer]
    if number is not None and (trajectory_id is None or lsn is not None):
        raise UserError("--number says which event of a trajectory: give --id too, and no --lsn")
    if lsn is not None or number is not None:
        _print_events(_at_place(opened, writers, trajectory_id, tenant, lsn, number), as_json=True)
        return
    for one in writers:
        _print_events(_events(opened, one, 0, trajectory_id, tenant, {}), as_json=True)


def _at_place(
    root: Root, writers: list[str], trajectory_id: str | None, tenant: str | None, lsn: int | None, number: int | None
) -> list[Event]:
    """The events at one lsn, or of one number; an error that says so if there is none."""
    from trajlake.runtime.wal.journal_errors import SegmentCorrupt
    from trajlake.runtime.wal.point_read import read_lsn, read_sequence_number

    folders = [root.writer_folder(writer) for writer in writers]
    try:
        if lsn is not None:
            read = (read_lsn(root.env, folder, lsn) for folder in folders)
            wanted = (trajectory_id, tenant)
            found = [
                event for event in read
                if event and wanted[0] in (None, event.trajectory_id) and wanted[1] in (None, event.tenant)
            ]  # fmt: skip
        else:
            assert trajectory_id is not None
            assert number is not None
            found = read_sequence_number(root.env, folders, tenant or load().tenant, trajectory_id, number)
    except SegmentCorrupt as error:
        raise damaged(error, root) from None
    if not found:
        place = f"lsn {lsn}" if lsn is not None else f"sequence number {number} of {trajectory_id!r}"
        raise UserError(f"no event at {place} in {root.path}; 'trajlake journal ls' shows what is here")
    return found


def _marks(root: Root, writer: str) -> list[tuple[str, int]]:
    """What changes in a writer's folder whenever it appends: names, and when each was written last."""
    folder = root.writer_folder(writer)
    marks: list[tuple[str, int]] = []
    for name in root.env.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            marks.append((name, root.env.stat(f"{folder}/{name}").modified_at_us))
    return marks


def _near_the_end(root: Root, writer: str, lines: int) -> int:
    """An lsn from which at least `lines` events follow, if there are as many; whole segments before it are not read."""
    from trajlake.runtime.wal.reader import list_segments

    firsts = [segment.first_lsn for segment in list_segments(root.env, root.writer_folder(writer))]
    wanted = (firsts[-1] if firsts else 0) - lines
    return max([first for first in firsts if first <= wanted], default=0)


def _events(
    root: Root, writer: str, from_lsn: int, trajectory_id: str | None, tenant: str | None, next_lsn: dict[str, int]
) -> Iterator[Event]:
    """Yield a writer's events; note in `next_lsn` where to go on. Damage ends it with a line that says so."""
    from trajlake.runtime.wal.journal_errors import SegmentCorrupt
    from trajlake.runtime.wal.reader import iter_events

    try:
        for event in iter_events(root.env, root.writer_folder(writer), from_lsn=from_lsn):
            next_lsn[writer] = event.lsn + 1
            if trajectory_id in (None, event.trajectory_id) and tenant in (None, event.tenant):
                yield event
    except SegmentCorrupt as error:
        raise damaged(error, root) from None


def _print_events(events: Iterable[Event], as_json: bool) -> None:
    for event in events:
        print(event_json(event) if as_json else event_line(event))


def event_json(event: Event) -> str:
    """Return one line of JSON: envelope fields, and the payload's own text."""
    tree: dict[str, Any] = {
        "writer": event.writer, "lsn": event.lsn, "tenant": event.tenant, "trajectory_id": event.trajectory_id,
        "sequence_number": event.sequence_number, "fencing_token": event.fencing_token, "turn": event.turn,
        "type": event.type, "schema_version": event.schema_version, "recorded_at": event.recorded_at,
        "hash": event.hash.hex(), "salt": event.salt.hex() if event.salt else None,
        "payload": None if event.payload is None else msgspec.Raw(event.payload),
    }  # fmt: skip
    return msgspec.json.encode(tree).decode()


def event_line(event: Event, width: int = 100) -> str:
    """Return one line for people: when, which, what, and the beginning of its payload."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(event.recorded_at / 1e6))
    text = "" if event.payload is None else event.payload.decode(errors="replace")
    shown = text if len(text) <= width else f"{text[: width - 1]}\N{HORIZONTAL ELLIPSIS}"
    name = event.trajectory_id if event.tenant == "default" else f"{event.tenant}/{event.trajectory_id}"
    return one_line(
        f"{when} {name} #{event.sequence_number} t{event.fencing_token} turn {event.turn} {event.type} {shown}"
    )


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)
