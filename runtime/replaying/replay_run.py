"""`replay`: the real harness runs, and everything it asks for is served from the record.

Source: design/agent.md, *Replay*.

Nothing is sent, written or read from outside: no network, no lease, no disk but the record's own bulk. Warm: one pass
through all turns. Cold: every turn is entered afresh, as after a crash before it, so a local variable carried from
turn to turn shows. Memory holds one turn, the state, and the context in force.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace as with_changes
from typing import TYPE_CHECKING, Any, NoReturn

from trajlake.schemas import values
from trajlake.schemas.canonical_json import exact_canonical
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import TaskEnded, TaskStarted

from ..agent import driver_async, driver_sync
from ..agent.errors import AgentError, Diverged
from ..agent.inputs import read_input
from ..agent.requests import Request
from ..agent.session import Setup
from .diff import diff
from .explain import plain, report_of
from .lineage import LineageBroken, OtherTools, ancestors, branched
from .record import Record, record_of
from .report import Report, Verdict
from .serve import EndOfRecord, RecordedModel, ReplaySession, TurnOver
from .sources import RootSource

if TYPE_CHECKING:
    from ..journal import Journal
    from .intercept import Interception

__all__ = ["RecordedModel", "Report", "Verdict", "replay"]


def replay(
    agent: Callable[..., Any], events: Iterable[Event] | Record, *, journal: Journal, cold: bool = False,
    intercept: bool = False,
) -> Report:  # fmt: skip
    """Run `agent` against a record and say whether it asks for the same. See the module for `cold`.

    `events`: a `Record` of a source, or events in any order, with copies. Of `journal` only tools and policy are used,
    and the tools are never called. `intercept`: clock, chance and listings that harness code reads past its turn are
    served too, as they always are for a record made so (one such replay per process at a time; see
    `replaying.intercept`). A record that cannot be replayed is refused by name; an imported one is compared at the
    level it allows.
    """
    record = events if isinstance(events, Record) else _record(events, journal)
    outline = record.outline
    if outline.problem:
        return Report(verdict="refused", cause=outline.problem, trajectory_id=record.trajectory_id)
    started: TaskStarted = outline.notable[0].body
    if started.origin == "imported":
        from .imported import replay_imported

        return replay_imported(record)
    if started.origin != "live":
        cause = f"the record is {started.origin}, not live"
        return Report(verdict="refused", cause=cause, trajectory_id=record.trajectory_id)
    setup = Setup(tools=journal.tools, policy=journal.policy, resolvers=journal.resolvers)
    try:
        s, level = _session(setup, record, cold=cold)
    except (LineageBroken, OtherTools) as why:
        return Report(verdict="refused", cause=f"a branch: {why}", trajectory_id=record.trajectory_id)
    with _interception(s, wanted=intercept or s.intercepted) as caught:
        report = _all_entries(agent, s)
    notes = (*report.notes, *level, *sorted(s.judge.notes), *(caught.notes() if caught is not None else ()))
    if caught is not None and report.verdict == "differs":
        report = caught.blame(report)
    return with_changes(report, trajectory_id=record.trajectory_id, events=outline.count, notes=notes)


def _record(events: Iterable[Event], journal: Journal) -> Record:
    found = list(events)
    tenant = found[0].tenant if found else ""
    blob = lambda sha256: journal.ports_for_reading.blobs.get(tenant, sha256)  # noqa: E731
    root = getattr(journal, "root", None)
    if root is None:
        return record_of(found, blob)
    return record_of(found, blob, RootSource(root, tenant).record)


def _session(setup: Setup, record: Record, *, cold: bool) -> tuple[ReplaySession, tuple[str, ...]]:
    """The session that serves a record, and what its report says of the level."""
    link = branched(record)
    if link is None:
        return ReplaySession(setup, record, cold=cold), ()
    from .branch_replay import BranchReplaySession

    level = f"a branch: replayed from turn {link.at_turn} on, where it left {link.parent_trajectory_id!r}"
    return BranchReplaySession(setup, record, ancestors(record), cold=cold), (level,)


def _interception(s: ReplaySession, *, wanted: bool) -> Any:
    if not wanted:
        return nullcontext()
    from .intercept import Interception

    caught: Interception = Interception(s, recording=s.intercepted)
    return caught


def _all_entries(agent: Callable[..., Any], s: ReplaySession) -> Report:
    while True:
        before = s.next_turn
        report = _one_entry(agent, s)
        if report is not None:
            return report
        assert s.next_turn > before
        s.begin_entry()


def _one_entry(agent: Callable[..., Any], s: ReplaySession) -> Report | None:
    """Call the agent once. Returns None when its turns are over and another entry is to follow."""
    s.owner_now = lambda: None
    try:
        value = _call(agent, s)
        if s.unwinding is None:
            s.check_served()
            return _compare_end(s, value) if s.turn >= s.last_turn else _ended_early(s)
    except TurnOver:
        return None
    except EndOfRecord:
        pass
    except Diverged as error:
        return report_of(s, error)
    except AgentError as error:
        return _raised(s, error)
    except Exception as error:  # noqa: BLE001 - whatever the harness raises is what it did
        return _raised(s, error)
    if isinstance(s.unwinding, TurnOver):
        return None
    return Report(verdict="same")


def _call(agent: Callable[..., Any], s: ReplaySession) -> Any:
    if s.intercepted:
        read_input(s, "intercepted", "on", lambda: True)
    if inspect.iscoroutinefunction(agent) or inspect.iscoroutinefunction(getattr(agent, "__call__", None)):  # noqa: B004
        return asyncio.run(_call_async(agent, s))
    return agent(driver_sync.Trajectory(s, _refuse, _no_spawn, model=s.model))


async def _call_async(agent: Callable[..., Any], s: ReplaySession) -> Any:
    return await agent(driver_async.Trajectory(s, _refuse_async, _no_spawn, model=s.model))


def _refuse(request: Request) -> NoReturn:
    raise AssertionError(f"a replay asked for {type(request).__name__}")


async def _refuse_async(request: Request) -> NoReturn:
    _refuse(request)


def _no_spawn(*_: Any) -> NoReturn:
    raise AssertionError("a replay ran a child")


def _compare_end(s: ReplaySession, value: Any) -> Report:
    """Compare how the harness ended with the recorded end; an open record ends wherever the harness does."""
    status, result, reason = s.ended or (("failed", None, "no turns left") if s.exhausted else ("completed", value, ""))
    if s.end is None or s.end.body.status == "cancelled":
        return Report(verdict="same")
    recorded: TaskEnded = s.end.body
    tree = values.to_tree(result)
    got = (status, exact_canonical(tree), reason)
    if got == (recorded.status, exact_canonical(s.inline(recorded.result)), recorded.reason):
        return Report(verdict="same")
    before = {"status": recorded.status, "result": plain(s, recorded.result), "reason": recorded.reason}
    after = {"status": status, "result": tree, "reason": reason}
    return Report(
        verdict="differs", turn=s.turn, operation="end", expected=before, got=after, cause="changed",
        component="end", source="harness input", diff=diff(before, after), sequence_number=s.end.sequence_number,
    )  # fmt: skip


def _ended_early(s: ReplaySession) -> Report:
    if s.turn in s.closed:
        s.next_turn = s.turn + 1
    return Report(
        verdict="differs", turn=s.turn, operation="end", expected=f"turn {s.turn + 1}", got="the harness ended",
        cause="missing", component="code", source="harness input",
    )  # fmt: skip


def _raised(s: ReplaySession, error: Exception) -> Report:
    """An exception ends a record that stands open there as it did before; anywhere else it is a difference."""
    if s.ended is not None and s.end is not None:
        return _compare_end(s, None)
    if s.end is None and s.turn == s.last_turn and s.table.missing() is None:
        return Report(verdict="same")
    awaited = s.table.missing()
    return Report(
        verdict="differs", turn=s.turn, operation="code", got=f"{type(error).__name__}: {error}", cause="raised",
        expected="nothing raised" if awaited is None else f"{awaited[0][0]} {awaited[0][1]}".strip(),
        component=_where(error), source="harness input",
        sequence_number=None if awaited is None else awaited[1].sequence_number,
    )  # fmt: skip


def _where(error: Exception) -> str:
    """The innermost place outside the runtime that the exception passed, as `file:line`."""
    place, trace = "code", error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not trace.tb_frame.f_globals.get("__name__", "").startswith("trajlake."):
            place = f"{code.co_filename.rpartition('/')[2]}:{trace.tb_lineno} in {code.co_name}"
        trace = trace.tb_next
    return place
