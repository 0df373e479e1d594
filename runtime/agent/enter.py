"""Taking a trajectory in hand: lease, log, opening event, mail, settling, and the seam `Resumed`.

Source: design/agent.md, *Resume* and *Lease, fencing, gateway*. No model is called before all of it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from trajlake.schemas import values
from trajlake.schemas.canonical_json import exact_canonical
from trajlake.schemas.envelope import Event
from trajlake.schemas.events import LeaseAcquired, Payload, TaskEnded, TaskStarted
from trajlake.schemas.events import ResumeRefused as Refusal
from trajlake.schemas.history import History, canonical
from trajlake.schemas.state.budget import normal
from trajlake.schemas.versions import resumable

from ..checkpoints.checkpoint import start_record
from ..leases.generations import must_stop
from ..leases.lease import Claim, LeaseBusy, LeaseRecord, RecordMissing, take_lease
from ..wal.frame import TrajectoryInfo
from .decide import log_suffices
from .errors import Busy, Conflict, ResumeRefused, UnknownTrajectory
from .files import Files
from .from_checkpoint import view_from
from .leave import let_go
from .ports import Found
from .requests import Block, Steps
from .restore import read_checkpoint
from .session import Session


@dataclass(frozen=True, kw_only=True)
class Order:
    """What `run` was told: the task and everything that `TaskStarted` records of a new trajectory."""

    task: Any = None
    agent: str = ""
    model: str = "unknown"
    model_version: str = ""
    sampling: Any = None
    prompt_version: str = ""
    tool_schema_version: str = ""
    budget: Mapping[str, Any] = field(default_factory=dict)
    subjects: tuple[str, ...] = ()
    principal: str | None = None
    bearer: Any = None
    workspace: str | None = None
    roll_back: bool = False
    recovering: bool = False
    parent: Any = None
    accept_loss: bool = False
    close_turn: bool = False
    because: str = ""
    started: Callable[[], Mapping[str, Any]] = dict


@dataclass(frozen=True, slots=True)
class Known:
    """What was found under an id, before or after the lease was taken."""

    record: LeaseRecord | None
    found: Found
    history: History

    @property
    def end(self) -> Event | None:
        """The canonical end, if there is one."""
        return next((event for event in reversed(self.history.events) if event.type == "TaskEnded"), None)

    @property
    def loss_accepted(self) -> Event | None:
        """The last `Resumed` with which a person accepted that events are missing."""
        accepted = (event for event in self.history.events if event.type == "Resumed" and event.body.accept_loss)
        return max(accepted, key=lambda event: event.sequence_number, default=None)

    @property
    def complete(self) -> bool:
        """Whether no event can be missing, but those of tenures whose loss a person has accepted since."""
        accepted, missing = self.loss_accepted, self.found.missing_tenures
        return self.found.complete or (accepted is not None and bool(missing) and max(missing) < accepted.fencing_token)


def look(s: Session) -> Steps:
    """Read lease record and log. Answers nothing yet about who may act."""
    record: LeaseRecord | None = yield Block(lambda: s.ports.leases.read(s.tenant, s.trajectory_id))
    found: Found = yield Block(lambda: s.ports.log.read(s.tenant, s.trajectory_id, record))
    return Known(record, found, canonical(found.events))


BRANCH: Final = "trajlake branch"
"""What `TaskStarted.runtime` says of a branch, before `Branched` names its parent."""


def _is_branch(events: Sequence[Event]) -> bool:
    return any(event.type == "Branched" for event in events)


def check_order(s: Session, known: Known, order: Order) -> None:
    """Raise `Conflict` for another task, `UnknownTrajectory` for none at all, `ResumeRefused` for one not live."""
    events = known.history.events
    if known.history.conflicts:
        raise Conflict(
            f"trajectory {s.trajectory_id!r}: two different events stand under number "
            f"{known.history.conflicts[0].sequence_number}; it can be read, and work goes on in a branch before it"
        )
    if not events:
        if order.task is None:
            raise UnknownTrajectory(f"trajectory {s.trajectory_id!r}: unknown; give a task to start it")
        return
    started: TaskStarted = events[0].body
    if started.origin != "live":
        raise ResumeRefused("origin", f"{s.trajectory_id!r} is {started.origin}; only live trajectories run")
    if known.end is None and not s.is_branch and (started.runtime == BRANCH or _is_branch(events)):
        raise ResumeRefused(
            "branch", f"{s.trajectory_id!r} is a branch: go on with 'trajlake branch {s.trajectory_id} --resume' "
            "and its stand-ins (resume_branch), so that nothing real is called"
        )  # fmt: skip
    if order.task is not None and exact_canonical(s.inline(started.task)) != exact_canonical(
        values.to_tree(order.task)
    ):
        raise Conflict(f"trajectory {s.trajectory_id!r} was started with another task; use another id")


def take(s: Session, before: Known, *, recovering: bool = False) -> Steps:
    """Take the lease, then read the log (again). Returns `Known`; raises `Busy`, `ResumeRefused`.

    `recovering`: a person brought the trajectory back from elsewhere; without a record a new generation is taken.
    """
    claim = Claim(
        tenant=s.tenant, trajectory_id=s.trajectory_id, worker=s.ports.worker, writer=s.ports.log.writer_id,
        host=s.ports.host, first_lsn=s.ports.log.next_lsn,
    )  # fmt: skip
    seen = {event.fencing_token for event in before.found.events}

    def tokens() -> tuple[bool, set[int]]:
        # Read just before, and again once the lease is held: a token met only then gives the lease back.
        return bool(seen), seen

    while True:
        try:
            lost = recovering and before.record is None
            lease, _ = yield Block(
                partial(take_lease, s.ports.leases, s.ports.arbiter, claim, s.key, seen=tokens, recovering=lost)
            )
        except LeaseBusy as error:
            raise Busy(str(error)) from error
        except RecordMissing as error:
            raise ResumeRefused("lease_record", str(error)) from error
        s.held = s.ports.keeper.hold(lease)
        s.acquired_at_s = s.ports.now_s()
        known: Known = yield from look(s)
        higher = {event.fencing_token for event in known.found.events}
        if not must_stop(s.token, higher):
            return known
        seen |= higher
        held, s.held = s.held, None
        assert held is not None
        yield Block(partial(s.ports.keeper.release, held, None))


def begin(s: Session, known: Known, order: Order) -> Steps:
    """Write the opening event: `TaskStarted` of a new trajectory, else `LeaseAcquired` with what it must copy."""
    if not known.history.events:
        if not log_suffices(complete=known.found.complete, held_back=bool(known.history.held_back)):
            yield from let_go(s, None)
            raise ResumeRefused("log_incomplete", "its first events are missing here; bring them back before it runs")
        if order.task is None:
            yield from let_go(s, None)
            raise UnknownTrajectory(f"trajectory {s.trajectory_id!r}: unknown; give a task to start it")
        now = datetime.fromtimestamp(s.ports.env.now_us() / 1e6, UTC)
        s.info = TrajectoryInfo(
            tenant=s.tenant, trajectory_id=s.trajectory_id, model=order.model, model_version=order.model_version,
            started_on=now.date().isoformat(),
        )  # fmt: skip
        s.principal = order.principal
        snapshot: str | None = None
        if order.workspace is not None and s.rules.tracked:
            s.files = Files(s.ports, s.rules, order.workspace, s.tenant)
            snapshot = yield Block(s.files.snapshot)
            if s.ports.checkpoints is not None:
                yield Block(partial(s.ports.checkpoints.note, start_record(s.tenant, s.trajectory_id, snapshot)))
        yield from s.record(_started(order, snapshot))
        return
    adopt_history(s, known)
    yield from read_checkpoint(s)
    see_all(s)
    last = known.history.events[-1]
    payload = LeaseAcquired(
        token=s.token, after_token=last.fencing_token, after_sequence=last.sequence_number,
        after_hash=last.hash.hex(), worker=s.ports.worker, writer=s.ports.log.writer_id, host=s.ports.host,
    )  # fmt: skip
    opening = s.make(payload)
    counted = {event.hash for event in known.history.events}
    copies = sorted(
        {event.hash: event for event in known.found.undurable if event.hash in counted}.values(),
        key=lambda event: event.sequence_number,
    )
    s.ticket = s.ports.log.append([*copies, opening], s.info)
    s.adopt(opening)


def adopt_history(s: Session, known: Known) -> None:
    """Take over the canonical events read: identity and open turn. Nothing is seen of them yet."""
    started: TaskStarted = known.history.events[0].body
    day = datetime.fromtimestamp(known.history.events[0].recorded_at / 1e6, UTC).date().isoformat()
    s.info = TrajectoryInfo(
        tenant=s.tenant, trajectory_id=s.trajectory_id, model=started.model, model_version=started.model_version,
        started_on=day,
    )  # fmt: skip
    s.principal = started.principal
    s.resumed = True
    s.live = False
    for event in known.history.events:
        s.adopt(event)
    s.superseded_keys = frozenset(
        event.body.key for event in known.history.superseded if event.type == "ToolIntent" and event.payload is not None
    )
    s.learn_roll_backs()


def see_all(s: Session) -> None:
    """Make a view of the whole log: from the checkpoint on, where there is one."""
    s.live = True
    s.view = view_from(s) or s.new_view()
    for event in s.events[s.view.applied + 1 :]:
        s.view.apply(event)


def check_resumable(s: Session, known: Known, order: Order) -> ResumeRefused | None:
    """Return why this trajectory may not go on here, or None."""
    for event in s.events:
        verdict = resumable(event.schema_version)
        if not verdict.ok:
            return ResumeRefused("schema", verdict.reason)
    held_back = bool(known.history.held_back)
    if not log_suffices(complete=known.complete, held_back=held_back, accept_loss=order.accept_loss):
        return ResumeRefused("log_incomplete", "events are missing; bring them back, or resume with --accept-loss")
    started: TaskStarted = s.events[0].body
    refused = {event.fencing_token for event in s.events if event.type == "ResumeRefused"}
    tenures = known.record.tenures if known.record is not None else ()
    hosts = [one.host for one in tenures if one.token != s.token and one.token not in refused]
    uses_files = started.workspace != "none" or any(tool.effect == "local" for tool in started.tools.values())
    other = next((host for host in reversed(hosts) if host), s.ports.host)
    if uses_files and started.workspace != "tracked" and other != s.ports.host:
        return ResumeRefused("host", f"its workspace is on host {other!r}; resume there")
    return None


def refuse(s: Session, why: ResumeRefused) -> Steps:
    """Record a refusal, let go of the lease, and raise it."""
    yield from s.record(Refusal(reason=why.reason, detail=why.detail))
    yield from let_go(s, f"refused: {why.reason}")
    raise why


def recorded_outcome(s: Session, end: Event) -> tuple[Any, Any]:
    """Return (status, result) of a recorded end."""
    body: TaskEnded = end.body
    return body.status, s.value(body.result) if body.status == "completed" else body.reason


def _started(order: Order, snapshot: str | None) -> Payload:
    return TaskStarted(
        task=values.to_tree(order.task),
        agent=order.agent,
        model=order.model,
        model_version=order.model_version,
        sampling=values.to_tree(order.sampling) if order.sampling is not None else None,
        prompt_version=order.prompt_version,
        tool_schema_version=order.tool_schema_version,
        workspace="tracked" if snapshot is not None else "none" if order.workspace is None else "untracked",
        workspace_snapshot=snapshot,
        principal=order.principal,
        principal_expires_at=getattr(order.bearer, "expires_at", None),
        subjects=tuple(order.subjects),
        budget={unit: normal(str(amount)) for unit, amount in order.budget.items()},
        parent=order.parent,
        **order.started(),
    )
