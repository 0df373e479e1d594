"""`schemas.history.canonical` over the rows of many trajectories at once.

Almost every trajectory is plain: no two events under one number, no gap, and each token begins with an opening
event that follows the event before it. For those every row counts, and numpy finds them all together. The others go
one by one through `schemas.history.canonical`, the only place where the rule itself stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import polars as pl

from trajlake.schemas.envelope import Event
from trajlake.schemas.errors import InvalidEvent
from trajlake.schemas.events import decode_payload
from trajlake.schemas.history import Opening, canonical

CANONICAL: Final = 0
SUPERSEDED: Final = 1
HELD_BACK: Final = 2
CONFLICT: Final = 3
REASONS: Final = {SUPERSEDED: "superseded", HELD_BACK: "held_back", CONFLICT: "conflict"}

KEY: Final = ("tenant", "trajectory_id")


class Judged(NamedTuple):
    """`rows`: one per event that stays, sorted by trajectory and number, with `verdict` (u8) and `t` (u32).

    `trajectories` gives tenant and id of each `t`, in order; `lines` its line of openings; `duplicates` counts
    the copies dropped.
    """

    rows: pl.DataFrame
    trajectories: pl.DataFrame
    lines: list[tuple[Opening, ...]]
    duplicates: int


def canonicalize(rows: pl.DataFrame, known: Mapping[tuple[str, str], tuple[Opening, ...]] | None = None) -> Judged:
    """Judge every row. `rows` has the columns of `events`, in any order, with copies, and `origin` (u8).

    Of two copies the one whose payload is erased stays, then the one with the lower `origin` (rows already in
    the lake have the lowest), then writer and lsn. `known` are openings from the rows in `trajectories`.
    """
    trajectories = rows.select(KEY).unique().sort(KEY).with_row_index("t")
    frame = _sorted(rows.join(trajectories, on=KEY, how="left", maintain_order="left"))
    keep = _first_of_copies(frame)
    duplicates = len(frame) - int(keep.sum())
    if duplicates:
        frame = frame.filter(pl.Series(keep))
    starts = np.flatnonzero(np.diff(frame["t"].to_numpy(), prepend=np.uint32(0xFFFFFFFF)))
    lines: list[tuple[Opening, ...]] = [()] * len(trajectories)
    plain = _plain(frame, starts, lines)
    verdicts = np.zeros(len(frame), np.uint8)
    ends = np.append(starts[1:], len(frame))
    for t in np.flatnonzero(~plain):
        first, last = int(starts[t]), int(ends[t])
        tenant, trajectory_id = trajectories.row(int(t))[1:]
        found = (known or {}).get((tenant, trajectory_id), ())
        verdicts[first:last], lines[t] = _one_by_one(frame[first:last], found)
    return Judged(frame.with_columns(pl.Series("verdict", verdicts)), trajectories, lines, duplicates)


def _sorted(frame: pl.DataFrame) -> pl.DataFrame:
    """Sort by trajectory, number, token; only rows that tie there by hash, erasure, origin, writer and lsn."""
    t, number, token = (frame[name].to_numpy() for name in ("t", "sequence_number", "fencing_token"))
    order = np.lexsort((token, number, t))
    same = (np.diff(t[order]) == 0) & (np.diff(number[order]) == 0) & (np.diff(token[order]) == 0)
    if same.any():
        tied = np.zeros(len(order), bool)
        tied[1:] |= same
        tied[:-1] |= same
        places = np.flatnonzero(tied)
        ties = frame[order[places]].select(
            "t", "sequence_number", "fencing_token", "cryptographic_hash", pl.col("payload").is_not_null(),
            "origin", "writer", "lsn", pl.Series("source", order[places]),
        )  # fmt: skip
        order[places] = ties.sort(ties.columns[:-1])["source"].to_numpy()
    return frame[order]


def _first_of_copies(frame: pl.DataFrame) -> np.ndarray[Any, Any]:
    keep = np.ones(len(frame), bool)
    t, number, token = (frame[name].to_numpy() for name in ("t", "sequence_number", "fencing_token"))
    places = np.flatnonzero((np.diff(t) == 0) & (np.diff(number) == 0) & (np.diff(token) == 0)) + 1
    if len(places):
        hashes = frame["cryptographic_hash"]
        keep[places] = (hashes[places] != hashes[places - 1]).to_numpy()
    return keep


def _plain(frame: pl.DataFrame, starts: np.ndarray[Any, Any], lines: list[tuple[Opening, ...]]) -> np.ndarray[Any, Any]:
    """Tell for each trajectory whether all its rows count; fill `lines` for those."""
    if not len(frame):
        return np.ones(0, bool)
    number, token = frame["sequence_number"].to_numpy(), frame["fencing_token"].to_numpy()
    sizes = np.diff(np.append(starts, len(frame)))
    places = np.arange(len(frame)) - np.repeat(starts, sizes)
    plain = np.logical_and.reduceat(number == places, starts)
    begins = np.zeros(len(frame), bool)
    begins[starts] = True
    changes = np.flatnonzero(begins | (np.diff(token, prepend=token[:1]) != 0))
    openings = frame[changes].select("t", "event_type", "sequence_number", "fencing_token", "payload")
    for t, kind, sequence, own, payload in openings.iter_rows():
        if plain[t]:
            opening = _follows(kind, sequence, own, payload, lines[t])
            if opening is None:
                plain[t] = False
            else:
                lines[t] = (*lines[t], opening)
    return plain


def _follows(kind: str, sequence: int, token: int, payload: str | None, line: tuple[Opening, ...]) -> Opening | None:
    """Return the opening that this row is, if it follows `line` as it must, else None."""
    if not line:
        return Opening(token=token, start=0) if kind == "TaskStarted" else None
    if kind != "LeaseAcquired" or payload is None or token <= line[-1].token:
        return None
    try:
        lease = msgspec.json.decode(payload, type=_LeaseFields)
    except msgspec.MsgspecError:
        return None
    if lease.after_token != line[-1].token or lease.after_sequence != sequence - 1:
        return None
    return Opening(
        token=token,
        start=sequence,
        after_token=lease.after_token,
        after_sequence=lease.after_sequence,
        after_hash=lease.after_hash,
    )


class _LeaseFields(msgspec.Struct):
    after_token: int
    after_sequence: int
    after_hash: str = ""


def _lease_payload(payload: str | None) -> bytes | None:
    """Return the payload of a `LeaseAcquired` as `opening_of` reads it; one that is none counts as erased."""
    if payload is None:
        return None
    try:
        decode_payload("LeaseAcquired", payload)
    except InvalidEvent:
        return None
    return payload.encode()


def _one_by_one(rows: pl.DataFrame, known: tuple[Opening, ...]) -> tuple[np.ndarray[Any, Any], tuple[Opening, ...]]:
    events = [
        Event(
            tenant="",
            trajectory_id="",
            sequence_number=number,
            fencing_token=token,
            turn=0,
            type=kind,
            recorded_at=0,
            payload=_lease_payload(payload),
            salt=None,
            hash=bytes.fromhex(digest),
        )
        for number, token, kind, payload, digest in rows.select(
            "sequence_number", "fencing_token", "event_type",
            pl.when(pl.col("event_type") == "LeaseAcquired").then("payload"), "cryptographic_hash",
        ).iter_rows()
    ]  # fmt: skip
    history = canonical(events, known)
    place = {(e.sequence_number, e.fencing_token, e.hash): n for n, e in enumerate(events)}
    verdicts = np.full(len(events), HELD_BACK, np.uint8)
    for verdict, found in (
        (CANONICAL, history.events),
        (SUPERSEDED, history.superseded),
        (HELD_BACK, history.held_back),
        (CONFLICT, history.conflicts),
    ):
        for event in found:
            verdicts[place[event.sequence_number, event.fencing_token, event.hash]] = verdict
    return verdicts, history.line
