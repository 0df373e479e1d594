"""`tool_calls`: one row per action, by the rules of the state fold (`schemas/state/fold_action.py`).

The stage comes from `schemas.state.stages`, the one table of rules, asked without a clock: every deadline counts as
not passed, and somebody waits as long as the tenure that wrote the intent is open.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import msgspec
import polars as pl

from trajlake.pipelines.derived.touched import Fields, Row, Touched, blob_of, event_number, json_text, or_none
from trajlake.schemas.errors import InvalidId
from trajlake.schemas.ids import parse_action_id
from trajlake.schemas.state.stages import Facts, decide

_NOTHING: Final = msgspec.Raw(b"null")
_stage: Final = lru_cache(maxsize=256)(decide)
"""Eight yes-or-nos: a lake's millions of actions are few cases."""
Action = dict[str, Any]


class _Started(Fields):
    origin: str = "live"


class _Call(Fields):
    tool: str = ""
    provider_id: str = ""
    pointer: str = ""
    arguments: Any = None


class _Reply(Fields):
    status: str = "kept"
    raw: msgspec.Raw = _NOTHING
    calls: list[_Call] = msgspec.field(default_factory=list)
    system_no: int = 0


class _Authorized(Fields):
    action_id: str = ""
    tool: str = ""
    decision: str = ""
    arguments_hash: str = ""
    policy_version: str = ""
    step: str = ""
    approval: str = ""


class _Intent(Fields):
    action_id: str = ""
    tool: str = ""
    arguments_hash: str = ""
    key: str = ""
    effect: str = ""
    tool_version: str = ""
    step: str = ""
    provider_id: str = ""
    arguments: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    timeout_s: float | None = None
    deadline_at: int | None = None
    asynchronous: bool = False
    goal: Any = None
    approval: str = ""
    system_no: int = 0


class _Cut(Fields):
    total: int = 0


class _Result(Fields):
    action_id: str = ""
    tool: str = ""
    provider_id: str = ""
    status: str = ""
    output: msgspec.Raw = _NOTHING
    full_output: msgspec.Raw = _NOTHING
    cut: _Cut | None = None
    lossy: bool = False
    error: Any = None
    duration_ms: float | None = None
    cost: dict[str, str] = msgspec.field(default_factory=dict)


class _Settled(Fields):
    action_id: str = ""
    how: str = ""
    verdict: str = ""
    output: msgspec.Raw = _NOTHING
    delivered: str = ""


class _Late(Fields):
    action_id: str = ""
    provider_id: str = ""
    output: msgspec.Raw = _NOTHING


class _Released(Fields):
    pass


class _Resumed(Fields):
    accept_loss: bool = False


class _Actions:
    """The actions of one trajectory, built event by event. Keys that begin with `_` are not columns."""

    def __init__(self) -> None:
        self.actions: dict[str, Action] = {}
        self.live = True
        self.open_token: int | None = None
        self.loss_at = -1

    def of(self, row: Row, action_id: str, tool: str = "", provider_id: str = "") -> Action:
        action = self.actions.get(action_id)
        if action is None:
            action = self.actions[action_id] = {
                "action_id": action_id,
                "turn": row.turn,
                "proposed_seq": _proposed(action_id),
                "proposed_at": row.at if _proposed(action_id) == row.seq else None,
                "tool": or_none(tool),
                "provider_id": or_none(provider_id),
                "attempts": 0,
                "lossy": False,
                "system_no": 0,
                "given_up": row.behind,
            }
        return action


def tool_calls(touched: Touched) -> pl.DataFrame:
    """Return the rows of `tool_calls`."""
    found: dict[int, _Actions] = {}
    for kind, row, body in touched.ordered(_FIELDS):
        actions = found.get(row.t)
        if actions is None:
            actions = found[row.t] = _Actions()
        if getattr(body, "action_id", None) == "":
            continue  # erased, or no payload of its type: it names no action
        if row.given_up and _stands(actions, body):
            continue  # the fold leaves out what a roll-back gave up of an action that it keeps
        _STEPS[kind](actions, row, body)
    rows = [(t, _finished(actions, action)) for t, actions in found.items() for action in actions.actions.values()]
    return touched.frame("tool_calls", rows)


def _stands(actions: _Actions, body: Any) -> bool:
    action = actions.actions.get(getattr(body, "action_id", ""))
    return action is not None and not action["given_up"]


def _started(actions: _Actions, row: Row, body: _Started) -> None:
    actions.live = body.origin == "live"
    actions.open_token = row.token


def _acquired(actions: _Actions, row: Row, _: _Released) -> None:
    actions.open_token = row.token


def _closed(actions: _Actions, _: Row, __: _Released) -> None:
    actions.open_token = None


def _resumed(actions: _Actions, row: Row, body: _Resumed) -> None:
    if body.accept_loss:
        actions.loss_at = row.seq


def _replied(actions: _Actions, row: Row, body: _Reply) -> None:
    if body.status != "kept" or not body.calls:
        return
    raw: Any = msgspec.UNSET
    for index, call in enumerate(body.calls):
        action = actions.of(row, f"{row.seq}.{index}", call.tool, call.provider_id)
        action["system_no"] = body.system_no
        if call.arguments is not None:
            action["arguments"] = call.arguments if isinstance(call.arguments, str) else _inline(call.arguments)
        elif call.pointer:
            raw = _body(body.raw) if raw is msgspec.UNSET else raw
            action["arguments"] = _at(raw, call.pointer)


def _authorized(actions: _Actions, row: Row, body: _Authorized) -> None:
    action = actions.of(row, body.action_id, body.tool)
    action.update(authorized_seq=row.seq, decision=or_none(body.decision), policy_version=or_none(body.policy_version))
    for name, text in (("arguments_hash", body.arguments_hash), ("step", body.step), ("approval_id", body.approval)):
        if text:
            action[name] = text


def _intended(actions: _Actions, row: Row, body: _Intent) -> None:
    action = actions.of(row, body.action_id, body.tool, body.provider_id)
    deadline = body.deadline_at
    if deadline is None and body.timeout_s is not None and not body.asynchronous:
        deadline = row.at + round(body.timeout_s * 1_000_000)
    action.update(
        intent_seq=row.seq,
        intent_at=row.at,
        attempts=action["attempts"] + 1,
        tool=or_none(body.tool),
        tool_version=or_none(body.tool_version),
        effect=or_none(body.effect),
        arguments_hash=or_none(body.arguments_hash),
        deadline_at=deadline,
        goal_seq=event_number(body.goal),
        system_no=max(body.system_no, action["system_no"]),
        result_seq=None,
        result_at=None,
        status=None,
        _asynchronous=body.asynchronous,
        _token=row.token,
    )
    action.setdefault("idempotency_key", or_none(body.key))
    for name, text in (("step", body.step), ("approval_id", body.approval), ("provider_id", body.provider_id)):
        if text:
            action[name] = text
    if action.get("arguments") is None and isinstance(body.arguments, msgspec.Raw):
        tree = msgspec.json.decode(body.arguments)
        action["arguments"] = None if blob_of(tree) else bytes(body.arguments).decode()


def _resulted(actions: _Actions, row: Row, body: _Result) -> None:
    action = actions.of(row, body.action_id, body.tool, body.provider_id)
    if action.get("result_seq") is not None:
        action["late_seq"] = row.seq
        return
    _deliver(action, row, body.status, body.output)
    full = _tree(body.full_output)
    action.update(
        duration_ms=body.duration_ms,
        full_output_sha256=blob_of(full),
        cut_total=body.cut.total if body.cut else None,
        lossy=body.lossy,
        error=json_text(body.error),
        cost=json_text(body.cost or None),
    )
    if action["tool"] is None:
        action["tool"] = or_none(body.tool)


def _settled(actions: _Actions, row: Row, body: _Settled) -> None:
    action = actions.of(row, body.action_id)
    action.update(settled_seq=row.seq, settled_how=or_none(body.how), verdict=or_none(body.verdict))
    if action.get("result_seq") is None:
        _deliver(action, row, "ok" if body.verdict == "executed" else "not_executed", body.output)


def _late(actions: _Actions, row: Row, body: _Late) -> None:
    action = actions.actions.get(body.action_id)
    if action is None:
        return
    if action.get("intent_seq") is None or action.get("result_seq") is not None:
        action["late_seq"] = row.seq
    else:
        _deliver(action, row, "ok", body.output)


def _deliver(action: Action, row: Row, status: str, output: msgspec.Raw) -> None:
    tree = _tree(output) if len(bytes(output)) < _REFERENCE_MAX else None
    blob = blob_of(tree)
    size = tree.get("bytes") if blob is not None and isinstance(tree, dict) else len(bytes(output))
    action.update(result_seq=row.seq, result_at=row.at, status=or_none(status), output_bytes=size, output_sha256=blob)


_REFERENCE_MAX: Final = 4096
"""A blob reference is never longer (200 characters of head, escaped), so longer outputs need no decoding."""


def _finished(actions: _Actions, action: Action) -> Action:
    authorized = action.get("authorized_seq")
    action["stage"] = _stage(
        Facts(
            live=actions.live and action["proposed_seq"] is not None,
            authorized=authorized is not None and action.get("decision") == "allow",
            intent=action.get("intent_seq") is not None,
            outcome=action.get("result_seq") is not None,
            asynchronous=action.get("_asynchronous", False),
            deadline=True,
            waited=actions.open_token is not None and actions.open_token == action.get("_token"),
            loss=authorized is not None and authorized < actions.loss_at,
        )
    )
    return action


def _proposed(action_id: str) -> int | None:
    try:
        up, number, _ = parse_action_id(action_id)
    except InvalidId:
        return None
    return number if up == 0 else None


def _inline(tree: Any) -> str | None:
    return None if blob_of(tree) else json_text(tree)


def _tree(raw: msgspec.Raw) -> Any:
    return msgspec.json.decode(raw) if bytes(raw)[:1] == b"{" else None


def _body(raw: msgspec.Raw) -> Any:
    """Return the reply's body as a tree: verbatim text is parsed, a blob is out of reach (None)."""
    tree = msgspec.json.decode(raw)
    if isinstance(tree, str):
        try:
            return msgspec.json.decode(tree)
        except msgspec.DecodeError:
            return None
    return None if blob_of(tree) else tree


def _at(tree: Any, pointer: str) -> str | None:
    """Return the text at a JSON pointer (RFC 6901); another value as its JSON text; None where there is nothing."""
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(tree, dict) and step in tree:
            tree = tree[step]
        elif isinstance(tree, list) and step.isdecimal() and int(step) < len(tree):
            tree = tree[int(step)]
        else:
            return None
    return tree if isinstance(tree, str) else json_text(tree)


_FIELDS: Final[dict[str, type[Fields]]] = {
    "TaskStarted": _Started,
    "LeaseAcquired": _Released,
    "LeaseReleased": _Released,
    "TaskEnded": _Released,
    "Resumed": _Resumed,
    "ModelReplied": _Reply,
    "Authorized": _Authorized,
    "ToolIntent": _Intent,
    "ToolResult": _Result,
    "ToolSettled": _Settled,
    "LateResult": _Late,
}
_STEPS: Final[dict[str, Callable[[_Actions, Row, Any], None]]] = {
    "TaskStarted": _started,
    "LeaseAcquired": _acquired,
    "LeaseReleased": _closed,
    "TaskEnded": _closed,
    "Resumed": _resumed,
    "ModelReplied": _replied,
    "Authorized": _authorized,
    "ToolIntent": _intended,
    "ToolResult": _resulted,
    "ToolSettled": _settled,
    "LateResult": _late,
}
