"""Model of erasure, holds and retention over runs that are atomic (lake_commit.py shows that they are).

One trajectory. Its text may stand in the tables, in landing, in its writer's root, in the warm tier. `Rules` holds the
product's decisions, and the orders that are rules themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from trajlake.pipelines.lakehouse import protocol

ABSENT, TEXT, NULL = 0, 1, 2


class Rules(NamedTuple):
    """The product's decisions, and the order of steps where a rule is an order."""

    erasures_to_decide: Callable[..., range] = protocol.erasures_to_decide
    decide_erasure: Callable[..., str] = protocol.decide_erasure
    hold_status: Callable[..., str] = protocol.hold_status
    may_expire: Callable[..., bool] = protocol.may_expire
    is_complete: Callable[..., bool] = protocol.is_complete
    snapshot_before_ledgers: bool = True
    run_after_hold: bool = True
    empty_run_too: bool = True
    warm_reads_erased: bool = True
    runs_clear_copies: bool = True


class Case(NamedTuple):
    """Who takes part."""

    hold: bool = True
    retention: bool = True
    relands: int = 1
    tries: int = 2


class World(NamedTuple):
    """`n`: newest snapshot, `epoch`: erasures decided in it. `asked`: epoch of the ledger. `verdict` as `n` says it.

    Processes are (step, what it read). `copies`: how often a shipper may still bring the text again; it may have it
    `in_hand` when the root drops it.
    """

    x: int
    n: int
    epoch: int
    verdict: str
    state: str
    asked: int
    landed: bool
    root: bool
    warm: bool
    warm_erased: bool
    held: bool
    status: str
    compaction: tuple[str, Any, int]
    erasure: tuple[str, Any, int]
    hold: tuple[str, Any]
    retention: tuple[str, Any, int]
    copies: int
    in_hand: bool


def first(case: Case) -> World:
    return World(
        ABSENT, 0, 0, "", "none", 0, True, True, True, False, False, "", ("idle", None, case.tries),
        ("idle", None, case.tries + 1), ("idle" if case.hold else "end", None),
        ("idle", None, 2 if case.retention else 0), case.relands, False,
    )  # fmt: skip


class LedgerModel:
    """Steps and promises under `rules`."""

    def __init__(self, case: Case, rules: Rules | None = None) -> None:
        self.case, self.rules = case, rules or Rules()

    def steps(self, w: World) -> Iterator[tuple[str, World]]:
        if w.root and w.copies and not w.in_hand:
            yield "the shipper reads it again", w._replace(in_hand=True, copies=w.copies - 1)
        if w.in_hand:
            yield "the shipper lands it again", w._replace(landed=True, in_hand=False)
            refused = w.warm_erased and self.rules.warm_reads_erased
            yield "the shipper inserts into warm again", w._replace(warm=w.warm or not refused, in_hand=False)
        if w.root:
            yield "the root drops it", w._replace(root=False)
        yield from self._compaction(w)
        yield from self._erasure(w)
        yield from self._hold(w)
        yield from self._retention(w)

    def _read(self, w: World) -> tuple[int, int, int, bool, bool]:
        return (w.n, w.epoch, w.asked, w.held, w.verdict == "refused")

    def _reads(self, w: World, at: str, what: Any, name: str, now: Callable[..., World]) -> Iterator[tuple[str, World]]:
        """Two reads, snapshot and ledgers, in the order that the rule says."""
        if at == "begin":
            yield (
                f"{name} reads {'the snapshot' if self.rules.snapshot_before_ledgers else 'the ledgers'}",
                now("second", self._read(w)),
            )
        else:
            n, epoch, asked, held, refused = self._read(w)
            ledgers = (asked, held, refused)
            both = (*what[:2], *ledgers) if self.rules.snapshot_before_ledgers else (n, epoch, *what[2:])
            yield f"{name} reads the other", now("commit", both)

    def _decide(self, w: World, read: tuple[int, int, int, bool, bool]) -> World:
        verdict = self.rules.decide_erasure(is_held=read[3])
        gone = verdict == "applied" and w.x == TEXT
        return w._replace(n=w.n + 1, epoch=read[2], verdict=verdict, x=NULL if gone else w.x)

    def _compaction(self, w: World) -> Iterator[tuple[str, World]]:
        at, what, tries = w.compaction

        def now(at: str, what: Any, w: World = w) -> World:
            return w._replace(compaction=(at, what, tries - (at == "idle")))

        if at == "idle":
            if tries and w.landed:
                yield "C begins", w._replace(compaction=("begin", None, tries))
            return
        yield "C dies", now("idle", None)
        if at in ("begin", "second"):
            yield from self._reads(w, at, what, "C", now)
        elif w.n != what[0]:
            yield "C loses", now("idle", None)
        elif self.rules.erasures_to_decide(what[1], what[2]):
            yield "C decides the erasure", self._decide(w, what)._replace(compaction=("begin", None, tries))
        else:
            # Once applied it goes on covering later copies: a hold that came after it is late.
            erased = bool(what[2]) and not what[4]
            x = w.x if w.x else (NULL if erased else TEXT)
            landed = w.landed and not (erased and self.rules.runs_clear_copies)
            yield "C commits", now("idle", None, w._replace(n=w.n + 1, x=x, landed=landed))

    def _erasure(self, w: World) -> Iterator[tuple[str, World]]:
        at, what, tries = w.erasure

        def now(at: str, what: Any = None, w: World = w) -> World:
            return w._replace(erasure=(at, what, tries - (at == "idle")))

        if at == "idle":
            if tries and w.state == "none":
                yield "E writes the ledger row", now("begin", None, w._replace(state="requested", asked=1))
            elif tries and w.state in ("requested", "pending"):
                yield "E goes on", now("begin")
            return
        if at == "end":
            return
        yield f"E dies before {at}", now("idle")
        if at in ("begin", "second"):
            yield from self._reads(w, at, what, "E", now)
        elif at == "commit":
            yield from self._erase_run(w, what, now)
        elif at == "writers":
            yield "E looks at writers", now("warm", ("root",) if w.root else ())
        elif at == "warm":
            yield "E clears warm", now("landing", what, w._replace(warm=False, warm_erased=True))
        elif at == "landing":
            yield "E clears landing", now("complete", what, w._replace(landed=False))
        else:
            whole = self.rules.is_complete(writers=what, warm=(), landing=(), pins=(), files=())
            yield "E says so", now("idle", None, w._replace(state="complete" if whole else "pending"))

    def _erase_run(self, w: World, what: Any, now: Callable[..., World]) -> Iterator[tuple[str, World]]:
        undecided = bool(protocol.erasures_to_decide(what[1], what[2]))
        if undecided and w.x == ABSENT and not self.rules.empty_run_too:
            yield "E finds nothing in the tables", now("writers", None, w._replace(verdict="applied"))
        elif undecided and w.n != what[0]:
            yield "E loses", now("begin")
        else:
            after = self._decide(w, what) if undecided else w
            if after.verdict == "refused":
                yield "E is refused", now("end", None, after._replace(state="refused"))
            else:
                yield "E commits its run", now("writers", None, after._replace(state="pending"))

    def _hold(self, w: World) -> Iterator[tuple[str, World]]:
        at, what = w.hold
        if at == "idle":
            placed = w._replace(held=True, hold=("read", None))
            if self.rules.run_after_hold:
                yield "H writes its row", placed
            else:
                status = self.rules.hold_status(is_gone=w.x == NULL)
                yield "H writes its row and confirms", placed._replace(status=status, hold=("end", None))
        elif at == "read":
            yield "H reads the snapshot", w._replace(hold=("commit", w.n))
        elif at == "commit":
            if w.n != what:
                yield "H loses", w._replace(hold=("read", None))
            else:
                gone = w.x == NULL or w.verdict == "applied"
                status = self.rules.hold_status(is_gone=gone)
                yield "H commits and looks", w._replace(n=w.n + 1, status=status, hold=("end", None))

    def _retention(self, w: World) -> Iterator[tuple[str, World]]:
        at, what, tries = w.retention

        def now(at: str, what: Any = None, w: World = w) -> World:
            return w._replace(retention=(at, what, tries - (at == "idle")))

        if at == "idle":
            if tries and w.x == TEXT:
                yield "R begins", w._replace(retention=("begin", None, tries))
        elif at in ("begin", "second"):
            yield from self._reads(w, at, what, "R", now)
        elif w.n != what[0] or self.rules.erasures_to_decide(what[1], what[2]):
            yield "R gives way", now("idle")
        elif self.rules.may_expire(is_held=what[3], is_open=False, age_s=9.0, kept_for_s=1.0):
            yield "R commits", now("idle", None, w._replace(n=w.n + 1, x=NULL))
        else:
            yield "R stops: held", now("idle")

    def broken(self, w: World) -> str | None:
        """A later copy in landing is no breach: the run that meets it removes it, and its text enters no table."""
        if w.state == "complete":
            if w.x == TEXT:
                return "complete, and a table has the text"
            if w.warm:
                return "complete, and the warm tier has the text"
            if w.landed and not self.case.relands:
                return "complete, and landing has the text"
            if w.root:
                return "complete, and a writer has the text"
        if w.status == "confirm" and w.x == NULL:
            return "a confirmed hold, and the text is gone"
        return None
