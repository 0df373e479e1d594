"""Every table of a lake and every column: type, unit, meaning, erasable or not, nullable or not. Pure data.

Source: design/lake.md. `pipelines/lakehouse/arrow_schema.py` turns this into Arrow and Delta types. Types are `string`,
`int64`, `int32`, `float64`, `bool`, `date` and `timestamp` (µs, UTC); nothing nested: lists and maps are JSON
text. Digests, salts and keys are lower-case hex text, so that SQL recomputes the chain from columns as they stand.
An erasable column is set to null when its trajectory is erased.
"""

from __future__ import annotations

from typing import Final

from .columns import Column, ColumnType, Table
from .ledgers import LEDGERS

PARTITION_BY: Final = ("tenant", "started_on", "model")
"""The partition columns a new lake gets; a property of the lake, kept in its snapshots."""

_TENANT: Final = Column("tenant", "string", "", "whose trajectory it is", nullable=False)
_TRAJECTORY: Final = Column("trajectory_id", "string", "", "the trajectory, unique within the tenant", nullable=False)
_SEQUENCE: Final = Column("sequence_number", "int64", "", "place in the trajectory: from 0, +1", nullable=False)
_TURN: Final = Column("turn", "int32", "", "turn of the agent's loop; -1 is the prologue", nullable=False)
_RECORDED: Final = Column("recorded_at", "timestamp", "", "the writer's clock; never an order", nullable=False)
_STARTED_ON: Final = Column("started_on", "date", "", "UTC day of the start", nullable=False)
_MODEL: Final = Column(
    "model", "string", "", "id@version at the start (a partition; long names are cut)", nullable=False
)
_GIVEN_UP: Final = Column("given_up", "bool", "", "a roll-back left it behind: kept, never trained", nullable=False)
_SYSTEM_NO: Final = Column("system_no", "int32", "", "raised by every switch of model, prompt or tools", nullable=False)

_ENVELOPE: Final = (
    _TENANT,
    _TRAJECTORY,
    _SEQUENCE,
    Column("event_type", "string", "", "name of the event type", nullable=False),
    Column("schema_version", "int32", "", "version of the type's schema", nullable=False),
    Column("fencing_token", "int64", "", "tenure that wrote it (imports: mapping version)", nullable=False),
    _TURN,
    _RECORDED,
    Column("payload", "string", "json", "the payload, character for character; null once erased", erasable=True),
    Column("salt", "string", "hex", "16 bytes, null once erased", erasable=True),
    Column("commitment", "string", "hex", "sha256(salt LF payload)", nullable=False),
    Column("cryptographic_hash", "string", "hex", "the chain's hash of this event", nullable=False),
    Column("writer", "string", "hex", "journal that held the frame", nullable=False),
    Column("lsn", "int64", "", "position of the frame in that journal", nullable=False),
    _STARTED_ON,
    _MODEL,
)

EVENTS: Final = Table(
    "events",
    "canonical events, one row each",
    _ENVELOPE,
    sort_by=("tenant", "trajectory_id", "sequence_number"),
)

TRAJECTORIES: Final = Table(
    "trajectories",
    "one row per trajectory with at least one canonical event, or once expired",
    (
        _TENANT,
        _TRAJECTORY,
        _STARTED_ON,
        _MODEL,
        Column("model_id", "string", "", "model at the start, uncut", nullable=False),
        Column("model_version", "string", "", "its version at the start"),
        Column("kind", "string", "", "live | imported | judgement", nullable=False),
        Column("status", "string", "", "open | completed | failed | cancelled | interrupted | expired", nullable=False),
        Column("agent", "string", "", "module:function of the agent"),
        Column("task", "string", "json", "the task as first given", erasable=True),
        Column("result", "string", "json", "the result of the end", erasable=True),
        Column("end_reason", "string", "", "reason the end states", erasable=True),
        Column("principal", "string", "", "opaque key of who it ran for"),
        Column("subjects", "string", "json", "opaque subject keys"),
        Column("source_format", "string", "", "imports: format"),
        Column("source_session", "string", "", "imports: session id of the source"),
        Column("parent_tenant", "string", "", "sub-agents: tenant of the caller"),
        Column("parent_trajectory_id", "string", "", "sub-agents: trajectory of the caller"),
        Column("parent_action_id", "string", "", "sub-agents: action that started it"),
        Column("branch_of_tenant", "string", "", "branches: tenant of the parent"),
        Column("branch_of_trajectory_id", "string", "", "branches: the parent"),
        Column("branch_of_sequence", "int64", "", "branches: last inherited event of the parent"),
        Column("branch_of_hash", "string", "hex", "branches: its hash"),
        Column("branch_at_turn", "int32", "", "branches: first turn of its own"),
        Column("started_at", "timestamp", "", "recorded_at of event 0", nullable=False),
        Column("last_event_at", "timestamp", "", "recorded_at of the last canonical event", nullable=False),
        Column("ended_at", "timestamp", "", "recorded_at of the end"),
        Column("last_sequence", "int64", "", "sequence number of the last canonical event", nullable=False),
        Column("head_hash", "string", "hex", "hash of the last canonical event", nullable=False),
        Column("fencing_token", "int64", "", "token of the tenure in force", nullable=False),
        Column(
            "openings",
            "string",
            "json",
            "the line: [[token, start, after_token, after_sequence, after_hash], …]",
            nullable=False,
        ),
        Column("events", "int64", "rows", "canonical events", nullable=False),
        Column("superseded", "int64", "rows", "rows in quarantine off the line", nullable=False),
        Column("held_back", "int64", "rows", "rows in quarantine behind a gap or a missing opening", nullable=False),
        Column(
            "conflicts",
            "int64",
            "rows",
            "other events under a used key: refused by resume and curation",
            nullable=False,
        ),
        Column("turns", "int64", "turns", "turns with a kept event, given-up ones left out", nullable=False),
        Column("model_calls", "int64", "rows", "attempts of model calls", nullable=False),
        Column("tool_calls", "int64", "rows", "actions", nullable=False),
        Column("in_doubt", "int64", "rows", "actions whose stage is in_doubt", nullable=False),
        Column("input_tokens", "int64", "tokens", "sum over model calls, null where none reports"),
        Column("output_tokens", "int64", "tokens", "sum over model calls, null where none reports"),
        Column("resumes", "int64", "rows", "Resumed events", nullable=False),
        Column("roll_backs", "int64", "rows", "RolledBack events", nullable=False),
        Column("given_up", "int64", "rows", "events left behind by roll-backs", nullable=False),
        Column("system_no", "int32", "", "highest system number seen", nullable=False),
        Column("policy_version", "string", "", "policy at the start"),
        Column("prompt_version", "string", "", "prompt template at the start"),
        Column("tool_schema_version", "string", "", "tool schemas at the start"),
        Column("sampling", "string", "json", "sampling parameters at the start"),
        Column("workspace", "string", "", "none | tracked | untracked"),
        Column("workspace_snapshot", "string", "", "workspace at the start"),
        Column("erasure_epoch", "int64", "", "erasure that covers it"),
        Column("payloads_expired", "int64", "rows", "payloads that retention took; null = none"),
        Column("blobs_expired", "int64", "blobs", "blobs of its events that retention took; null = none"),
    ),
    sort_by=("tenant", "trajectory_id"),
)

MODEL_CALLS: Final = Table(
    "model_calls",
    "one row per attempt of a model call (ModelReplied)",
    (
        _TENANT,
        _TRAJECTORY,
        _SEQUENCE,
        _TURN,
        _RECORDED,
        Column("attempt", "int32", "", "from 1", nullable=False),
        Column("status", "string", "", "kept | rejected | retried | error", nullable=False),
        Column("purpose", "string", "", "purpose of its context"),
        Column("context_seq", "int64", "", "its ContextBuilt, where that is an event of this trajectory"),
        Column("context_hash", "string", "hex", "hash of the context it was shown"),
        Column("context_kept", "int64", "items", "items carried over from an earlier context"),
        Column("context_appended", "int64", "items", "items new in this context"),
        Column("format", "string", "", "wire format of the body"),
        Column("served_model", "string", "", "model the provider says it served"),
        Column("endpoint", "string", "", "endpoint the provider reports"),
        Column("cache_key", "string", "", "cache key the provider reports"),
        Column("response_id", "string", "", "id the provider gave"),
        Column("stop_reason", "string", "", "as the provider wrote it"),
        Column("calls", "int64", "calls", "tool calls proposed", nullable=False),
        Column("input_tokens", "int64", "tokens", "all input, cached included; null = not reported"),
        Column("cached_read_tokens", "int64", "tokens", "input read from a cache"),
        Column("cache_write_tokens", "int64", "tokens", "input written to a cache"),
        Column("output_tokens", "int64", "tokens", "output, reasoning included where the provider does"),
        Column("reasoning_tokens", "int64", "tokens", "reasoning"),
        Column("duration_ms", "float64", "ms", "time of the attempt"),
        Column("cost", "string", "json", "unit to decimal text"),
        Column("cost_usd", "float64", "usd", "the unit usd of cost"),
        Column("error", "string", "", "error text of the attempt", erasable=True),
        Column("item_hash", "string", "hex", "hash of the reply as a context item"),
        Column("raw_sha256", "string", "hex", "blob of the body, where it is one"),
        Column("token_ids_sha256", "string", "hex", "blob of token ids"),
        Column("logprobs_sha256", "string", "hex", "blob of log probabilities"),
        _SYSTEM_NO,
        _GIVEN_UP,
        _STARTED_ON,
        _MODEL,
    ),
    sort_by=("tenant", "trajectory_id", "sequence_number"),
)

TOOL_CALLS: Final = Table(
    "tool_calls",
    "one row per action",
    (
        _TENANT,
        _TRAJECTORY,
        Column("action_id", "string", "", "SEQUENCE.INDEX of the proposal", nullable=False),
        _TURN,
        Column("proposed_seq", "int64", "", "reply (or first event) that proposed it; null in a branch's ancestor"),
        Column("authorized_seq", "int64", "", "latest Authorized"),
        Column("intent_seq", "int64", "", "latest ToolIntent"),
        Column("result_seq", "int64", "", "outcome of the latest attempt: ToolResult, ToolSettled or LateResult"),
        Column("settled_seq", "int64", "", "latest ToolSettled"),
        Column("late_seq", "int64", "", "latest result that came after the outcome"),
        Column(
            "stage",
            "string",
            "",
            "unsent | in_flight | waiting | settled | in_doubt | recorded | unanswered",
            nullable=False,
        ),
        Column("tool", "string", "", "name of the tool"),
        Column("tool_version", "string", "", "version at the intent"),
        Column("step", "string", "", "step name where the caller gave one"),
        Column("effect", "string", "", "read | local | idempotent | external; null = not recorded"),
        Column("provider_id", "string", "", "the provider's call id: a look-up, never a key"),
        Column("attempts", "int64", "rows", "intents", nullable=False),
        Column("idempotency_key", "string", "hex", "key of the first intent"),
        Column("arguments_hash", "string", "hex", "hash of what is passed to the tool"),
        Column("arguments", "string", "", "the text the model emitted, else JSON of what is passed", erasable=True),
        Column("decision", "string", "", "latest decision: allow | deny | ask"),
        Column("policy_version", "string", "", "policy of that decision"),
        Column("approval_id", "string", "", "approval used"),
        Column("status", "string", "", "ok | error | not_executed | replayed | refused"),
        Column("settled_how", "string", "", "key | probe | person"),
        Column("verdict", "string", "", "executed | not_executed"),
        Column("proposed_at", "timestamp", "", "recorded_at of the proposal"),
        Column("intent_at", "timestamp", "", "recorded_at of the latest intent"),
        Column("deadline_at", "timestamp", "", "when nobody waits any more; null = not recorded"),
        Column("result_at", "timestamp", "", "recorded_at of result_seq"),
        Column("duration_ms", "float64", "ms", "time the tool reports"),
        Column("output_bytes", "int64", "bytes", "delivered output: bytes of its JSON text, or of its blob"),
        Column("output_sha256", "string", "hex", "blob of the delivered output, where it is one"),
        Column("full_output_sha256", "string", "hex", "blob of the whole output, where it was cut"),
        Column("cut_total", "int64", "characters", "length of the output before it was cut; null = not cut"),
        Column("lossy", "bool", "", "the value could not be recorded exactly", nullable=False),
        Column("error", "string", "json", "error of the result", erasable=True),
        Column("cost", "string", "json", "unit to decimal text"),
        Column("goal_seq", "int64", "", "goal in force at the intent"),
        _SYSTEM_NO,
        _GIVEN_UP,
        _STARTED_ON,
        _MODEL,
    ),
    sort_by=("tenant", "trajectory_id", "proposed_seq", "action_id"),
)

QUARANTINE: Final = Table(
    "quarantine",
    "rows that do not count, each with its reason: superseded, held_back, conflict, segment_lost",
    (
        *(column._replace(nullable=column.name != "tenant") for column in _ENVELOPE),
        Column("reason", "string", "", "superseded | held_back | conflict | segment_lost", nullable=False),
        Column("detail", "string", "", "what is missing or wrong, and where"),
        Column("last_lsn", "int64", "", "segment_lost: end of the lost range (lsn is its start)"),
    ),
    sort_by=("tenant", "trajectory_id", "sequence_number", "fencing_token", "cryptographic_hash"),
    partition_by=("tenant",),
)

JUDGEMENTS: Final = Table(
    "judgements",
    "one row per RewardAssigned or Annotated",
    (
        _TENANT,
        _TRAJECTORY,
        _SEQUENCE,
        _RECORDED,
        Column("kind", "string", "", "reward | annotation", nullable=False),
        Column("judged_tenant", "string", "", "tenant of what is judged", nullable=False),
        Column("judged_trajectory_id", "string", "", "trajectory that is judged", nullable=False),
        Column("judged_sequence", "int64", "", "judged up to this event; null = its head"),
        Column("head_hash", "string", "hex", "hash of that event as the judge saw it"),
        Column("verifier", "string", "", "verifier or author", nullable=False),
        Column("verifier_version", "string", "", "version of the verifier"),
        Column("value", "string", "", "reward as decimal text"),
        Column("value_number", "float64", "", "reward as a number, for sums"),
        Column("label", "string", "", "label of an annotation"),
        Column("text", "string", "", "text of an annotation", erasable=True),
        Column("details", "string", "json", "details", erasable=True),
    ),
    sort_by=("tenant", "trajectory_id", "sequence_number"),
    partition_by=("tenant",),
)

IMPORTS: Final = Table(
    "imports",
    "one row per imported file and mapping version: the loss report",
    (
        _TENANT,
        Column("sha256", "string", "hex", "of the source file, which is kept as a blob", nullable=False),
        Column("mapping_version", "int64", "", "version of the importer's mapping", nullable=False),
        Column("format", "string", "", "source format", nullable=False),
        Column("name", "string", "", "file name of the source", erasable=True),
        Column("bytes", "int64", "bytes", "size of the source"),
        Column("trajectories", "int64", "rows", "trajectories it gave"),
        Column("records_seen", "int64", "records", "records in the source"),
        Column("records_mapped", "int64", "records", "records that became events"),
        Column("records_kept_raw", "int64", "records", "records kept verbatim"),
        Column("records_skipped", "int64", "records", "records left out, by kind in the report"),
        Column("report", "string", "json", "the whole loss report", erasable=True),
    ),
    sort_by=("tenant", "sha256", "mapping_version"),
    partition_by=("tenant",),
)

BLOBS: Final = Table(
    "blobs",
    "one row per blob in the content store",
    (
        _TENANT,
        Column("sha256", "string", "hex", "of the bytes", nullable=False),
        Column("bytes", "int64", "bytes", "size of the bytes", nullable=False),
        Column("stored_bytes", "int64", "bytes", "size of the object (zstd), or its share of one", nullable=False),
        Column("path", "string", "", "object below the lake; `#offset+bytes`: a range of one", nullable=False),
        Column("run", "int64", "", "run that wrote the object", nullable=False),
    ),
    sort_by=("tenant", "sha256"),
    partition_by=("tenant",),
)

BLOB_REFS: Final = Table(
    "blob_refs",
    "one row per place in an event that names a blob",
    (
        _TENANT,
        _TRAJECTORY,
        _SEQUENCE,
        Column("place", "string", "", "JSON pointer into the payload", nullable=False),
        Column("sha256", "string", "hex", "the blob", nullable=False),
        Column("kind", "string", "", "text | bytes | json", nullable=False),
        Column("bytes", "int64", "bytes", "size the reference states"),
    ),
    sort_by=("tenant", "trajectory_id", "sequence_number", "place"),
    partition_by=("tenant",),
)

APPROVALS: Final = Table(
    "approvals",
    "one row per approval request",
    (
        _TENANT,
        _TRAJECTORY,
        Column("approval_id", "string", "", "unique in the trajectory", nullable=False),
        Column("action_id", "string", "", "the action it is about"),
        Column("tool", "string", "", "its tool"),
        Column("arguments_hash", "string", "hex", "its arguments"),
        Column("state", "string", "", "waiting | granted | denied", nullable=False),
        Column("requested_seq", "int64", "", "ApprovalRequested; null = resolved without a request"),
        Column("resolved_seq", "int64", "", "latest ApprovalResolved"),
        Column("used_seq", "int64", "", "first intent that used it"),
        Column("uses", "int64", "rows", "actions that used it", nullable=False),
        Column("requester", "string", "", "who asked"),
        Column("approver", "string", "", "who answered"),
        Column("approver_known_by", "string", "", "how the approver is known"),
        Column("question", "string", "", "the question", erasable=True),
        Column("because", "string", "", "the answer's reason", erasable=True),
        Column("requested_at", "timestamp", "", "recorded_at of the request"),
        Column("resolved_at", "timestamp", "", "recorded_at of the answer"),
        Column("posted_at", "timestamp", "", "when the answer was posted as mail"),
        Column("expires_at", "timestamp", "", "when it stops to hold"),
        Column("single_use", "bool", "", "holds for one dispatch"),
        _GIVEN_UP,
    ),
    sort_by=("tenant", "trajectory_id", "approval_id"),
    partition_by=("tenant",),
)

CHECKPOINTS: Final = Table(
    "checkpoints",
    "one row per CheckpointSaved",
    (
        _TENANT,
        _TRAJECTORY,
        _SEQUENCE,
        _TURN,
        _RECORDED,
        Column("covers", "int64", "", "last sequence number of the state", nullable=False),
        Column("state_hash", "string", "hex", "hash of the state", nullable=False),
        Column("root", "string", "hex", "root of its parts", nullable=False),
        Column("cause", "string", "", "pause | move | before_effect | end | interval", nullable=False),
        Column("workspace_snapshot", "string", "", "workspace at that point"),
        Column("pause_ms", "float64", "ms", "how long the agent waited", nullable=False),
        Column("bytes_written", "int64", "bytes", "new bytes of the checkpoint", nullable=False),
        _GIVEN_UP,
    ),
    sort_by=("tenant", "trajectory_id", "sequence_number"),
    partition_by=("tenant",),
)

SNAPSHOT_TABLES: Final[dict[str, Table]] = {
    table.name: table
    for table in (
        EVENTS,
        TRAJECTORIES,
        MODEL_CALLS,
        TOOL_CALLS,
        QUARANTINE,
        JUDGEMENTS,
        IMPORTS,
        BLOBS,
        BLOB_REFS,
        APPROVALS,
        CHECKPOINTS,
    )
}
"""Tables that a snapshot names; `events` is committed first."""

TABLES: Final[dict[str, Table]] = {**SNAPSHOT_TABLES, **{table.name: table for table in LEDGERS}}

__all__ = ["LEDGERS", "PARTITION_BY", "SNAPSHOT_TABLES", "TABLES", "Column", "ColumnType", "Table"]
