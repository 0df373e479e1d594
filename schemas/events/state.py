"""Checkpoints and drift."""

from __future__ import annotations

from typing import Literal

from ._base import Json, Payload


class CheckpointSaved(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """State and workspace as of `covers` (the last sequence number included), durable before this event."""

    covers: int
    state_hash: str
    root: str
    cause: Literal["pause", "move", "before_effect", "end", "interval"]
    workspace_snapshot: str | None = None
    pause_ms: float = 0.0
    bytes_written: int = 0


class DriftDetected(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """What differs from the log, and what was chosen. A switch raises `system_no` from the next turn on."""

    what: Literal["model", "prompt", "tool_schema", "context", "contract", "workspace", "message"]
    component: str = ""
    old: Json = None
    new: Json = None
    choice: Literal["pin", "switch", "refuse", "recorded"]
    system_no: int = 0
