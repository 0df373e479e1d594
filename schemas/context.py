"""The context of a model call: hashes of its items, the running hash over them, and lists built by extension.

Source: design/events.md, *Context*. Three definitions fix bytes:

* `item_hash(wire)` = sha256 of the canonical JSON (RFC 8785) of the message without transport-only keys.
* The running hash over items: r(0) = sha256("trajlake context 1"), r(k) = sha256(r(k-1) LF item hash k), in
  lower-case hex, no LF at the end. So r(k) needs r(k-1) and one item, and a longer context extends a shorter.
* `context_hash` = sha256("trajlake context 1" LF head hash LF r(n)), where the head hash is sha256 of the
  canonical JSON of the head's fields and its retrieved items. The head enters last: another tool list or
  parameter changes one hash and leaves what is known about the items as it was.

A list is kept as `Build` nodes, one for each `ContextBuilt`, holding only what that event appended: linear in
what is new, whatever is appended, rolled back, compacted or branched.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from .canonical_json import canonical
from .errors import InvalidEvent
from .events import ContextBuilt, ContextHead, Json, Ref, RetrievedItem

TRANSPORT_ONLY: Final = frozenset({"cache_control", "cachePoint"})
"""Keys that steer a provider's cache and are no part of what the model reads. Dropped from a message and from
its content blocks, at any depth of `content`; never inside arguments. A block left empty is dropped whole."""

_LABEL: Final = "trajlake context 1"
ITEMS_START: Final = hashlib.sha256(_LABEL.encode()).hexdigest()
"""r(0): the running hash over no items."""


def item_hash(wire: Json) -> str:
    """Return the hash (hex) of one message, given as its value tree before bulk became blobs."""
    return hashlib.sha256(canonical(without_transport(wire))).hexdigest()


def without_transport(wire: Json) -> Json:
    """Return the message without transport-only keys; the argument is left as it is."""
    if not isinstance(wire, dict):
        return wire
    bare = {key: value for key, value in wire.items() if key not in TRANSPORT_ONLY}
    blocks = bare.get("content")
    if isinstance(blocks, list):
        cleaned = [(block, without_transport(block)) for block in blocks]
        bare["content"] = [clean for block, clean in cleaned if clean or not block]
    return bare


def extend_items_hash(items_hash: str, hashes: Iterable[str]) -> str:
    """Return the running hash after `hashes` more items; start from `ITEMS_START`."""
    for one in hashes:
        items_hash = hashlib.sha256(f"{items_hash}\n{one}".encode()).hexdigest()
    return items_hash


def head_hash(head: ContextHead, retrieved: Sequence[RetrievedItem] = ()) -> str:
    """Return the hash (hex) of what stands before the items, and of which items were retrieved, in order."""
    tree = {
        "parameters": head.parameters,
        "retrieved": [[item.source, item.item_id, item.version, item.place_in_context] for item in retrieved],
        "system": head.system,
        "template": head.template,
        "tokenizer": head.tokenizer,
        "tools": head.tools,
    }
    return hashlib.sha256(canonical(tree)).hexdigest()


def context_hash(head: ContextHead, items_hash: str, retrieved: Sequence[RetrievedItem] = ()) -> str:
    """Return the hash of a whole context from its head and the running hash over its items."""
    return context_hash_under(head_hash(head, retrieved), items_hash)


def context_hash_under(head_digest: str, items_hash: str) -> str:
    """Return the hash of a whole context from the hash of its head, for a caller that keeps that."""
    return hashlib.sha256(f"{_LABEL}\n{head_digest}\n{items_hash}".encode()).hexdigest()


def context_hash_of(head: ContextHead, hashes: Iterable[str], retrieved: Sequence[RetrievedItem] = ()) -> str:
    """Return the hash of a context from scratch: its head and every item hash in order."""
    return context_hash(head, extend_items_hash(ITEMS_START, hashes), retrieved)


class Build(msgspec.Struct, frozen=True, array_like=True):
    """One `ContextBuilt`, by reference: `length` = keep + what it appended. Plain data, five values on disk."""

    built: Ref
    base: Ref | None
    keep: int
    append: tuple[Ref, ...]
    length: int


class Builds:
    """The builds of one trajectory in log order, ancestors' first. Not for several threads."""

    def __init__(self, builds: Iterable[Build] = ()) -> None:
        self._builds: list[Build] = []
        self._places: list[tuple[int, int]] = []
        for build in builds:
            self._add(build)

    def __len__(self) -> int:
        return len(self._builds)

    def __getitem__(self, index: int) -> Build:
        return self._builds[index]

    def _add(self, build: Build) -> None:
        self._builds.append(build)
        self._places.append(_place(build.built))

    def at(self, reference: Ref) -> Build | None:
        """Return the context in force at an event: the last one built there or before; None if there is none."""
        index = bisect_right(self._places, _place(reference)) - 1
        return self._builds[index] if index >= 0 else None

    def extend(self, built: Ref, event: ContextBuilt) -> Build:
        """Add the build of `event`. Raises `InvalidEvent` when it keeps more items than its base has."""
        base = None if event.base is None else self.at(event.base)
        known = 0 if base is None else base.length
        if not 0 <= event.keep <= known:
            raise InvalidEvent(
                f"ContextBuilt {built}: keeps {event.keep} items of base {event.base}, which has {known}"
            )
        if event.keep and base is not None:
            build = Build(built, base.built, event.keep, event.append, event.keep + len(event.append))
        else:
            build = Build(built, None, 0, event.append, len(event.append))
        self._add(build)
        return build

    def items(self, reference: Ref, first: int = 0) -> list[Ref]:
        """Return the items of the context in force at `reference`, from index `first` on: linear in their number
        and in the builds they stand in. [] when nothing was built there yet.
        """
        build = self.at(reference)
        wanted = 0 if build is None else build.length
        stretches: list[tuple[Ref, ...]] = []
        while build is not None and wanted > first:
            if wanted > build.keep:
                stretches.append(build.append[max(0, first - build.keep) : wanted - build.keep])
                wanted = build.keep
            build = None if build.base is None else self.at(build.base)
        return [item for stretch in reversed(stretches) for item in stretch]


def _place(reference: Ref) -> tuple[int, int]:
    """Log order over ancestors: a grandparent's events before a parent's before the trajectory's own."""
    if isinstance(reference, int):
        return 0, reference
    return -reference[0], reference[1]
