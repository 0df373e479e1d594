"""`approvals`: one row per approval request, with its answer and its use."""

from __future__ import annotations

from typing import Any

import polars as pl

from trajlake.pipelines.derived.touched import Fields, Touched, or_none


class _Requested(Fields):
    approval_id: str = ""
    action_id: str = ""
    tool: str = ""
    arguments_hash: str = ""
    requester: str | None = None
    question: str = ""
    expires_at: int | None = None
    single_use: bool = True


class _Mail(Fields):
    posted_at: int = 0


class _Resolved(Fields):
    approval_id: str = ""
    action_id: str = ""
    decision: str = ""
    approver: str = ""
    approver_known_by: str = ""
    because: str = ""
    mail: _Mail | None = None


class _Intent(Fields):
    approval: str = ""
    action_id: str = ""


def approvals(touched: Touched) -> pl.DataFrame:
    """Return the rows of `approvals`."""
    found: dict[tuple[int, str], dict[str, Any]] = {}
    for row, asked in touched.each("ApprovalRequested", _Requested):
        found[row.t, asked.approval_id] = {
            "approval_id": asked.approval_id,
            "action_id": or_none(asked.action_id),
            "tool": or_none(asked.tool),
            "arguments_hash": or_none(asked.arguments_hash),
            "state": "waiting",
            "requested_seq": row.seq,
            "uses": 0,
            "requester": asked.requester,
            "question": or_none(asked.question),
            "requested_at": row.at,
            "expires_at": asked.expires_at,
            "single_use": asked.single_use,
            "given_up": row.given_up,
        }
    for row, answer in touched.each("ApprovalResolved", _Resolved):
        blank = {
            "approval_id": answer.approval_id,
            "action_id": or_none(answer.action_id),
            "uses": 0,
            "given_up": False,
        }
        approval = found.setdefault((row.t, answer.approval_id), blank)
        if "resolved_seq" in approval:
            continue  # the first answer stands, as in the fold
        approval.update(
            state=answer.decision,
            resolved_seq=row.seq,
            approver=or_none(answer.approver),
            approver_known_by=or_none(answer.approver_known_by),
            because=or_none(answer.because),
            resolved_at=row.at,
            posted_at=answer.mail.posted_at if answer.mail else None,
        )
    users: dict[tuple[int, str], set[str]] = {}
    for row, intent in touched.each("ToolIntent", _Intent):
        used = found.get((row.t, intent.approval)) if intent.approval else None
        if used is not None:
            used.setdefault("used_seq", row.seq)
            users.setdefault((row.t, intent.approval), set()).add(intent.action_id)
    for key, actions in users.items():
        found[key]["uses"] = len(actions)
    return touched.frame("approvals", [(t, values) for (t, _), values in found.items()])
