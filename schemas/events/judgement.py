"""Judgements about other trajectories, and source records kept by importers."""

from __future__ import annotations

from ._base import Json, Payload


class RewardAssigned(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """A verifier's value for a trajectory up to `sequence_number` (its head when null). `value` is decimal text."""

    tenant: str
    trajectory_id: str
    verifier: str
    verifier_version: str
    value: str
    sequence_number: int | None = None
    head_hash: str = ""
    details: Json = None


class Annotated(Payload, frozen=True, kw_only=True, omit_defaults=True):
    tenant: str
    trajectory_id: str
    author: str
    label: str = ""
    text: str = ""
    sequence_number: int | None = None
    head_hash: str = ""
    details: Json = None


class SourceKept(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """A source record (or part of one) that has no event of its own: kept verbatim, queryable, never delivered."""

    kind: str
    raw: Json = None
