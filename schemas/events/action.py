"""Effects: the intent before, the result or settlement after. Pairing is by `action_id` alone."""

from __future__ import annotations

from typing import Literal

import msgspec

from ._base import Amounts, Json, MailStamp, Payload, Ref

Effect = Literal["read", "local", "idempotent", "external"]
ResultStatus = Literal["ok", "error", "not_executed", "replayed", "refused"]


class ToolIntent(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """Durable before the effect leaves the host. One per attempt; the stage is that of the latest.

    `arguments` is what is passed to the tool (value codec); absent when `reply` names the event whose call
    holds the same. `key` is the first intent's key (hex). Times are µs UTC, for people and audits only.
    """

    action_id: str
    tool: str
    arguments_hash: str
    key: str
    effect: Effect
    attempt: int = 1
    tool_version: str = ""
    step: str = ""
    provider_id: str = ""
    arguments: Json = msgspec.UNSET
    reply: Ref | None = None
    same_as: Json = None
    timeout_s: float | None = None
    settle_after_s: float | None = None
    deadline_at: int | None = None
    asynchronous: bool = False
    goal: Ref | None = None
    approval: str = ""
    reserved: Amounts = msgspec.field(default_factory=dict)
    system_no: int = 0
    settling: bool = False


class Cut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the model was given of a longer output: the first `head` and last `tail` characters of `total`."""

    head: int
    tail: int
    total: int


class FileChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One path of the workspace after a `local` tool: new content by hash, or gone. `mode` is the permission bits."""

    path: str
    sha256: str | None = None
    mode: int | None = None
    link: str | None = None


class ToolResult(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """Closes an intent (or refuses a proposal: `refused` without one).

    `output` is what the model was given; `full_output` the whole where it was cut (`cut`). `lossy`: the value
    could not be recorded exactly and `output` is its repr. `changes` and `workspace` make a `local` effect
    applicable again; `opaque` says it is not.
    """

    action_id: str
    status: ResultStatus
    attempt: int = 1
    tool: str = ""
    provider_id: str = ""
    output: Json = None
    full_output: Json = None
    cut: Cut | None = None
    lossy: bool = False
    error: Json = None
    duration_ms: float | None = None
    cost: Amounts = msgspec.field(default_factory=dict)
    replays: Ref | None = None
    item_hash: str = ""
    wire: Json = None
    changes: tuple[FileChange, ...] = ()
    workspace: str | None = None
    opaque: bool = False
    mail: MailStamp | None = None


class ToolSettled(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """Decides an effect in doubt. `delivered` is the text the model is given; `delivered_version` which wording."""

    action_id: str
    how: Literal["key", "probe", "person"]
    verdict: Literal["executed", "not_executed"]
    attempt: int = 1
    evidence: Json = None
    output: Json = None
    has_output: bool = False
    delivered: str = ""
    delivered_version: int = 0
    because: str = ""
    item_hash: str = ""
    mail: MailStamp | None = None


class LateResult(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """A result that arrived after its action was decided or its trajectory ended; never given to a model if refused."""

    action_id: str
    decision: Literal["accepted", "refused"]
    provider_id: str = ""
    output: Json = None
    reason: str = ""
    mail: MailStamp | None = None
