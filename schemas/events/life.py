"""Life of a trajectory: start, tenures, resumes, roll-backs, end, branching."""

from __future__ import annotations

from typing import Literal

import msgspec

from ._base import Amounts, Json, MailStamp, Payload

Origin = Literal["live", "imported", "judgement"]
EndStatus = Literal["completed", "failed", "cancelled", "interrupted"]


class ParentAction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The trajectory, and the action in it, that started a sub-agent."""

    tenant: str
    trajectory_id: str
    action_id: str = ""


class ImportSource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where an imported trajectory comes from. Nothing here may change when the source grows."""

    format: str
    session: str
    first_record_hash: str = ""
    producer: str = ""
    producer_version: str = ""


class ToolDeclaration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A registered tool as it stood at the start."""

    effect: str
    version: str
    schema_hash: str = ""


class TaskStarted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """Sequence number 0. `model` and `model_version` name the partition (`unknown` when absent)."""

    task: Json = None
    origin: Origin = "live"
    agent: str = ""
    model: str = "unknown"
    model_version: str = ""
    sampling: Json = None
    prompt_version: str = ""
    tool_schema_version: str = ""
    tools: dict[str, ToolDeclaration] = msgspec.field(default_factory=dict)
    policy_version: str = ""
    workspace: Literal["none", "tracked", "untracked"] = "none"
    workspace_snapshot: str | None = None
    replicated: tuple[str, ...] = ()
    principal: str | None = None
    principal_expires_at: int | None = None
    subjects: tuple[str, ...] = ()
    budget: Amounts = msgspec.field(default_factory=dict)
    parent: ParentAction | None = None
    source: ImportSource | None = None
    runtime: str = ""


class LeaseAcquired(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """Opening event of a token: which event it follows, by number, token and hash (hex)."""

    token: int
    after_token: int
    after_sequence: int
    after_hash: str
    worker: str = ""
    writer: str = ""
    host: str = ""


class LeaseReleased(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """Closes a tenure."""

    token: int
    reason: str = ""


class Resumed(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """The seam: what a new worker found and did before going on. `gap_ms` is by recorded_at, never used for order."""

    last_sequence: int
    checkpoint: int | None = None
    gap_ms: int = 0
    context: Literal["same", "drift"] = "same"
    workspace: str = ""
    settled: tuple[str, ...] = ()
    refreshed: tuple[str, ...] = ()
    reapproved: tuple[str, ...] = ()
    cold_prefill_tokens: int | None = None
    log_complete: bool = True
    accept_loss: bool = False
    close_turn: bool = False
    because: str = ""
    schema_version: int = 1


class ResumeRefused(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """Why a resume stopped: schema, log_incomplete, drift, authority, constraint_withdrawn, workspace, host, ..."""

    reason: str
    detail: str = ""


class RolledBack(Payload, frozen=True, kw_only=True, omit_defaults=True, rename={"from_": "from"}):
    """Events in (to, from] are given up. `to` is the number of a `CheckpointSaved`."""

    to: int
    from_: int
    because: str = ""


class CancelRequested(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """Somebody asked to stop the trajectory."""

    because: str = ""
    mail: MailStamp | None = None


class TaskEnded(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """The end. `interrupted` is written by importers only."""

    status: EndStatus
    result: Json = None
    reason: str = ""


class Branched(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """Event 1 of a branch: the ancestor's last inherited event, by number and hash, and the one change."""

    parent_tenant: str
    parent_trajectory_id: str
    parent_sequence: int
    parent_hash: str
    at_turn: int
    change: Json = None
