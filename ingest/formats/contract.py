"""The importer contract: a pure function from an opened source to a stream of items, and a loss tally.

An importer never numbers, salts, hashes or writes anything. It must hold these rules, which
`formats/conformance.py` checks for any importer on any file:

1. *Deterministic*: the same bytes give the same items and the same loss report.
2. *Append-only*: the items of a trajectory read from a shorter source (cut after any whole record) are a
   prefix of its items read from the longer one. What later records could still change is held back.
3. *Event 0* of a trajectory is `TaskStarted(origin="imported", source=ImportSource(...))`, and nothing in
   `source` changes when the file grows.
4. *Total*: a record of unknown type is `loss.kept` and becomes `SourceKept`; it never raises. `BadSource` is
   raised only before the first item: later trouble goes to `loss.problem` and the rest is imported.
5. Every payload names its `place` (`line 12`, or a JSON pointer).

Third parties register an importer under the entry-point group `trajlake.importers` (name = format name,
value = `module:OBJECT`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

import msgspec

from trajlake.runtime.cli_errors import UserError
from trajlake.schemas.events import Payload

from ..sources import Source

IMPORTERS_GROUP: Final = "trajlake.importers"
PROBLEMS_MAX: Final = 100
"""Problems that a loss report spells out; more are counted."""


class BadSource(UserError):
    """A source that cannot be read as its format: nothing of it is imported. Exit code 2."""

    def __init__(self, name: str, place: str, what: str) -> None:
        where = f"{name}: {place}" if place else name
        super().__init__(f"{where}: {what}")


class Item(msgspec.Struct, frozen=True, gc=False):
    """One event to be. Items of one trajectory are numbered in the order they come, from 0."""

    trajectory_id: str
    payload: Payload
    turn: int
    recorded_at: int


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller may ask of any importer.

    `ended`: the source will not grow, so that an unfinished last reply is imported instead of held back.
    `following`: the source is being watched: a trajectory that has no reply yet waits for one.
    `copied`: identities of records that another session holds already (see `KnowsCopies`): they are context,
    not events of their own, and a session of nothing else gives nothing.
    """

    tenant: str = "default"
    ended: bool = False
    following: bool = False
    copied: frozenset[str] = frozenset()


class Loss:
    """What became of the records of one source. Every record seen is mapped, kept raw, skipped or held back."""

    def __init__(self) -> None:
        self.seen: defaultdict[str, int] = defaultdict(int)
        self.mapped: defaultdict[str, int] = defaultdict(int)
        self.kept: defaultdict[str, int] = defaultdict(int)
        self.skipped: defaultdict[str, int] = defaultdict(int)
        self.held_back: defaultdict[str, int] = defaultdict(int)
        self.notes: defaultdict[str, int] = defaultdict(int)
        self.problems: list[str] = []
        self.problem_count = 0
        self.copied = 0

    def map(self, kind: str, count: int = 1) -> None:
        """A record (of `kind`) became one event or more."""
        self.seen[kind] += count
        self.mapped[kind] += count

    def keep(self, kind: str, count: int = 1) -> None:
        """A record has no event of its own; its text is in a `SourceKept`."""
        self.seen[kind] += count
        self.kept[kind] += count

    def skip(self, kind: str, count: int = 1) -> None:
        """A record was left out (blank, a copy of one already mapped); the source blob still holds it."""
        self.seen[kind] += count
        self.skipped[kind] += count

    def hold(self, kind: str, count: int = 1) -> None:
        """A record waits for the source to grow: nothing of it is imported yet."""
        self.seen[kind] += count
        self.held_back[kind] += count

    def note(self, what: str, count: int = 1) -> None:
        """Count something worth knowing that loses no record (a repeated call id, an orphan result)."""
        self.notes[what] += count

    def problem(self, place: str, what: str) -> None:
        """Report damage in the source; the import goes on."""
        self.problem_count += 1
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(f"{place}: {what}")

    def as_report(self) -> dict[str, Any]:
        """Return the tally as plain data: totals, then the same by kind."""
        groups = {
            "seen": self.seen,
            "mapped": self.mapped,
            "kept_raw": self.kept,
            "skipped": self.skipped,
            "held_back": self.held_back,
        }
        return {
            "records": {name: sum(tally.values()) for name, tally in groups.items()},
            "by_kind": {name: dict(sorted(tally.items())) for name, tally in groups.items()},
            "notes": dict(sorted(self.notes.items())),
            "problems": list(self.problems),
            "problem_count": self.problem_count,
        }


@runtime_checkable
class Importer(Protocol):
    """One source format. `mapping_version` (from 0) is the token of its events: raise it when the mapping changes."""

    name: str
    mapping_version: int

    def sniff(self, head: bytes, name: str) -> int:
        """Return 0-100: how sure it is that a source which begins with `head` has this format."""
        ...

    def read(self, source: Source, options: ReadOptions, loss: Loss) -> Iterator[Item]:
        """Yield the items of `source` in order; tally every record in `loss`."""
        ...


class Lineage(NamedTuple):
    """Which sessions a source speaks of, and the identities of its records that a copy would repeat."""

    sessions: frozenset[str]
    records: frozenset[str]


@runtime_checkable
class KnowsCopies(Protocol):
    """What an importer adds whose tool copies history into a new file when a session is resumed or forked."""

    def opening(self, head: bytes) -> str:
        """Return what a session and its copies have in common near their start; "" if nothing tells."""
        ...

    def lineage(self, source: Source) -> Lineage:
        """Return sessions and record identities of a whole source."""
        ...
