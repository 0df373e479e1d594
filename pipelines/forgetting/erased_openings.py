"""Openings of erased rows that wait in quarantine: without them, the canonical line could not be found later.

A `LeaseAcquired` that is held back when its payload goes keeps token, start and what it follows, as JSON in `detail`:
numbers and a hash, nobody's text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
import polars as pl

from trajlake.schemas.history import Opening

PREFIX: Final = "opening "
Key = tuple[str, str]
_COLUMNS: Final = ("tenant", "trajectory_id", "sequence_number", "event_type", "payload")


class _Lease(msgspec.Struct):
    token: int
    after_token: int
    after_sequence: int
    after_hash: str = ""


def opening_in(sequence_number: int, payload: str) -> Opening | None:
    """Return the opening that the payload of a `LeaseAcquired` states, or None where it states none."""
    try:
        lease = msgspec.json.decode(payload, type=_Lease)
    except msgspec.MsgspecError:
        return None
    return Opening(
        token=lease.token, start=sequence_number, after_token=lease.after_token, after_sequence=lease.after_sequence,
        after_hash=lease.after_hash,
    )  # fmt: skip


def with_openings(rows: pl.DataFrame, known: Mapping[Key, Iterable[Opening]] | None = None) -> pl.DataFrame:
    """Return rows of `quarantine` whose `detail` holds the opening where a row is one.

    Asked before payloads go: `rows` still have theirs. `known` are the openings of rows that lost it earlier.
    """
    at = {(*key, one.start, one.token): one for key, openings in (known or {}).items() for one in openings}
    details = []
    columns = (*_COLUMNS, "fencing_token", "detail")
    for tenant, trajectory_id, number, kind, payload, token, detail in rows.select(columns).iter_rows():
        opening = None
        if kind == "LeaseAcquired":
            opening = opening_in(number, payload) if payload else at.get((tenant, trajectory_id, number, token))
        details.append(detail if opening is None else PREFIX + msgspec.json.encode(opening).decode())
    return rows.with_columns(pl.Series("detail", details, dtype=pl.String))


def openings_of(quarantine: pl.DataFrame) -> dict[Key, tuple[Opening, ...]]:
    """Return the openings that erased rows of `quarantine` keep, by trajectory."""
    found: dict[Key, tuple[Opening, ...]] = {}
    kept = quarantine.filter(pl.col("payload").is_null() & pl.col("detail").str.starts_with(PREFIX))
    for tenant, trajectory_id, detail in kept.select("tenant", "trajectory_id", "detail").iter_rows():
        opening = msgspec.json.decode(detail.removeprefix(PREFIX), type=Opening)
        found[tenant, trajectory_id] = (*found.get((tenant, trajectory_id), ()), opening)
    return found
