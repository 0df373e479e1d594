"""The importer contract as checks that anyone can run over any importer and any file: `check(importer, source)`.

Third parties: `from trajlake.ingest.formats.conformance import check` and call it in a test of your own for each
sample file; it returns what is broken, one line each, and [] when the importer conforms.
"""

from __future__ import annotations

from collections.abc import Iterator

from trajlake.runtime.cli_errors import UserError
from trajlake.schemas.blobs import offload_payload
from trajlake.schemas.chain import genesis, import_salt, make_event
from trajlake.schemas.errors import SchemaError
from trajlake.schemas.events import ModelReplied, TaskEnded, TaskStarted, ToolResult
from trajlake.schemas.ids import check_trajectory_id, parse_action_id

from ..sources import Source
from .contract import Importer, Item, Loss, ReadOptions


def read_all(importer: Importer, data: bytes, name: str, *, ended: bool = False) -> tuple[list[Item], Loss]:
    """Return all items and the tally of a source given as bytes."""
    loss = Loss()
    return list(importer.read(Source.of_bytes(data, name), ReadOptions(ended=ended), loss)), loss


def check(importer: Importer, source: Source, *, cuts: int = 20) -> list[str]:
    """Return what an importer breaks on one source. `cuts`: at how many line ends a line format is cut short."""
    with source.open() as stream:
        data = stream.read()
    name = source.name
    items, loss = read_all(importer, data, name)
    again, loss_again = read_all(importer, data, name)
    broken = []
    if items != again or loss.as_report() != loss_again.as_report():
        broken.append("not deterministic: two readings of the same bytes differ")
    if importer.sniff(data[:65_536], name) <= 0:
        broken.append("sniff does not recognise a source that read accepts")
    broken += _tally_findings(loss)
    broken += _item_findings(items)
    broken += _event_findings(items)
    if len(data.splitlines()) > 1 and _is_line_format(data):
        broken += _growth_findings(importer, data, name, items, cuts)
    return broken


def by_trajectory(items: list[Item]) -> dict[str, list[Item]]:
    """Return the items of each trajectory, in order."""
    found: dict[str, list[Item]] = {}
    for item in items:
        found.setdefault(item.trajectory_id, []).append(item)
    return found


def _tally_findings(loss: Loss) -> Iterator[str]:
    records = loss.as_report()["records"]
    told = records["mapped"] + records["kept_raw"] + records["skipped"] + records["held_back"]
    if records["seen"] != told:
        yield f"loss: {records['seen']} records seen, {told} accounted for"


def _item_findings(items: list[Item]) -> Iterator[str]:
    for name, mine in by_trajectory(items).items():
        try:
            check_trajectory_id(name)
        except SchemaError as error:
            yield str(error)
        start = mine[0].payload
        if not isinstance(start, TaskStarted) or start.origin != "imported" or start.source is None:
            yield f"{name}: event 0 is no TaskStarted(origin=imported, source=...)"
        for number, item in enumerate(mine):
            if not item.payload.place and number:
                yield f"{name}: event {number} ({type(item.payload).__name__}) names no place"
            if isinstance(item.payload, TaskStarted) and number:
                yield f"{name}: event {number} is a second TaskStarted"
            if isinstance(item.payload, TaskEnded) and number != len(mine) - 1:
                yield f"{name}: something follows TaskEnded at event {number}"
        yield from _pairing_findings(name, mine)


def _pairing_findings(name: str, items: list[Item]) -> Iterator[str]:
    answered: set[str] = set()
    for number, item in enumerate(items):
        if not isinstance(item.payload, ToolResult):
            continue
        _, proposed, index = parse_action_id(item.payload.action_id)
        reply = items[proposed].payload if proposed < number else None
        if not isinstance(reply, ModelReplied) or index >= len(reply.calls):
            yield f"{name}: event {number} answers {item.payload.action_id}, which no earlier reply proposed"
        elif item.payload.action_id in answered:
            yield f"{name}: event {number} answers {item.payload.action_id} a second time"
        answered.add(item.payload.action_id)


def _event_findings(items: list[Item]) -> Iterator[str]:
    for name, mine in by_trajectory(items).items():
        prev = genesis("default", name)
        for number, item in enumerate(mine):
            try:
                event = make_event(
                    offload_payload(item.payload)[0],
                    tenant="default",
                    trajectory_id=name,
                    sequence_number=number,
                    fencing_token=0,
                    turn=item.turn,
                    recorded_at=item.recorded_at,
                    salt=import_salt("f", "s", "", number),
                    prev=prev,
                )
            except SchemaError as error:
                yield f"{name}: event {number}: {error}"
                break
            prev = event.hash


def _is_line_format(data: bytes) -> bool:
    return data.lstrip()[:1] == b"{" and data.count(b"\n{") >= 1


def _growth_findings(importer: Importer, data: bytes, name: str, whole: list[Item], cuts: int) -> Iterator[str]:
    """Cut at line ends: what a shorter source gives must be a prefix of what the whole gives (event 0's model and
    task aside, which may come later)."""
    complete = by_trajectory(whole)
    ends = [at + 1 for at, byte in enumerate(data) if byte == 0x0A]
    for end in ends[:: max(1, len(ends) // cuts)]:
        try:
            items, _ = read_all(importer, data[:end], name)
        except UserError:
            continue
        for trajectory, mine in by_trajectory(items).items():
            full = complete.get(trajectory, [])
            if len(mine) > len(full) or any(one != other for one, other in zip(mine[1:], full[1:], strict=False)):
                at = next((n for n, (one, other) in enumerate(zip(mine, full, strict=False)) if n and one != other), -1)
                yield f"{trajectory}: cut at byte {end}, event {at} is not what the whole source gives"
                return
