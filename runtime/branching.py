"""`branch`: go on from a recorded turn with one thing changed, against stand-ins; once, or often enough to count.

Source: design/agent.md, *Replay*. Everything before the fork is the parent's record: no model is asked, no tool runs.
A branch is a trajectory of its own, numbered from 0; event 1 is `Branched` with the parent's hash. After the fork it
is live: models cost what they cost, tools are the stand-ins of `Stubs`.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import os.path
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from trajlake.schemas import values
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import Branched, TaskStarted, ToolDeclaration
from trajlake.schemas.history import branch_point

from .agent import driver_async, driver_sync
from .agent.authorize import policy_version
from .agent.enter import Order
from .agent.errors import Misuse
from .agent.files import Files
from .agent.leave import abandon
from .agent.life import conclude, prepare
from .agent.outcome import Outcome
from .agent.requests import Steps
from .agent.restore import CannotApply, rebuild
from .agent.restore import _make_equal as make_files
from .agent.restore import _read as read_snapshot
from .agent.session import Setup
from .branch_session import BranchLoop, BranchSession, Parent
from .branch_stubs import Stubs
from .replaying.record import Record, Source
from .replaying.sources import RootSource
from .tools import Tool, declared_schema_hash

if TYPE_CHECKING:
    from .agent.ports import Ports
    from .journal import Journal

__all__ = ["BranchReport", "Branched", "Change", "Share", "Stubs", "branch"]

ENOUGH: Final = 20
"""Branches from which the interval is usually narrow enough to be worth reading."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """The one thing a branch changes; `what` names it for people and is recorded.

    `messages`: inherited context items to be put otherwise, by the number of the event that holds them (a prompt; a
    tool's result that was cut): the whole message, or its new text. `sampling`, `model`: in place of the recorded
    ones. `tools`: registered tools in place of those of the same name (another schema). A change of code is the agent
    that is given to `branch`.
    """

    what: str
    messages: Mapping[int, Mapping[str, Any] | str] | None = None
    model: Any = None
    sampling: Mapping[str, Any] | None = None
    tools: Mapping[str, Tool] | None = None


@dataclass(frozen=True, kw_only=True)
class Share:
    """How often one outcome came, with the 95 % interval (Wilson) of its true share."""

    label: str
    count: int
    of: int
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class BranchReport:
    """What the branches did. `ids`, `outcomes` and `labels` go together, one for each."""

    parent: str
    at_turn: int
    change: str
    ids: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    labels: tuple[str, ...]
    shares: tuple[Share, ...]

    @property
    def note(self) -> str:
        """Why the count matters."""
        n = len(self.ids)
        if n == 1:
            return (
                "One branch shows that the change can make a difference, not that it does: a model's replies vary, and "
                f"so would a run without the change. Branch {ENOUGH} times or more, with and without it."
            )
        width = max(share.high - share.low for share in self.shares)
        more = f"; {ENOUGH} or more narrow it" if n < ENOUGH else ""
        return f"{n} branches leave a share uncertain by up to {width:.0%}{more}. Compare with as many unchanged ones."

    def text(self) -> str:
        """Return the distribution for people."""
        lines = [f"{self.parent} at turn {self.at_turn}: {self.change}"]
        lines += [f"  {one.count}/{one.of}  {one.low:.0%} to {one.high:.0%}  {one.label}" for one in self.shares]
        return "\n".join([*lines, self.note])

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        runs = [
            {"id": one, "status": outcome.status, "label": label}
            for one, outcome, label in zip(self.ids, self.outcomes, self.labels, strict=True)
        ]
        return {
            "parent": self.parent, "at_turn": self.at_turn, "change": self.change, "branches": runs,
            "shares": [vars(share) for share in self.shares], "note": self.note,
        }  # fmt: skip


def branch(
    source: Journal | Source | Record,
    id: str,  # noqa: A002
    at_turn: int, change: Change | str, *, tools: Stubs | None = None,
    agent: Callable[..., Any], n: int = 1, journal: Journal | None = None, model: Any = None,
    budget: Mapping[str, Any] | None = None, workspace: str | None = None,
    measure: Callable[[Outcome, list[Event]], Any] | None = None,
) -> BranchReport:  # fmt: skip
    """Run `n` branches of trajectory `id` from the beginning of turn `at_turn`, one after another.

    `source`: where the parent is recorded; a `Journal` is both that and where branches are written, else give
    `journal`. `measure(outcome, events)` names what came out (default: how it ended, and what was done first). The
    parent's limits and approvals are not inherited: give a `budget`. `workspace`: a folder; each branch finds the
    parent's files as they were at the fork in `workspace/<its id>`, and its tools must work there. Raises `Misuse`
    before anything runs where a tool has no stand-in, the workspace cannot be as it was, or the model is not known;
    `NoSuchTurn` for a turn not reached.
    """
    home, record = _open(source, id, journal)
    change = Change(what=change) if isinstance(change, str) else change
    events = _prefix(record, at_turn)
    started: TaskStarted = events[0].body
    chosen = change.model if change.model is not None else model
    if chosen is None:
        raise Misuse("branch: after the fork a model is asked; give model=, or Change(model=...)")
    if n < 1:
        raise Misuse(f"branch: n={n} must be at least 1")
    made = (tools or Stubs()).over(
        {**home.tools, **(change.tools or {})}, record.read(), record.blob, files=workspace is not None
    )
    _check_workspace(started, made, home.tools, workspace)
    ids, outcomes, labels = [], [], []
    for name in _free_ids(home, id, at_turn, n):
        run = _Run(home, record, events, at_turn, change, made, chosen, budget or {}, workspace)
        outcome, own = run.live(agent, name)
        ids.append(name)
        outcomes.append(outcome)
        labels.append(str(measure(outcome, own) if measure is not None else first_actions(outcome, own)))
    return BranchReport(
        parent=id, at_turn=at_turn, change=change.what, ids=tuple(ids), outcomes=tuple(outcomes), labels=tuple(labels),
        shares=shares_of(labels),
    )  # fmt: skip


def first_actions(outcome: Outcome, events: list[Event]) -> str:
    """How a branch ended, and which calls its first reply asked for."""
    reply = next((event.body for event in events if event.type == "ModelReplied" and event.body.status == "kept"), None)
    first = [event.body for event in events if event.type == "ToolIntent"][: len(reply.calls) if reply else 0]
    said = {body.action_id: body.arguments_hash[:8] for body in first}
    calls = [f"{call.tool} ({said[key]})" if (key := f"{_seq(events)}.{at}") in said else call.tool
             for at, call in enumerate(reply.calls if reply else ())]  # fmt: skip
    return f"{outcome.status}, first {', '.join(calls) or 'no call'}"


def _seq(events: list[Event]) -> int:
    kept = (event for event in events if event.type == "ModelReplied" and event.body.status == "kept")
    return next(kept).sequence_number


def shares_of(labels: list[str]) -> tuple[Share, ...]:
    """Count labels; the interval is Wilson's at 95 %, which holds for few branches too."""
    found = []
    for label, count in Counter(labels).most_common():
        low, high = wilson(count, len(labels))
        found.append(Share(label=label, count=count, of=len(labels), low=low, high=high))
    return tuple(found)


def wilson(count: int, of: int, z: float = 1.959964) -> tuple[float, float]:
    """Return the Wilson interval of a share."""
    p, z2 = count / of, z * z
    middle = (p + z2 / (2 * of)) / (1 + z2 / of)
    half = z / (1 + z2 / of) * math.sqrt(p * (1 - p) / of + z2 / (4 * of * of))
    return max(0.0, middle - half), min(1.0, middle + half)


class _Run:
    """One branch: session, driver, agent."""

    def __init__(
        self, journal: Journal, record: Record, events: list[Event], at_turn: int, change: Change,
        tools: Mapping[str, Tool], model: Any, budget: Mapping[str, Any], workspace: str | None,
    ) -> None:  # fmt: skip
        self._journal, self._record, self._events = journal, record, events
        self._at_turn, self._change, self._tools, self._model, self._budget = at_turn, change, tools, model, budget
        self._workspace = workspace

    def live(self, agent: Callable[..., Any], name: str) -> tuple[Outcome, list[Event]]:
        """Run the agent from the fork on; return the outcome and the branch's own events."""
        journal, change = self._journal, self._change
        setup = Setup(tools=self._tools, policy=journal.policy, resolvers=journal.resolvers)
        blind: Any = _ParentBlobs(self._record)
        ports = replace(journal.ports_for_reading, blobs=blind)
        parent = Parent(ports, setup, self._events, self._at_turn)
        started: TaskStarted = parent.started
        sampling = change.sampling if change.sampling is not None else parent.session.value(started.sampling)
        live = replace(journal.ports, blobs=_BothBlobs(journal.ports.blobs, self._record))
        folder = None if self._workspace is None else os.path.join(os.fspath(self._workspace), name.replace("/", "_"))
        if folder is not None:
            _files_at_fork(parent, live, folder)
        s = BranchSession(live, setup, parent, name)
        for ref, wire in (change.messages or {}).items():
            s.edits[ref] = wire if isinstance(wire, str) else values.to_tree(dict(wire))
        order = Order(
            task=parent.session.value(started.task), agent=f"{agent.__module__}:{agent.__qualname__}",
            model=self._model.name, model_version=str(self._model.version), sampling=sampling, budget=self._budget,
            tool_schema_version=declared_schema_hash(self._tools), prompt_version=started.prompt_version,
            subjects=started.subjects, principal=journal.principal, started=self._declared,
            workspace=folder,
        )  # fmt: skip
        more = {"model": self._model, "parameters": sampling}
        if inspect.iscoroutinefunction(agent):
            return asyncio.run(self._live_async(s, order, agent, more)), s.events
        return self._live(s, order, agent, more), s.events

    def _live(self, s: BranchSession, order: Order, agent: Callable[..., Any], more: dict[str, Any]) -> Outcome:
        perform = driver_sync.performer(self._journal.ports.env)
        s.owner_now, s.owner = threading.get_ident, threading.get_ident()
        try:
            driver_sync.drive(self._begin(s, order), perform)
            value, error = None, None
            try:
                value = agent(driver_sync.Trajectory(s, perform, _no_spawn, **more))
            except BaseException as raised:  # noqa: BLE001 - concluded below, and raised again unless it is ours
                error = raised
            outcome: Outcome = driver_sync.drive(conclude(s, value, error), perform)
            return outcome
        finally:
            abandon(s)

    async def _live_async(
        self, s: BranchSession, order: Order, agent: Callable[..., Any], more: dict[str, Any]
    ) -> Outcome:
        perform = driver_async.performer()
        s.owner_now = lambda: None
        try:
            await driver_async.drive(self._begin(s, order), perform)
            value, error = None, None
            try:
                value = await agent(driver_async.Trajectory(s, perform, _no_spawn, **more))
            except BaseException as raised:  # noqa: BLE001 - concluded below, and raised again unless it is ours
                error = raised
            outcome: Outcome = await driver_async.drive(conclude(s, value, error), perform)
            return outcome
        finally:
            abandon(s)

    def _begin(self, s: BranchSession, order: Order) -> Steps:
        """Start the trajectory, name its parent, and make ready to call the agent."""
        early = yield from prepare(s, order)
        if early is not None:
            raise Misuse(f"branch: trajectory {s.trajectory_id!r} exists already")
        last = self._events[-1]
        told = {"what": self._change.what}
        if self._change.messages:
            told["messages"] = ",".join(str(ref) for ref in self._change.messages)
        yield from s.record(
            Branched(
                parent_tenant=last.tenant, parent_trajectory_id=last.trajectory_id,
                parent_sequence=last.sequence_number, parent_hash=last.hash.hex(), at_turn=self._at_turn,
                change=values.to_tree(told),
            ),
            turn=-1,
        )  # fmt: skip
        s.loop = BranchLoop()
        s.begin_prologue()

    def _declared(self) -> dict[str, Any]:
        tools = {
            name: ToolDeclaration(effect=tool.effect, version=tool.options.version, schema_hash=tool.schema_hash)
            for name, tool in self._tools.items()
        }
        return {"tools": tools, "policy_version": policy_version(self._journal.policy), "runtime": "trajlake branch"}


class _ParentBlobs:
    """The parent's bulk, read-only."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def get(self, tenant: str, sha256: str) -> bytes:
        del tenant
        return self._record.blob(sha256)


class _BothBlobs:
    """Bulk of the branch, and behind it the parent's."""

    def __init__(self, own: Any, record: Record) -> None:
        self._own, self._record = own, record
        self.put = own.put

    def get(self, tenant: str, sha256: str) -> bytes:
        try:
            found: bytes = self._own.get(tenant, sha256)
        except Exception:  # noqa: BLE001 - not a blob of the branch's own root: the parent's source has it, or says so
            found = self._record.blob(sha256)
        return found


def _open(source: Any, trajectory_id: str, journal: Journal | None) -> tuple[Journal, Record]:
    from .journal import Journal

    home = source if isinstance(source, Journal) else journal
    if home is None:
        raise Misuse("branch: where shall branches be written? give journal=")
    if isinstance(source, Record):
        record: Record | None = source
    else:
        found: Source = RootSource(source.root, source.tenant) if isinstance(source, Journal) else source
        record = found.record(trajectory_id)
    if record is None:
        raise Misuse(f"branch: no trajectory {trajectory_id!r} is recorded there")
    if record.outline.problem:
        raise Misuse(f"branch: {trajectory_id!r}: {record.outline.problem}")
    if record.outline.of_type("Branched"):
        raise Misuse(f"branch: {trajectory_id!r} is a branch itself; branch its parent")
    started = record.outline.notable[0].body
    if started.origin != "live":
        raise Misuse(f"branch: {trajectory_id!r} is {started.origin}: no harness of ours can go on with it")
    return home, record


def _prefix(record: Record, at_turn: int) -> list[Event]:
    events = list(record.read())
    last = branch_point(events, at_turn)
    return [event for event in events if event.sequence_number <= last]


def _check_workspace(
    started: TaskStarted, tools: Mapping[str, Tool], real: Mapping[str, Tool], workspace: str | None
) -> None:
    """A branch whose tools work on files needs them as they were at the fork; stand-ins that touch none need none."""
    on_files = sorted(name for name, tool in tools.items() if tool.effect == "local" and tool is real.get(name))
    if workspace is not None and started.workspace != "tracked":
        raise Misuse("branch: the parent's files were not tracked, so they cannot be as they were at the fork")
    if on_files and workspace is None:
        raise Misuse(
            f"branch: {', '.join(on_files)} would work on the workspace as it was at the fork: give workspace=PATH "
            "(the parent's must have been tracked), or a stub for each"
        )


def _files_at_fork(parent: Parent, ports: Ports, path: str) -> None:
    """Put the parent's files as they were at the fork into a folder: its first snapshot and every change since."""
    s = parent.session
    try:
        tree, _ = rebuild(s, read_snapshot(s, parent.started.workspace_snapshot), -1)
    except CannotApply as why:
        raise Misuse(f"branch: the workspace cannot be as it was at the fork: {why}") from None
    make_files(s, Files(ports, s.rules, path, parent.tenant), tree)


def _free_ids(journal: Journal, parent: str, at_turn: int, n: int) -> list[str]:
    found = RootSource(journal.root, journal.tenant)
    ids: list[str] = []
    number = 0
    while len(ids) < n:
        name = f"{parent}~{at_turn}.{number}"
        if found.record(name) is None and journal.ports.leases.read(journal.tenant, name) is None:
            ids.append(name)
        number += 1
    return ids


def _no_spawn(*_: Any) -> Any:
    raise Misuse("branch: turn.spawn is not available in a branch; give the child's outcome through turn.read")
