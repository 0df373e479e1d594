"""What an incident review needs of one trajectory, gathered from a lake into one document of plain data.

Events in order with everything their hashes are made of; every action with who decided, who approved, what was
dispatched and how doubt ended; what the model was shown at each reply, by event; what proves it. Reads one snapshot.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trajlake.runtime.cli_errors import UserError
from trajlake.schemas.chain import verify
from trajlake.schemas.context import Builds
from trajlake.schemas.envelope import Event
from trajlake.schemas.errors import SchemaError
from trajlake.schemas.history import given_up

if TYPE_CHECKING:
    import duckdb

    from ..lakehouse.lake import Lake
    from ..lakehouse.snapshot import Snapshot
    from .audit_session import AnchorFile

FORMAT: Final = "trajlake evidence 1"
ACTION_TYPES: Final = frozenset(
    {"Authorized", "ApprovalRequested", "ApprovalResolved", "ToolIntent", "ToolResult", "ToolSettled", "LateResult"}
)
Tree = dict[str, Any]


def gather(lake: Lake, at: Snapshot, tenant: str, trajectory_id: str, anchors: Sequence[AnchorFile] = ()) -> Tree:
    """Return the evidence on a trajectory. Raises `UserError` if the snapshot does not hold it."""
    from ..connect import connect

    connection = connect(lake.url, at.number, tenant=tenant)
    try:
        rows = _rows(connection, "events", trajectory_id, "sequence_number")
        stated = _rows(connection, "trajectories", trajectory_id, "trajectory_id")
        aside = _rows(connection, "quarantine", trajectory_id, "sequence_number, fencing_token, cryptographic_hash")
        calls = _rows(connection, "tool_calls", trajectory_id, "proposed_seq, action_id")
        blobs = _blobs(connection, trajectory_id)
        erased = bool(connection.execute(_ERASED, [trajectory_id, trajectory_id]).fetchall())
    finally:
        connection.close()
    if not rows and not stated and not aside:
        raise UserError(f"{tenant} {ascii(trajectory_id)}: not in snapshot {at.number} of {lake.url}; check --tenant")
    events = [event_of(row) for row in rows]
    left_out = _given_up(events)
    return {
        "format": FORMAT,
        "lake": lake.url,
        "snapshot": at.number,
        "tenant": tenant,
        "trajectory_id": trajectory_id,
        "trajectory": stated[0] if stated else None,
        "events": [
            _shown_event(event, row, event.sequence_number in left_out) for event, row in zip(events, rows, strict=True)
        ],
        "not_counted": [_shown_aside(row) for row in aside],
        "actions": actions(events, calls),
        "contexts": contexts(events),
        "blobs": blobs,
        "proofs": _proofs(lake, tenant, trajectory_id, events, erased, anchors),
    }


_ERASED: Final = """
select 1 from erasures
where state <> 'refused' and (
    trajectory_id = $1
    or subject in (
        select unnest(from_json(subjects, '["varchar"]')) from trajectories
        where trajectory_id = $2 and subjects is not null
    )
)
limit 1
"""


def _rows(connection: duckdb.DuckDBPyConnection, table: str, trajectory_id: str, order: str) -> list[Tree]:
    found = connection.execute(f"select * from {table} where trajectory_id = $1 order by {order}", [trajectory_id])
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def _blobs(connection: duckdb.DuckDBPyConnection, trajectory_id: str) -> list[Tree]:
    found = connection.execute(
        """
        select ref.sequence_number, ref.place, ref.sha256, ref.kind, ref.bytes, blobs.path
        from blob_refs as ref
        left join blobs on blobs.tenant = ref.tenant and blobs.sha256 = ref.sha256
        where ref.trajectory_id = $1
        order by ref.sequence_number, ref.place
        """,
        [trajectory_id],
    ).fetchall()
    names = ("sequence_number", "place", "sha256", "kind", "bytes", "path")
    return [dict(zip(names, row, strict=True)) for row in found]


def event_of(row: Tree) -> Event:
    """Return a row of `events` as the event it is."""
    moment: dt.datetime = row["recorded_at"]
    since = moment - dt.datetime.fromtimestamp(0, dt.UTC)
    return Event(
        tenant=row["tenant"],
        trajectory_id=row["trajectory_id"],
        sequence_number=row["sequence_number"],
        fencing_token=row["fencing_token"],
        turn=row["turn"],
        type=row["event_type"],
        recorded_at=(since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds,
        payload=None if row["payload"] is None else row["payload"].encode(),
        salt=None if row["salt"] is None else bytes.fromhex(row["salt"]),
        hash=bytes.fromhex(row["cryptographic_hash"]),
        schema_version=row["schema_version"],
        commitment=bytes.fromhex(row["commitment"]),
        writer=row["writer"],
        lsn=row["lsn"],
    )


def _given_up(events: Sequence[Event]) -> frozenset[int]:
    try:
        return given_up([event for event in events if event.payload is not None])
    except SchemaError:
        return frozenset()


def _body(event: Event) -> Any:
    """The payload as a tree; its text where it is no JSON; None once erased."""
    if event.payload is None:
        return None
    try:
        return msgspec.json.decode(event.payload)
    except msgspec.DecodeError:
        return event.payload.decode("utf-8", "replace")


def _shown_event(event: Event, row: Tree, is_given_up: bool) -> Tree:
    return {
        "sequence_number": event.sequence_number,
        "type": event.type,
        "turn": event.turn,
        "fencing_token": event.fencing_token,
        "schema_version": event.schema_version,
        "recorded_at": row["recorded_at"].isoformat(),
        "recorded_at_us": event.recorded_at,
        "given_up": is_given_up,
        "payload": _body(event),
        "payload_text": row["payload"],
        "salt": row["salt"],
        "commitment": row["commitment"],
        "hash": row["cryptographic_hash"],
        "writer": row["writer"],
        "lsn": row["lsn"],
    }


def _shown_aside(row: Tree) -> Tree:
    names = ("sequence_number", "event_type", "fencing_token", "reason", "detail", "cryptographic_hash", "payload")
    return {name: row[name] for name in names}


def actions(events: Iterable[Event], calls: Iterable[Tree]) -> list[Tree]:
    """Return every action with its events in order: decisions, approvals, attempts, outcomes; and where doubt was."""
    by_action: dict[str, list[Tree]] = {}
    for event in events:
        body = _body(event) if event.type in ACTION_TYPES else None
        if isinstance(body, dict) and isinstance(body.get("action_id"), str):
            said = {"sequence_number": event.sequence_number, "type": event.type, **_telling(body)}
            by_action.setdefault(body["action_id"], []).append(said)
    found = []
    for row in calls:
        steps = by_action.pop(row["action_id"], [])
        found.append({**_facts(row), "steps": steps, "doubt": _doubt(row, steps)})
    found += [{"action_id": action_id, "steps": steps, "doubt": ""} for action_id, steps in by_action.items()]
    return found


_TELLING: Final = (
    "decision", "policy_version", "reason", "approval_id", "approval", "requester", "approver", "approver_known_by",
    "because", "expires_at", "attempt", "effect", "key", "arguments_hash", "status", "how", "verdict", "evidence",
    "delivered", "error", "mail", "settling",
)  # fmt: skip


def _telling(body: Tree) -> Tree:
    return {name: body[name] for name in _TELLING if name in body}


def _facts(row: Tree) -> Tree:
    names = (
        "action_id", "tool", "tool_version", "effect", "stage", "attempts", "idempotency_key", "arguments_hash",
        "arguments", "decision", "policy_version", "approval_id", "status", "settled_how", "verdict", "given_up",
    )  # fmt: skip
    return {name: row[name] for name in names}


def _doubt(row: Tree, steps: Sequence[Tree]) -> str:
    """Say in one line whether the action was ever in doubt and what ended that; "" if it never was."""
    if row["stage"] == "in_doubt":
        return "in doubt: nobody knows whether it happened"
    settled = [step for step in steps if step["type"] == "ToolSettled"]
    if settled:
        last = settled[-1]
        return f"was in doubt, settled as {last.get('verdict')} by {last.get('how')} at {last['sequence_number']}"
    retried = [step for step in steps if step["type"] == "ToolIntent" and step.get("settling")]
    return f"was in doubt, the same key was sent again at {retried[0]['sequence_number']}" if retried else ""


def contexts(events: Sequence[Event]) -> list[Tree]:
    """Return, for each reply, the events the model was shown, in order; `error` where they cannot be told."""
    builds, found = Builds(), []
    broken = ""
    for event in events:
        if event.payload is None or event.type not in ("ContextBuilt", "ModelReplied"):
            continue
        try:
            body = event.body
            if event.type == "ContextBuilt":
                builds.extend(event.sequence_number, body)
                continue
            items = builds.items(body.context) if body.context is not None else []
            error = broken if body.context is not None else "the reply names no context"
        except SchemaError as problem:
            broken = str(problem)
            continue
        found.append(
            {
                "reply": event.sequence_number,
                "context": body.context,
                "served_model": body.served_model,
                "items": [[0, ref] if isinstance(ref, int) else list(ref) for ref in items],
                "error": error,
            }
        )
    return found


def _proofs(
    lake: Lake, tenant: str, trajectory_id: str, events: Sequence[Event], erased: bool, outside: Sequence[AnchorFile]
) -> Tree:
    from .anchor import anchors_of
    from .anchor_read import prove_head

    wrong = verify(events, erased=range(len(events)) if erased else ())
    own = anchors_of(lake, tenant)
    given = [msgspec.json.decode(anchor.document) for anchor in outside if anchor.tenant == tenant]
    present = {(event.sequence_number, event.hash.hex()) for event in events}
    documents = [(document, True) for document in given] + [(document, False) for document in own]
    anchored = [
        {
            "anchor_id": document["anchor_id"],
            "made_at": document["made_at"],
            "kept_outside": is_outside,
            "sequence_number": head[1],
            "hash": head[2],
            "is_present": (head[1], head[2]) in present,
            "public_key": document["public_key"],
            "inclusion_proof": prove_head(document, trajectory_id),
        }
        for document, is_outside in documents
        for head in document["heads"]
        if head[0] == trajectory_id
    ]
    return {
        "chain": [msgspec.to_builtins(finding) for finding in wrong],
        "head": events[-1].hash.hex() if events else None,
        "erased": erased,
        "anchors": anchored,
        "self_attested": not any(one["kept_outside"] for one in anchored),
    }
