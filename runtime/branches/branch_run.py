"""One branch in this process: begun at its fork, or gone on with where it was cut short.

Both go through the same session, loop and stand-ins; a branch that goes on is a resume like any other (mail, settling,
files, seam), only that nothing real is called.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from trajlake.schemas import values
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import Branched, ParentAction, TaskStarted, ToolDeclaration
from trajlake.schemas.history import canonical

from ..agent import driver_async, driver_sync
from ..agent.authorize import policy_version
from ..agent.enter import BRANCH, Order
from ..agent.errors import Misuse
from ..agent.files import Files
from ..agent.leave import abandon
from ..agent.life import conclude, prepare
from ..agent.outcome import Outcome
from ..agent.requests import Steps
from ..agent.restore import CannotApply, rebuild
from ..agent.restore import _make_equal as make_files
from ..agent.restore import _read as read_snapshot
from ..agent.session import Setup
from ..journal import Journal
from ..replaying.intercept import intercepted
from ..replaying.lineage import Ancestor
from ..replaying.record import Record
from ..tools import Tool, declared_schema_hash
from ..wal.journal_errors import BlobMissing
from .branch_session import BranchLoop, BranchSession, Parent
from .branch_stubs import Stubs

if TYPE_CHECKING:
    from ..agent.ports import Ports

_REF: Final = re.compile(r"(?:\^([1-9]\d{0,8}):)?(0|[1-9]\d{0,18})")

Place = int | tuple[int, int]
"""An inherited event: its number in the parent, or (levels up, number)."""


@dataclass(frozen=True, kw_only=True)
class Fork:
    """Where a branch begins, and with what it goes on. `lineage`: root first, the parent last."""

    home: Journal
    lineage: list[Ancestor]
    stubs: Stubs
    registered: Mapping[str, Tool]
    tools: Mapping[str, Tool]
    model: Any
    workspace: str | None

    @property
    def record(self) -> Record:
        """The parent's record."""
        return self.lineage[-1].record

    @property
    def at_turn(self) -> int:
        return self.lineage[-1].at_turn

    def answers(self) -> Iterator[Event]:
        """Every event whose recorded answers may stand in: what was inherited, and all that the parent did."""
        for one in self.lineage[:-1]:
            yield from one.events
        yield from self.record.read()

    def folder(self, name: str) -> str | None:
        """Where the files of the branch `name` are: no two ids share a folder."""
        if self.workspace is None:
            return None
        return os.path.join(os.fspath(self.workspace), name.replace("%", "%25").replace("/", "%2F"))


def made_tools(fork: Fork, spent: list[Event] | None = None) -> dict[str, Tool]:
    """The stand-ins of a branch; `spent`: its own events, whose answers were given already."""
    return fork.stubs.over(
        fork.registered, fork.answers(), fork.record.blob, files=fork.workspace is not None, spent=spent or ()
    )


class Run:
    """One branch: session, driver, agent."""

    def __init__(self, fork: Fork, agent: Callable[..., Any], name: str) -> None:
        self._fork, self._home = fork, fork.home
        root = fork.lineage[0].record.outline
        self._agent = intercepted(agent) if root.intercepted else agent
        self._named = f"{agent.__module__}:{agent.__qualname__}"
        setup = Setup(tools=fork.tools, policy=fork.home.policy, resolvers=fork.home.resolvers)
        blind: Any = ParentBlobs(fork.record)
        self.parent = Parent.of(replace(fork.home.ports_for_reading, blobs=blind), setup, fork.lineage)
        live = replace(fork.home.ports, blobs=BothBlobs(fork.home.ports.blobs, fork.record))
        self.ports: Ports = live
        self.s = BranchSession(live, setup, self.parent, name)

    def begin(self, change: Mapping[str, Any], *, sampling: Any, budget: Mapping[str, Any]) -> Outcome:
        """Start the branch and run it. `change`: what `Branched` records of it."""
        started = self.parent.started
        self._edit(change)
        value = self.parent.session.value(started.sampling) if sampling is None else sampling
        order = self._order(
            task=self.parent.session.value(started.task), sampling=value, budget=budget,
            prompt_version=started.prompt_version, subjects=started.subjects, started=self._declared,
        )  # fmt: skip
        if order.workspace is not None:
            _files_at_fork(self.parent, self.ports, order.workspace)
        return self._drive(order, change, {"model": self._fork.model, "parameters": value})

    def resume(self, own: Record, because: str) -> Outcome:
        """Go on with the branch that `own` records, from its open turn."""
        link: Branched = own.outline.of_type("Branched")[0].body
        self._edit(self.s.value(link.change))
        return self._drive(self._order(because=because), None, {"model": self._fork.model})

    def _order(self, **more: Any) -> Order:
        model = self._fork.model
        return Order(
            agent=self._named, model=model.name, model_version=str(model.version),
            tool_schema_version=declared_schema_hash(self._fork.tools), principal=self._home.principal,
            workspace=self._fork.folder(self.s.trajectory_id), **more,
        )  # fmt: skip

    def _edit(self, change: Mapping[str, Any]) -> None:
        for name, wire in (change.get("messages") or {}).items():
            place = parsed_place(name)
            up, number = place if isinstance(place, tuple) else (1, place)
            if up > len(self.parent.shifts) or number > self._fork.lineage[-up].events[-1].sequence_number:
                raise Misuse(
                    f"branch: no inherited event is named {name}; see 'trajlake show {self.parent.trajectory_id}'"
                )
            self.s.edits[number - self.parent.shifts[up - 1]] = (
                wire if isinstance(wire, str) else values.to_tree(dict(wire))
            )

    # -- running -----------------------------------------------------------------------------------------------------

    def _drive(self, order: Order, change: Mapping[str, Any] | None, more: dict[str, Any]) -> Outcome:
        if inspect.iscoroutinefunction(self._agent):
            return asyncio.run(self._live_async(order, change, more))
        return self._live(order, change, more)

    def _live(self, order: Order, change: Mapping[str, Any] | None, more: dict[str, Any]) -> Outcome:
        s, perform = self.s, driver_sync.performer(self._home.ports.env)
        s.owner_now, s.owner = threading.get_ident, threading.get_ident()
        try:
            early: Outcome | None = driver_sync.drive(self._enter(order, change), perform)
            if early is not None:
                return early
            value, error = None, None
            try:
                value = self._agent(driver_sync.Trajectory(s, perform, self._spawn, **more))
            except BaseException as raised:  # noqa: BLE001 - concluded below, and raised again unless it is ours
                error = raised
            outcome: Outcome = driver_sync.drive(conclude(s, value, error), perform)
            return outcome
        finally:
            abandon(s)

    async def _live_async(self, order: Order, change: Mapping[str, Any] | None, more: dict[str, Any]) -> Outcome:
        s, perform = self.s, driver_async.performer()
        s.owner_now = lambda: None
        try:
            early: Outcome | None = await driver_async.drive(self._enter(order, change), perform)
            if early is not None:
                return early
            value, error = None, None
            try:
                value = await self._agent(driver_async.Trajectory(s, perform, partial(self._spawn, wait=True), **more))
            except BaseException as raised:  # noqa: BLE001 - concluded below, and raised again unless it is ours
                error = raised
            outcome: Outcome = await driver_async.drive(conclude(s, value, error), perform)
            return outcome
        finally:
            abandon(s)

    def _enter(self, order: Order, change: Mapping[str, Any] | None) -> Steps:
        """Start the trajectory and name its parent, or take it in hand again; make ready to call the agent."""
        s = self.s
        early = yield from prepare(s, order)
        if change is not None and (early is not None or s.resumed):
            raise Misuse(f"branch: trajectory {s.trajectory_id!r} exists already")
        if early is not None:
            return early
        if change is not None:
            last = self._fork.lineage[-1].events[-1]
            yield from s.record(
                Branched(
                    parent_tenant=last.tenant, parent_trajectory_id=last.trajectory_id,
                    parent_sequence=last.sequence_number, parent_hash=last.hash.hex(), at_turn=self._fork.at_turn,
                    change=values.to_tree(change),
                ),
                turn=-1,
            )  # fmt: skip
        s.loop = BranchLoop()
        s.begin_prologue()
        return None

    def _declared(self) -> dict[str, Any]:
        tools = {
            name: ToolDeclaration(effect=tool.effect, version=tool.options.version, schema_hash=tool.schema_hash)
            for name, tool in self._fork.tools.items()
        }
        return {"tools": tools, "policy_version": policy_version(self._home.policy), "runtime": BRANCH}

    # -- children ----------------------------------------------------------------------------------------------------

    def _spawn(self, agent: Any, child_id: str, task: Any, options: Any, *, wait: bool = False) -> Any:
        """Run a child of the branch: a trajectory of its own, with the same stand-ins.

        Recorded answers are the parent's, and those of its child of the same turn and name, if it had one.
        """
        fork, s = self._fork, self.s
        twin = fork.record.find(fork.record.trajectory_id + child_id[len(s.trajectory_id) :])
        events = [*fork.answers(), *(twin.read() if twin is not None else ())]
        tools = fork.stubs.over(fork.registered, events, fork.record.blob, spent=self._done(child_id))
        home = ChildHome.of(self._home, tools)
        named = ParentAction(tenant=s.tenant, trajectory_id=s.trajectory_id)
        return (home.arun if wait else home.run)(agent, child_id, task=task, parent=named, **options)

    def _done(self, child_id: str) -> list[Event]:
        """The events of a child that was begun before."""
        lease = self.ports.leases.read(self.s.tenant, child_id)
        if lease is None:
            return []
        return list(canonical(self.ports.log.read(self.s.tenant, child_id, lease).events).events)


class ChildHome(Journal):
    """The journal for the children of a branch: the same stores, with stand-ins in place of tools."""

    @classmethod
    def of(cls, journal: Journal, tools: Mapping[str, Tool]) -> ChildHome:
        """Return a view of an open journal; it is never closed by itself."""
        made = cls.__new__(cls)
        vars(made).update(vars(journal))
        made.tools = dict(tools)
        return made

    def _start(self, agent: Any, trajectory_id: str, task: Any, options: Mapping[str, Any]) -> Any:
        """As ever, but a folder of the real child's is never touched."""
        kept = {name: value for name, value in options.items() if name != "workspace"}
        on_files = sorted(name for name, tool in self.tools.items() if tool.effect == "local")
        if len(kept) != len(options) and on_files:
            raise Misuse(
                f"branch: child {trajectory_id!r} names a workspace, on which {', '.join(on_files)} would really work: "
                "give the branch a stub for each"
            )
        return super()._start(agent, trajectory_id, task, kept)


class ParentBlobs:
    """The parent's bulk, read-only."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def get(self, tenant: str, sha256: str) -> bytes:
        del tenant
        return self._record.blob(sha256)


class BothBlobs:
    """Bulk of the branch, and behind it the parent's."""

    def __init__(self, own: Any, record: Record) -> None:
        self._own, self._record = own, record
        self.put = own.put

    def get(self, tenant: str, sha256: str) -> bytes:
        try:
            found: bytes = self._own.get(tenant, sha256)
        except (BlobMissing, FileNotFoundError) as missing:  # the parent's source has it, or both say why not
            try:
                found = self._record.blob(sha256)
            except Exception as error:
                raise error from missing
        return found


def place_name(place: Place) -> str:
    """Return how `Branched` and the command line name an inherited event: 12 of the parent, ^2:12 of its parent."""
    return f"^{place[0]}:{place[1]}" if isinstance(place, tuple) else str(place)


def parsed_place(text: str) -> Place:
    """Return the place that a name stands for. Raises `Misuse`."""
    found = _REF.fullmatch(text)
    if found is None:
        raise Misuse(f"branch: {text!r} names no event: a number such as 12, or ^2:12 in the parent's parent")
    return int(found[2]) if found[1] is None else (int(found[1]), int(found[2]))


def _files_at_fork(parent: Parent, ports: Ports, path: str) -> None:
    """Put the parent's files as they were at the fork into a folder: its first snapshot and every change since."""
    s = parent.session
    started: TaskStarted = parent.started
    try:
        tree, _ = rebuild(s, read_snapshot(s, started.workspace_snapshot), -1)
    except CannotApply as why:
        raise Misuse(f"branch: the workspace cannot be as it was at the fork: {why}") from None
    make_files(s, Files(ports, s.rules, path, parent.tenant), tree)
