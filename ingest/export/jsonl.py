"""`jsonl`: our own events, one line each: the envelope, and the payload as it stands in the journal, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from trajlake.schemas.blobs import blob_hashes
from trajlake.schemas.envelope import Event

from .turns import Losses

NAME: Final = "jsonl"


def lines(events: list[Event], losses: Losses) -> Iterator[str]:
    """Yield one line for each event. Values that are blobs stay references; `blobs_of` names them."""
    for event in events:
        tree: dict[str, Any] = {
            "tenant": event.tenant,
            "trajectory_id": event.trajectory_id,
            "sequence_number": event.sequence_number,
            "fencing_token": event.fencing_token,
            "turn": event.turn,
            "type": event.type,
            "schema_version": event.schema_version,
            "recorded_at": event.recorded_at,
            "salt": event.salt.hex() if event.salt else None,
            "hash": event.hash.hex(),
            "payload": None if event.payload is None else msgspec.Raw(event.payload),
        }
        if event.payload is None:
            losses.add("erased events (their envelope is written)")
        yield msgspec.json.encode(tree).decode("utf-8")


def blobs_of(events: list[Event]) -> list[str]:
    """Return the hashes of all blobs that the events name, sorted."""
    found: set[str] = set()
    for event in events:
        if event.payload is not None:
            found |= blob_hashes(event.type, event.payload)
    return sorted(found)
