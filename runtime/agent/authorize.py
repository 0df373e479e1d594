"""May this call be made? Constraints, budget, policy, approval, precheck; each answer is an `Authorized` event."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from trajlake.schemas import values
from trajlake.schemas.canonical_json import canonical, exact_canonical
from trajlake.schemas.events import Authorized, ConstraintAccepted
from trajlake.schemas.keys import hash_of_canonical, idempotency_key_of, same_as_key

from ..tools import Allow, Ask, Call, Deny, Refuse, Tool
from .actions import Action
from .decide import approval_state, repeat_of
from .errors import AgentError
from .requests import Done, Steps
from .session import Session


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A call that is wanted: its tool, the values to pass, their tree and hash. `action_id` "" until authorized;
    `canonical` the RFC 8785 text of the tree, where it was made already.
    """

    tool: Tool
    values: Mapping[str, Any]
    tree: Any
    hash: str
    canonical: bytes = b""
    action_id: str = ""
    step: str = ""
    provider_id: str = ""
    reply: int | None = None
    text: str | None = None

    @property
    def step_name(self) -> str:
        return self.step or self.tool.name


_ALLOWED: Final = Allow()

Kind = Literal["go", "refuse", "ask", "replay"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is done with a wanted call. `approval` the granted one; `repeats` the earlier action of the same key."""

    kind: Kind
    key: str = ""
    text: str = ""
    approval: str = ""
    expires_s: float | None = None
    repeats: str = ""
    same_as: Any = None


_DECISIONS: Final[Mapping[Kind, Any]] = {"go": "allow", "replay": "allow", "refuse": "deny", "ask": "ask"}
_GO: Final = Verdict(kind="go")


def want(tool: Tool, bound: Mapping[str, Any], **more: Any) -> Wanted:
    """Return a wanted call. Raises `InvalidValue` for arguments that cannot be recorded: refused before the effect."""
    tree = values.to_tree(dict(bound))
    text = canonical(tree)
    return Wanted(tool=tool, values=bound, tree=tree, hash=hash_of_canonical(text), canonical=text, **more)


def call_of(s: Session, wanted: Wanted, *, key: str, attempt: int = 1, deadline: float | None = None) -> Call:
    """Return the call as bodies, probes, policies and gateways see it."""
    return Call(
        tool=wanted.tool.name, key=key, token=s.token, attempt=attempt, tenant=s.tenant,
        trajectory_id=s.trajectory_id, action_id=wanted.action_id, arguments=wanted.values,
        arguments_hash=wanted.hash, deadline=deadline,
    )  # fmt: skip


def authorize(s: Session, wanted: Wanted) -> Steps:
    """Decide, record the `Authorized`, and return (wanted with its action id, `Verdict`)."""
    if not wanted.action_id:
        wanted = replace(wanted, action_id=f"{s.next_seq}.0")
    key, identity = key_of(s, wanted)
    verdict = decide(s, wanted, key)
    if verdict.kind == "go" and wanted.tool.options.precheck is not None:
        verdict = yield from _precheck(s, wanted, call_of(s, wanted, key=key), verdict)
    verdict = replace(verdict, key=key, same_as=identity)
    payload = Authorized(
        action_id=wanted.action_id,
        tool=wanted.tool.name,
        decision=_DECISIONS[verdict.kind],
        arguments_hash=wanted.hash,
        policy_version=policy_version(s.setup.policy),
        reason=values.plain_text(verdict.text) if verdict.text else "",
        budget_left=s.view.budget.frozen().left if s.view.budget.limits else {},
        approval=verdict.approval,
    )
    yield from s.record(payload)
    return wanted, verdict


def key_of(s: Session, wanted: Wanted) -> tuple[str, Any]:
    """Return the idempotency key of a call and the business identity it declares, if any."""
    same_as = wanted.tool.options.same_as
    if same_as is not None:
        identity = values.to_tree(_identity(s, wanted, same_as))
        return same_as_key(s.tenant, s.trajectory_id, wanted.tool.name, identity), identity
    n = s.view.actions.occurrence(wanted.action_id, wanted.step_name, wanted.hash)
    arguments = wanted.canonical or exact_canonical(wanted.tree)
    return idempotency_key_of(s.tenant, s.trajectory_id, wanted.step_name, n, arguments), None


def _identity(s: Session, wanted: Wanted, same_as: Any) -> Any:
    """The business identity of a call: the arguments that `same_as` names, or what it answers for the call."""
    if callable(same_as):
        return same_as(call_of(s, wanted, key=""))
    names = (same_as,) if isinstance(same_as, str) else same_as
    return {name: wanted.values[name] for name in names}


def policy_version(policy: Any) -> str:
    """Return the version that a policy declares, "" for none."""
    return str(getattr(policy, "version", "")) if policy is not None else ""


def decide(s: Session, wanted: Wanted, key: str) -> Verdict:
    """Constraints, budget, policy, repeats and approvals, in this order; nothing is recorded."""
    forbidden = _forbidden(s.view.constraints, wanted) if s.view.constraints else None
    if forbidden is not None and forbidden.predicate is not None and forbidden.predicate.verdict == "deny":
        return Verdict(kind="refuse", text=f"constraint {forbidden.constraint_id}: {forbidden.text}")
    short = None
    if s.view.budget.limits:
        short = s.view.budget.frozen().allows({"tool_calls": "1", **reserved(wanted.tool)})
    if short is not None:
        return Verdict(kind="refuse", text=f"budget: no {short} left")
    policy = s.setup.policy
    answer = policy(call_of(s, wanted, key=key), s.view.state) if policy is not None else _ALLOWED
    if isinstance(answer, Deny):
        return Verdict(kind="refuse", text=answer.text)
    if not isinstance(answer, (Allow, Ask)):
        raise AgentError(f"policy {policy_version(policy)}: answered {answer!r}, not Allow, Deny or Ask")
    repeat, earlier = _repeat(s, wanted, key)
    if repeat == "replay":
        return Verdict(kind="replay", repeats=earlier)
    approve = wanted.tool.options.approve
    asked = isinstance(answer, Ask) or repeat == "ask" or forbidden is not None
    if not asked and not (approve is True or (callable(approve) and approve(call_of(s, wanted, key=key)))):
        return _GO
    return _approved(s, wanted, answer, earlier if repeat == "ask" else "")


def _approved(s: Session, wanted: Wanted, answer: Allow | Ask, repeats: str) -> Verdict:
    action = s.view.actions.by_id.get(wanted.action_id)
    approval = action.approval if action is not None else None
    state = approval_state(approval, wanted.hash, s.ports.env.now_us())
    if state == "granted":
        assert approval is not None
        return Verdict(kind="go", approval=approval.approval_id)
    if state == "denied":
        assert approval is not None
        return Verdict(kind="refuse", text=f"a person denied it: {approval.because}" if approval.because else "denied")
    pending = approval.approval_id if state == "pending" and approval is not None else ""
    expires_s = answer.expires_s if isinstance(answer, Ask) else None
    text = answer.text if isinstance(answer, Ask) else ""
    return Verdict(kind="ask", approval=pending, expires_s=expires_s, repeats=repeats, text=text)


def _repeat(s: Session, wanted: Wanted, key: str) -> tuple[Literal["new", "replay", "ask"], str]:
    owner = s.view.actions.key_owner.get(key, wanted.action_id)
    earlier: Action | None = s.view.actions.by_id.get(owner) if owner != wanted.action_id else None
    if earlier is None:
        return "new", ""
    return repeat_of(earlier.hash, wanted.hash, executed=earlier.executed), earlier.action_id


def _precheck(s: Session, wanted: Wanted, call: Call, verdict: Verdict) -> Steps:
    check = wanted.tool.options.precheck
    assert check is not None
    done: Done = yield from s.run_body(lambda: check(call), wanted.tool.options.timeout_s, of=check)
    if done.error is not None:
        raise done.error
    if isinstance(done.value, Refuse):
        return Verdict(kind="refuse", text=done.value.why)
    return verdict


def _forbidden(constraints: Mapping[str, ConstraintAccepted], wanted: Wanted) -> ConstraintAccepted | None:
    """The constraint in force whose predicate matches; one that denies before one that asks."""
    matching = [
        constraint
        for constraint in constraints.values()
        if constraint.predicate is not None
        and fnmatchcase(wanted.tool.name, constraint.predicate.tool)
        and all(
            fnmatchcase(_at_path(wanted.tree, path), pattern)
            for path, pattern in constraint.predicate.arguments.items()
        )
    ]
    return min(matching, key=lambda one: one.predicate is not None and one.predicate.verdict != "deny", default=None)


def _at_path(tree: Any, path: str) -> str:
    for part in path.split("."):
        if isinstance(tree, Mapping) and part in tree:
            tree = tree[part]
        elif isinstance(tree, list) and part.isdigit() and int(part) < len(tree):
            tree = tree[int(part)]
        else:
            return ""
    return tree if isinstance(tree, str) else str(tree).lower() if isinstance(tree, bool) else str(tree)


def reserved(tool: Tool) -> dict[str, str]:
    """What a call of this tool may cost at most: its `cost` function's declared `maximum`, else nothing."""
    maximum = getattr(tool.options.cost, "maximum", None)
    return {unit: str(amount) for unit, amount in maximum.items()} if maximum else {}
