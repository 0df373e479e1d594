"""`trajectories`: one row each, from its life events and the counts of the tables derived before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import polars as pl

from trajlake.pipelines.derived.canonicalize import CONFLICT, HELD_BACK, SUPERSEDED
from trajlake.pipelines.derived.touched import Fields, Row, Touched, json_text, or_none


class _Source(Fields):
    format: str = ""
    session: str = ""


class _Parent(Fields):
    tenant: str = ""
    trajectory_id: str = ""
    action_id: str = ""


class _Started(Fields):
    task: Any = None
    origin: str = "live"
    agent: str = ""
    model: str = "unknown"
    model_version: str = ""
    sampling: Any = None
    prompt_version: str = ""
    tool_schema_version: str = ""
    policy_version: str = ""
    workspace: str = "none"
    workspace_snapshot: str | None = None
    principal: str | None = None
    subjects: tuple[str, ...] = ()
    parent: _Parent | None = None
    source: _Source | None = None


class _Ended(Fields):
    status: str = ""
    result: Any = None
    reason: str = ""


class _Branched(Fields):
    parent_tenant: str = ""
    parent_trajectory_id: str = ""
    parent_sequence: int = 0
    parent_hash: str = ""
    at_turn: int = 0


class _Drift(Fields):
    choice: str = ""
    system_no: int = 0


def trajectories(touched: Touched, aside: pl.DataFrame, tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Return the rows of `trajectories`; `aside` are rows that do not count, `tables` what was derived before."""
    rows = {t: {"status": "open", "system_no": 0} for t in touched.places["t"].to_list()}
    for kind, row, body in touched.ordered(_FIELDS):
        _STEPS[kind](rows[row.t], row, body)
    for t, values in _counts(touched).items():
        rows[t].update(values)
        rows[t]["openings"] = msgspec.json.encode(touched.lines[t]).decode()
    for name, verdict in (("superseded", SUPERSEDED), ("held_back", HELD_BACK), ("conflicts", CONFLICT)):
        counted = dict(aside.filter(pl.col("verdict") == verdict).group_by("t").len().iter_rows()) if len(aside) else {}
        for t, values in rows.items():
            values[name] = counted.get(t, 0)
    _add_derived(touched, rows, tables)
    return touched.frame("trajectories", list(rows.items()))


def _counts(touched: Touched) -> dict[int, dict[str, Any]]:
    kind, kept = pl.col("event_type"), ~pl.col("given_up")
    found = touched.rows.group_by("t").agg(
        pl.col("at").first().alias("started_at"),
        pl.col("at").last().alias("last_event_at"),
        pl.col("sequence_number").last().alias("last_sequence"),
        pl.col("cryptographic_hash").last().alias("head_hash"),
        pl.col("fencing_token").last(),
        pl.len().alias("events"),
        pl.col("turn").filter(kept & (pl.col("turn") >= 0)).n_unique().alias("turns"),
        (kind == "Resumed").sum().alias("resumes"),
        (kind == "RolledBack").sum().alias("roll_backs"),
        pl.col("given_up").sum(),
    )
    return {row.pop("t"): row for row in found.iter_rows(named=True)}


def _add_derived(touched: Touched, rows: dict[int, dict[str, Any]], tables: Mapping[str, pl.DataFrame]) -> None:
    key = ["tenant", "trajectory_id"]
    calls = tables["model_calls"].group_by(key).agg(
        pl.len().alias("model_calls"),
        pl.when(pl.col("input_tokens").count() > 0).then(pl.col("input_tokens").sum()).alias("input_tokens"),
        pl.when(pl.col("output_tokens").count() > 0).then(pl.col("output_tokens").sum()).alias("output_tokens"),
        pl.col("system_no").max(),
    )  # fmt: skip
    actions = tables["tool_calls"].group_by(key).agg(
        pl.len().alias("tool_calls"), (pl.col("stage") == "in_doubt").sum().alias("in_doubt")
    )  # fmt: skip
    found = {row[:2]: row[2:] for row in calls.select(*key, *_CALLS).iter_rows()}
    acted = {row[:2]: row[2:] for row in actions.select(*key, "tool_calls", "in_doubt").iter_rows()}
    for t, *place in touched.places.select("t", *key).iter_rows():
        values = rows[t]
        count, inputs, outputs, system_no = found.get(tuple(place), (0, None, None, 0))
        values.update(model_calls=count, input_tokens=inputs, output_tokens=outputs)
        values["system_no"] = max(values["system_no"], system_no)
        values["tool_calls"], values["in_doubt"] = acted.get(tuple(place), (0, 0))


_CALLS = ("model_calls", "input_tokens", "output_tokens", "system_no")


def _started(values: dict[str, Any], _: Row, body: _Started) -> None:
    values.update(
        model_id=body.model or "unknown",
        model_version=or_none(body.model_version),
        kind=body.origin,
        agent=or_none(body.agent),
        task=json_text(body.task),
        principal=body.principal,
        subjects=json_text(body.subjects or None),
        source_format=or_none(body.source.format) if body.source else None,
        source_session=or_none(body.source.session) if body.source else None,
        parent_tenant=or_none(body.parent.tenant) if body.parent else None,
        parent_trajectory_id=or_none(body.parent.trajectory_id) if body.parent else None,
        parent_action_id=or_none(body.parent.action_id) if body.parent else None,
        policy_version=or_none(body.policy_version),
        prompt_version=or_none(body.prompt_version),
        tool_schema_version=or_none(body.tool_schema_version),
        sampling=json_text(body.sampling),
        workspace=body.workspace,
        workspace_snapshot=body.workspace_snapshot,
    )


def _ended(values: dict[str, Any], row: Row, body: _Ended) -> None:
    if "ended_at" in values:
        return
    values.update(
        status=body.status or "open", result=json_text(body.result), end_reason=or_none(body.reason), ended_at=row.at
    )


def _branched(values: dict[str, Any], _: Row, body: _Branched) -> None:
    values.update(
        branch_of_tenant=body.parent_tenant,
        branch_of_trajectory_id=body.parent_trajectory_id,
        branch_of_sequence=body.parent_sequence,
        branch_of_hash=body.parent_hash,
        branch_at_turn=body.at_turn,
    )


def _drifted(values: dict[str, Any], _: Row, body: _Drift) -> None:
    if body.choice == "switch":
        values["system_no"] = body.system_no or values["system_no"] + 1


_FIELDS: dict[str, type[Fields]] = {
    "TaskStarted": _Started,
    "TaskEnded": _Ended,
    "Branched": _Branched,
    "DriftDetected": _Drift,
}
_STEPS: dict[str, Any] = {
    "TaskStarted": _started,
    "TaskEnded": _ended,
    "Branched": _branched,
    "DriftDetected": _drifted,
}
