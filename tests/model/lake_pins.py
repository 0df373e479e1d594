"""Model of a pin, an erasure and a vacuum over one lake: which files may go, and when a pin counts.

Snapshot 0 holds file f, snapshot 1 (after a merge) g, snapshot 2 (after the erasure) h; f and g hold the text. The
erasure writes p for a pin that names f or g.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from trajlake.pipelines.lakehouse import protocol

FILE_OF = {0: "f", 1: "g", 2: "h"}
RUN_OF = {"f": "0-a", "g": "1-b", "h": "2-c", "p": "2-c"}
TEXT = frozenset("fg")


class Rules(NamedTuple):
    """The product's decisions; `expire_before_pins`: snapshots are expired before pins are listed."""

    may_remove: Callable[..., bool] = protocol.may_remove
    keep_snapshots: Callable[..., protocol.Kept] = protocol.keep_snapshots
    pin_counts: Callable[..., bool] = protocol.pin_counts
    expire_before_pins: bool = True


class World(NamedTuple):
    """`pin`: the file it names, `counts` since its check. `asked`: the ledger's epoch."""

    n: int
    disk: frozenset[str]
    expired: frozenset[int]
    asked: int
    pin: str
    counts: bool
    pinner: tuple[str, Any]
    vacuum: tuple[str, Any, int]
    erasure: tuple[str, Any]
    complete: bool


FIRST = World(0, frozenset("f"), frozenset(), 0, "", False, ("idle", None), ("idle", None, 2), ("idle", None), False)


class PinModel:
    """Steps and promises under `rules`."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()

    def steps(self, w: World) -> Iterator[tuple[str, World]]:
        if w.n == 0 and w.asked == 0:
            yield "a merge commits 1", w._replace(n=1, disk=w.disk | {"g"})
        yield from self._pinner(w)
        yield from self._vacuum(w)
        yield from self._erasure(w)

    def _pinner(self, w: World) -> Iterator[tuple[str, World]]:
        at, what = w.pinner
        if at == "idle":
            for n in range(w.n + 1):
                if n not in w.expired:
                    yield f"P reads snapshot {n}", w._replace(pinner=("put", n))
        elif at == "put":
            yield "P puts the pin", w._replace(pin=FILE_OF[what], pinner=("check", what))
        elif at == "check":
            epoch = 1 if what == 2 else 0
            counts = self.rules.pin_counts(is_expired=what in w.expired, snapshot_epoch=epoch, ledger_epoch=w.asked)
            if counts:
                yield "P counts", w._replace(counts=True, pinner=("end", None))
            else:
                yield "P withdraws", w._replace(pin="", pinner=("end", None))

    def _named(self, w: World) -> frozenset[str]:
        return frozenset(FILE_OF[n] for n in range(w.n + 1) if n not in w.expired)

    def _vacuum(self, w: World) -> Iterator[tuple[str, World]]:
        at, what, tries = w.vacuum
        if at == "idle":
            if tries:
                readable = {n: 9.0 for n in range(w.n + 1) if n not in w.expired}
                expire = tuple(self.rules.keep_snapshots(readable, 1.0).expire)
                early = w.pin if not self.rules.expire_before_pins else None
                yield "V begins", w._replace(vacuum=("expire", (expire, early), tries))
        elif at == "expire":
            yield "V expires", w._replace(expired=w.expired | set(what[0]), vacuum=("list", what[1], tries))
        elif at == "list":
            pinned = w.pin if self.rules.expire_before_pins else what
            pending = {"2-c"} if w.asked and not w.complete and w.n == 2 else set()
            named = self._named(w)
            gone = frozenset(
                file for file in w.disk
                if self.rules.may_remove(RUN_OF[file], snapshots=range(w.n + 1), is_named=file in named,
                                         is_pinned=file == pinned, pending_runs=pending)
            )  # fmt: skip
            yield "V lists files", w._replace(vacuum=("delete", gone, tries))
        else:
            yield "V deletes", w._replace(disk=w.disk - what, vacuum=("idle", None, tries - 1))

    def _erasure(self, w: World) -> Iterator[tuple[str, World]]:
        at, what = w.erasure
        if at == "idle" and w.n == 1:
            yield "E writes the ledger row", w._replace(asked=1, erasure=("run", None))
        elif at == "run":
            yield "E commits 2", w._replace(n=2, disk=w.disk | {"h"}, erasure=("expire", None))
        elif at == "expire":
            yield "E expires", w._replace(expired=w.expired | {0, 1}, erasure=("pins", None))
        elif at == "pins":
            yield "E lists pins", w._replace(erasure=("write", w.pin) if w.pin in TEXT and w.pin else ("old", None))
        elif at == "write":
            yield "E writes p", w._replace(disk=w.disk | {"p"}, erasure=("replace", what))
        elif at == "replace":
            yield "E replaces the pin", w._replace(pin="p" if w.pin else "", erasure=("old", None))
        elif at == "old":
            yield "E removes old files", w._replace(disk=w.disk - TEXT, erasure=("end", None), complete=True)

    def broken(self, w: World) -> str | None:
        for n in range(w.n + 1):
            if n not in w.expired and FILE_OF[n] not in w.disk:
                return f"a file of readable snapshot {n} is gone"
        if w.counts and w.pin and w.pin not in w.disk:
            return "a pin that counts names a file that is gone"
        if w.complete and w.disk & TEXT:
            return "complete, and a file has the text"
        return None
