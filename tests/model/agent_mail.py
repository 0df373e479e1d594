"""Model of mail: one item, workers on one or two hosts that take over from each other, die, and lose power.

What becomes of the item is `event_of`'s to say, whether it may go `may_delete_mail`'s, what counts `canonical`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.model.agent_book import NAME, NOBODY, NONE, TENANT, Book, Events
from trajlake.runtime.leases import generations
from trajlake.runtime.mailbox.mail import MailItem
from trajlake.runtime.mailbox.mail_events import Drop, event_of
from trajlake.schemas.events import VarSet
from trajlake.schemas.history import canonical

ITEM = MailItem(
    id="m1", tenant=TENANT, trajectory_id=NAME, kind="steer", subject="", body={"text": "look again"}, actor="ada",
    actor_known_by="", posted_at=0,
)  # fmt: skip


class Rules(NamedTuple):
    """The product's decisions."""

    canonical: Callable[..., Any] = canonical
    next_token: Callable[..., Any] = generations.next_token
    must_stop: Callable[..., bool] = generations.must_stop
    may_delete_mail: Callable[..., bool] = generations.may_delete_mail
    event_of: Callable[..., Any] = event_of


class Bounds(NamedTuple):
    hosts: tuple[int, ...] = (0, 0)
    replica: bool = False
    takes: int = 3
    kills: int = 1
    powers: int = 1
    expiries: int = 1


class Worker(NamedTuple):
    at: str = "idle"
    token: int = 0
    last: int = NOBODY
    queued: Events = NONE
    cached: Events = NONE
    durable: Events = NONE


class World(NamedTuple):
    workers: tuple[Worker, ...]
    record: tuple[int, int, str]
    waits: bool
    replica: Events
    left: tuple[int, int, int, int]


def first(bounds: Bounds) -> World:
    left = (bounds.takes, bounds.kills, bounds.powers, bounds.expiries)
    return World((Worker(),) * len(bounds.hosts), (0, -1, "released"), True, NONE, left)


def put(row: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*row[:place], value, *row[place + 1 :])


Steps = Iterator[tuple[str, World]]


class MailModel:
    """Steps and promises of a world under `rules`."""

    def __init__(self, bounds: Bounds, rules: Rules | None = None) -> None:
        self.bounds, self.rules = bounds, rules or Rules()
        self.book = Book(self.rules.canonical)

    def steps(self, w: World) -> Steps:
        takes, kills, powers, expiries = w.left
        if w.record[2] == "held" and expiries:
            yield (
                f"the lease of {w.record[1]} runs out",
                w._replace(record=(*w.record[:2], "out"), left=(takes, kills, powers, expiries - 1)),
            )
        for host in sorted(set(self.bounds.hosts)) if powers else ():
            workers = tuple(
                Worker(durable=one.durable) if self.bounds.hosts[me] == host else one
                for me, one in enumerate(w.workers)
            )
            yield f"POWER LOSS of host {host}", w._replace(workers=workers, left=(takes, kills, powers - 1, expiries))
        for me, one in enumerate(w.workers):
            if kills and one.at != "idle":
                dead = Worker(cached=one.cached, durable=one.durable)
                yield (
                    f"SIGKILL {me}",
                    w._replace(workers=put(w.workers, me, dead), left=(takes, kills - 1, powers, expiries)),
                )
            yield from self._storage(w, me, one)
            yield from getattr(self, f"_at_{one.at}")(w, me, one)

    def _storage(self, w: World, me: int, one: Worker) -> Steps:
        if one.queued:
            moved = one._replace(queued=NONE, cached=one.cached | one.queued)
            yield f"{me}: queue reaches the page cache", w._replace(workers=put(w.workers, me, moved))
        if one.cached - one.durable:
            yield (
                f"{me}: barrier",
                w._replace(workers=put(w.workers, me, one._replace(durable=one.durable | one.cached))),
            )
        past = self.book.past(one.last)
        if self.bounds.replica and not past <= w.replica:
            yield f"{me}: the replica acknowledges", w._replace(replica=w.replica | past)

    def _visible(self, w: World, me: int) -> Events:
        found = w.replica
        for other, on in enumerate(self.bounds.hosts):
            if on == self.bounds.hosts[me]:
                found |= w.workers[other].cached | w.workers[other].durable
        return found

    def _owns(self, w: World, me: int, one: Worker) -> bool:
        return w.record[:2] == (one.token, me)

    def _at_idle(self, w: World, me: int, one: Worker) -> Steps:
        takes, *others = w.left
        token, holder, held = w.record
        dead = holder >= 0 and self.bounds.hosts[holder] == self.bounds.hosts[me] and w.workers[holder].at == "idle"
        if not takes or (held == "held" and not dead):
            return
        chosen = self.rules.next_token(token or None, [self.book.read(self._visible(w, me))[1]])
        new = chosen.token if isinstance(chosen, generations.UseToken) else generations.first_token(0)
        moved = put(w.workers, me, one._replace(at="took", token=new))
        yield f"{me} takes token {new}", w._replace(workers=moved, record=(new, me, "held"), left=(takes - 1, *others))

    def _at_took(self, w: World, me: int, one: Worker) -> Steps:
        last, top, _ = self.book.read(self._visible(w, me))
        if self.rules.must_stop(one.token, [top]):
            yield f"{me} meets a higher token", self._stops(w, me, one)
            return
        opening = self.book.open(last, one.token, str(me))
        copies = self.book.past(last) - one.cached - one.durable
        moved = one._replace(at="reads", last=opening, queued=one.queued | copies | {opening})
        yield f"{me} opens token {one.token}", w._replace(workers=put(w.workers, me, moved))

    def _at_reads(self, w: World, me: int, one: Worker) -> Steps:
        """Read the mail; turn the item into its event, or drop it."""
        if not w.waits:
            yield from self._goes_on(w, me, one)
            return
        payload = self.rules.event_of(ITEM, self.book.state(one.last))
        if isinstance(payload, Drop):
            yield f"{me} drops the item", w._replace(workers=put(w.workers, me, one._replace(at="deletes")))
            return
        number = self.book.write(one.last, one.token, payload)
        moved = one._replace(at="deletes", last=number, queued=one.queued | {number})
        yield f"{me} records the item", w._replace(workers=put(w.workers, me, moved))

    def _at_deletes(self, w: World, me: int, one: Worker) -> Steps:
        past = self.book.past(one.last)
        durable = not past & (one.queued | (one.cached - one.durable))
        there = past <= w.replica if self.bounds.replica else None
        facts = {"event_durable": durable, "replica_acknowledged": there}
        if self.rules.may_delete_mail(**facts, lease_checked_after=False):
            yield f"{me} deletes the item", self._deleted(w, me, one)
        elif self.rules.may_delete_mail(**facts, lease_checked_after=True):
            if self._owns(w, me, one):
                moved = put(w.workers, me, one._replace(at="checked"))
                yield f"{me} extends its lease", w._replace(workers=moved, record=(one.token, me, "held"))
            else:
                yield f"{me} has lost its lease", self._stops(w, me, one)

    def _at_checked(self, w: World, me: int, one: Worker) -> Steps:
        yield f"{me} deletes the item", self._deleted(w, me, one)

    def _deleted(self, w: World, me: int, one: Worker) -> World:
        return w._replace(workers=put(w.workers, me, one._replace(at="works")), waits=False)

    def _at_works(self, w: World, me: int, one: Worker) -> Steps:
        yield from self._goes_on(w, me, one)

    def _goes_on(self, w: World, me: int, one: Worker) -> Steps:
        """One more event of its own."""
        if self.book.kind(one.last) != "VarSet":
            number = self.book.write(one.last, one.token, VarSet(name="n", value=1))
            moved = one._replace(at="works", last=number, queued=one.queued | {number})
            yield f"{me} goes on", w._replace(workers=put(w.workers, me, moved))

    def _stops(self, w: World, me: int, one: Worker) -> World:
        record = (one.token, me, "released") if self._owns(w, me, one) else w.record
        stopped = Worker(queued=one.queued, cached=one.cached, durable=one.durable)
        return w._replace(workers=put(w.workers, me, stopped), record=record)

    def broken(self, w: World) -> str | None:
        """The item is lost if it is gone and whoever works now does not know it; doubled if it counts twice."""
        for one in w.workers:
            if one.at == "idle" or one.last == NOBODY or one.token != w.record[0]:
                continue
            known = sum(self.book.kind(number) == "MessageAdded" for number in self.book.line(one.last))
            if known > 1:
                return "one item became two events"
            if one.at in ("reads", "works") and not w.waits and not known:
                return "the item is gone, and the owner never saw it"
        return None
