"""Imported trajectories: no harness of ours wrote them, so what can be checked is the record itself.

| level     | what is compared                                           | when                                 |
|-----------|-------------------------------------------------------------|--------------------------------------|
| `context` | every context's items and hash against the recorded events  | each reply has its `ContextBuilt`    |
| `actions` | each result against a proposed call                         | otherwise                            |

The harness's code, its policy, its inputs and the arguments it passed are not in the source: the report says so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from trajlake.schemas.context import context_hash_of
from trajlake.schemas.envelope import Event

from .record import Record
from .report import Report

HASHED: Final = ("MessageAdded", "ModelReplied", "ToolResult", "ToolSettled", "Compacted")


def replay_imported(record: Record) -> Report:
    """Check an imported record at the level it allows; `notes` name the level and what is missing."""
    started: Any = record.outline.notable[0].body
    counted: dict[str, int] = {}
    hashes: dict[int, str] = {}
    calls: set[str] = set()
    items: dict[int, list[int]] = {}
    difference: Report | None = None
    for event in record.read():
        counted[event.type] = counted.get(event.type, 0) + 1
        body = event.body
        digest = str(getattr(body, "item_hash", "") or "") if event.type in HASHED else ""
        if digest:
            hashes[event.sequence_number] = digest
        if event.type == "ModelReplied":
            calls |= {f"{event.sequence_number}.{index}" for index in range(len(body.calls))}
        elif event.type == "ContextBuilt":
            difference = difference or _context(event, hashes, items)
        elif event.type == "ToolResult" and body.action_id not in calls:
            difference = difference or _differs(event, f"result of {body.action_id}", "a proposed call", "none")
    notes = _notes(started.source.format if started.source is not None else "?", counted)
    report = difference or Report(verdict="same")
    return replace(report, trajectory_id=record.trajectory_id, events=record.outline.count, notes=notes)


def _context(event: Event, hashes: dict[int, str], items: dict[int, list[int]]) -> Report | None:
    body = event.body
    kept = items.get(body.base, [])[: body.keep] if body.base is not None else []
    refs = [*kept, *body.append]
    items.clear()
    items[event.sequence_number] = refs
    if any(ref not in hashes for ref in refs):
        return None  # an item whose hash the source does not tell: the level does not reach it
    found = context_hash_of(body.head, [hashes[ref] for ref in refs], body.retrieved)
    if found == body.context_hash:
        return None
    return _differs(event, f"model {body.purpose}", body.context_hash, found)


def _differs(event: Event, operation: str, expected: str, got: str) -> Report:
    return Report(
        verdict="differs", turn=event.turn, operation=operation, expected=expected, got=got, cause="changed",
        component="imported record", source="environment", sequence_number=event.sequence_number,
    )  # fmt: skip


def _notes(source_format: str, counted: dict[str, int]) -> tuple[str, ...]:
    level = "context" if counted.get("ContextBuilt") else "actions"
    missing = ["the harness's code", "recorded inputs"]
    missing += ["authorizations"] if not counted.get("Authorized") else []
    missing += ["intents (arguments as passed, keys, effect classes)"] if not counted.get("ToolIntent") else []
    missing += ["contexts"] if not counted.get("ContextBuilt") else []
    return (
        f"imported from {source_format}: checked at level '{level}', without running a harness",
        f"missing in the source: {', '.join(missing)}",
    )
