"""What people and other processes can know of a root's trajectories without holding a lease: read-only, best effort.

What is read beside a live writer may be a moment old and not yet durable: good for showing and for refusing obvious
mistakes early, never for acting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from trajlake.schemas.envelope import Event
from trajlake.schemas.errors import SchemaError
from trajlake.schemas.history import History, canonical, incomplete
from trajlake.schemas.ids import trajectory_key
from trajlake.schemas.state import Action, Approval, Obligation, State, fold, initial, stage

from .leases.lease import LeaseRecord, LeaseStore
from .mailbox.mail import MailStore
from .root import Root
from .stores import lease_store, mail_store
from .wal.journal_errors import SegmentCorrupt
from .wal.reader import iter_events, read_trajectory


class TrajectoryView(msgspec.Struct, frozen=True, kw_only=True):
    """One trajectory as found. `state` is None if nothing is recorded or it cannot be folded (`trouble` says why)."""

    tenant: str
    trajectory_id: str
    record: LeaseRecord | None
    history: History | None
    state: State | None
    mail_count: int = 0
    trouble: str = ""

    @property
    def lacks(self) -> str:
        """Why this may be less than was recorded, "" if nothing says so."""
        return self.trouble or (incomplete(self.history) if self.history else "")


class StatusRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `trajlake status`. Ages and times left are seconds; `stages` counts actions by stage.

    `status`: unsent | running | parked (a person must answer) | waiting (for a job) | open (nobody works on it: resume)
    | completed | failed | cancelled | interrupted | unreadable. `next` says what a person can do, "" if nothing, as for
    imports. `age_s` is None where no time is known.
    """

    tenant: str
    trajectory_id: str
    status: str
    origin: str
    owner: str
    token: int
    lease_s: float
    age_s: float | None
    turn: int
    events: int
    stages: dict[str, int]
    doubts: list[dict[str, Any]]
    approvals: list[dict[str, Any]]
    obligations: list[dict[str, Any]]
    mail: int
    held_back: int
    conflicts: int
    next: str
    trouble: str


class RootView:
    """Reads a root. `stores` are opened once; every call looks again."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self.leases: LeaseStore = lease_store(root)
        self.mail: MailStore = mail_store(root)
        self.troubles: dict[str, str] = {}
        """Of the last look at all trajectories: writer -> what of its events cannot be read."""

    def trajectory(self, tenant: str, trajectory_id: str) -> TrajectoryView | None:
        """Return one trajectory, None if neither a lease record nor an event of it is here."""
        record = self.leases.read(tenant, trajectory_id)
        writers = {tenure.writer for tenure in record.tenures} if record else set(self.root.writers())
        folders = [(self.root.writer_folder(writer), 0) for writer in self.root.writers() if writer in writers]
        trouble = ""
        events: list[Event] = []
        for folder in folders:
            try:
                events += read_trajectory(self.root.env, [folder], trajectory_key(tenant, trajectory_id))[0]
            except SegmentCorrupt as error:
                trouble = str(error)
        if record is None and not events and not trouble:
            return None
        mail_count = len(self.mail.waiting(tenant, trajectory_id))
        return view_of(tenant, trajectory_id, events, record, mail_count, trouble)

    def trajectories(self) -> Iterator[TrajectoryView]:
        """Every trajectory with a lease record or an event in a segment, in the order of (tenant, id)."""
        records = {(record.tenant, record.trajectory_id): record for record in self.leases.records()}
        found: dict[tuple[str, str], list[Event]] = {identity: [] for identity in records}
        troubles = self.troubles = self._collect(found)
        mailed = Counter({identity: len(self.mail.waiting(*identity)) for identity in self.mail.trajectories()})
        for identity in sorted(found):
            record = records.get(identity)
            named = {tenure.writer for tenure in record.tenures} if record else set(troubles)
            trouble = next((text for writer, text in troubles.items() if writer in named), "")
            yield view_of(*identity, found[identity], record, mailed[identity], trouble)

    def _collect(self, found: dict[tuple[str, str], list[Event]]) -> dict[str, str]:
        """Collect all events; return writer -> what of its events cannot be read."""
        troubles = {}
        for writer in self.root.writers():
            try:
                for event in iter_events(self.root.env, self.root.writer_folder(writer)):
                    found.setdefault((event.tenant, event.trajectory_id), []).append(event)
            except SegmentCorrupt as error:
                troubles[writer] = str(error)
        return troubles


def view_of(
    tenant: str, trajectory_id: str, events: list[Event], record: LeaseRecord | None, mail_count: int, trouble: str
) -> TrajectoryView:
    """Fold what was found; what cannot be folded is said, not raised."""
    history = canonical(events) if events else None
    state = None
    if history is not None and history.events:
        try:
            state = fold(initial(tenant, trajectory_id), history.events)
        except SchemaError as error:
            trouble = trouble or str(error)
    return TrajectoryView(
        tenant=tenant, trajectory_id=trajectory_id, record=record, history=history, state=state,
        mail_count=mail_count, trouble=trouble,
    )  # fmt: skip


def status_row(view: TrajectoryView, now_us: int) -> StatusRow:
    """Return the line of one trajectory. `now_us` is µs UTC: ages are for people."""
    state, record = view.state, view.record
    holder = record.holder if record else None
    live_token = holder.token if holder else None
    actions = [] if state is None else list(state.execution.actions.values())
    staged = [] if state is None else [(one, stage(one, state, now_us, live_token)) for one in actions]
    doubts = [one for one, at in staged if at == "in_doubt"]
    asked = [] if state is None or state.execution.ended else _open_questions(state)
    stages: dict[str, int] = dict(Counter(str(at) for _, at in staged))
    status = _status(view, doubts, asked, stages)
    started = state.execution.started if state else None
    return StatusRow(
        tenant=view.tenant, trajectory_id=view.trajectory_id, status=status, origin=started.origin if started else "",
        owner=holder.worker if holder else "", token=record.highest_token if record else 0,
        lease_s=round(record.free_in_s, 1) if record else 0.0,
        age_s=round(max(0, now_us - state.recorded_at) / 1e6, 1) if state and state.recorded_at > 0 else None,
        turn=state.execution.turn if state else -1, events=len(view.history.events) if view.history else 0,
        stages=stages, doubts=[_doubt(one) for one in doubts], approvals=[_question(one) for one in asked],
        obligations=[_obligation(one) for one in _obligations(state)], mail=view.mail_count,
        held_back=len(view.history.held_back) if view.history else 0,
        conflicts=len(view.history.conflicts) if view.history else 0,
        next=_next(view, status, doubts, asked), trouble=view.trouble,
    )  # fmt: skip


def _status(view: TrajectoryView, doubts: list[Action], asked: list[Approval], stages: dict[str, int]) -> str:
    state, record = view.state, view.record
    if state is None:
        return "unreadable" if view.trouble or view.history else "unsent"
    if state.execution.ended is not None:
        return state.execution.ended.status
    if record is not None and record.holder is not None:
        return "running"
    if asked or (doubts and record is not None and record.tenures[-1].released_head is not None):
        return "parked"
    return "waiting" if stages.get("waiting") and not doubts else "open"


def _next(view: TrajectoryView, status: str, doubts: list[Action], asked: list[Approval]) -> str:
    name = view.trajectory_id
    started = view.state.execution.started if view.state else None
    if started is not None and started.origin != "live":
        return ""  # an import or a judgement: nothing here runs it
    if view.lacks:
        return "trajlake journal verify"  # what is missing may hold the answer
    if status == "open" or (view.mail_count and status in ("parked", "waiting")):
        return f"trajlake resume {name}"
    if status == "parked" and asked:
        return f"trajlake approve {name} {asked[0].approval_id}   (or deny)"
    if status == "parked":
        return f"trajlake settle {name} {doubts[0].action_id} --executed|--not-executed --because TEXT --evidence TEXT"
    return ""


def _open_questions(state: State) -> list[Approval]:
    return [one for one in state.execution.approvals.values() if one.resolved is None]


def _obligations(state: State | None) -> list[Obligation]:
    return [] if state is None else [one for one in state.intent.obligations.values() if one.discharged is None]


def _doubt(action: Action) -> dict[str, Any]:
    return {"action_id": action.action_id, "tool": action.tool, "effect": action.effect, "attempt": action.attempt}


def _question(approval: Approval) -> dict[str, Any]:
    return {
        "approval_id": approval.approval_id, "action_id": approval.action_id, "tool": approval.tool,
        "question": approval.question, "arguments_hash": approval.arguments_hash, "expires_at": approval.expires_at,
    }  # fmt: skip


def _obligation(obligation: Obligation) -> dict[str, Any]:
    return {
        "obligation_id": obligation.obligation_id, "text": obligation.text, "owed_to": obligation.owed_to,
        "due_at": obligation.due_at,
    }  # fmt: skip
