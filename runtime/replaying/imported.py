"""Imported trajectories: no harness of ours wrote them, so what can be checked is the record itself.

| level     | what is compared                                           | when                                 |
|-----------|-------------------------------------------------------------|--------------------------------------|
| `context` | each context's items and hash against the recorded events   | the source tells what replies saw    |
| `actions` | each result against a proposed call (always checked)        | otherwise                            |

The report counts what the level does not reach: contexts with an item whose hash the source does not tell, replies
without a context, calls without a result. The harness's code, its policy, its inputs and the arguments it passed are in
no source: the report says so.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Final

from trajlake.schemas.context import Builds, context_hash_of
from trajlake.schemas.envelope import Event

from .record import Record
from .report import Report

HASHED: Final = ("MessageAdded", "ModelReplied", "ToolResult", "ToolSettled", "Compacted")


def replay_imported(record: Record) -> Report:
    """Check an imported record at the level it allows; `notes` name the level and what is missing."""
    started: Any = record.outline.notable[0].body
    seen = Seen()
    difference: Report | None = None
    for event in record.read():
        difference = seen.at(event) or difference
    notes = _notes(started.source.format if started.source is not None else "?", seen)
    report = difference or Report(verdict="same")
    return replace(report, trajectory_id=record.trajectory_id, events=record.outline.count, notes=notes)


@dataclass
class Seen:
    """What was gone through, and how far the level reached."""

    counted: Counter[str] = field(default_factory=Counter)
    hashes: dict[int, str] = field(default_factory=dict)
    calls: set[str] = field(default_factory=set)
    answered: set[str] = field(default_factory=set)
    builds: Builds = field(default_factory=Builds)
    checked: int = 0
    without_context: int = 0
    in_context: set[int] = field(default_factory=set)
    first: Report | None = None

    def at(self, event: Event) -> Report | None:
        """Take in one event; return the first difference of all."""
        body = event.body
        self.counted[event.type] += 1
        digest = str(getattr(body, "item_hash", "") or "") if event.type in HASHED else ""
        if digest:
            self.hashes[event.sequence_number] = digest
        if event.type == "ModelReplied":
            self.calls |= {f"{event.sequence_number}.{index}" for index in range(len(body.calls))}
            self.without_context += body.context not in self.in_context
        elif event.type == "ContextBuilt":
            self.in_context.add(event.sequence_number)
            self.first = self.first or self._context(event)
        elif event.type == "ToolResult":
            self.answered.add(body.action_id)
            if body.action_id not in self.calls:
                self.first = self.first or _differs(event, f"result of {body.action_id}", "a proposed call", "none")
        return self.first

    def _context(self, event: Event) -> Report | None:
        body = event.body
        self.builds.extend(event.sequence_number, body)
        refs = [ref if isinstance(ref, int) else -1 for ref in self.builds.items(event.sequence_number)]
        if any(ref not in self.hashes for ref in refs):
            return None  # an item whose hash the source does not tell: the level does not reach it
        self.checked += 1
        found = context_hash_of(body.head, [self.hashes[ref] for ref in refs], body.retrieved)
        if found == body.context_hash:
            return None
        return _differs(event, f"model {body.purpose}", body.context_hash, found)


def _differs(event: Event, operation: str, expected: str, got: str) -> Report:
    return Report(
        verdict="differs", turn=event.turn, operation=operation, expected=expected, got=got, cause="changed",
        component="imported record", source="environment", sequence_number=event.sequence_number,
    )  # fmt: skip


def _notes(source_format: str, seen: Seen) -> tuple[str, ...]:
    counted = seen.counted
    contexts = counted["ContextBuilt"]
    level = "context" if contexts else "actions"
    missing = ["the harness's code", "recorded inputs"]
    missing += ["authorizations"] if not counted["Authorized"] else []
    missing += ["intents (arguments as passed, keys, effect classes)"] if not counted["ToolIntent"] else []
    if not contexts:
        missing += ["contexts"]
    else:
        missing += _some(contexts - seen.checked, contexts, "contexts whose items all have a hash")
        missing += _some(seen.without_context, counted["ModelReplied"], "contexts of replies")
    missing += _some(len(seen.calls - seen.answered), len(seen.calls), "results of calls")
    checked = f" ({seen.checked} of {contexts} contexts)" if contexts else ""
    return (
        f"imported from {source_format}: checked at level '{level}'{checked}, without running a harness",
        f"missing in the source: {', '.join(missing)}",
    )


def _some(count: int, of: int, what: str) -> list[str]:
    return [f"{count} of {of} {what}"] if count else []
