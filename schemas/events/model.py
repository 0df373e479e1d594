"""What the model was shown and what it answered; recorded inputs and variables."""

from __future__ import annotations

from typing import Literal

import msgspec

from ._base import Amounts, Json, MailStamp, Payload, Ref

MessageOrigin = Literal["harness", "user", "steer", "imported", "copied", "branch"]
ReplyStatus = Literal["kept", "rejected", "retried", "error"]


class MessageAdded(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """A message that is not a reply of this trajectory's model.

    `wire` is the message as JSON in the provider's shape; `item_hash` is sha256 (hex) of its canonical JSON
    without transport-only keys. `copied`: repeated from another session, out of totals and training. `branch`: put
    there by the change that a branch makes; `replaces` names the inherited item whose place it takes.
    """

    role: str
    wire: Json
    item_hash: str
    origin: MessageOrigin = "harness"
    mail: MailStamp | None = None
    replaces: Ref | None = None


class ContextHead(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Hashes (hex) of what stands before the items; "" when there is none."""

    system: str = ""
    tools: str = ""
    parameters: str = ""
    template: str = ""
    tokenizer: str = ""


class RetrievedItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    source: str
    item_id: str
    version: str = ""
    place_in_context: str = ""


class ContextBuilt(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """The context of one model call: the first `keep` items of the context at event `base`, then `append`.

    `base` null: `append` is the whole list. An item is (event, index): the event that holds it, and which
    result or reply of it when it holds several (0). `stored` keeps, once, the bytes behind a head's hash.
    `context_hash`: see `schemas.context`.
    """

    context_hash: str
    purpose: str = "act"
    base: Ref | None = None
    keep: int = 0
    append: tuple[Ref, ...] = ()
    head: ContextHead = msgspec.field(default_factory=ContextHead)
    stored: dict[str, Json] = msgspec.field(default_factory=dict)
    retrieved: tuple[RetrievedItem, ...] = ()


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of one attempt. `input_total` includes cached_read and cache_write; null = not reported."""

    input_total: int | None = None
    cached_read: int | None = None
    cache_write: int | None = None
    output: int | None = None
    reasoning: int | None = None


class ProposedCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call in a reply; its action id is `<reply's sequence number>.<place in calls>`.

    `pointer` is the JSON pointer (RFC 6901) of the arguments inside `raw`; where `raw` is a blob or the
    arguments are not one string in it, `arguments` holds their text itself.
    """

    tool: str
    provider_id: str = ""
    pointer: str = ""
    arguments: Json = None


class ModelReplied(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt of one model call. `raw` is the provider's response body, verbatim text (or its blob).

    `wire` is the reply as a context item when it cannot be read out of `raw` by `wire_pointer`.
    `context` is the sequence number of its `ContextBuilt`.
    """

    raw: Json = None
    format: str = ""
    status: ReplyStatus = "kept"
    attempt: int = 1
    context: Ref | None = None
    item_hash: str = ""
    wire: Json = None
    wire_pointer: str = ""
    text: Json = None
    stop_reason: str | None = None
    calls: tuple[ProposedCall, ...] = ()
    usage: Usage | None = None
    served_model: str = ""
    endpoint: str = ""
    cache_key: str = ""
    response_id: str = ""
    duration_ms: float | None = None
    cost: Amounts = msgspec.field(default_factory=dict)
    error: str = ""
    token_ids: Json = None
    logprobs: Json = None
    system_no: int = 0


class Compacted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """A summary (the reply that holds it, or its text) took the place of the items behind the first `keep`."""

    reply: Ref | None = None
    summary: Json = None
    keep: int = 0
    turns: tuple[int, int] | None = None
    trigger: str = ""
    tokens_before: int | None = None
    tokens_after: int | None = None


class InputRead(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """A nondeterministic input: now, uuid, random, listdir, read, or an intercepted call."""

    kind: str
    name: str = ""
    value: Json = None


class VarSet(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """A variable that outlives its turn; `deleted` instead of a value removes it."""

    name: str
    value: Json = None
    deleted: bool = False
