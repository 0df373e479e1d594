"""`turn.spawn`, `turn.spawn_all`: child trajectories `<id>/<turn>.<name>`, each under a lease of its own.

Three recorded inputs per child: what of the parent's budget it may spend (`grant`, durable before it starts), what it
did spend (`spent`), and its outcome (`spawn`). A child's grant is its own limit, so that all children together can
never spend more than their parent has, whatever crashes; what a child leaves over comes back when it ends.

Running a child again is safe at any moment: its id is fixed, so it resumes where it stands, or its recorded outcome
is returned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from trajlake.schemas import values
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import InputRead
from trajlake.schemas.history import canonical
from trajlake.schemas.state.budget import (
    GRANT,
    SPAWN,
    SPENT,
    Amounts,
    Budget,
    BudgetFold,
    compare,
    normal,
    share,
    subtract,
    total,
)

from ..mailbox.mail import MailItem
from .errors import BudgetExhausted, Misuse, Parked
from .mailroom import boundary
from .outcome import Outcome
from .requests import Block, Done, Next, Start, Steps
from .session import Session

RunChild = Callable[["Child", str, Amounts], Any]
"""Runs a child of this id within these limits to its `Outcome`; a coroutine function under asyncio."""


@dataclass(frozen=True, slots=True)
class Child:
    """One child that is wanted. `options` as of `journal.run`; its `budget` is taken out of the parent's."""

    agent: Callable[..., Any]
    name: str
    task: Any
    options: Mapping[str, Any]


@dataclass(slots=True)
class _Place:
    """A child and what is recorded of it."""

    child: Child
    id: str
    granted: Event | None
    spent: Event | None
    ended: Event | None


def run_spawns(s: Session, wanted: Sequence[Child], run_child: RunChild, limit: int) -> Steps:
    """Return the children's `Outcome`s in order. Parks when one is parked, after all others have ended."""
    operation = f"spawn {','.join(child.name for child in wanted)}"
    s.check_usable(operation)
    if limit < 1:
        raise Misuse(f"turn.spawn_all: limit {limit} must be at least 1")
    places = [_place(s, child) for child in wanted]
    s.serve([one for at in places for one in (at.granted, at.spent, at.ended) if one is not None])
    missing = [at for at in places if at.ended is None]
    if missing:
        yield from boundary(s, operation)
        yield from _grant(s, [at for at in missing if at.granted is None])
        yield from s.checked_barrier()
        yield from _run(s, missing, run_child, limit)
        if any(at.ended is not None and _outcome(s, at.ended).status == "cancelled" for at in missing):
            yield from boundary(s, operation)  # what stopped the child may have been meant for all of us
    return [_outcome(s, at.ended) for at in places if at.ended is not None]


def _place(s: Session, child: Child) -> _Place:
    name = child.name
    if not name or "/" in name:
        raise Misuse(f"turn.spawn: name {name!r} must be a text without '/'")
    found = {}
    for kind in (GRANT, SPENT, SPAWN):
        nth, found[kind] = s.table.take("read", f"{kind}:{name}")
        if nth:
            raise Misuse(f"turn.spawn: {name!r} was spawned in this turn before; give each child its own name")
    return _Place(child, f"{s.trajectory_id}/{s.turn}.{name}", found[GRANT], found[SPENT], found[SPAWN])


def _grant(s: Session, places: Sequence[_Place]) -> Steps:
    """Record what each child may spend: what it asks for, and of the rest an equal share."""
    budget = s.view.budget.frozen()
    for at, limits in zip(places, grants(budget.left, [_asked(at.child) for at in places]), strict=True):
        value = values.to_tree({"id": at.id, "limits": limits})
        at.granted = yield from s.record(InputRead(kind=GRANT, name=at.child.name, value=value))


def grants(left: Mapping[str, str], asked: Sequence[Mapping[str, str]]) -> list[Amounts]:
    """Return what each of several children may spend of what is left. Raises `BudgetExhausted`. Pure.

    A child that names a unit gets what it names; the others share the rest of it equally. Together they never get
    more than is left. Units that the parent does not limit are limited as the child asks.
    """
    granted: list[Amounts] = [dict(one) for one in asked]
    for unit, amount in left.items():
        named = total({unit: one[unit]} for one in asked if unit in one).get(unit, "0")
        if compare(named, amount) > 0:
            raise BudgetExhausted(unit, amount)
        others = [one for one in granted if unit not in one]
        for one in others:
            one[unit] = share(subtract(amount, named), len(others), unit)
    return granted


def _asked(child: Child) -> Amounts:
    return {unit: normal(str(amount)) for unit, amount in (child.options.get("budget") or {}).items()}


def _run(s: Session, places: Sequence[_Place], run_child: RunChild, limit: int) -> Steps:
    """Run the children beside each other and record each as it ends; then raise what one raised, or park.

    What a child raises is no outcome: nothing is recorded of it, so no agent may catch it and go on. No child is
    begun after it, and those that run are waited for.
    """
    waiting, running = deque(places), dict[int, _Place]()
    parked: list[Outcome] = []
    failed: BaseException | None = None
    while running or (waiting and failed is None):
        while waiting and failed is None and len(running) < limit:
            s.tags += 1
            at = running[s.tags] = waiting.popleft()
            call = partial(run_child, at.child, at.id, _limits(at))
            yield Start(s.tags, call, None, iscoroutinefunction(run_child))
        try:
            done: Done = yield Next()
        except BaseException as error:
            s.unwinding = error
            raise
        at = running.pop(done.tag)
        if done.error is not None:
            if failed is None or not isinstance(done.error, Exception):
                failed = s.unwinding = done.error
        elif done.value.status == "parked":
            parked.append(done.value)
        else:
            yield from _ended(s, at, done.value)
    yield from s.checked_barrier()
    if failed is not None:
        raise failed
    if parked:
        raise s.unwind(Parked([replace(one, kind="child") for outcome in parked for one in outcome.waiting_for]))


def _ended(s: Session, at: _Place, outcome: Outcome) -> Steps:
    if at.spent is None:
        spent: Amounts = yield Block(partial(_spent, s, at.id))
        at.spent = yield from s.record(InputRead(kind=SPENT, name=at.child.name, value=values.to_tree(spent)))
    value = values.to_tree({"id": at.id, "status": outcome.status, "result": outcome.result})
    at.ended = yield from s.record(InputRead(kind=SPAWN, name=at.child.name, value=value))


def _spent(s: Session, child_id: str) -> Amounts:
    """What a child's log says it spent, its own children's included; what is in doubt counts as spent. Blocks."""
    record = s.ports.leases.read(s.tenant, child_id)
    fold = BudgetFold(Budget())
    for event in canonical(s.ports.log.read(s.tenant, child_id, record).events).events:
        fold.apply(event)
    return total([fold.spent, *fold.held.values()])


def _limits(at: _Place) -> Amounts:
    return dict(at.granted.body.value["limits"]) if at.granted is not None else _asked(at.child)


def _outcome(s: Session, event: Event) -> Outcome:
    found = s.value(event.body.value)
    return Outcome(found["status"], found["result"])


def open_children(s: Session) -> list[str]:
    """The ids of children that were begun and whose outcome is not recorded."""
    begun: dict[tuple[int, str], str] = {}
    for event in s.events:
        if event.type == "InputRead" and event.body.kind == GRANT:
            begun[event.turn, event.body.name] = event.body.value["id"]
        elif event.type == "InputRead" and event.body.kind == SPAWN:
            begun.pop((event.turn, event.body.name), None)
    return list(begun.values())


def cancel_children(s: Session, because: str) -> Steps:
    """Ask every open child to stop, by mail: whoever runs it next reads it. Doing it twice is harmless."""
    for child_id in open_children(s):
        if (yield Block(partial(s.ports.leases.read, s.tenant, child_id))) is None:
            continue  # granted, and never begun
        why = because or f"trajectory {s.trajectory_id} was cancelled"
        item = MailItem(
            id=f"cancelled-with-{s.key}", tenant=s.tenant, trajectory_id=child_id, kind="cancel", actor="trajlake",
            body={"because": why}, posted_at=s.events[0].recorded_at,
        )  # fmt: skip
        yield Block(partial(s.ports.mail.post, item))
