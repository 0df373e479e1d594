"""Model of runs, snapshots, vacuum and pins: launchers and maintenance that die between any two steps, and race.

The world is abstract (three tables, files as sets of rows); every decision is one of
`trajlake.pipelines.lakehouse.protocol`.
`Rules` holds them, so that a test can take one out. Runs are named as the product names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from trajlake.pipelines.lakehouse import protocol

TABLES = 3  # events first, as in the product
Files = frozenset[Any]
NOTHING: Files = frozenset()


class Rules(NamedTuple):
    """The product's decisions, and the order of steps where a rule is an order."""

    is_half_done: Callable[..., bool] = protocol.is_half_done
    may_build_on: Callable[..., bool] = protocol.may_build_on
    must_follow: Callable[..., bool] = protocol.must_follow
    has_won: Callable[..., bool] = protocol.has_won
    may_remove: Callable[..., bool] = protocol.may_remove
    keep_snapshots: Callable[..., protocol.Kept] = protocol.keep_snapshots
    pin_counts: Callable[..., bool] = protocol.pin_counts
    run_file_first: bool = True
    events_on_one_handle: bool = True
    tables_on_one_handle: bool = True
    pins_listed_last: bool = True
    loser_deletes: bool = False


class World(NamedTuple):
    """Tables: (txn, files, winner). Snapshots: (files of each table, cursor). `runs`: (name, adds, removes, cursor)."""

    landed: int
    tables: tuple[tuple[int, Files, str], ...]
    disk: Files
    runs: Files
    snapshots: tuple[tuple[tuple[Files, ...], int], ...]
    expired: Files
    pin: tuple[Files, bool] | None
    launchers: tuple[tuple[str, Any, int], ...]
    vacuum: tuple[str, Any, int]
    pinner: tuple[str, Any]
    crashes: int


class Bounds(NamedTuple):
    """How large a world to explore. `launchers`: C compacts, M maintains; the last, a C, never dies."""

    launchers: str = "MC"
    tries: int = 1
    segments: int = 2
    crashes: int = 1
    vacuums: int = 0
    pins: int = 0


def first(bounds: Bounds) -> World:
    """Return the world at snapshot 0."""
    idle = ("idle", None, bounds.tries)
    tables = tuple((0, NOTHING, "0-init") for _ in range(TABLES))
    return World(
        0, tables, NOTHING, NOTHING, (((NOTHING,) * TABLES, 0),), NOTHING, None, (idle,) * len(bounds.launchers),
        ("idle", None, bounds.vacuums), ("idle" if bounds.pins else "end", None), bounds.crashes,
    )  # fmt: skip


def rows(files: Files) -> list[Any]:
    return [row for file in files for row in file[2]]


class CommitModel:
    """Steps and promises of a world under `rules`."""

    def __init__(self, bounds: Bounds, rules: Rules | None = None) -> None:
        self.bounds, self.rules = bounds, rules or Rules()

    def steps(self, w: World) -> Iterator[tuple[str, World]]:
        for segment in range(self.bounds.segments):
            if not w.landed >> segment & 1:
                yield f"segment {segment} lands", w._replace(landed=w.landed | 1 << segment)
        for me, kind in enumerate(self.bounds.launchers):
            yield from self._launcher(w, me, kind)
        yield from self._vacuum(w)
        yield from self._pinner(w)

    # --- launchers -------------------------------------------------------------------------------------------

    def _launcher(self, w: World, me: int, kind: str) -> Iterator[tuple[str, World]]:
        at, what, tries = w.launchers[me]
        name = f"{kind}{me}"
        immortal = me == len(self.bounds.launchers) - 1

        def now(at: str, what: Any, **changes: Any) -> World:
            left = tries if at != "idle" or immortal else tries - 1
            launchers = (*w.launchers[:me], (at, what, left), *w.launchers[me + 1 :])
            return w._replace(launchers=launchers, **changes)

        if at == "idle":
            if tries:
                yield from self._begin(w, me, kind, tries, now)
            return
        if w.crashes and not immortal:
            yield f"{name} dies before {at}", now("idle", None, crashes=w.crashes - 1)
        if at in ("write", "run file", "events", "judge"):
            yield from self._own_run(w, name, at, what, now)
        else:
            yield from self._follow(w, name, at, what, now)

    def _begin(self, w: World, me: int, kind: str, tries: int, now: Any) -> Iterator[tuple[str, World]]:
        newest, txn = len(w.snapshots) - 1, w.tables[0][0]
        if self.rules.is_half_done(txn, newest):
            found = next((run for run in w.runs if run[0] == w.tables[0][2]), None)
            if found is not None:
                yield f"{kind}{me} finds run {found[0]} half-done", now("t1", (found, None))
            return
        if not self.rules.may_build_on(txn, newest):
            return
        run = self._draft(w, kind, f"{newest + 1}-{'abc'[me]}{tries}")
        if run is not None:
            yield f"{kind}{me} reads snapshot {newest}", now("write", (run, w.tables[0]))

    def _draft(self, w: World, kind: str, name: str) -> Any:
        files, cursor = w.snapshots[-1]
        end = cursor
        while end < self.bounds.segments and w.landed >> end & 1:
            end += 1
        if kind == "C":
            if end == cursor:
                return None
            new, everything = tuple(range(cursor, end)), tuple(range(end))
            adds = (((name, "E", new),), ((name, "T", everything),), ((name, "U", new),))
            return (name, adds, (NOTHING, files[1], NOTHING), end)
        if len(files[0]) < 2:
            return None
        adds = (((name, "E", tuple(sorted(rows(files[0])))),), (), ((name, "U", tuple(sorted(rows(files[2])))),))
        return (name, adds, (files[0], NOTHING, files[2]), cursor)

    def _own_run(self, w: World, name: str, at: str, what: Any, now: Any) -> Iterator[tuple[str, World]]:
        run, handle = what[:2]
        early = self.rules.run_file_first
        if at == "write":
            files = frozenset(file for adds in run[1] for file in adds)
            yield f"{name} writes files", now("run file" if early else "events", what, disk=w.disk | files)
        elif at == "run file":
            yield f"{name} puts the run file", now("events" if early else "t1", what if early else (run, None),
                                                   runs=w.runs | {run})  # fmt: skip
        elif at == "events":
            if not self.rules.events_on_one_handle or w.tables[0] == handle:
                tables = (_applied(w.tables[0], run, 0), *w.tables[1:])
                yield f"{name} commits events", now("judge", (run, False), tables=tables)
                yield f"{name} commits events, and a hook raises", now("judge", (run, True), tables=tables)
            else:
                yield f"{name} is refused", now("judge", (run, True))
        elif self.rules.has_won(self._winner(w, protocol.run_number(run[0])), run[0]):
            yield f"{name} has won", now("t1" if early else "run file", (run, None))
        else:
            mine = frozenset(file for adds in run[1] for file in adds) if self.rules.loser_deletes else NOTHING
            yield f"{name} has lost", now("idle", None, disk=w.disk - mine)

    def _winner(self, w: World, number: int) -> str | None:
        """Return the run that the log of events names for `number`; a later run may stand on it already."""
        txn, _, winner = w.tables[0]
        if txn == number:
            return winner
        if txn < number or number >= len(w.snapshots):
            return None
        return next((file[0] for file in w.snapshots[number][0][0] if protocol.run_number(file[0]) == number), None)

    def _follow(self, w: World, name: str, at: str, what: Any, now: Any) -> Iterator[tuple[str, World]]:
        run, handle = what
        number = protocol.run_number(run[0])
        if at == "put":
            snapshots = w.snapshots
            if len(snapshots) == number:
                snapshots = (*snapshots, (tuple(table[1] for table in w.tables), run[3]))
            yield f"{name} puts snapshot {number}", now("idle", None, snapshots=snapshots)
            return
        table = int(at[1])
        following = "t2" if table == 1 else "put"
        current = w.tables[table]
        if handle is None:
            if self.rules.must_follow(current[0], number):
                yield f"{name} loads table {table}", now(at, (run, current))
            else:
                yield f"{name} skips table {table}", now(following, (run, None))
        elif self.rules.tables_on_one_handle and current != handle:
            yield f"{name} is refused on table {table}", now(at, (run, None))
        else:
            tables = (*w.tables[:table], _applied(current, run, table), *w.tables[table + 1 :])
            yield f"{name} commits table {table}", now(following, (run, None), tables=tables)

    # --- vacuum and pins -------------------------------------------------------------------------------------

    def _vacuum(self, w: World) -> Iterator[tuple[str, World]]:
        at, what, tries = w.vacuum
        if at == "idle":
            if tries:
                pins = NOTHING if self.rules.pins_listed_last or w.pin is None else w.pin[0]
                readable = [n for n in range(len(w.snapshots)) if n not in w.expired]
                kept = self.rules.keep_snapshots(dict.fromkeys(readable, 9.0), 1.0)
                yield "V begins", w._replace(vacuum=("expire", (tuple(kept.expire), pins), tries))
        elif at == "expire":
            expire, pins = what
            yield "V expires snapshots", w._replace(expired=w.expired | set(expire), vacuum=("list", pins, tries))
        elif at == "list":
            pins = (w.pin[0] if w.pin else NOTHING) if self.rules.pins_listed_last else what
            named = frozenset(
                file for n, (files, _) in enumerate(w.snapshots) if n not in w.expired for t in files for file in t
            )
            gone = frozenset(
                file for file in w.disk
                if self.rules.may_remove(file[0], snapshots=range(len(w.snapshots)), is_named=file in named,
                                         is_pinned=file in pins, pending_runs=())
            )  # fmt: skip
            yield "V lists files", w._replace(vacuum=("delete", gone, tries))
        else:
            yield "V deletes", w._replace(disk=w.disk - what, vacuum=("idle", None, tries - 1))

    def _pinner(self, w: World) -> Iterator[tuple[str, World]]:
        at, what = w.pinner
        if at == "idle" and len(w.snapshots) > 1:
            n = len(w.snapshots) - 1
            yield f"P reads snapshot {n}", w._replace(pinner=("put", n))
        elif at == "put":
            files = frozenset(file for table in w.snapshots[what][0] for file in table)
            yield "P puts the pin", w._replace(pin=(files, False), pinner=("check", what))
        elif at == "check":
            counts = self.rules.pin_counts(is_expired=what in w.expired, snapshot_epoch=0, ledger_epoch=0)
            pin = (w.pin[0], True) if counts and w.pin else None
            yield "P counts" if counts else "P withdraws", w._replace(pin=pin, pinner=("end", None))

    # --- promises --------------------------------------------------------------------------------------------

    def broken(self, w: World) -> str | None:
        for n, (files, cursor) in enumerate(w.snapshots):
            problem = _disagree(files, cursor)
            if problem:
                return f"{problem} in snapshot {n}"
            if n not in w.expired and not all(table <= w.disk for table in files):
                return f"a file of readable snapshot {n} is gone"
            if len({file[0] for table in files for file in table if protocol.run_number(file[0]) == n}) > 1:
                return f"two runs are mixed in snapshot {n}"
        for _, files, _ in w.tables:
            if len(rows(files)) != len(set(rows(files))):
                return "a row stands twice at a head"
            if not files <= w.disk:
                return "a head names a file that is gone"
        if w.pin is not None and w.pin[1] and not w.pin[0] <= w.disk:
            return "a pin that counts names a file that is gone"
        return None

    def done(self, w: World) -> bool:
        """Everything landed is in a snapshot, and nothing is half-done: some launcher can always bring it there."""
        return w.snapshots[-1][1] == self.bounds.segments and w.tables[0][0] == len(w.snapshots) - 1


def _applied(table: tuple[int, Files, str], run: Any, place: int) -> tuple[int, Files, str]:
    return protocol.run_number(run[0]), (table[1] - run[2][place]) | frozenset(run[1][place]), run[0]


def _disagree(files: tuple[Files, ...], cursor: int) -> str | None:
    found = [rows(table) for table in files]
    if any(len(one) != len(set(one)) for one in found):
        return "a row stands twice"
    if set(found[0]) != set(range(cursor)):
        return "rows and cursor disagree"
    return None if set(found[0]) == set(found[1]) == set(found[2]) else "tables disagree"
