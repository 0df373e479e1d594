"""`model_calls`: one row per attempt of a model call."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import polars as pl

from trajlake.pipelines.derived.touched import Fields, Touched, blob_of, event_number, json_text, or_none

_RAW_EMPTY = msgspec.Raw(b"null")


class _Usage(Fields):
    input_total: int | None = None
    cached_read: int | None = None
    cache_write: int | None = None
    output: int | None = None
    reasoning: int | None = None


class _Context(Fields):
    purpose: str = ""
    context_hash: str = ""
    keep: int = 0
    append: list[msgspec.Raw] = msgspec.field(default_factory=list)


class _Reply(Fields):
    status: str = "kept"
    attempt: int = 1
    format: str = ""
    context: Any = None
    item_hash: str = ""
    raw: msgspec.Raw = _RAW_EMPTY
    stop_reason: str | None = None
    calls: list[msgspec.Raw] = msgspec.field(default_factory=list)
    usage: _Usage | None = None
    served_model: str = ""
    endpoint: str = ""
    cache_key: str = ""
    response_id: str = ""
    duration_ms: float | None = None
    cost: dict[str, str] = msgspec.field(default_factory=dict)
    error: str = ""
    token_ids: msgspec.Raw = _RAW_EMPTY
    logprobs: msgspec.Raw = _RAW_EMPTY
    system_no: int = 0


def model_calls(touched: Touched) -> pl.DataFrame:
    """Return the rows of `model_calls`."""
    contexts = {(row.t, row.seq): fields for row, fields in touched.each("ContextBuilt", _Context)}
    rows = []
    for row, reply in touched.each("ModelReplied", _Reply):
        context_seq = event_number(reply.context)
        context = contexts.get((row.t, -1 if context_seq is None else context_seq))
        usage = reply.usage or _Usage()
        rows.append((row.t, {
            "sequence_number": row.seq,
            "turn": row.turn,
            "recorded_at": row.at,
            "attempt": reply.attempt,
            "status": reply.status,
            "purpose": context.purpose or "act" if context else None,
            "context_seq": context_seq,
            "context_hash": or_none(context.context_hash) if context else None,
            "context_kept": context.keep if context else None,
            "context_appended": len(context.append) if context else None,
            "format": or_none(reply.format),
            "served_model": or_none(reply.served_model),
            "endpoint": or_none(reply.endpoint),
            "cache_key": or_none(reply.cache_key),
            "response_id": or_none(reply.response_id),
            "stop_reason": reply.stop_reason,
            "calls": len(reply.calls),
            "input_tokens": usage.input_total,
            "cached_read_tokens": usage.cached_read,
            "cache_write_tokens": usage.cache_write,
            "output_tokens": usage.output,
            "reasoning_tokens": usage.reasoning,
            "duration_ms": reply.duration_ms,
            "cost": json_text(reply.cost or None),
            "cost_usd": _number(reply.cost.get("usd")),
            "error": or_none(reply.error),
            "item_hash": or_none(reply.item_hash),
            "raw_sha256": _blob(reply.raw),
            "token_ids_sha256": _blob(reply.token_ids),
            "logprobs_sha256": _blob(reply.logprobs),
            "system_no": reply.system_no,
            "given_up": row.given_up,
        }))  # fmt: skip
    return touched.frame("model_calls", rows)


def _blob(raw: msgspec.Raw) -> str | None:
    return blob_of(msgspec.json.decode(raw)) if bytes(raw)[:9] == b'{"$blob":' else None


def _number(text: str | None) -> float | None:
    with contextlib.suppress(ValueError):
        return None if text is None else float(text)
    return None
