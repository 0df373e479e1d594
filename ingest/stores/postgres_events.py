"""Inserts frames into `trajectory_events` with everything that must change beside them, in the caller's transaction.

Used by the shipper (with its cursor) and by agents that replicate. The heads of a batch's trajectories are locked
first, in one order: whoever comes second sees what the first one did, and an erasure either came before (then the
rows carry no text) or waits until these rows are there for it to empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import psycopg

from trajlake.runtime.replicas.replica import Frame
from trajlake.runtime.wal.frame import TrajectoryInfo
from trajlake.schemas.blobs import blob_hashes
from trajlake.schemas.envelope import Event
from trajlake.schemas.history import Opening

from .heads import READ_TYPES, Head, Placed, Span, opening_in, opening_payload
from .open_items import Closing, item_parameters
from .postgres_database import Connection
from .postgres_rows import chunks, model_of
from .sql_text import statement

Identity = tuple[str, str]


class Rows(NamedTuple):
    """What frames alone decide of a batch. `chunks`: its rows as COPY takes them, if no trajectory is erased."""

    chunks: list[bytes]
    openings: list[dict[str, Any]]
    blob_refs: list[tuple[str, str, str]]


def rows_of(writer: str, frames: Sequence[Frame], give_way: Callable[[], None] = lambda: None) -> Rows:
    """Prepare frames for `insert_frames`, in any thread; `give_way` is called every millisecond or so."""
    made = []
    for chunk in chunks(writer, frames, (), careful=False):
        made.append(chunk)
        give_way()
    openings = []
    named: set[tuple[str, str, str]] = set()
    for frame in frames:
        event_type, info = frame.type, frame.info
        if event_type == "TaskStarted" or event_type == "LeaseAcquired":
            openings += _opening(frame, event_type)
        named.update((info.tenant, one, info.trajectory_id) for one in blob_hashes(event_type, frame.payload))
    return Rows(made, openings, sorted(named))


def insert_frames(
    connection: Connection, writer: str, frames: Sequence[Frame], *, may_copy: bool = True, rows: Rows | None = None
) -> int:
    """Insert frames of one writer, in lsn order; return how many were there already.

    `may_copy`: False for a role under row-level security, which PostgreSQL does not let COPY into a table. `rows`:
    what `rows_of` made of these frames, where that was done before.
    """
    rows = rows or rows_of(writer, frames)
    seen = {id(frame.info): frame.info for frame in frames}
    infos = {(info.tenant, info.trajectory_id): info for info in seen.values()}
    heads = _lock_heads(connection, infos)
    erased = _named_in(connection, "heads_erased", infos)
    gone = _named_in(connection, "heads_left", infos)
    for identity in gone:  # the lake holds its history: what comes late moves nothing here
        del heads[identity]
    head_of = {place: heads.get((info.tenant, info.trajectory_id)) for place, info in seen.items()}
    for frame in frames:
        head = head_of[id(frame.info)]
        if head is not None:
            head.follow(frame)
    # What merely continues a line cannot be there already: then the rows need no staging.
    all_new = may_copy and not gone and not any(head.needs_recount for head in heads.values())
    duplicates = _insert_rows(connection, writer, frames, erased, all_new, rows.chunks)
    if rows.openings:
        connection.cursor().executemany(statement("tokens_insert"), rows.openings)
    _insert_blob_refs(connection, rows.blob_refs)
    for identity, head in heads.items():
        head.duplicates = duplicates[identity]
        if head.needs_recount:
            _recount(connection, head)
    with connection.pipeline():  # one way there and back for all of them
        for head in heads.values():
            _apply_changes(connection, head)
    _update_heads(connection, list(heads.values()))
    return duplicates.total()


def _lock_heads(connection: Connection, infos: dict[Identity, TrajectoryInfo]) -> dict[Identity, Head]:
    ordered = sorted(infos)
    named: dict[str, Any] = {
        "tenants": [tenant for tenant, _ in ordered], "trajectory_ids": [name for _, name in ordered],
    }  # fmt: skip
    heads = _select_heads(connection, named, infos)
    if len(heads) < len(infos):
        more = {
            "models": [model_of(infos[one]) for one in ordered],
            "started_on": [infos[one].started_on for one in ordered],
        }
        connection.execute(statement("heads_create"), named | more)
        heads = _select_heads(connection, named, infos)
    return heads


def _select_heads(
    connection: Connection, named: dict[str, Any], infos: dict[Identity, TrajectoryInfo]
) -> dict[Identity, Head]:
    heads: dict[Identity, Head] = {}
    for row in connection.execute(statement("heads_lock"), named):
        info = infos[row[0], row[1]]
        heads[row[0], row[1]] = Head(
            tenant=row[0], trajectory_id=row[1], kind=row[2], fencing_token=row[3], next_sequence=row[4], turn=row[5],
            recorded_at_us=row[6], ended=row[7], released=row[8], superseded=row[9], held_back=row[10],
            conflicts=row[11], model=model_of(info), started_on=info.started_on,
        )  # fmt: skip
    return heads


def _named_in(connection: Connection, query: str, identities: Collection[Identity]) -> set[Identity]:
    named = {"tenants": [one for one, _ in identities], "trajectory_ids": [one for _, one in identities]}
    return {(row[0], row[1]) for row in connection.execute(statement(query), named)}


def _insert_rows(
    connection: Connection, writer: str, frames: Sequence[Frame], erased: set[Identity], all_new: bool,
    ready: Sequence[bytes],
) -> Counter[Identity]:  # fmt: skip
    """Insert the rows, and count those that were there by trajectory."""
    try:
        with connection.transaction():
            plain = chunks(writer, frames, erased, careful=False) if erased else ready
            return _copy(connection, frames, plain, all_new)
    except psycopg.DataError:
        with connection.transaction():
            return _copy(connection, frames, chunks(writer, frames, erased, careful=True), all_new)


def _copy(connection: Connection, frames: Sequence[Frame], made: Iterable[bytes], all_new: bool) -> Counter[Identity]:
    if not all_new:
        connection.execute(statement("stage_create"))
    with connection.cursor() as cursor, cursor.copy(statement("events_copy" if all_new else "stage_copy")) as copy:
        for chunk in made:
            copy.write(chunk)
    if all_new:
        return Counter()
    left = Counter((frame.info.tenant, frame.info.trajectory_id) for frame in frames)
    left.subtract(Counter((row[0], row[1]) for row in connection.execute(statement("events_insert"))))
    connection.execute(statement("stage_empty"))
    return left


def _opening(frame: Frame, event_type: str) -> list[dict[str, Any]]:
    header = frame.header
    opening = opening_in(event_type, header.sequence_number, header.fencing_token, frame.payload)
    if opening is None:
        return []
    return [_named(frame.info) | {
        "fencing_token": opening.token, "start": opening.start, "hash": header.hash,
        "after_token": opening.after_token, "after_sequence": opening.after_sequence,
        "after_hash": opening.after_hash,
    }]  # fmt: skip


def _insert_blob_refs(connection: Connection, named: Sequence[tuple[str, str, str]]) -> None:
    if named:
        connection.execute(
            statement("blob_refs_insert"),
            {"tenants": [one[0] for one in named], "sha256s": [bytes.fromhex(one[1]) for one in named],
             "trajectory_ids": [one[2] for one in named]},
        )  # fmt: skip


def _recount(connection: Connection, head: Head) -> None:
    """Read every row of the trajectory and let `canonical` decide; what was open before is written anew."""
    named = {"tenant": head.tenant, "trajectory_id": head.trajectory_id}
    openings = {
        (row[1], row[0], bytes(row[2])): Opening(
            token=row[0], start=row[1], after_token=row[3], after_sequence=row[4], after_hash=row[5]
        )
        for row in connection.execute(statement("tokens_of_trajectory"), named)
    }
    rows = []
    for row in connection.execute(statement("rows_of_trajectory"), named | {"types": list(READ_TYPES)}):
        opening = openings.get((row[0], row[1], bytes(row[5])))
        payload = row[6].encode() if row[6] is not None else None
        if opening is not None and row[2] == "LeaseAcquired":
            payload = opening_payload(opening)
        rows.append(Event(
            tenant=head.tenant, trajectory_id=head.trajectory_id, sequence_number=row[0], fencing_token=row[1],
            turn=row[3], type=row[2], recorded_at=row[4], payload=payload, salt=None, hash=bytes(row[5]),
        ))  # fmt: skip
    head.recount(rows)
    connection.execute(statement("spans_delete"), named)
    connection.execute(statement("open_items_delete"), named)


def _apply_changes(connection: Connection, head: Head) -> None:
    named = {"tenant": head.tenant, "trajectory_id": head.trajectory_id}
    for change in _what_stays(head.changes):
        match change:
            case Span(start=-1):
                more = {"fencing_token": change.token, "stop": change.stop}
                connection.execute(statement("span_close"), named | more)
            case Span():
                more = {"fencing_token": change.token, "start": change.start, "stop": change.stop}
                connection.execute(statement("span_open"), named | more)
            case Closing():
                connection.execute(
                    statement("open_item_close"), named | {"kind": change.kind, "item_id": change.item_id}
                )
            case Placed():
                at = {
                    "sequence_number": change.sequence_number, "fencing_token": change.fencing_token,
                    "recorded_at_us": change.recorded_at_us,
                }  # fmt: skip
                connection.execute(statement("open_item_put"), named | item_parameters(change.item) | at)


def _what_stays(changes: Sequence[Span | Placed | Closing]) -> list[Span | Placed | Closing]:
    """Leave out what a later change of the same batch undoes: most intents meet their result in one batch."""
    last: dict[tuple[str, str], int] = {}
    for place, change in enumerate(changes):
        if isinstance(change, Placed):
            last[change.item.kind, change.item.item_id] = place
        elif isinstance(change, Closing) and change.item_id is not None:
            last[change.kind, change.item_id] = place
    stay: list[Span | Placed | Closing] = []
    for place, change in enumerate(changes):
        if isinstance(change, Placed) and last[change.item.kind, change.item.item_id] != place:
            continue
        stay.append(change)
    return stay


def _update_heads(connection: Connection, heads: Sequence[Head]) -> None:
    connection.execute(statement("heads_update"), {
        "tenants": [head.tenant for head in heads], "trajectory_ids": [head.trajectory_id for head in heads],
        "kinds": [head.kind for head in heads], "tokens": [head.fencing_token for head in heads],
        "nexts": [head.next_sequence for head in heads], "turns": [head.turn for head in heads],
        "recorded": [head.recorded_at_us for head in heads], "ended": [head.ended for head in heads],
        "released": [head.released for head in heads], "superseded": [head.superseded for head in heads],
        "held_back": [head.held_back for head in heads], "conflicts": [head.conflicts for head in heads],
        "duplicates": [head.duplicates for head in heads], "models": [head.model for head in heads],
        "started_on": [head.started_on for head in heads],
    })  # fmt: skip


def _named(info: TrajectoryInfo) -> dict[str, Any]:
    return {"tenant": info.tenant, "trajectory_id": info.trajectory_id}
