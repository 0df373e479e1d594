"""Model of tenures: who gets which token, and what counts when events land in any order, stores and hosts are lost.

There are no effects here. Each worker looks, takes the lease of its store, reads again, opens, appends; what it wrote
lands event by event, in any order. A lost store knows nothing; only a recovery goes on then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.model.agent_book import NOBODY, NONE, Book, Events
from trajlake.runtime.agent import decide
from trajlake.runtime.leases import generations
from trajlake.schemas.events import VarSet
from trajlake.schemas.history import canonical

UNKNOWN = -2


class Rules(NamedTuple):
    """The product's decisions."""

    canonical: Callable[..., Any] = canonical
    next_token: Callable[..., Any] = generations.next_token
    must_stop: Callable[..., bool] = generations.must_stop
    log_suffices: Callable[..., bool] = decide.log_suffices
    arbiter_is_shared: bool = True
    creates_only_if_absent: bool = True


class Bounds(NamedTuple):
    """`hosts`: one worker on each. `own_stores`: a lease store in each host's root, else one for all."""

    hosts: tuple[int, ...] = (0, 1)
    own_stores: bool = False
    takes: int = 3
    appends: int = 1
    losses: int = 0


class Worker(NamedTuple):
    at: str = "idle"
    token: int = 0
    last: int = NOBODY
    written: Events = NONE
    seen: tuple[bool, int] = (False, 0)


class World(NamedTuple):
    """`stores`: highest token and holder, or None. `taken`: generations."""

    workers: tuple[Worker, ...]
    landed: Events
    stores: tuple[tuple[int, int] | None, ...]
    taken: tuple[frozenset[int], ...]
    left: tuple[int, int, int]
    wrong: str = ""


def first(bounds: Bounds) -> World:
    stores = len(set(bounds.hosts)) if bounds.own_stores else 1
    return World(
        (Worker(),) * len(bounds.hosts), NONE, (None,) * stores, (frozenset(),) * stores,
        (bounds.takes, bounds.appends, bounds.losses),
    )  # fmt: skip


def put(row: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*row[:place], value, *row[place + 1 :])


Steps = Iterator[tuple[str, World]]


class TenureModel:
    """Steps and promises of a world under `rules`."""

    def __init__(self, bounds: Bounds, rules: Rules | None = None) -> None:
        self.bounds, self.rules = bounds, rules or Rules()
        self.book = Book(self.rules.canonical)

    def steps(self, w: World) -> Steps:
        for me, one in enumerate(w.workers):
            yield from getattr(self, f"_at_{one.at}")(w, me, one)
            for number in sorted(one.written - w.landed):
                yield f"event {number} of {me} lands", w._replace(landed=w.landed | {number})
        takes, appends, losses = w.left
        for place, record in enumerate(w.stores):
            if losses and record is not None:
                yield (
                    f"lease store {place} is lost",
                    w._replace(stores=put(w.stores, place, None), left=(takes, appends, losses - 1)),
                )

    def _store(self, me: int) -> int:
        return self.bounds.hosts[me] if self.bounds.own_stores else 0

    def _visible(self, w: World, me: int) -> Events:
        found = w.landed
        for other, on in enumerate(self.bounds.hosts):
            if on == self.bounds.hosts[me]:
                found |= w.workers[other].written
        return found

    def _seen(self, found: Events) -> tuple[bool, int]:
        return bool(found), max((self.book.events[number].fencing_token for number in found), default=0)

    def _at_idle(self, w: World, me: int, one: Worker) -> Steps:
        takes, appends, losses = w.left
        if takes:
            seen = self._seen(self._visible(w, me))
            yield f"{me} looks", w._replace(workers=put(w.workers, me, one._replace(at="looked", seen=seen)),
                                            left=(takes - 1, appends, losses))  # fmt: skip

    def _at_looked(self, w: World, me: int, one: Worker) -> Steps:
        """Take the lease; a record that is gone lets only a recovery go on."""
        place = self._store(me)
        record = w.stores[place]
        chosen = self.rules.next_token(
            None if record is None else record[0], [one.seen[1]], has_events=one.seen[0], recovering=record is None
        )
        at = place if not self.rules.arbiter_is_shared else 0
        taken = w.taken
        if isinstance(chosen, generations.TakeGeneration):
            generation = chosen.at_least
            while self.rules.creates_only_if_absent and generation in taken[at]:
                generation += 1
            taken = put(taken, at, taken[at] | {generation})
            token = generations.first_token(generation)
        elif isinstance(chosen, generations.UseToken):
            token = chosen.token
        else:
            return
        wrong = "two workers hold one token" if self._is_used(w, me, token) else ""
        yield (
            f"{me} takes token {token}",
            w._replace(workers=put(w.workers, me, one._replace(at="took", token=token)),
                       stores=put(w.stores, place, (token, me)), taken=taken, wrong=wrong),
        )  # fmt: skip

    def _is_used(self, w: World, me: int, token: int) -> bool:
        return any(
            (other != me and one.token == token)
            or any(self.book.events[number].fencing_token == token for number in one.written)
            for other, one in enumerate(w.workers)
        )

    def _at_took(self, w: World, me: int, one: Worker) -> Steps:
        found = self._visible(w, me)
        last, top, _ = self.book.read(found)
        if last == UNKNOWN:
            return
        if self.rules.must_stop(one.token, [top]):
            yield (
                f"{me} meets a higher token",
                w._replace(workers=put(w.workers, me, one._replace(at="looked", seen=self._seen(found)))),
            )
            return
        if not self.rules.log_suffices(complete=True, held_back=self.book.held_back(found)):
            yield f"{me} finds its log incomplete", w._replace(workers=put(w.workers, me, one._replace(at="idle")))
            return
        opening = self.book.open(last, one.token, str(me))
        written = one.written | self.book.past(last) | {opening}
        counts = self.book.read(found | written)[0] == opening
        wrong = "" if counts else "a worker goes on though its events do not count"
        if found and last == NOBODY:
            wrong = "a worker that found only part of a trajectory began it anew"
        moved = put(w.workers, me, one._replace(at="works", last=opening, written=written))
        label = f"{me} opens token {one.token} after {len(self.book.past(last))} events"
        yield label, w._replace(workers=moved, wrong=wrong)

    def _at_works(self, w: World, me: int, one: Worker) -> Steps:
        takes, appends, losses = w.left
        if appends:
            yield self._write(w, me, one, VarSet(name="n", value=appends), (takes, appends - 1, losses))
        if takes:
            yield f"{me} lets go", w._replace(workers=put(w.workers, me, one._replace(at="idle")))

    def _write(self, w: World, me: int, one: Worker, payload: Any, left: tuple[int, int, int]) -> tuple[str, World]:
        number = self.book.write(one.last, one.token, payload)
        moved = one._replace(last=number, written=one.written | {number})
        return f"{me} writes {self.book.kind(number)} {number}", w._replace(
            workers=put(w.workers, me, moved), left=left
        )

    def broken(self, w: World) -> str | None:
        if w.wrong:
            return w.wrong
        if self.book.read(w.landed)[0] == UNKNOWN:
            return "what landed so far is no chain"
        everything = frozenset[int]().union(*(one.written for one in w.workers))
        last, _, in_conflict = self.book.read(everything)
        if last == UNKNOWN or in_conflict:
            return "everything together is no chain"
        top = max(w.workers, key=lambda one: (one.token, one.at == "works"))
        if top.at == "works" and top.last not in self.book.past(last):
            return "the newest owner's history does not count"
        return None
