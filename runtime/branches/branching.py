"""`branch`: go on from a recorded turn with one thing changed, against stand-ins; once, or often enough to count.

Source: design/agent.md, *Replay*. Everything before the fork is the parent's record: no model is asked, no tool runs.
A branch is a trajectory of its own, numbered from 0; event 1 is `Branched` with the parent's hash. After the fork it
is live: models cost what they cost, tools are the stand-ins of `Stubs`. A branch may be branched again, is replayed
like any other trajectory, and goes on with `resume_branch` when it was cut short.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from trajlake.schemas.envelope import Event
from trajlake.schemas.events import Branched, TaskStarted
from trajlake.schemas.history import branch_point

from ..agent.errors import Misuse, UnknownTrajectory
from ..agent.outcome import Outcome
from ..replaying.lineage import Ancestor, LineageBroken, ancestors, branched
from ..replaying.record import Record, Source
from ..replaying.sources import RootSource
from ..tools import Tool
from .branch_run import Fork, Place, Run, made_tools, place_name
from .branch_stubs import Stubs

if TYPE_CHECKING:
    from ..journal import Journal

__all__ = ["BranchReport", "Branched", "Change", "Share", "Stubs", "branch", "resume_branch"]

ENOUGH: Final = 20
"""Branches from which the interval is usually narrow enough to be worth reading."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """The one thing a branch changes; `what` names it for people and is recorded.

    `messages`: inherited context items to be put otherwise, by the number of the event that holds them (a prompt; a
    tool's result that was cut): the whole message, or its new text. Where the parent is a branch itself, (2, n) is
    event n of its own parent. `sampling`, `model`: in place of the recorded
    ones. `tools`: registered tools in place of those of the same name (another schema). A change of code is the agent
    that is given to `branch`.
    """

    what: str
    messages: Mapping[Place, Mapping[str, Any] | str] | None = None
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
    parent's files as they were at the fork in `workspace/<its id>` (`/` written `%2F`), where its tools must work.
    Raises `Misuse` before anything runs where a tool has no stand-in, the workspace cannot be as it was, or the model
    is not known; `NoSuchTurn` for a turn not reached.
    """
    if at_turn < 0:
        raise Misuse(f"branch: at_turn={at_turn}: a branch begins at a turn, from 0 on; the prologue is its root's")
    home, record = _open(source, id, journal)
    change = Change(what=change) if isinstance(change, str) else change
    lineage = [*_ancestors(record), Ancestor(record, _prefix(record, at_turn), at_turn)]
    chosen = change.model if change.model is not None else model
    fork = _fork(home, lineage, tools, change, chosen, workspace)
    if n < 1:
        raise Misuse(f"branch: n={n} must be at least 1")
    told: dict[str, Any] = {"what": change.what, "tools": fork.stubs.kinds(fork.registered)}
    if change.messages:
        told["messages"] = {place_name(place): wire for place, wire in change.messages.items()}
    ids, outcomes, labels = [], [], []
    for name in _free_ids(home, id, at_turn, n):
        run = Run(replace(fork, tools=made_tools(fork)), agent, name)
        outcome = run.begin(told, sampling=change.sampling, budget=budget or {})
        ids.append(name)
        outcomes.append(outcome)
        labels.append(str((measure or first_actions)(outcome, run.s.events)))
    return BranchReport(
        parent=id, at_turn=at_turn, change=change.what, ids=tuple(ids), outcomes=tuple(outcomes), labels=tuple(labels),
        shares=shares_of(labels),
    )  # fmt: skip


def resume_branch(
    source: Journal | Source | Record,
    id: str,  # noqa: A002
    *, tools: Stubs | None = None, agent: Callable[..., Any], model: Any = None, change: Change | None = None,
    journal: Journal | None = None, workspace: str | None = None, because: str = "",
) -> Outcome:  # fmt: skip
    """Go on with a branch that was cut short or waits, at its open turn; one that has ended answers as it ended.

    `tools`, `workspace` and `model` are given as at the fork, since code is in no record; `change` is needed again
    where it held tools or a model. What the branch did is served, not done again. Recorded answers and constant stubs
    may be asked once more where a crash left them in doubt; a test system's is settled by its probe, or by a person.
    Raises `Misuse` where a tool would be stood in for otherwise than at the fork.
    """
    home, own = _open(source, id, journal)
    link = branched(own)
    if link is None:
        raise Misuse(f"resume_branch: {id!r} is no branch (or was cut short before it began): use journal.run")
    chosen = change.model if change is not None and change.model is not None else model
    fork = _fork(home, _ancestors(own), tools, change or Change(what=""), chosen, workspace)
    then = link.change.get("tools", {}) if isinstance(link.change, dict) else {}
    now = fork.stubs.kinds(fork.registered)
    for name, kind in then.items():
        if now.get(name) != kind:
            raise Misuse(f"resume_branch: {name} was {kind} at the fork and would be {now.get(name, 'gone')} now")
    run = Run(replace(fork, tools=made_tools(fork, list(own.read()))), agent, id)
    return run.resume(own, because)


def _fork(
    home: Journal, lineage: list[Ancestor], stubs: Stubs | None, change: Change, model: Any, workspace: str | None
) -> Fork:
    if model is None:
        raise Misuse("branch: after the fork a model is asked; give model=, or Change(model=...)")
    fork = Fork(
        home=home, lineage=lineage, stubs=stubs or Stubs(), registered={**home.tools, **(change.tools or {})}, tools={},
        model=model, workspace=workspace,
    )  # fmt: skip
    started: TaskStarted = lineage[-1].events[0].body
    _check_workspace(started, made_tools(fork), home.tools, workspace)
    return fork


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


def _open(source: Any, trajectory_id: str, journal: Journal | None) -> tuple[Journal, Record]:
    from ..journal import Journal

    home = source if isinstance(source, Journal) else journal
    if home is None:
        raise Misuse("branch: where shall branches be written? give journal=")
    if isinstance(source, Record):
        record: Record | None = source
    else:
        found: Source = RootSource(source.root, source.tenant) if isinstance(source, Journal) else source
        record = found.record(trajectory_id)
    if record is None:
        raise UnknownTrajectory(f"branch: no trajectory {trajectory_id!r} is recorded there; check the id and tenant")
    if record.outline.problem:
        raise Misuse(f"branch: {trajectory_id!r}: {record.outline.problem}")
    started = record.outline.notable[0].body
    if started.origin != "live":
        raise Misuse(f"branch: {trajectory_id!r} is {started.origin}: no harness of ours can go on with it")
    return home, record


def _ancestors(record: Record) -> list[Ancestor]:
    try:
        return ancestors(record)
    except LineageBroken as why:
        raise Misuse(f"branch: {record.trajectory_id!r} is a branch itself, and {why}") from None


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
