"""Format `auto`: every importer says how sure it is of a source's first bytes; the surest one reads it."""

from __future__ import annotations

from ..sources import Source
from .contract import BadSource, Importer
from .registry import importer, names


def scores(source: Source) -> list[tuple[int, str]]:
    """Return (score, format) of every importer that recognises the source, the surest first, ties by name."""
    head = source.head()
    if not head.strip(b" \t\r\n\0"):
        return []
    found = [(importer(name).sniff(head, source.name), name) for name in names()]
    return sorted(((score, name) for score, name in found if score > 0), key=lambda pair: (-pair[0], pair[1]))


def detect(source: Source) -> Importer:
    """Return the importer for a source; raise `BadSource` if none knows it."""
    found = scores(source)
    if found:
        return importer(found[0][1])
    if not source.head().strip():
        raise BadSource(source.name, "", "is empty: nothing to import")
    raise BadSource(source.name, "line 1", "has none of the known formats; name one to see why it is refused")
