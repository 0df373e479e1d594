"""`judgements`, `checkpoints` and `blob_refs`: tables whose rows each come from one event."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec
import polars as pl

from trajlake.pipelines.derived.touched import Fields, Touched, json_text, or_none


class _Reward(Fields):
    tenant: str = ""
    trajectory_id: str = ""
    verifier: str = ""
    verifier_version: str = ""
    value: str = ""
    sequence_number: int | None = None
    head_hash: str = ""
    details: Any = None


class _Annotation(Fields):
    tenant: str = ""
    trajectory_id: str = ""
    author: str = ""
    label: str = ""
    text: str = ""
    sequence_number: int | None = None
    head_hash: str = ""
    details: Any = None


class _Checkpoint(Fields):
    covers: int = 0
    state_hash: str = ""
    root: str = ""
    cause: str = ""
    workspace_snapshot: str | None = None
    pause_ms: float = 0.0
    bytes_written: int = 0


def judgements(touched: Touched) -> pl.DataFrame:
    """Return the rows of `judgements`."""
    rows: list[tuple[int, dict[str, Any]]] = []
    for row, reward in touched.each("RewardAssigned", _Reward):
        number = None
        with contextlib.suppress(ValueError):
            number = float(reward.value)
        facts = _judged(row.seq, row.at, reward)
        facts |= {
            "kind": "reward",
            "verifier": reward.verifier,
            "verifier_version": or_none(reward.verifier_version),
            "value": or_none(reward.value),
            "value_number": number,
        }
        rows.append((row.t, facts))
    for row, note in touched.each("Annotated", _Annotation):
        facts = _judged(row.seq, row.at, note)
        facts |= {
            "kind": "annotation",
            "verifier": note.author,
            "label": or_none(note.label),
            "text": or_none(note.text),
        }
        rows.append((row.t, facts))
    return touched.frame("judgements", rows)


def _judged(seq: int, at: int, fields: _Reward | _Annotation) -> dict[str, Any]:
    return {
        "sequence_number": seq,
        "recorded_at": at,
        "judged_tenant": fields.tenant,
        "judged_trajectory_id": fields.trajectory_id,
        "judged_sequence": fields.sequence_number,
        "head_hash": or_none(fields.head_hash),
        "details": json_text(fields.details),
    }


def checkpoints(touched: Touched) -> pl.DataFrame:
    """Return the rows of `checkpoints`."""
    return touched.frame(
        "checkpoints",
        [
            (
                row.t,
                {
                    "sequence_number": row.seq,
                    "turn": row.turn,
                    "recorded_at": row.at,
                    "given_up": row.given_up,
                    **msgspec.structs.asdict(saved),
                },
            )
            for row, saved in touched.each("CheckpointSaved", _Checkpoint)
        ],
    )


def blob_refs(touched: Touched) -> pl.DataFrame:
    """Return the rows of `blob_refs`: every `$blob` of a payload, and every workspace change by its hash."""
    text = pl.col("payload").str
    suspects = touched.rows.filter(
        text.contains('"$blob"', literal=True)
        | ((pl.col("event_type") == "ToolResult") & text.contains('"changes"', literal=True))
    )
    rows: list[tuple[int, dict[str, Any]]] = []
    for t, seq, kind, payload in suspects.select("t", "sequence_number", "event_type", "payload").iter_rows():
        tree = msgspec.json.decode(payload)
        found = list(_references(tree, ""))
        if kind == "ToolResult":
            found += [
                (f"/changes/{n}", {"$blob": change["sha256"], "kind": "bytes"})
                for n, change in enumerate(tree.get("changes", ()))
                if isinstance(change, dict) and change.get("sha256")
            ]
        rows += [
            (t, {"sequence_number": seq, "place": place, "sha256": ref["$blob"], "kind": ref.get("kind", "bytes"),
                 "bytes": ref.get("bytes")})
            for place, ref in found
        ]  # fmt: skip
    return touched.frame("blob_refs", rows)


def _references(tree: Any, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(tree, dict):
        if isinstance(tree.get("$blob"), str):
            yield place, tree
            return
        for key, value in tree.items():
            if isinstance(value, dict | list):
                yield from _references(value, f"{place}/{key.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(tree, list):
        for n, value in enumerate(tree):
            if isinstance(value, dict | list):
                yield from _references(value, f"{place}/{n}")
